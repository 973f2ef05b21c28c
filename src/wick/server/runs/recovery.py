"""Background recovery of runs.

The server resumes runs of crashed servers once their lease has lapsed, threads with queued messages, and runs whose
question was answered or has expired. It also cancels runs for which another server received the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from wick.errors import StoreError, WickError
from wick.protocols import Lease, Summary
from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.runs import CANCEL, Runs
from wick.server.runs.executor import ClaimedRun
from wick.server.runs.record import KIND, RunInfo
from wick.stores.claims import ThreadClaims
from wick.stores.held_thread import release_lease, release_leases

logger = logging.getLogger("wick.server")

POLL_SECONDS = 1.0  # between two claims
LAPSE_MARGIN = 0.05  # after the leases of a dead server have lapsed
CANCEL_PAUSE = 0.3  # between two scans for cancellations, while runs are in progress
LIVE_CANCEL_PAUSE = 5.0  # the same while the live plane delivers them
MAX_BACKOFF = 300.0
STALLED_BACKOFF = 5.0  # for stalled runs: clients wait for them
CLAIMED_AT_ONCE = 100
RESUMED_AT_ONCE = 20  # the first runs call their models while the others are loaded
STOP_SECONDS, STOP_ATTEMPTS = 3.0, 5  # for the tasks to end after a cancellation, and how often they are cancelled
CLAIM_DELAY = 3.0  # after a due claim, a server without one counts as blocked


@dataclass(slots=True)
class _Backoff:
    """The retry state of a thread that could not be resumed."""

    head: Summary
    again: float
    pause: float


class RunRecovery:
    """Resumes and cancels runs in the background, from `start` to `stop`."""

    def __init__(self, runs: Runs, *, look: float = POLL_SECONDS) -> None:
        self.runs, self.look = runs, look
        self.problem = ""  # error code if the store cannot be read
        self._claims, self._claimed_at = ThreadClaims(runs.store), monotonic()
        self._tried: dict[tuple[str, str], _Backoff] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def start(self) -> None:
        self._is_stopping = False
        self._tasks = {
            asyncio.create_task(self._repeat(self.resume_all, self._next_claim), name="resuming runs"),
            asyncio.create_task(self._repeat(self.cancel_requested, self._cancel_pause), name="cancelling runs"),
        }

    async def stop(self) -> None:
        """Cancel the tasks, again if a cancellation is lost: `wait_for` of Python 3.11 may swallow one."""
        self._is_stopping = True
        for _ in range(STOP_ATTEMPTS):
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                _, self._tasks = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        if self._tasks:
            logger.warning("the recovery of runs does not end; the server stops without it")

    def _cancel_pause(self) -> float:
        live = self.runs.live
        return CANCEL_PAUSE if live is None or live.problem else LIVE_CANCEL_PAUSE

    @property
    def is_claiming(self) -> bool:
        """Return False if the event loop has not claimed threads for some seconds; others take its share."""
        return monotonic() - self._claimed_at < self.look + CLAIM_DELAY

    def _next_claim(self) -> float:
        """Return the seconds until the next claim: when the leases of a dead server lapse, or the usual pause."""
        left: float = getattr(self.runs.store, "next_lapse", inf) - monotonic() + LAPSE_MARGIN
        return left if 0 < left < self.look else self.look

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause: Callable[[], float]) -> None:
        while not self._is_stopping:
            try:
                await work()
                self.problem = ""
            except Exception as error:
                known = isinstance(error, WickError)
                locked = isinstance(error, StoreError) and error.code == "locked"
                self.runs.executor.record_damage(error)
                self.problem = getattr(error, "code", "") if known and not locked else ""
                logger.warning("recovery of runs failed; retrying: %s", error, exc_info=not known)
            await asyncio.sleep(pause())

    # -- resuming -----------------------------------------------------------------------------------------------------

    async def resume_all(self) -> None:
        """Claim the threads that this server can resume, and start their runs."""
        await release_leases(self.runs.store)
        while True:
            now = monotonic()
            # a thread that cannot be resumed is tried again as soon as it is due
            self._tried = {key: tried for key, tried in self._tried.items() if now < tried.again + MAX_BACKOFF}
            skip = [tried.head for tried in self._tried.values() if now < tried.again]
            room = min(CLAIMED_AT_ONCE, self.runs.executor.count_free())
            leases = await self._claims.claim(room, skip) if room else ()
            self._claimed_at = monotonic()
            await self._resume_claimed(leases)
            if len(leases) < CLAIMED_AT_ONCE:
                return

    async def _resume_claimed(self, leases: Sequence[Lease]) -> None:
        """Start the runs of claimed threads, `RESUMED_AT_ONCE` at a time.

        The leases of runs that do not start are released, also if this task is cancelled before their turn: other
        servers would wait for them to lapse.
        """
        places = asyncio.Semaphore(RESUMED_AT_ONCE)
        unresumed = {id(lease): lease for lease in leases}
        alive: Collection[str] | None = None

        async def resume(lease: Lease) -> None:
            async with places:
                del unresumed[id(lease)]
                await self._resume(lease, alive)

        try:
            if leases:  # read after the claim: a server that died before it is not among them
                alive = await self.runs.executor.find_live_servers()
            await asyncio.gather(*(resume(lease) for lease in leases))
        finally:
            for lease in unresumed.values():
                assert lease.head is not None
                await release_lease(self.runs.store, lease.head.owner, lease.head.id, lease.fence)

    async def _resume(self, lease: Lease, alive: Collection[str] | None) -> None:
        """Start the run of a claimed thread with its lease. The lease is released if there is nothing to start.

        `alive` are the live servers since the claim.
        """
        assert lease.head is not None
        head = replace(lease.head, leased=False)  # by another server
        key, performing = (head.owner, head.id), self.runs.executor
        if performing.find(*key) is not None:  # it was started here since
            await release_lease(self.runs.store, *key, lease.fence)
            return
        self._delay_next_attempt(head)
        self.runs.registry.sessions.leases[key] = lease
        try:
            row = await self.runs.records.get(KIND, head.owner, head.run) if head.run else None
            if row is not None:
                info = RunInfo.from_json(head.owner, head.run, row)
                claimed = ClaimedRun(row, head.last, alive)
                await self.runs.resume_run(head, info, claimed, lapsed=bool(head.asking))
            else:
                await self.runs.resume_thread(User(head.owner, head.owner, "user"), head, lapsed=bool(head.asking))
        except Exception as error:  # of one thread; the others are resumed
            is_known = isinstance(error, (ApiError, StoreError))
            logger.warning("thread %s of %s cannot be resumed: %s", head.id, head.owner, error, exc_info=not is_known)
        finally:
            if performing.find(*key) is None:
                await performing.release_unused_lease(*key)

    def _delay_next_attempt(self, head: Summary) -> None:
        """Set when a thread may be claimed again: exponential backoff, from the start if the thread has changed."""
        key, before = (head.owner, head.id), self._tried.get((head.owner, head.id))
        is_same = before is not None and (before.head.last, before.head.queued) == (head.last, head.queued)
        longest = STALLED_BACKOFF if key in self.runs.executor.stalls else MAX_BACKOFF
        pause = min(before.pause * 2, longest) if before is not None and is_same else self.look
        self._tried[key] = _Backoff(head, monotonic() + pause, pause)

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
