"""Sessions of server runs: a run does not start if another server has answered its thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.operations import Run
from wick.protocols import Lease
from wick.stores.held_thread import HeldThread


class RunSessions(Sessions):
    """Sessions for runs without input: they answer queued messages, or resume an interrupted run.

    Of two servers that start the same run, one acquires the lease first. The other finds an empty inbox and stops.
    """

    name = "sessions"
    on_held: Callable[[Run], None] | None = None  # called when the lease of a root run's thread is acquired

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.leases: dict[tuple[str, str], Lease] = {}  # of threads that were created for a run, by owner and thread

    def take_lease(self, run: Run) -> Lease | None:
        return self.leases.pop((run.user, run.thread.id), None) if run.parent is None else None

    @asynccontextmanager
    async def session(self, run: Run) -> AsyncIterator[None]:
        async with super().session(run):
            held = run.scratch[self] = run.thread.writer  # it knows which entries are saved, also after the run
            is_new = run.parent is None and not run.input and run.thread.open_run is None
            inbox = await held.fetch_inbox() if is_new and isinstance(held, HeldThread) else None
            if inbox is not None and not any(item.kind == "message" for item in inbox):
                raise StoreError(f"another server has answered the messages to thread {run.thread.id}", "conflict")
            if run.parent is None and self.on_held is not None:
                self.on_held(run)
            yield
