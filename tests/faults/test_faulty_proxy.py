"""The faulty proxy: a client sees each kind of fault at the configured byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from faults.faulty_proxy import KINDS, Proxy, Trouble

ANSWER = bytes(range(200)) * 5


@asynccontextmanager
async def answering() -> AsyncIterator[int]:
    """A server that answers each line with ANSWER."""

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(come, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def heard(port: int, stalls: Callable[[], object] = lambda: False) -> tuple[bytes, str]:
    """Return the bytes that a client receives and how the response ended: "silence" if it `stalls`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got, ended, silence = b"", "whole", 0
    try:
        writer.write(b"hello\n")
        async with asyncio.timeout(60):
            while len(got) < len(ANSWER) and ended == "whole":
                try:
                    async with asyncio.timeout(0.4):
                        data = await reader.read(1000)
                except TimeoutError:
                    silence += bool(stalls())
                    ended = "silence" if silence > 2 else "whole"
                    continue
                got, silence = got + data, 0
                ended = ended if data else "end"
    except ConnectionResetError:
        ended = "reset"
    finally:
        writer.close()
    return got, ended


@pytest.mark.parametrize("after", [0, 1, 500, 999])
@pytest.mark.parametrize("kind", KINDS)
async def test_faults_occur_at_the_configured_byte(kind: str, after: int) -> None:
    trouble = Trouble(kind, after, seconds=0.01, size=100)  # type: ignore[arg-type]
    async with answering() as port, Proxy(port, trouble) as proxy:
        got, ended = await heard(proxy.port, lambda: kind == "stall" and proxy.struck)
        assert proxy.struck == (kind != "fine")
        again, _ = await heard(proxy.port)
    assert again == ANSWER  # a fault occurs once
    expected = {"cut": "end", "half-close": "end", "reset": "reset", "stall": "silence"}.get(kind, "whole")
    assert ended == expected
    if kind == "corrupt":
        assert got == ANSWER[:after] + b"\xff" + ANSWER[after + 1 :]
    elif kind == "reset":
        assert ANSWER[:after].startswith(got)  # a reset may overtake sent data
    else:
        assert got == (ANSWER if expected == "whole" else ANSWER[:after])


async def test_nothing_is_left_when_the_proxy_ends() -> None:
    async with answering() as port:
        async with Proxy(port, Trouble("stall"), times=3) as proxy:
            await asyncio.gather(*(heard(proxy.port, lambda: proxy.struck == 3) for _ in range(3)))
        assert proxy.open == 0 and proxy.accepted == 3
