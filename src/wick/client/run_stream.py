"""The event stream of a run, which reconnects and resumes after connection failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from wick._internal.tasks import closing_stream
from wick.client.connection import SILENCE_SECONDS, ServerConnection
from wick.client.errors import ServerError
from wick.client.sse import SseFrame, SseParser, parse_event
from wick.events import ApprovalRequest, Event

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between reconnects
CHUNK_BYTES = 65_536
NOTHING_LEFT = 204


@dataclass(slots=True)
class RunStream:
    """The events of a run to its end. Logged events are yielded exactly once, also after reconnects.

    `run_id` and `thread_id` are set once the first event is read. If a run ends before it reads a queued message, the
    stream continues with the next run. Breaking out of the loop does not stop the run.
    """

    connection: ServerConnection
    path: str = ""  # of the request that starts a run
    body: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = ""
    thread_id: str = ""
    last_id: str = ""  # of the last logged event; another process may resume after it
    patience: float = 60.0  # seconds to retry while the server is unreachable
    key: str = field(default_factory=lambda: uuid4().hex)  # idempotency key: retries do not start a second run
    on_break: Callable[[ServerError], None] | None = None  # called before each retry

    _is_complete: bool = field(default=False, init=False)  # the server has no more events

    async def __aiter__(self) -> AsyncIterator[Event]:
        pause, since = FIRST_PAUSE, monotonic()
        while True:
            try:
                async with closing_stream(self._read_frames()) as frames:
                    async for frame in frames:
                        pause, since = FIRST_PAUSE, monotonic()
                        if (event := self._accept_frame(frame)) is not None:
                            yield event
                            if event.terminal:
                                return
                if self._is_complete:
                    return
                error = ServerError(f"the stream of run {self.run_id or '?'} ended before the run", "broken")
            except ServerError as failure:
                if not failure.passing:
                    raise
                error = failure
            if monotonic() - since > self.patience:
                raise error
            if self.on_break is not None:
                self.on_break(error)
            await asyncio.sleep(max(pause, error.retry_after or 0.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _read_frames(self) -> AsyncIterator[SseFrame]:
        """Connect, and yield the frames of this connection."""
        frames, headers = SseParser(), {"Accept": "text/event-stream"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        if self.run_id:
            opening = self.connection.open_response(
                "GET", f"/runs/{quote(self.run_id, safe='')}/events", headers=headers, silence=SILENCE_SECONDS
            )
        else:
            headers["Idempotency-Key"] = self.key
            opening = self.connection.open_response(
                "POST", self.path, json=self.body, headers=headers, silence=SILENCE_SECONDS
            )
        async with opening as response:
            self._is_complete = response.status == NOTHING_LEFT
            self.run_id = response.headers.get("X-Run-Id", self.run_id)
            self.thread_id = response.headers.get("X-Thread-Id", self.thread_id)
            async for chunk in response.content.iter_any():
                for frame in frames.feed(chunk):
                    yield frame

    def _accept_frame(self, frame: SseFrame) -> Event | None:
        """Return the event of a frame, or None if it is unknown or was yielded before."""
        if frame.id:
            if self.last_id and _parse_position(frame.id) <= _parse_position(self.last_id):
                return None
            self.last_id = frame.id
        event = parse_event({"event": frame.event, **frame.json()})
        if event is not None:
            if not self.run_id or (frame.id and not isinstance(event, ApprovalRequest)):  # may be a subagent's
                self.run_id = event.run_id or self.run_id
            self.thread_id = getattr(event, "thread_id", "") if event.terminal else self.thread_id
        return event


def _parse_position(id: str) -> tuple[int, float]:
    """Return the position of a frame id in the log. The frame with the bare entry number is the last of its entry."""
    entry, _, part = id.partition(".")
    try:
        return int(entry), int(part) if part else float("inf")
    except ValueError:
        raise ServerError(f"the server sent an event with the invalid id {id!r}", "invalid") from None
