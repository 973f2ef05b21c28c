"""Following of runs: from the hub if this server performs the run, else from the log as it grows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from math import inf
from time import monotonic

from wick._internal.tasks import cancel_and_wait
from wick.constants import HEARTBEAT_SECONDS, STALLED_SECONDS
from wick.errors import TEMPORARY, StoreError, public_text
from wick.events import Failed, Resync
from wick.protocols import News, Store
from wick.server.live import LivePlane
from wick.server.ops.metrics import Metrics
from wick.server.records import Records
from wick.server.runs.frames import Frame, FrameBuilder, StreamPosition, transient_frame
from wick.server.runs.hub import RunHub, StreamReader
from wick.server.runs.live_feed import FeedReader, RunFeeds
from wick.server.runs.record import KIND, RunInfo

logger = logging.getLogger("wick.server")

FOLLOW_PAUSE = 0.5  # seconds between two attempts to read a log
EXPECT_SECONDS = 0.1  # for a run that starts here to acquire its lease; another server may have it
LEASED_SECONDS = 5.0  # the same if this server has acquired the lease for the run: no other can perform it

Batches = AsyncGenerator[list[Frame], None]


class HubDirectory:
    """The hubs of the runs on this server, by thread, and the followers that wait for a run to start."""

    def __init__(self) -> None:
        self.closed = False
        self._hubs: dict[tuple[str, str], RunHub] = {}
        self._expected: dict[tuple[str, str], tuple[RunHub, float]] = {}  # with the seconds that a reader waits for it
        self._waiting: dict[tuple[str, str], set[Callable[[], None]]] = {}  # functions that wake followers

    def expect(self, owner: str, hub: RunHub, *, is_leased: bool = False) -> None:
        """Announce a run that is about to start here. Readers follow the log if it does not hold its lease soon."""
        self._expected[owner, hub.thread.id] = hub, LEASED_SECONDS if is_leased else EXPECT_SECONDS

    def is_expected(self, info: RunInfo) -> bool:
        """Return True if the run is about to start here."""
        hub, _ = self._expected.get((info.owner, info.thread), (None, 0.0))
        return hub is not None and hub.run == info.id

    def publish(self, owner: str, hub: RunHub) -> None:
        """Switch the readers of a run to its hub, after its lease is acquired."""
        self._expected.pop((owner, hub.thread.id), None)
        self._hubs[owner, hub.thread.id] = hub
        self._wake(owner, hub)

    def remove(self, owner: str, hub: RunHub) -> None:
        key = owner, hub.thread.id
        if self._hubs.get(key) is hub:
            del self._hubs[key]
        if self._expected.get(key, (None, 0.0))[0] is hub:
            del self._expected[key]
        self._wake(owner, hub)  # an expected run does not start

    def _wake(self, owner: str, hub: RunHub) -> None:
        for wake in self._waiting.get((owner, hub.thread.id), ()):
            wake()

    def find(self, info: RunInfo) -> RunHub | None:
        hub = self._hubs.get((info.owner, info.thread))
        return hub if hub is not None and hub.run == info.id else None

    async def wait_published(self, info: RunInfo, least: float = 0.0) -> RunHub | None:
        """Return the hub of a run. If the run is about to start here, wait until it holds its lease.

        On a busy event loop a short run may have ended by then. Its hub is returned nevertheless.
        """
        if self.closed or not self.is_expected(info):
            return self.find(info)
        hub, seconds = self._expected[info.owner, info.thread]
        waiting = asyncio.Event()
        with self._waken(info, waiting.set), suppress(TimeoutError):
            async with asyncio.timeout(max(least, seconds)):  # `wait_for` would create a task
                await waiting.wait()
        return hub if hub.end == "ended" and hub.has_started else self.find(info)

    @contextmanager
    def _waken(self, info: RunInfo, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` when a run of a thread starts here, or an expected one does not."""
        key = info.owner, info.thread
        self._waiting.setdefault(key, set()).add(wake)
        try:
            yield
        finally:
            self._waiting[key].discard(wake)
            if not self._waiting[key]:
                del self._waiting[key]

    def close(self) -> None:
        """Wake all waiting followers: the server stops."""
        self.closed = True
        for waiting in self._waiting.values():
            for wake in waiting:
                wake()

    async def wait_change(self, info: RunInfo, reader: StreamReader, seconds: float) -> None:
        """Wait until a reader is woken, a run of the thread starts here, or about this time has passed."""
        if self.find(info) is not None or self.closed:
            return
        with self._waken(info, reader.wake):
            await reader.wait(seconds)


class RunFollowers:
    """Follows runs on behalf of the clients of one server."""

    def __init__(
        self,
        store: Store,
        records: Records,
        metrics: Metrics,
        live: LivePlane | None = None,
        *,
        beat: float = HEARTBEAT_SECONDS,
    ) -> None:
        self.store, self.records, self.metrics, self.beat, self.board = store, records, metrics, beat, HubDirectory()
        self.feeds = RunFeeds(live)
        self.readers = 0
        metrics.streams_open.set_function(lambda: self.readers)

    async def follow(self, info: RunInfo, after: StreamPosition) -> Batches:
        """Yield the frames of a run after a position, up to its terminal one, and empty batches as heartbeats.

        A run that was seen to its end yields nothing. When the server stops, the terminal frame is missing.
        """
        reader = StreamReader(after)
        self.readers += 1
        try:
            async with aclosing(self._read_sources(info, reader)) as batches:
                async for frames in batches:
                    if frames:
                        self.metrics.frames.inc(len(frames))
                        if isinstance(frames[0].event, Resync):
                            self.metrics.resyncs.inc()
                    yield frames
                    if frames and frames[-1].terminal:
                        return
        finally:
            self.readers -= 1
            reader.close()

    async def _read_sources(self, info: RunInfo, reader: StreamReader) -> Batches:
        """Yield frames from the hub while the run is performed here, else from the log.

        The log is read at least once, even when the server stops. Temporary store errors are retried for a limited
        time.
        """
        give_up = inf
        while True:
            hub = await self.board.wait_published(info)  # saves reading a log that is still empty
            source = self._follow_log(info, reader) if hub is None else hub.stream(reader, self.beat)
            try:
                async with aclosing(source) as batches:
                    async for frames in batches:
                        give_up = inf
                        yield frames
            except StoreError as error:
                give_up = min(give_up, monotonic() + STALLED_SECONDS)
                if error.code in TEMPORARY and monotonic() < give_up and not self.board.closed:
                    await asyncio.sleep(FOLLOW_PAUSE)
                    continue
                logger.warning("run %s cannot be followed: %s", info.id, error)
                if error.code not in TEMPORARY:
                    damage = Failed(info.id, thread_id=info.thread, code=error.code, message=public_text(error))
                    yield [transient_frame(damage)]
                return
            if self.board.closed or (
                hub.end in ("ended", "stopped") if hub is not None else self.board.find(info) is None
            ):
                return

    async def _follow_log(self, info: RunInfo, reader: StreamReader) -> Batches:
        """Yield frames from the log until the run has ended or is performed here.

        While another server performs the run and can be reached, its transient frames come between those of the log.
        """
        position, watching = _LogPosition(info), self.store.watch(info.owner, info.thread)
        feed = self.feeds.join(info, reader.wake)
        news: asyncio.Future[News] | None = None
        try:
            while self.board.find(info) is None:
                if position.bound == inf:
                    async for frames in self._read_log(position, reader, inf):
                        yield frames
                    if (last := await self._final_frames(info, position, reader)) is not None:
                        yield [*last]
                        return
                if self.board.closed:
                    return
                if news is None:
                    news = asyncio.ensure_future(anext(watching))
                    news.add_done_callback(lambda _: reader.wake())
                if not feed and not news.done():
                    await self.board.wait_change(info, reader, self.beat)
                if not feed and not news.done():
                    yield []
                async for frames in self._read_feed(feed, position, reader):
                    yield frames
                if news.done():
                    feed.check_log(news.result().last)
                    news = None
        except StopAsyncIteration:
            return  # the store is closing
        except StoreError as error:
            if error.code != "not_found":
                raise
            yield [transient_frame(Failed(info.id, thread_id=info.thread, code="not_found", message=str(error)))]
        finally:
            feed.close()
            if news is not None:
                await cancel_and_wait((news,))
            with suppress(StoreError):
                await watching.aclose()  # type: ignore[attr-defined]

    async def _read_log(self, position: _LogPosition, reader: StreamReader, bound: float) -> Batches:
        """Yield the frames of new log entries, up to the entry `bound`."""
        info = position.info
        if bound <= position.at:
            return
        limit = None if bound == inf else int(bound) - position.at
        async for batch in self.store.read(info.owner, info.thread, after=position.at, limit=limit):
            frames: list[Frame] = []
            for row in batch:
                frames += position.builder.build_frames(row, reader.position)
                position.at = row["seq"]
            if frames:
                reader.advance(frames)
                yield frames

    async def _read_feed(self, feed: FeedReader, position: _LogPosition, reader: StreamReader) -> Batches:
        """Yield the queued live frames, each after the log entries before it."""
        live: list[Frame] = []
        for at, frame in feed.take():
            position.bound = at
            if at < position.at:  # the log was read further: a frame from before that is not sent
                position.is_ahead = True
                continue
            if position.is_ahead:  # the open reply may continue: get it again from its beginning
                position.is_ahead = False
                if at < inf:
                    feed.rejoin(resync=False)
                    break
            if position.at < at < inf:
                if live:
                    yield live
                    live = []
                async for frames in self._read_log(position, reader, at):
                    yield frames
            if frame is not None:
                live.append(frame)
        if live:
            yield live

    async def _final_frames(self, info: RunInfo, position: _LogPosition, reader: StreamReader) -> list[Frame] | None:
        """Return the last frames of a finished run that the reader has not seen, or None if it has not ended."""
        if position.builder.finished:
            return []
        pause = None if self.board.is_expected(info) else position.builder.pause
        if pause is not None and pause.position is not None and pause.position > reader.position:
            return [pause]
        row = await self.records.get(KIND, info.owner, info.id)
        if row is None:  # deleted with its thread; another thread may have the same id
            return [
                transient_frame(Failed(info.id, thread_id=info.thread, code="not_found", message=f"{info.id} is gone"))
            ]
        now = RunInfo.from_json(info.owner, info.id, row)
        if not now.ended or (await self.store.head(info.owner, info.thread)).last > position.at:
            return None  # the log has grown since it was read: it may contain the end
        return [transient_frame(now.terminal_event())]


class _LogPosition:
    """The position up to which a log was turned into frames."""

    def __init__(self, info: RunInfo) -> None:
        self.info, self.builder, self.at = info, FrameBuilder(info.thread, info.id), info.begin
        self.bound: float = inf  # place of the live frames, up to which the log is read
        self.is_ahead = False  # live frames were dropped, since the log was read further
