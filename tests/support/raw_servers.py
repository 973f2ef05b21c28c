"""Servers that answer every request with the same bytes, and the bytes of a short reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from wick import user
from wick.models import _http
from wick.models.openai import OpenAI
from wick.protocols import Finish, Request, TextDelta

SAID = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HI = [TextDelta("hi"), Finish("stop")]
OK = b"HTTP/1.1 200 OK\r\n"
STREAM = OK + b"content-type: text/event-stream\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def sized_response(body: bytes) -> bytes:
    return b"content-length: %d\r\n\r\n%s" % (len(body), body)


def chunked_response(body: bytes, size: int = 7) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head and the body of the next request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return head, await reader.readexactly(int(length))


def fixed_response(answer: bytes, heads: list[bytes] | None = None, *, closes: bool = False) -> Serve:
    """Return a server that sends the same answer to every request, and records the heads of requests."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, _ = await read_request(reader)
                heads.append(head) if heads is not None else None
                writer.write(answer)
                await writer.drain()
                if closes or b"connection: close" in head.lower():
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve


@asynccontextmanager
async def run_raw_server(serve: Serve, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[int]:
    """Run a server and yield its port; at the end, close the client's connections, too."""
    server = await asyncio.start_server(serve, host, 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await _http.close()
        server.close()


async def request_deltas(where: int | str, **options: Any) -> list[Any]:
    """Return the deltas of a short request to a port of this machine, or to a URL."""
    url = where if isinstance(where, str) else f"http://127.0.0.1:{where}/v1"
    model = OpenAI("m", base_url=url, name="here", **options)
    return [delta async for delta in model.stream(Request((user("hello"),)))]
