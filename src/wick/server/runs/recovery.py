"""Background recovery of runs.

The server resumes runs of crashed servers once their lease has lapsed, threads with queued messages, and runs whose
question was answered or has expired. It also cancels runs for which another server received the request.
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
from wick.stores.process_identity import holder_prefix

logger = logging.getLogger("wick.server")

POLL_SECONDS = 2.0  # between two scans for unfinished threads
CANCEL_PAUSE = 0.3  # between two scans for cancellations, while runs are in progress
MAX_BACKOFF = 300.0
STALLED_BACKOFF = 5.0  # for stalled runs: clients wait for them
PAGE = 500


@dataclass(slots=True)
class _Backoff:
    """The retry state of a thread that could not be resumed."""

    head: tuple[int, int]
    again: float
    pause: float


class RunRecovery:
    """Resumes and cancels runs in the background, from `start` to `stop`."""

    def __init__(self, runs: Runs, *, look: float = POLL_SECONDS) -> None:
        self.runs, self.look = runs, look
        self.problem = ""  # error code if the store cannot be read
        self._tried: dict[tuple[str, str], _Backoff] = {}
        # by thread: its last entry, and when its first question expires
        self._expiry: dict[tuple[str, str], tuple[int, float]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._repeat(self.resume_all, self.look), name="resuming runs"),
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
                locked = isinstance(error, StoreError) and error.code == "locked"
                self.runs.executor.record_damage(error)
                self.problem = getattr(error, "code", "") if known and not locked else ""
                logger.warning("recovery of runs failed; retrying: %s", error, exc_info=not known)
            await asyncio.sleep(pause)

    # -- resuming -----------------------------------------------------------------------------------------------------

    async def resume_all(self) -> None:
        """Resume all unfinished threads that can be resumed."""
        await release_leases(self.runs.store)
        there = set[tuple[str, str]]()
        async for head in self._list_unfinished():
            there.add((head.owner, head.id))
            if await self._can_resume(head):
                await self._resume(head)
        for known in (self._tried, self._expiry):
            for key in known.keys() - there - self.runs.executor.running.keys():
                del known[key]

    async def _list_unfinished(self) -> AsyncIterator[Summary]:
        cursor = None
        while cursor != "":
            page = await self.runs.store.unfinished(cursor=cursor or "", limit=PAGE, skip_holder=holder_prefix())
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
        if not head.queued:
            return False
        return any(row.kind == "answer" for row in await self.runs.store.inbox(head.owner, head.id))

    async def _has_lapsed(self, head: Summary) -> bool:
        """Return True if a question of a thread has expired. The thread is read only when it has changed."""
        key = head.owner, head.id
        last, expiry = self._expiry.get(key, (-1, inf))
        if last != head.last:
            asked = (await self.runs.sessions.load(head.id, owner=head.owner)).questions.values()
            expiry = min((float(question.get("expires", inf)) for question in asked), default=inf)
            self._expiry[key] = head.last, expiry
        return time() >= expiry

    async def _resume(self, head: Summary) -> None:
        # exponential backoff; a changed thread starts at the first delay again
        key, seen = (head.owner, head.id), (head.last, head.queued)
        before = self._tried.get(key)
        longest = STALLED_BACKOFF if key in self.runs.executor.stalls else MAX_BACKOFF
        pause = min(before.pause * 2, longest) if before is not None and before.head == seen else self.look
        self._tried[key] = _Backoff(seen, monotonic() + pause, pause)
        try:
            user = User(head.owner, head.owner, "user")
            if head.run and (row := await self.runs.records.get(KIND, head.owner, head.run)) is not None:
                user = RunInfo.from_json(head.owner, head.run, row).user
            await self.runs.resume_thread(user, head, lapsed=bool(head.asking))
        except (ApiError, StoreError) as error:
            logger.warning("thread %s of %s cannot be resumed: %s", head.id, head.owner, error)

    # -- cancelling ---------------------------------------------------------------------------------------------------

    async def cancel_requested(self) -> None:
        """Cancel runs on this server for which another server received the request; wait until there is a run."""
        performing = self.runs.executor
        while not performing.running:
            performing.started.clear()
            await performing.started.wait()
        wanted = {(row.owner, row.id) for row in await self.runs.records.list(CANCEL)}
        if not wanted:
            return
        for running in [*performing.running.values()]:
            if (running.info.owner, running.info.id) in wanted:
                await self.runs.records.delete(CANCEL, running.info.owner, running.info.id)
                performing.cancel(running)
