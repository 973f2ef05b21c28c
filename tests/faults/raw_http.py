"""Raw HTTP requests as bytes over keep-alive connections, including invalid ones.

async with Line(url) as line:
    answer = await line.ask(request("GET", "/health", ("Host", "localhost")))
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import urlsplit

HEAD_BYTES = 1_000_000  # of an answer
GLANCE_SECONDS = 0.2  # at a stream, which may never end
GLANCE_BYTES = 4_096
UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"))

Header = tuple[str, str | bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; status 0 if the server closed the connection."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def request(method: str, path: str, *headers: Header, body: bytes | None = None) -> bytes:
    """A request as bytes, with exactly these headers; `WS` as a method is a WebSocket."""
    given = [*headers]
    if method == "WS":
        method = "GET"
        given += [*UPGRADE, ("Sec-WebSocket-Key", b64encode(os.urandom(16)))]
    if body is not None:
        given.append(("Content-Length", str(len(body))))
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1", "replace"), *(_line(*header) for header in given)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def _line(name: str, value: str | bytes) -> bytes:
    return name.encode("latin-1") + b": " + (value if isinstance(value, bytes) else value.encode("latin-1", "replace"))


class Line:
    """A connection to a server, opened again when it was closed."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self.host, self.port = str(where.hostname), int(where.port or 80)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The two ends of the connection, which is opened if it is not."""
        if self._streams is None or self._streams[0].at_eof() or self._streams[1].is_closing():
            self.close()
            self._streams = await asyncio.open_connection(self.host, self.port, limit=HEAD_BYTES)
        return self._streams

    async def ask(self, raw: bytes, seconds: float = 60.0, *, last: bool = False) -> Answer:
        """Send bytes and read one response; TimeoutError if there is none. `last`: no request follows."""
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(raw, last)
        except TimeoutError:
            self.close()
            raise
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return Answer(0)

    async def talk(self, raw: bytes, said: bytes, seconds: float = 60.0) -> int:
        """Open a WebSocket, send bytes and wait until the server closes it; return the status of the handshake.

        What ends in the middle of a frame, or is right after all, has to be waited for; after a second no more comes.
        """
        answer = await self.ask(raw, seconds)
        try:
            if answer.status == 101:
                reader, writer = await self.open()
                async with asyncio.timeout(seconds):
                    writer.write(said)
                    ending = asyncio.get_running_loop().call_later(1.0, writer.write_eof)
                    try:
                        while await reader.read(65_536):
                            pass
                    finally:
                        ending.cancel()
        except ConnectionError:
            pass
        finally:
            self.close()
        return answer.status

    async def _ask(self, raw: bytes, last: bool) -> Answer:
        reader, writer = await self.open()
        writer.write(raw)
        if last and writer.can_write_eof():
            writer.write_eof()
        status, headers = await _head(reader)
        while status == 100:
            status, headers = await _head(reader)
        body = b"" if raw.startswith(b"HEAD ") else await self._body(reader, status, headers)
        if last or headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, headers, body)

    async def _body(self, reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> bytes:
        if status == 101 or headers.get("content-type", "").startswith("text/event-stream"):
            return b"" if status == 101 else await self._glance(reader)
        if "content-length" in headers:
            return await reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await _chunks(reader)
        return b""

    async def _glance(self, reader: asyncio.StreamReader) -> bytes:
        """The beginning of a stream, which is then left."""
        found = b""
        try:
            async with asyncio.timeout(GLANCE_SECONDS):
                while len(found) < GLANCE_BYTES and (piece := await reader.read(GLANCE_BYTES)):
                    found += piece
        except TimeoutError:
            pass
        self.close()
        return found


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while size := int(await reader.readline(), 16):
        found += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readline()
    return found


async def ask_all(url: str, requests: Sequence[bytes], *, lines: int = 4, seconds: float = 60.0) -> list[Answer]:
    """The answers to many requests, in their order, over some connections at once; -1 where there was none in time."""
    answers = [Answer(-1)] * len(requests)
    waiting = iter(enumerate(requests))

    async def work() -> None:
        async with Line(url) as line:
            for number, raw in waiting:
                with suppress(TimeoutError):
                    answers[number] = await line.ask(raw, seconds)
                    if answers[number].status == 0:  # an idle connection may end just when it is used
                        answers[number] = await line.ask(raw, seconds)
                if answers[number].status == 101:
                    line.close()

    await asyncio.gather(*(work() for _ in range(lines)))
    return answers
