"""Hub of a run on this server: broadcasts its events to all readers.

Saved log entries reach readers as durable frames, live events as transient frames that may be dropped. A reader that
joins late gets the missed frames from the log, then the current message so far, then live events. A reader that falls
behind gets `resync` and then the missed frames.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from wick._internal.tasks import wait_done
from wick.constants import READER_BYTES, READER_FRAMES, REPLAY_FRAMES
from wick.events import ChatModelStream, Done, Event, Failed, Resync
from wick.server.runs.frames import Frame, FrameBuilder, StreamPosition, TextFrames, transient_frame
from wick.server.runs.live_messages import APPROVAL_EVENTS, LOGGED_EVENTS
from wick.server.runs.live_outlet import LiveOutlet
from wick.server.runs.open_message import OpenMessage
from wick.server.runs.record import RunInfo
from wick.stores.held_thread import HeldThread
from wick.threads import Thread
from wick.threads.state import Entry

EntryRow = Mapping[str, Any]
HubEnd = Literal["", "ended", "elsewhere", "stopped"]  # running; ended; performed by another server; the server stops


class StreamReader:
    """The bounded queue of one client."""

    __slots__ = ("_size", "_timer", "_waiting", "behind", "position", "queue")

    def __init__(self, place: StreamPosition) -> None:
        self.position = place  # position of the last durable frame that was sent
        self.queue: list[Frame] = []
        self.behind = False  # frames were dropped
        self._size = 0
        self._waiting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def offer(self, frame: Frame) -> None:
        """Queue a frame. If the queue is full, drop it all; the reader is resynchronized from the log."""
        if self.behind or (frame.position is not None and frame.position <= self.position):
            return
        queue, waiting = self.queue, self._waiting
        self._size += len(frame.text)
        if len(queue) >= READER_FRAMES or (queue and self._size > READER_BYTES):
            self.drop_queue()
        else:
            queue.append(frame)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def drop_queue(self) -> None:
        self.queue.clear()
        self.behind, self._size = True, 0

    def drain(self) -> list[Frame]:
        """Return and remove all queued frames."""
        frames, self.queue, self._size = self.queue, [], 0
        self.advance(frames)
        return frames

    def advance(self, frames: Sequence[Frame]) -> None:
        """Set the position to that of the last durable frame, if there is one. Positions ascend."""
        for frame in reversed(frames):
            if frame.position is not None:
                self.position = frame.position
                return

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait until a frame is queued, or until about this time has passed."""
        loop = asyncio.get_running_loop()
        if self._timer is None:  # one timer for many waits: setting one costs as much as a frame
            due = loop.time() + seconds
            # A whole second: the readers of a thousand idle streams wake the process together.
            self._timer = loop.call_at(float(int(due)) if seconds >= 2 else due, self._beat)
        self._waiting = loop.create_future()
        await self._waiting

    def _beat(self) -> None:
        self._timer = None
        self.wake()

    def close(self) -> None:
        """Release the queue and the timer."""
        self.queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RunHub:
    """The readers of one run, and the frames that were sent to them."""

    def __init__(
        self, thread: Thread, run: str, begin: int, hide: Callable[[EntryRow], EntryRow] = lambda row: row
    ) -> None:
        self.thread, self.run, self.begin = thread, run, begin
        self._hide = hide  # redacts secrets in an entry
        self.end: HubEnd = ""
        self._ending: Frame | None = None  # the last frame, if it is not in the log
        self._active = self._finished = False  # the run has started; it has ended: according to the saved entries
        self._sent = begin  # number of entries that readers were sent
        self._builder, self._built = FrameBuilder(thread.id, run), begin  # it follows only while there are readers
        self.outcome: RunInfo | None = None  # the recorded outcome of the run
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.keeper: HeldThread | None = None
        self._readers: set[StreamReader] = set()
        self.message = OpenMessage()  # the message that the model is writing
        self._text_frames = TextFrames(run)
        self.outlet: LiveOutlet | None = None  # for readers at other servers
        self._last: Event | None = None
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()

    # -- events of the run --------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Handle an event of the run or of a child. This method is thread-safe."""
        if threading.get_ident() == self._home:
            self._handle_event(event)
        else:
            self._loop.call_soon_threadsafe(self._handle_event, event)

    def needs(self, kind: type[Event]) -> bool:
        """Return False for events of the run itself that its log entries produce."""
        return not issubclass(kind, LOGGED_EVENTS)

    def take_delta(self, model: str, text: str) -> bool:
        """Add a delta to the open message, and send it to the readers; return False if its event must be emitted.

        That is the case for a delta without text if there are readers, and if another server or OS thread needs it.
        """
        is_shared = self.outlet is not None and self.outlet.is_wanted()
        if is_shared or threading.get_ident() != self._home or (self._readers and not text):
            return False
        if text:
            self.message.add(text)
            if self._readers and not self.end:
                self._broadcast(self._text_frames.build(model, text))
        return True

    def _handle_event(self, event: Event) -> None:
        if event.run_id == self.run and event.terminal:
            self._last = event  # `finish` sends it after the outcome is recorded
            return
        if self.keeper is None or self.keeper.last_written > self._sent:
            self.flush()
        if not self.end and self._track_event(event):
            if self._readers:
                self._broadcast(transient_frame(event))
            if self.outlet is not None:
                self.outlet.send(event)

    def _track_event(self, event: Event) -> bool:
        """Update the message that the model is writing; return True if the event is sent as a transient frame.

        An event is not sent if a log entry produces it, or if it restarts a message that is already complete.
        """
        if type(event) is ChatModelStream:  # most events are deltas
            return event.run_id != self.run or self.message.track(event)
        if isinstance(event, APPROVAL_EVENTS) or event.terminal:
            return False
        if event.run_id != self.run:
            return True
        return not isinstance(event, LOGGED_EVENTS) and self.message.track(event)

    def flush(self) -> None:
        """Send the saved entries, up to the end of the run, which `finish` sends."""
        saved, before = self._count_saved(), self._sent
        while self._sent < saved and not self._is_final(self.thread.entries[self._sent]):
            self._send_next()
        if self.outlet is not None and self._sent > before:
            self.outlet.send(None)

    def set_keeper(self, keeper: object) -> None:
        """Set the held thread, which knows how many entries are saved."""
        if isinstance(keeper, HeldThread):
            self.keeper = keeper

    def _count_saved(self) -> int:
        """Return the number of saved entries."""
        if self.keeper is None:
            self.set_keeper(self.thread.writer)
        return min(self.keeper.last_written, len(self.thread.entries)) if self.keeper is not None else self._sent

    def _is_final(self, entry: Entry) -> bool:
        """Return True if an entry is the final end of the run."""
        if entry.kind == "run_end":
            return self._active and entry.data["outcome"] != "interrupted"
        return entry.kind == "rewind" and self._active

    def _send_next(self) -> None:
        entry = self.thread.entries[self._sent]
        self._sent += 1
        if entry.kind == "run_start":
            self._active = entry.data["run"] == self.run
        elif self._active and not self._finished:
            self._finished = self._is_final(entry)
            if entry.kind == "message" and entry.data.role == "assistant":
                self.message.close()
        if self._readers:
            self._build_frames()

    def _build_frames(self) -> None:
        """Send the frames of the entries since the last call. A reader ignores those that it has."""
        while self._built < self._sent:
            entry = self.thread.entries[self._built]
            self._built += 1
            for frame in self._builder.build_frames(self._hide(entry.to_json())):
                self._broadcast(frame)

    @property
    def sent(self) -> int:
        """The number of log entries that readers were sent."""
        return self._sent

    @property
    def has_started(self) -> bool:
        """Return True if the saved entries contain the start of the run."""
        self.flush()
        return self._active or self._finished

    @property
    def is_open(self) -> bool:
        """Return True if the run has started and not ended, according to the saved entries."""
        self.flush()
        ended = self._finished or self._sent < self._count_saved()
        return self.thread.open_run is not None or (self._active and not ended)

    def _broadcast(self, frame: Frame) -> None:
        for reader in self._readers:
            reader.offer(frame)

    def finish(self, end: HubEnd) -> None:
        """Close the hub. Send the last frame if the run has ended on this server."""
        while self._sent < self._count_saved():
            self._send_next()
        if end == "ended" and not self._finished:
            # the log has no final end of the run: it paused or failed
            self._build_frames()
            last = self._last or Failed(self.run, thread_id=self.thread.id, message="the run ended without a result")
            pause = self._builder.pause if isinstance(last, Done) and last.outcome == "interrupted" else None
            self._ending = transient_frame(last) if pause is None else pause
            self._broadcast(self._ending)
        self.end = end
        if self.outlet is not None:
            self.outlet.close()
        if not self._over.done():
            self._over.set_result(None)
        for reader in self._readers:
            reader.wake()

    async def wait_end(self) -> HubEnd:
        """Wait until the run is no longer performed here."""
        await wait_done(self._over)
        return self.end

    def has_taken(self, position: int) -> bool:
        """Return True if the run took the inbox message at a position."""
        return self.keeper is not None and self.keeper.has_consumed(position)

    # -- readers ------------------------------------------------------------------------------------------------------

    async def stream(self, reader: StreamReader, beat: float) -> AsyncGenerator[list[Frame], None]:
        """Yield missed and live frames to a reader, and empty batches as heartbeats."""
        try:
            while True:
                for frames in self._replay_missed(reader):
                    yield frames
                if self.end:  # the run ended while the reader caught up
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
        """Yield the frames that a reader has missed, in batches."""
        builder, at = FrameBuilder(self.thread.id, self.run), self.begin
        frames: list[Frame] = []
        while at < self._sent:
            frames += builder.build_frames(self._hide(self.thread.entries[at].to_json()), reader.position)
            at += 1
            size = sum(len(frame.text) for frame in frames)
            if len(frames) >= REPLAY_FRAMES or size >= READER_BYTES or (frames and at == self._sent):
                reader.advance(frames)
                yield frames
                frames = []

    def _attach(self, reader: StreamReader) -> None:
        """Attach a reader to live events, starting with the current message from its beginning."""
        self._readers.add(reader)
        if (event := self.message.joining_event(self.run)) is not None:
            reader.offer(transient_frame(event))
