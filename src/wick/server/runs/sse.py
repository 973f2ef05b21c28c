"""Server-sent events as a plain ASGI response: it writes what there is in one go, and ends when the client goes."""

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
    "x-accel-buffering": "no",  # a proxy that waits for more would hold up every event
}
PORTION_BYTES = 65_536
HEARTBEAT = b": \n\n"  # a comment: it shows that the connection stands

Frames = AsyncIterator[Sequence[Frame]]


class EventStream(Response):
    """A stream of frames, until there are no more or nobody reads them. An empty batch is a sign of life."""

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
                for text in _batch_frames(batch):
                    await send({"type": "http.response.body", "body": text, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _batch_frames(batch: Sequence[Frame]) -> Iterator[bytes]:
    """What is sent at once: some frames in one go, and no more than some, for it is held until it is read."""
    texts, size = list[bytes](), 0
    for frame in batch:
        texts.append(frame.text)
        size += len(frame.text)
        if size >= PORTION_BYTES:
            yield b"".join(texts)
            texts, size = [], 0
    if texts or not batch:
        yield b"".join(texts) or HEARTBEAT


async def _run_until_disconnect(work: Any, receive: Receive) -> None:
    """Do it in this task, for as long as the client is there."""
    this = asyncio.current_task()
    assert this is not None
    cancels, gone = this.cancelling(), asyncio.create_task(_wait_disconnect(receive), name="a client that may go")

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


async def _wait_disconnect(receive: Receive) -> None:
    with suppress(HTTPException):  # a body that is too large or does not come: this is no client to write to
        while (await receive())["type"] != "http.disconnect":
            pass
