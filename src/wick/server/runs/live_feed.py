"""Transient frames of runs that other servers perform, for the readers of this server.

Each frame has its place in the log. A reader reads the log up to that place first, so that the order is the one of a
reader at the server that performs the run. Without a lease holder that replies, the place is infinite: the reader
follows the log alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf

from wick._internal.tasks import cancel_and_wait
from wick.constants import (
    LIVE_LATE_SECONDS,
    LIVE_REFRESH_SECONDS,
    LIVE_REPLY_SECONDS,
    READER_BYTES,
    READER_FRAMES,
)
from wick.events import ChatModelRestart, ChatModelStart, ChatModelStream, Event, Resync
from wick.server.live import LivePlane
from wick.server.runs.frames import Frame, transient_frame
from wick.server.runs.live_messages import (
    HolderRequest,
    LiveBatch,
    LiveItem,
    LiveSnapshot,
    decode_event,
    decode_start,
    encode_message,
    frames_subject,
    holder_subject,
    parse_batch,
    parse_snapshot,
)
from wick.server.runs.open_message import OpenMessage
from wick.server.runs.record import RunInfo

EARLY_BATCHES = 1_000  # that arrive before the reply of the lease holder

PlacedFrame = tuple[float, Frame | None]  # the number of log entries before it; None is only a place


class FeedReader:
    """The bounded queue of one reader of a feed."""

    __slots__ = ("_feed", "_items", "_size", "_wake", "is_behind")

    def __init__(self, wake: Callable[[], None], feed: RunFeed | None) -> None:
        self._wake, self._feed = wake, feed
        self._items: deque[PlacedFrame] = deque()
        self._size = 0
        self.is_behind = False  # frames were dropped

    def __bool__(self) -> bool:
        return bool(self._items) or self.is_behind

    def offer(self, at: float, frame: Frame | None) -> None:
        """Queue a frame. If the queue is full, drop it all; the reader joins again."""
        if self.is_behind:
            return
        self._size += 0 if frame is None else len(frame.text)
        if len(self._items) >= READER_FRAMES or (self._items and self._size > READER_BYTES):
            self._items.clear()
            self.is_behind = True
        else:
            self._items.append((at, frame))
        self._wake()

    def take(self) -> list[PlacedFrame]:
        """Return and remove all queued frames."""
        if self.is_behind and self._feed is not None:
            self.rejoin(resync=True)
        items, self._size = [*self._items], 0
        self._items.clear()
        return items

    def rejoin(self, *, resync: bool) -> None:
        """Replace the queue with the current state of the run."""
        self._items.clear()
        self._size, self.is_behind = 0, False
        if self._feed is not None:
            self._feed.send_state(self, resync=resync)

    def check_log(self, last: int) -> None:
        """Report the last entry of the log. The lease holder is asked if live frames stay behind it."""
        if self._feed is not None:
            self._feed.check_log(last)

    def close(self) -> None:
        """Leave the feed. The last reader closes it."""
        if self._feed is not None:
            self._feed.remove(self)
            self._feed = None


class RunFeed:
    """The live frames of one run, shared by its readers on this server."""

    def __init__(self, live: LivePlane, info: RunInfo, on_unused: Callable[[], None]) -> None:
        self._live, self._info, self._on_unused = live, info, on_unused
        self._readers: set[FeedReader] = set()
        self._message = OpenMessage()
        self._is_cut = False  # the beginning of the open reply is missing
        self._fence = self._number = 0  # of the lease holder, and of the last batch
        self._at: float = inf  # place of the last frame; infinite without a lease holder
        self._early: list[LiveBatch] | None = []  # received before the snapshot; None while the feed is joined
        self._is_resync = False  # readers have missed frames
        self._is_closed = False
        self._log_end = self._late_end = 0  # the last entry of the log: as readers know it, and at the last check
        self._refresh_now = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe = live.subscribe(frames_subject(info.id), self._receive)
        self._task = asyncio.create_task(self._refresh(), name=f"following {info.id}")

    def add(self, wake: Callable[[], None]) -> FeedReader:
        reader = FeedReader(wake, self)
        self._readers.add(reader)
        self.send_state(reader, resync=False)
        return reader

    def remove(self, reader: FeedReader) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._on_unused()

    async def close(self) -> None:
        """Unsubscribe. The lease holder stops publishing when the interest expires."""
        self._is_closed = True  # `wait_for` of Python 3.11 may swallow the cancellation
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
        await cancel_and_wait((self._task,))

    def send_state(self, reader: FeedReader, *, resync: bool) -> None:
        """Send the place in the log and the open reply to a reader that joins."""
        if self._at == inf:
            reader.offer(inf, None)
            return
        event = None if self._is_cut else self._message.joining_event(self._info.id)
        if resync:
            reader.offer(self._at, transient_frame(Resync(self._info.id)))
        reader.offer(self._at, None if event is None else transient_frame(event))

    def check_log(self, last: int) -> None:
        """Ask the lease holder if the log is ahead of the live frames, and stays ahead."""
        self._log_end = max(self._log_end, last)
        if self._at == inf:
            self._refresh_now.set()  # a run without a lease holder has a new entry
        elif self._log_end > self._at and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LIVE_LATE_SECONDS, self._check_late)

    def _check_late(self) -> None:
        self._timer = None
        self._late_end = self._log_end
        if self._at < self._late_end:
            self._refresh_now.set()

    # -- the lease holder ---------------------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Ask the lease holder for the state of the run again and again. The reply also shows that it is alive."""
        while not self._is_closed:
            self._refresh_now.clear()
            if self._early is not None:
                self._early = []  # the snapshot contains those that arrived before the request
            request = HolderRequest(action="follow", owner=self._info.owner, fence=self._fence)
            data = await self._live.request(holder_subject(self._info.id), encode_message(request), LIVE_REPLY_SECONDS)
            snapshot = None if data is None else parse_snapshot(data)
            if snapshot is None or snapshot.fence < self._fence:
                self._leave()
            elif self._early is not None or snapshot.fence != self._fence:
                self._join(snapshot)
            elif snapshot.number > self._number:
                await self._await_batches(snapshot.number)
            if self._late_end > self._at:  # the reply is from a server that has lost the lease
                self._leave()
            if not self._is_closed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LIVE_REFRESH_SECONDS):
                        await self._refresh_now.wait()

    async def _await_batches(self, number: int) -> None:
        """Wait for batches that were sent before a reply. If they do not arrive, they are lost."""
        await asyncio.sleep(LIVE_LATE_SECONDS)
        if self._number < number and self._early is None:
            self._rejoin([])

    def _join(self, snapshot: LiveSnapshot) -> None:
        """Continue from a snapshot, with the batches that arrived before it."""
        early, self._early = self._early or [], None
        self._fence, self._number, self._at = snapshot.fence, snapshot.number, snapshot.at
        self._is_cut = snapshot.is_cut
        self._message = OpenMessage()
        if snapshot.text is not None:
            self._message.open(snapshot.text, decode_start(snapshot.start, self._info.id))
        for reader in self._readers:
            self.send_state(reader, resync=self._is_resync)
        self._is_resync = False
        for batch in early:
            self._handle(batch)

    def _rejoin(self, early: list[LiveBatch]) -> None:
        """Ask for a new snapshot, since batches were lost or there is a new lease holder."""
        self._early, self._is_resync = early, True
        self._refresh_now.set()

    def _leave(self) -> None:
        """Let the readers follow the log: no server performs the run, or it cannot be reached."""
        self._early, self._fence = [], 0
        if self._at != inf:
            self._at, self._is_resync = inf, False
            self._message.close()
            for reader in self._readers:
                reader.offer(inf, None)

    def _receive(self, data: bytes) -> None:
        batch = parse_batch(data)
        if batch is None:
            return
        if self._early is None:
            self._handle(batch)
        elif len(self._early) < EARLY_BATCHES and batch.fence >= self._fence:
            self._early.append(batch)
            self._refresh_now.set()

    def _handle(self, batch: LiveBatch) -> None:
        if self._early is not None or batch.fence < self._fence:
            return
        if batch.fence == self._fence and batch.number <= self._number:
            return
        if batch.fence > self._fence or batch.number > self._number + 1 or batch.is_lost:
            self._fence = batch.fence  # an older lease holder does not reply any more
            self._rejoin([batch])
            return
        self._number = batch.number
        for item in batch.items:
            self._apply(item)
        if batch.is_last:
            self._leave()

    def _apply(self, item: LiveItem) -> None:
        self._at = max(self._at, item.at)
        event = None if item.event is None else decode_event(item.event, self._info.id)
        if not item.is_open:
            self._message.close()
            self._is_cut = False
        if event is not None and not self._track(event):
            event = None
        frame = None if event is None else transient_frame(event)
        for reader in self._readers:
            reader.offer(self._at, frame)

    def _track(self, event: Event) -> bool:
        """Update the open reply; return False for an event that is not sent to readers."""
        if event.run_id != self._info.id:
            return True
        if isinstance(event, ChatModelStart | ChatModelRestart):
            self._is_cut = False
        elif isinstance(event, ChatModelStream) and event.kind == "text" and self._is_cut:
            return False
        return self._message.track(event)


class RunFeeds:
    """The feeds of a server, by owner and run."""

    def __init__(self, live: LivePlane | None) -> None:
        self._live = live  # None if no other server can be on the live plane
        self._feeds: dict[tuple[str, str], RunFeed] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def join(self, info: RunInfo, wake: Callable[[], None]) -> FeedReader:
        """Return the queue of a new reader of a run. The caller has checked the owner."""
        if self._live is None:
            return FeedReader(wake, None)
        key = info.owner, info.id
        if key not in self._feeds:
            self._feeds[key] = RunFeed(self._live, info, lambda: self._drop(key))
        return self._feeds[key].add(wake)

    def _drop(self, key: tuple[str, str]) -> None:
        task = asyncio.create_task(self._feeds.pop(key).close(), name="closing a feed")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Wait until unused feeds are closed."""
        while self._closing:
            await asyncio.wait([*self._closing])
