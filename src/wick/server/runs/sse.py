"""Server-sent events as a plain ASGI response, which batches frames and stops when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wick.server.runs.frames import Frame

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a buffering proxy would delay events
}
PORTION_BYTES = 65_536
HEARTBEAT = b": \n\n"  # a comment, which keeps the connection alive

Frames = AsyncIterator[Sequence[Frame]]


class EventStream(Response):
    """A response that streams frames until they end or the client disconnects. An empty batch is a heartbeat."""

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: Callable[[], Any],
        headers: Mapping[str, str] | None = None,
        holding: AbstractContextManager[object] | None = None,
    ) -> None:
        self.status_code, self.background = 200, None
        self._frames, self._holding = frames, holding or nullcontext()
        self.init_headers({**HEADERS, **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._holding:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _run_until_disconnect(self._write(send), receive)

    async def _write(self, send: Send) -> None:
        async with aclosing(self._frames()) as batches:
            async for batch in batches:
                texts = [frame.text for frame in batch]
                # a message stays in memory until the client has read it
                for body in _join_portions(texts) if texts else (HEARTBEAT,):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _join_portions(texts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the joined texts, in portions of about `PORTION_BYTES`."""
    if sum(map(len, texts)) <= PORTION_BYTES:
        yield b"".join(texts)
        return
    portion, size = list[bytes](), 0
    for text in texts:
        portion.append(text)
        size += len(text)
        if size >= PORTION_BYTES:
            yield b"".join(portion)
            portion, size = [], 0
    if portion:
        yield b"".join(portion)


async def _run_until_disconnect(work: Any, receive: Receive) -> None:
    """Await work in this task; cancel it when the client disconnects."""
    this = asyncio.current_task()
    assert this is not None

    async def wait_disconnect() -> None:
        with suppress(HTTPException):  # the request body is too large or too slow: treat it as a disconnect
            while (await receive())["type"] != "http.disconnect":
                pass

    cancels, gone = this.cancelling(), asyncio.create_task(wait_disconnect(), name="client disconnect")

    def stop(_: object) -> None:
        if not gone.cancelled():
            this.cancel()

    gone.add_done_callback(stop)
    try:
        await work
    except asyncio.CancelledError:
        if not gone.done() or this.uncancel() > cancels:
            raise
    finally:
        gone.remove_done_callback(stop)
        gone.cancel()
