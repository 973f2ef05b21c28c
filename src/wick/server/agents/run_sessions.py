"""The threads of a server's runs: one that was answered meanwhile is not run for nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from wick.capabilities.sessions import LOCAL, Sessions
from wick.errors import StoreError
from wick.operations import Run


class RunSessions(Sessions):
    """Sessions for runs without input, which answer what is queued, or take up what was interrupted.

    Of two servers that begin the same run, one holds the thread first. The other finds nothing left to do there.
    """

    name = "sessions"
    on_held: Callable[[Run], None] | None = None  # called once the lease of a root run's thread is held

    @asynccontextmanager
    async def session(self, run: Run) -> AsyncIterator[None]:
        async with super().session(run):
            run.scratch[self] = run.thread.writer  # which knows what is saved, also when the run is over
            if run.parent is None and not run.input and run.thread.open_run is None:
                queued = await self.store.inbox(run.user or LOCAL, run.thread.id)
                if not any(row.kind == "message" for row in queued):
                    raise StoreError(f"what was said to thread {run.thread.id} has been answered elsewhere", "conflict")
            if run.parent is None and self.on_held is not None:
                self.on_held(run)
            yield
