"""Connections cannot be held for free: heads and bodies that are too long, too slow, or never arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from server_process import TOKENS, InProcessServer, host_server, open_client

SECONDS = 60.0  # in which each of them is over; it shows that nothing hangs
START = b"POST /auth/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InProcessServer]:
    monkeypatch.setattr("wick.server.uvicorn_protocol.HEAD_SECONDS", 1.0)
    monkeypatch.setattr("wick.server.http.middleware.BODY_SECONDS", 1.0)
    async with host_server(tmp_path, agents={"default": {"model": "demo"}}) as found:
        yield found


async def exchange_bytes(server: InProcessServer, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Return all bytes that a server sends until it closes the connection."""
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    answer = asyncio.create_task(_read_to_end(reader))
    try:
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionError):
                for piece in pieces:
                    if answer.done():
                        break
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause)
            return await answer
    finally:
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Writing to a closed connection resets it: earlier data was sent all the same."""
    said = b""
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            said += piece
    return said


async def test_responses_have_the_current_date(server: InProcessServer) -> None:
    async with open_client(server) as client:
        for _ in range(2):
            begun = int(time.time())
            async with client.get("/health") as answer:
                date = parsedate_to_datetime(answer.headers["Date"]).timestamp()
            assert begun <= date <= time.time()
            await asyncio.sleep(1.1)  # until the next second


async def test_a_silent_connection_is_closed(server: InProcessServer) -> None:
    assert await exchange_bytes(server) == b""


async def test_a_head_that_drips_is_not_waited_for(server: InProcessServer) -> None:
    drops = [f"X-{number}: x\r\n".encode() for number in range(1_000)]
    assert await exchange_bytes(server, START, *drops, pause=0.05) == b""


@pytest.mark.parametrize("endless", [b"X: " + b"x" * 50_000, b"X: x\r\n" * 8_000], ids=["a header", "headers"])
async def test_an_endless_head_is_not_buffered(server: InProcessServer, endless: bytes) -> None:
    answer = await exchange_bytes(server, START, *[endless] * 100)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


async def test_an_endless_path_is_not_buffered(server: InProcessServer) -> None:
    answer = await exchange_bytes(server, b"GET /", *[b"a" * 50_000] * 100)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


async def test_a_body_that_drips_is_not_waited_for(server: InProcessServer) -> None:
    answer = await exchange_bytes(server, START + b"Content-Length: 1000\r\n\r\n", *[b" "] * 1_000, pause=0.05)
    assert answer.startswith(b"HTTP/1.1 408 ") and b'"too_slow"' in answer


async def test_a_refused_request_does_not_wait_for_its_body(server: InProcessServer) -> None:
    head = b"POST /agents/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    answer = await exchange_bytes(server, head, *[b" "] * 500, pause=0.05)
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_body_at_a_fair_pace_is_accepted(server: InProcessServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.server.http.middleware.BODY_SECONDS", SECONDS)
    body = b'{"token": "%s"}' % TOKENS["ada"].encode()
    head = START + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = await exchange_bytes(server, head, body[:10], body[10:], pause=0.1)
    assert answer.startswith(b"HTTP/1.1 200 ") and b'"ada"' in answer


async def test_trailers_are_ignored(server: InProcessServer) -> None:
    """Trailers would arrive after the checks of headers."""
    trailers = b"0\r\nAuthorization: Bearer %s\r\n\r\n" % TOKENS["root"].encode()
    head = b"GET /auth/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await exchange_bytes(server, head + trailers)).startswith(b"HTTP/1.1 401 ")
    endless = b"0\r\nX: " + b"x" * 50_000
    answer = await exchange_bytes(server, head.replace(b"close", b"keep-alive") + endless, *[b"x" * 50_000] * 100)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 401 ")


async def test_a_connection_is_used_again(server: InProcessServer) -> None:
    """Small heads on one connection are not added up, and a stream outlasts the time for a head."""
    async with open_client(server) as ada:
        for _ in range(100):
            async with ada.get("/auth/me", headers={"X-Long": "x" * 4_000}) as answer:
                assert answer.status == 200
        async with ada.get("/agents/events") as stream:
            await stream.content.readline()  # a keep-alive: later events are not missed
            await asyncio.sleep(1.5)
            async with ada.post("/agents/", json={"agent_id": "new", "model": "demo"}) as made:
                assert made.status == 201
            async with asyncio.timeout(SECONDS):
                seen = b""
                while b"agent_created" not in seen:
                    seen += await stream.content.readany()


async def test_a_stream_whose_request_body_never_arrives_ends(server: InProcessServer) -> None:
    head = b"GET /agents/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nAuthorization: Bearer %s\r\n\r\n"
    answer = await exchange_bytes(server, head % TOKENS["ada"].encode())
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("head", [b"X: " + b"x" * 9_000 + b"\r\n", b"X: x\r\n" * 200], ids=["a line", "lines"])
async def test_a_web_socket_with_a_head_that_is_too_long_is_refused(server: InProcessServer, head: bytes) -> None:
    start = b"GET /agents/default/terminal HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    answer = await exchange_bytes(server, start + head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_web_socket_that_is_refused_is_no_error_of_the_server(
    server: InProcessServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_client(server, "") as nobody:
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await nobody.ws_connect("/agents/default/terminal")
    assert "without completing handshake" not in caplog.text


HEADS = {
    "one header": lambda size: [b"X-Long: " + b"a" * size],
    "many headers": lambda size: [b"X-%d: %s" % (number, b"a" * 1_000) for number in range(size // 1_000 + 1)],
    "names": lambda size: [b"X" * 2_000 + b"%d: a" % number for number in range(size // 2_000 + 1)],
}


@pytest.mark.parametrize("size", [66_000, 100_000, 160_000, 250_000])
@pytest.mark.parametrize("kind", HEADS)
async def test_a_large_head_in_one_packet_is_refused(server: InProcessServer, kind: str, size: int) -> None:
    head = b"\r\n".join([b"GET /health HTTP/1.1", b"Host: localhost", *HEADS[kind](size), b"", b""])
    said = await exchange_bytes(server, head + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert said.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400")) and b"200 OK" not in said


async def test_a_valid_head_with_a_body_is_accepted(server: InProcessServer) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: " + b"a" * 50_000
    said = await exchange_bytes(server, head + b"\r\nContent-Length: 40000\r\n\r\n" + b"x" * 40_000)
    assert said.startswith(b"HTTP/1.1 200")
