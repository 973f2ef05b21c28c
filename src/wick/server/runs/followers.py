"""Following a run, wherever it goes on: from the hub if it does so here, else from its log as that grows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from math import inf
from time import monotonic

from wick._internal.tasks import cancel_and_wait
from wick.constants import BEAT_SECONDS, STALLED_SECONDS
from wick.errors import TEMPORARY, StoreError, public_text
from wick.events import Failed, Resync
from wick.protocols import News, Store
from wick.server.ops.metrics import Metrics
from wick.server.records import Records
from wick.server.runs.frames import Frame, FrameBuilder, StreamPosition, transient_frame
from wick.server.runs.hub import RunHub, StreamReader
from wick.server.runs.record import KIND, RunInfo

logger = logging.getLogger("wick.server")

FOLLOW_PAUSE = 0.5  # seconds between two tries to read a log that cannot be read

Batches = AsyncGenerator[list[Frame], None]


class HubDirectory:
    """The runs that go on here, by the thread they are of, and who waits for one to begin."""

    def __init__(self) -> None:
        self.closed = False
        self._hubs: dict[tuple[str, str], RunHub] = {}
        self._expected: dict[tuple[str, str], RunHub] = {}  # of runs whose lease is not held yet
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = {}

    def expect(self, owner: str, hub: RunHub) -> None:
        """Announce a run that is about to start here; readers follow the log until its lease is held."""
        self._expected[owner, hub.thread.id] = hub

    def is_expected(self, info: RunInfo) -> bool:
        """Return True if the run is about to start here."""
        hub = self._expected.get((info.owner, info.thread))
        return hub is not None and hub.run == info.id

    def publish(self, owner: str, hub: RunHub) -> None:
        """Switch the readers of a run to its hub: the lease is held here."""
        self._expected.pop((owner, hub.thread.id), None)
        self._hubs[owner, hub.thread.id] = hub
        for waiting in self._waiting.get((owner, hub.thread.id), ()):
            waiting.set()

    def remove(self, owner: str, hub: RunHub) -> None:
        for hubs in (self._hubs, self._expected):
            if hubs.get((owner, hub.thread.id)) is hub:
                del hubs[owner, hub.thread.id]
        for waiting in self._waiting.get((owner, hub.thread.id), ()):
            waiting.set()  # a run that was expected here does not start

    def find(self, info: RunInfo) -> RunHub | None:
        hub = self._hubs.get((info.owner, info.thread))
        return hub if hub is not None and hub.run == info.id else None

    def close(self) -> None:
        """The server stops: nobody waits any longer."""
        self.closed = True
        for events in self._waiting.values():
            for waiting in events:
                waiting.set()

    async def wait_change(self, info: RunInfo, news: asyncio.Future[News], seconds: float) -> None:
        """Until there is news of a thread, a run of it begins here, or that time has passed."""
        key, waiting = (info.owner, info.thread), asyncio.Event()
        self._waiting.setdefault(key, set()).add(waiting)
        begins = asyncio.ensure_future(waiting.wait())
        try:
            await asyncio.wait((news, begins), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begins.cancel()
            self._waiting[key].discard(waiting)
            if not self._waiting[key]:
                del self._waiting[key]


class RunFollowers:
    """How runs are followed on one server."""

    def __init__(self, store: Store, records: Records, metrics: Metrics, *, beat: float = BEAT_SECONDS) -> None:
        self.store, self.records, self.metrics, self.beat, self.board = store, records, metrics, beat, HubDirectory()
        self.readers = 0
        metrics.gauge("wick_streams_open", lambda: self.readers)

    async def follow(self, info: RunInfo, after: StreamPosition) -> Batches:
        """The frames of a run after a place, up to its terminal one; an empty batch now and then while nothing comes.

        One that has been seen to its end has none. When the server stops, they end without a terminal one.
        """
        reader = StreamReader(after)
        self.readers += 1
        try:
            async with aclosing(self._read_sources(info, reader)) as batches:
                async for frames in batches:
                    self._count_frames(frames)
                    yield frames
                    if frames and frames[-1].terminal:
                        return
        finally:
            self.readers -= 1

    async def _read_sources(self, info: RunInfo, reader: StreamReader) -> Batches:
        """From here while the run goes on here, else from its log; who comes when the server stops has a look, too.

        While the store cannot be read, it is tried again, for a limited time.
        """
        give_up = inf
        while True:
            hub = self.board.find(info)
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
                hub.end in ("told", "stopped") if hub is not None else self.board.find(info) is None
            ):
                return

    def _count_frames(self, frames: list[Frame]) -> None:
        if frames:
            self.metrics.add("wick_frames_total", len(frames))
            if isinstance(frames[0].event, Resync):
                self.metrics.add("wick_resyncs_total")

    async def _follow_log(self, info: RunInfo, reader: StreamReader) -> Batches:
        """From the log, until the run has ended, or goes on here."""
        telling, watching = _LogPosition(info), self.store.watch(info.owner, info.thread)
        news: asyncio.Future[News] | None = None
        try:
            while self.board.find(info) is None:
                async for frames in self._read_new(info, telling, reader):
                    yield frames
                if (last := await self._final_frames(info, telling, reader)) is not None:
                    yield [*last]
                    return
                if self.board.closed:
                    return
                news = news or asyncio.ensure_future(anext(watching))
                await self.board.wait_change(info, news, self.beat)
                if news.done():
                    news.result()
                    news = None
                else:
                    yield []
        except StopAsyncIteration:
            return  # the store is being closed
        except StoreError as error:
            if error.code != "not_found":
                raise
            yield [transient_frame(Failed(info.id, thread_id=info.thread, code="not_found", message=str(error)))]
        finally:
            if news is not None:
                await cancel_and_wait((news,))
            with suppress(StoreError):
                await watching.aclose()  # type: ignore[attr-defined]

    async def _read_new(self, info: RunInfo, told: _LogPosition, reader: StreamReader) -> AsyncIterator[list[Frame]]:
        async for batch in self.store.read(info.owner, info.thread, after=told.at):
            frames: list[Frame] = []
            for row in batch:
                frames += told.telling.build_frames(row, reader.position)
                told.at = row["seq"]
            if frames:
                reader.advance(frames)
                yield frames

    async def _final_frames(self, info: RunInfo, told: _LogPosition, reader: StreamReader) -> list[Frame] | None:
        """The last frames of a run that has ended, if there are any that the reader has not seen; None: it goes on."""
        if told.telling.finished:
            return []
        pause = None if self.board.is_expected(info) else told.telling.pause
        if pause is not None and pause.position is not None and pause.position > reader.position:
            return [pause]
        row = await self.records.get(KIND, info.owner, info.id)
        if row is None:  # it went with its thread, and another may have that name by now
            return [
                transient_frame(Failed(info.id, thread_id=info.thread, code="not_found", message=f"{info.id} is gone"))
            ]
        now = RunInfo.from_json(info.owner, info.id, row)
        return (
            [transient_frame(now.terminal_event())] if now.ended and not await self._has_log_grown(info, told) else None
        )

    async def _has_log_grown(self, info: RunInfo, told: _LogPosition) -> bool:
        """Whether the log has grown meanwhile, so that it may tell of the end by itself."""
        return (await self.store.head(info.owner, info.thread)).last > told.at


class _LogPosition:
    """How far a log has been told."""

    def __init__(self, info: RunInfo) -> None:
        self.telling, self.at = FrameBuilder(info.thread, info.id), info.begin
