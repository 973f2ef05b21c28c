"""What a server does by itself: it takes up what others left, and notices what other servers were told.

A run whose server died goes on here once its lease has lapsed; a thread with something queued is run; a question that
was answered, or that nobody answered in time, lets its run go on. What another server was told to cancel is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from math import inf
from time import monotonic, time

from wick.errors import StoreError, WickError
from wick.protocols import Summary
from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.runs import CANCEL, Runs
from wick.server.runs.record import KIND, RunInfo
from wick.stores.held_thread import release_leases

logger = logging.getLogger("wick.server")

POLL_SECONDS = 2.0  # between two looks at what is unfinished
CANCEL_PAUSE = 0.3  # between two looks at what is to be cancelled, while something runs
MAX_BACKOFF = 300.0
STALLED_BACKOFF = 5.0  # for runs whose store failed: clients wait for them
PAGE = 500


@dataclass(slots=True)
class _Backoff:
    """A thread that could not be taken up: how it was then, and when it is tried again."""

    head: tuple[int, int]
    again: float
    pause: float


def _is_locked(error: Exception) -> bool:
    return isinstance(error, StoreError) and error.code == "locked"


class RunRecovery:
    """Looks after the runs of a server for as long as it runs."""

    def __init__(self, runs: Runs, *, look: float = POLL_SECONDS) -> None:
        self.runs, self.look = runs, look
        self.problem = ""  # the code of the error with which the store could not be read
        self._tried: dict[tuple[str, str], _Backoff] = {}
        self._expiry: dict[tuple[str, str], tuple[int, float]] = {}  # when the first question of a thread lapses
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._repeat(self.resume_all, self.look), name="taking up runs"),
            asyncio.create_task(self._repeat(self.cancel_requested, CANCEL_PAUSE), name="cancelling runs"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        while True:
            try:
                await work()
                self.problem = ""
            except Exception as error:
                known = isinstance(error, WickError)
                self.runs.executor.record_damage(error)
                self.problem = getattr(error, "code", "") if known and not _is_locked(error) else ""
                logger.warning("looking after runs failed; it is tried again: %s", error, exc_info=not known)
            await asyncio.sleep(pause)

    # -- taking up --------------------------------------------------------------------------------------------------

    async def resume_all(self) -> None:
        """Look at everything that is unfinished, and let go on what can."""
        await release_leases(self.runs.store)
        there = set[tuple[str, str]]()
        async for head in self._list_unfinished():
            there.add((head.owner, head.id))
            if await self._can_resume(head):
                await self._resume(head)
        for known in (self._tried, self._expiry):
            for key in known.keys() - there:
                del known[key]

    async def _list_unfinished(self) -> AsyncIterator[Summary]:
        cursor = None
        while cursor != "":
            page = await self.runs.store.unfinished(cursor=cursor or "", limit=PAGE)
            for head in page.threads:
                yield head
            cursor = page.next

    async def _can_resume(self, head: Summary) -> bool:
        key = head.owner, head.id
        if head.leased or key in self.runs.executor.running or "parent" in head.meta or "agent" not in head.meta:
            return False
        tried = self._tried.get(key)
        if tried is not None and tried.head == (head.last, head.queued) and monotonic() < tried.again:
            return False
        if not head.asking or await self._has_lapsed(head):
            return True
        return any(row.kind == "answer" for row in await self.runs.store.inbox(head.owner, head.id))

    async def _has_lapsed(self, head: Summary) -> bool:
        """Whether nobody has answered a question of a thread in time; a thread is read once for that."""
        key = head.owner, head.id
        last, expiry = self._expiry.get(key, (-1, inf))
        if last != head.last:
            asked = (await self.runs.sessions.load(head.id, owner=head.owner)).questions.values()
            expiry = min((float(question.get("expires", inf)) for question in asked), default=inf)
            self._expiry[key] = head.last, expiry
        return time() >= expiry

    async def _resume(self, head: Summary) -> None:
        self._schedule_retry(head)
        try:
            user = await self._run_user(head)
            await self.runs.resume_thread(user, head, lapsed=bool(head.asking))
        except (ApiError, StoreError) as error:
            logger.warning("thread %s of %s cannot be taken up: %s", head.id, head.owner, error)

    def _schedule_retry(self, head: Summary) -> None:
        """Should it fail, it is tried again later, and later each time; if it goes well, it changes the thread."""
        key, seen = (head.owner, head.id), (head.last, head.queued)
        before = self._tried.get(key)
        longest = STALLED_BACKOFF if key in self.runs.executor.stalls else MAX_BACKOFF
        pause = min(before.pause * 2, longest) if before is not None and before.head == seen else self.look
        self._tried[key] = _Backoff(seen, monotonic() + pause, pause)

    async def _run_user(self, head: Summary) -> User:
        """Who asked, as far as the server knows."""
        row = await self.runs.records.get(KIND, head.owner, head.run) if head.run else None
        if row is not None:
            return RunInfo.from_json(head.owner, head.run, row).user
        return User(head.owner, head.owner, "user")

    # -- cancelling -------------------------------------------------------------------------------------------------

    async def cancel_requested(self) -> None:
        """Cancel what another server was asked to cancel and runs here."""
        performing = self.runs.executor
        if not performing.running:
            return
        wanted = {(row.owner, row.id) for row in await self.runs.records.list(CANCEL)}
        for running in [*performing.running.values()]:
            if (running.info.owner, running.info.id) in wanted:
                await self.runs.records.delete(CANCEL, running.info.owner, running.info.id)
                performing.cancel(running)
