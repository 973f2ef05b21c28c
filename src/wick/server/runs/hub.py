"""What a run that goes on here says, for everybody who listens.

What it has logged reaches a reader as durable frames, once it is saved; what is only on its way there as frames that
may be left out. Who joins late is told what they missed from the log, then the message that is being written, so far,
then what comes. Who cannot keep up is told so (`resync`), and what they missed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from wick.constants import READER_BYTES, READER_FRAMES, TOLD_FRAMES
from wick.events import (
    ApprovalRequest,
    ApprovalResponse,
    ChatModelEnd,
    ChatModelRestart,
    ChatModelStart,
    ChatModelStream,
    Done,
    Event,
    Failed,
    Resync,
    StateChange,
    ToolEnd,
    ToolStart,
)
from wick.server.runs.frames import Frame, FrameBuilder, StreamPosition, transient_frame
from wick.stores.held_thread import HeldThread
from wick.threads import Entry, Thread

LOGGED_EVENTS = (ChatModelEnd, ToolStart, ToolEnd, StateChange)  # of the run itself, the log tells of these
APPROVAL_EVENTS = (ApprovalRequest, ApprovalResponse)  # and of these, whoever asks
EntryRow = Mapping[str, Any]
HubEnd = Literal["", "told", "elsewhere", "stopped"]  # it goes on; it has ended; somebody else has it; the server stops


class StreamReader:
    """One who listens: what waits to be sent to them, at most so much of it."""

    __slots__ = ("_size", "_timer", "_waiting", "behind", "position", "queue")

    def __init__(self, place: StreamPosition) -> None:
        self.position = place  # the last durable frame they were given
        self.queue: deque[Frame] = deque()
        self.behind = False  # something was left out
        self._size = 0
        self._waiting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def offer(self, frame: Frame) -> None:
        """Queue a frame; who has too many waiting loses them all, and is told later what they were."""
        if self.behind or (frame.position is not None and frame.position <= self.position):
            return
        self._size += len(frame.text)
        if len(self.queue) >= READER_FRAMES or (self.queue and self._size > READER_BYTES):
            self.drop_queue()
        else:
            self.queue.append(frame)
        self.wake()

    def drop_queue(self) -> None:
        self.queue.clear()
        self.behind, self._size = True, 0

    def drain(self) -> list[Frame]:
        """All that waits."""
        frames = [*self.queue]
        self.queue.clear()
        self._size = 0
        self.advance(frames)
        return frames

    def advance(self, frames: Sequence[Frame]) -> None:
        self.position = max((frame.position for frame in frames if frame.position is not None), default=self.position)

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Until something waits, or about that time has passed."""
        loop = asyncio.get_running_loop()
        if self._timer is None:  # one at a time, whatever comes meanwhile: setting it costs as much as a frame
            self._timer = loop.call_later(seconds, self._beat)
        self._waiting = loop.create_future()
        await self._waiting

    def _beat(self) -> None:
        self._timer = None
        self.wake()

    def close(self) -> None:
        """Nobody listens any longer."""
        self.queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RunHub:
    """The readers of one run, and what they are told."""

    def __init__(
        self, thread: Thread, run: str, begin: int, hide: Callable[[EntryRow], EntryRow] = lambda row: row
    ) -> None:
        self.thread, self.run, self.begin = thread, run, begin
        self._hide = hide  # secrets in an entry
        self.end: HubEnd = ""
        self._ending: Frame | None = None  # the last one, if it is not in the log for good
        self._builder = FrameBuilder(thread.id, run)
        self._sent = begin  # how many entries have been told
        self._kept: HeldThread | None = None
        self._readers: set[StreamReader] = set()
        self._open: list[str] | None = None  # the pieces of the message that is being written
        self._start: Event | None = None  # of that message
        self._last: Event | None = None
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()

    # -- what the run says --------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Take an event of the run, or of a child, from whatever Python thread."""
        if threading.get_ident() == self._home:
            self._handle_event(event)
        else:
            self._loop.call_soon_threadsafe(self._handle_event, event)

    def _handle_event(self, event: Event) -> None:
        if event.run_id == self.run and event.terminal:
            self._last = event  # it is told when what the run came to is noted, by `finish`
            return
        self.flush()
        if not self.end and self._is_forwarded(event):
            self._broadcast(transient_frame(event))

    def _is_forwarded(self, event: Event) -> bool:
        """Whether an event is sent on as it is: the log has not told of it, nor will it."""
        if isinstance(event, APPROVAL_EVENTS) or event.terminal:
            return False
        if event.run_id != self.run:
            return True
        if isinstance(event, LOGGED_EVENTS):
            return False
        return self._track_message(event)

    def _track_message(self, event: Event) -> bool:
        """Keep the message that is being written; what comes about one that is complete comes too late."""
        if isinstance(event, ChatModelStart):
            self._open, self._start = [], event
        elif isinstance(event, ChatModelRestart):
            if self._open is None:
                return False
            self._open = [event.content]
        elif isinstance(event, ChatModelStream) and event.kind == "text" and self._open is not None:
            self._open.append(event.delta)
        return True

    def flush(self) -> None:
        """Tell what is saved by now, up to the run's end: of that only `finish` tells."""
        saved = self._count_saved()
        while self._sent < saved and not self._is_final(self.thread.entries[self._sent]):
            self._send_next()

    def set_keeper(self, keeper: object) -> None:
        """Who keeps the thread, and knows what is saved; a run that said nothing has shown nobody to us."""
        if isinstance(keeper, HeldThread):
            self._kept = keeper

    def _count_saved(self) -> int:
        """How many entries are saved."""
        self.set_keeper(self.thread.keeper)
        return min(self._kept.written, len(self.thread.entries)) if self._kept is not None else self._sent

    def _is_final(self, entry: Entry) -> bool:
        """Whether an entry ends the run for good."""
        if entry.kind == "run_end":
            return self._builder.active and entry.data["outcome"] != "interrupted"
        return entry.kind == "rewind" and self._builder.active

    def _send_next(self) -> None:
        entry = self.thread.entries[self._sent]
        self._sent += 1
        for frame in self._builder.build_frames(self._hide(entry.to_json())):
            self._broadcast(frame)

    @property
    def has_started(self) -> bool:
        """Whether the run, as far as it is saved, has begun; what is only in memory is as if it had not been."""
        self.flush()
        return self._builder.active or self._builder.finished

    @property
    def is_open(self) -> bool:
        """Whether the run, as far as it is saved, has begun and not ended."""
        self.flush()
        ended = self._builder.finished or self._sent < self._count_saved()
        return self.thread.open_run is not None or (self._builder.active and not ended)

    def _broadcast(self, frame: Frame) -> None:
        if frame.position is not None and isinstance(frame.event, ChatModelEnd):
            self._open = None
        for reader in self._readers:
            reader.offer(frame)

    def finish(self, end: HubEnd) -> None:
        """The run is over here: that is told, or it is not for us to tell."""
        while self._sent < self._count_saved():
            self._send_next()
        if end == "told" and not self._builder.finished:
            self._ending = self._closing_frame()
            self._broadcast(self._ending)
        self.end = end
        for reader in self._readers:
            reader.wake()

    def _closing_frame(self) -> Frame:
        """The last frame of a run that the log does not say has ended for good: it pauses, or could not go on."""
        last = self._last or Failed(self.run, thread_id=self.thread.id, message="the run ended without a word")
        pauses = isinstance(last, Done) and last.outcome == "interrupted"
        return self._builder.pause if pauses and self._builder.pause is not None else transient_frame(last)

    # -- who listens --------------------------------------------------------------------------------------------------

    async def stream(self, reader: StreamReader, beat: float) -> AsyncGenerator[list[Frame], None]:
        """What a reader has not been told yet, and what comes; nothing, now and then, while nothing comes."""
        try:
            while True:
                for frames in self._replay_missed(reader):
                    yield frames
                if self.end:  # whatever it was, it came while they caught up
                    yield [] if self._ending is None else [self._ending]
                    return
                self._attach(reader)
                while not reader.behind and (reader.queue or not self.end):
                    yield reader.drain()
                    if not reader.queue and not self.end:
                        await reader.wait(beat)
                self._readers.discard(reader)
                if not reader.behind:
                    return
                reader.behind = False
                yield [transient_frame(Resync(self.run))]
        finally:
            self._readers.discard(reader)
            reader.close()

    def _replay_missed(self, reader: StreamReader) -> Iterator[list[Frame]]:
        """What was told before they came, in portions."""
        telling, at = FrameBuilder(self.thread.id, self.run), self.begin
        frames: list[Frame] = []
        while at < self._sent:
            frames += telling.build_frames(self._hide(self.thread.entries[at].to_json()), reader.position)
            at += 1
            if len(frames) >= TOLD_FRAMES or _total_size(frames) >= READER_BYTES or (frames and at == self._sent):
                reader.advance(frames)
                yield frames
                frames = []

    def _attach(self, reader: StreamReader) -> None:
        """From here on they hear what comes; the message that is being written, from its beginning."""
        self._readers.add(reader)
        if self._open:
            self._open = ["".join(self._open)]
            reader.offer(transient_frame(ChatModelRestart(self.run, content=self._open[0])))
        elif self._open is not None and self._start is not None:  # sent while the reader still followed the log
            reader.offer(transient_frame(self._start))


def _total_size(frames: Sequence[Frame]) -> int:
    return sum(len(frame.text) for frame in frames)
