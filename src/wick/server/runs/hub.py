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

from wick.constants import READER_BYTES, READER_FRAMES, REPLAY_FRAMES
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
from wick.server.runs.frames import Frame, Place, Telling, transient
from wick.stores.held_thread import HeldThread
from wick.threads import Entry, Thread

LOGGED = (ChatModelEnd, ToolStart, ToolEnd, StateChange)  # of the run itself, the log tells of these
ASKED = (ApprovalRequest, ApprovalResponse)  # and of these, whoever asks
Row = Mapping[str, Any]
End = Literal["", "told", "elsewhere", "stopped"]  # it goes on; it has ended; somebody else has it; the server stops


class Reader:
    """One who listens: what waits to be sent to them, at most so much of it."""

    __slots__ = ("_size", "_timer", "_waiting", "behind", "place", "queue")

    def __init__(self, place: Place) -> None:
        self.place = place  # the last durable frame they were given
        self.queue: deque[Frame] = deque()
        self.behind = False  # something was left out
        self._size = 0
        self._waiting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def offer(self, frame: Frame) -> None:
        """Queue a frame; who has too many waiting loses them all, and is told later what they were."""
        if self.behind or (frame.place is not None and frame.place <= self.place):
            return
        self._size += len(frame.text)
        if len(self.queue) >= READER_FRAMES or (self.queue and self._size > READER_BYTES):
            self.lose()
        else:
            self.queue.append(frame)
        self.wake()

    def lose(self) -> None:
        self.queue.clear()
        self.behind, self._size = True, 0

    def take(self) -> list[Frame]:
        """All that waits."""
        frames = [*self.queue]
        self.queue.clear()
        self._size = 0
        self.passed(frames)
        return frames

    def passed(self, frames: Sequence[Frame]) -> None:
        self.place = max((frame.place for frame in frames if frame.place is not None), default=self.place)

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


class Hub:
    """The readers of one run, and what they are told."""

    def __init__(self, thread: Thread, run: str, begin: int, hide: Callable[[Row], Row] = lambda row: row) -> None:
        self.thread, self.run, self.begin = thread, run, begin
        self._hide = hide  # secrets in an entry
        self.end: End = ""
        self._ending: Frame | None = None  # the last one, if it is not in the log for good
        self._telling = Telling(thread.id, run)
        self._told = begin  # how many entries have been told
        self._kept: HeldThread | None = None
        self._readers: set[Reader] = set()
        self._open: list[str] | None = None  # the pieces of the message that is being written
        self._start: Event | None = None  # of that message
        self._last: Event | None = None
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()

    # -- what the run says --------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Take an event of the run, or of a child, from whatever Python thread."""
        if threading.get_ident() == self._home:
            self._take(event)
        else:
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        if event.run_id == self.run and event.terminal:
            self._last = event  # it is told when what the run came to is noted, by `finish`
            return
        self.flush()
        if not self.end and self._passes(event):
            self._broadcast(transient(event))

    def _passes(self, event: Event) -> bool:
        """Whether an event is sent on as it is: the log has not told of it, nor will it."""
        if isinstance(event, ASKED) or event.terminal:
            return False
        if event.run_id != self.run:
            return True
        if isinstance(event, LOGGED):
            return False
        return self._follow(event)

    def _follow(self, event: Event) -> bool:
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
        saved = self._saved()
        while self._told < saved and not self._ends(self.thread.entries[self._told]):
            self._tell_next()

    def kept_by(self, keeper: object) -> None:
        """Who keeps the thread, and knows what is saved; a run that said nothing has shown nobody to us."""
        if isinstance(keeper, HeldThread):
            self._kept = keeper

    def _saved(self) -> int:
        """How many entries are saved."""
        self.kept_by(self.thread.writer)
        return min(self._kept.last_written, len(self.thread.entries)) if self._kept is not None else self._told

    def _ends(self, entry: Entry) -> bool:
        """Whether an entry ends the run for good."""
        if entry.kind == "run_end":
            return self._telling.going and entry.data["outcome"] != "interrupted"
        return entry.kind == "rewind" and self._telling.going

    def _tell_next(self) -> None:
        entry = self.thread.entries[self._told]
        self._told += 1
        for frame in self._telling.tell(self._hide(entry.to_json())):
            self._broadcast(frame)

    @property
    def begun(self) -> bool:
        """Whether the run, as far as it is saved, has begun; what is only in memory is as if it had not been."""
        self.flush()
        return self._telling.going or self._telling.over

    @property
    def open(self) -> bool:
        """Whether the run, as far as it is saved, has begun and not ended."""
        self.flush()
        ended = self._telling.over or self._told < self._saved()
        return self.thread.open_run is not None or (self._telling.going and not ended)

    def _broadcast(self, frame: Frame) -> None:
        if frame.place is not None and isinstance(frame.event, ChatModelEnd):
            self._open = None
        for reader in self._readers:
            reader.offer(frame)

    def finish(self, end: End) -> None:
        """The run is over here: that is told, or it is not for us to tell."""
        while self._told < self._saved():
            self._tell_next()
        if end == "told" and not self._telling.over:
            self._ending = self._for_now()
            self._broadcast(self._ending)
        self.end = end
        for reader in self._readers:
            reader.wake()

    def _for_now(self) -> Frame:
        """The last frame of a run that the log does not say has ended for good: it pauses, or could not go on."""
        last = self._last or Failed(self.run, thread_id=self.thread.id, message="the run ended without a word")
        pauses = isinstance(last, Done) and last.outcome == "interrupted"
        return self._telling.pause if pauses and self._telling.pause is not None else transient(last)

    # -- who listens --------------------------------------------------------------------------------------------------

    async def listen(self, reader: Reader, beat: float) -> AsyncGenerator[list[Frame], None]:
        """What a reader has not been told yet, and what comes; nothing, now and then, while nothing comes."""
        try:
            while True:
                for frames in self._missed(reader):
                    yield frames
                if self.end:  # whatever it was, it came while they caught up
                    yield [] if self._ending is None else [self._ending]
                    return
                self._join(reader)
                while not reader.behind and (reader.queue or not self.end):
                    yield reader.take()
                    if not reader.queue and not self.end:
                        await reader.wait(beat)
                self._readers.discard(reader)
                if not reader.behind:
                    return
                reader.behind = False
                yield [transient(Resync(self.run))]
        finally:
            self._readers.discard(reader)
            reader.close()

    def _missed(self, reader: Reader) -> Iterator[list[Frame]]:
        """What was told before they came, in portions."""
        telling, at = Telling(self.thread.id, self.run), self.begin
        frames: list[Frame] = []
        while at < self._told:
            frames += telling.tell(self._hide(self.thread.entries[at].to_json()), reader.place)
            at += 1
            if len(frames) >= REPLAY_FRAMES or _size(frames) >= READER_BYTES or (frames and at == self._told):
                reader.passed(frames)
                yield frames
                frames = []

    def _join(self, reader: Reader) -> None:
        """From here on they hear what comes; the message that is being written, from its beginning."""
        self._readers.add(reader)
        if self._open:
            self._open = ["".join(self._open)]
            reader.offer(transient(ChatModelRestart(self.run, content=self._open[0])))
        elif self._open is not None and self._start is not None:  # sent while the reader still followed the log
            reader.offer(transient(self._start))


def _size(frames: Sequence[Frame]) -> int:
    return sum(len(frame.text) for frame in frames)
