"""Connections: they are reused where possible, and a closed one is not an error."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from wick import constants, user
from wick.errors import ModelError
from wick.models import _http
from wick.models.openai import OpenAI
from wick.protocols import Delta, Finish, Request, TextDelta

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nKeep-Alive: max=100\r\nContent-Length: %d\r\n\r\n"
BODY = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Server:
    """Answers every question the same way; how many it got on each connection is counted."""

    def __init__(self, *, answers: int, keeps: int, last: bytes = b"", reset: bool = False) -> None:
        self.answers, self.keeps, self.last, self.reset = answers, keeps, last, reset
        self.connections: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.connections)
        self.connections.append(0)
        try:
            while self.connections[number] < self.keeps:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                self.connections[number] += 1
                if sum(self.connections) > self.answers:
                    await self.give_up(writer)
                    break
                writer.write(HEAD % len(BODY) + BODY)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def give_up(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.last)
        if self.reset:
            await asyncio.sleep(0.05)  # written data is read before the reset
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[OpenAI]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield OpenAI("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", name="here")
        finally:
            await _http.close()
            server.close()


async def ask(model: OpenAI) -> list[Delta]:
    return [delta async for delta in model.stream(Request((user("hello"),)))]


async def test_a_connection_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "LAST_BYTE_SECONDS", 30.0)
    server = Server(answers=9, keeps=9)
    async with server.running() as model:
        for _ in range(5):
            assert await ask(model) == [TextDelta("hi"), Finish("stop")]
    assert server.connections == [5]


async def test_a_server_may_close_a_keep_alive_connection() -> None:
    server = Server(answers=9, keeps=1)
    async with server.running() as model:
        for _ in range(5):
            assert await ask(model) == [TextDelta("hi"), Finish("stop")]
    assert server.connections == [1, 1, 1, 1, 1]


async def test_a_server_that_closes_a_new_connection_is_asked_once() -> None:
    server = Server(answers=0, keeps=9)
    async with server.running() as model:
        with pytest.raises(ModelError, match="the connection to here broke off") as error:
            await ask(model)
    assert error.value.retryable
    assert server.connections == [1]


@pytest.mark.parametrize("reset", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize("length", [1, 8, 12, 17, 40, 90])
async def test_a_started_response_is_not_retried(length: int, reset: bool) -> None:
    server = Server(answers=1, keeps=9, last=(HEAD % len(BODY))[:length], reset=reset)
    async with server.running() as model:
        assert await ask(model) == [TextDelta("hi"), Finish("stop")]
        with pytest.raises(ModelError, match="the connection to here broke off") as error:
            await ask(model)
    assert error.value.retryable
    assert server.connections == [2]
