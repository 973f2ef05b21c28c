"""Admission control of runs: whether a user may start one, and whether this server may perform it.

A user's quota counts the runs on all servers. A server takes a run if it does not stop, has room for it, and no other
server has the files of its workspace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from wick.errors import StoreError
from wick.protocols import Lease, Store, Summary
from wick.server.agents.registry import AgentRegistry
from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.ops.quotas import QuotaLimiter
from wick.server.runs.executor import RunExecutor
from wick.server.runs.record import RunInfo
from wick.stores.held_thread import acquire_lease
from wick.stores.rows import LEASE_SECONDS


class RunAdmission:
    """Decides which runs may start on this server."""

    def __init__(self, store: Store, registry: AgentRegistry, limits: QuotaLimiter, executor: RunExecutor) -> None:
        self._store, self._registry, self._limits, self._executor = store, registry, limits, executor
        self.stopping = False  # no run starts any more

    def check_open(self) -> None:
        """Raise a 503 if this server stops."""
        if self.stopping:
            words = "the server is about to stop; try again in a moment"
            raise ApiError(503, "stopping", words, {"Retry-After": "5"})

    @asynccontextmanager
    async def reserve_run(self, owner: str) -> AsyncIterator[None]:
        """Count a run of a user that is about to start; raise a 429 if the quota is used up."""
        have = self._limits.count_held("runs", owner)  # those that another server starts now are not counted
        if self._limits.is_shared and self._limits.limit_of("runs"):
            have += int(await cast(Any, self._store).count_leases(owner))
        else:
            have += self._executor.count_runs(owner)
        self._limits.check_room("runs", have)
        with self._limits.hold("runs", owner):
            yield

    async def lease_idle_thread(self, head: Summary, **options: Any) -> Lease | None:
        """Acquire the lease of a thread for its next run, which also reads its inbox; return None if it is in use.

        The options are for the store's `lease`.
        """
        is_idle = not (head.run or head.leased or head.asking) and self._executor.find(head.owner, head.id) is None
        if not is_idle or not self._has_room():
            return None
        with suppress(StoreError):  # the message is stored: its run is found or started without the lease
            return await acquire_lease(self._store, head.owner, head.id, LEASE_SECONDS, wait=False, **options)
        return None

    async def can_start(self, user: User, info: RunInfo) -> bool:
        """Return False if this server leaves a run to another one: it stops, is full, or does not have the files."""
        return self._has_room() and await self._has_files(user, info)

    def _has_room(self) -> bool:
        return not self.stopping and self._executor.count_free() > 0

    async def _has_files(self, user: User, info: RunInfo) -> bool:
        """Return False if another server has the workspace of a run. It claims the run."""
        locality = self._registry.locality
        try:
            if not locality.is_shared or not await self._registry.is_local(user, info.agent):
                return True
        except ApiError:  # without its agent, the run fails here
            return True
        return await locality.can_run_here(info.owner, info.agent)
