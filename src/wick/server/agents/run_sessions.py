"""Sessions of server runs: a run does not start if another server has answered its thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.operations import Run
from wick.stores.held_thread import HeldThread


class RunSessions(Sessions):
    """Sessions for runs without input: they answer queued messages, or resume an interrupted run.

    Of two servers that start the same run, one acquires the lease first. The other finds an empty inbox and stops.
    """

    name = "sessions"
    on_held: Callable[[Run], None] | None = None  # called when the lease of a root run's thread is acquired

    @asynccontextmanager
    async def session(self, run: Run) -> AsyncIterator[None]:
        async with super().session(run):
            held = run.scratch[self] = run.thread.writer  # it knows which entries are saved, also after the run
            is_new = run.parent is None and not run.input and run.thread.open_run is None
            inbox = await held.fetch_inbox() if is_new and isinstance(held, HeldThread) else None
            if inbox is not None and not any(item.kind == "message" for item in inbox):
                raise StoreError(f"what was said to thread {run.thread.id} has been answered elsewhere", "conflict")
            if run.parent is None and self.on_held is not None:
                self.on_held(run)
            yield
