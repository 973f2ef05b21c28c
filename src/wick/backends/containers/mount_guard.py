"""Guards of host folders that are mounted in a container, for its commands, jobs and terminals.

    guards = MountGuards([("/srv/project", "/workspace")], "/workspace", PROTECTED)
    async with guards.guard_command() as guard:
        …                                    a command runs
    guard.moved                              the renamed plants

The watcher is the same process on this host as for the local backend (wick.wickd.watcher).
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.backends.daemon_client import get_host_daemon
from wick.backends.workspace_guard import WorkspaceGuard, explain_moved, explain_stuck, run_to_completion
from wick.errors import BackendError
from wick.workspace.results import CommandResult, JobInfo

ListJobs = Callable[[], Awaitable[Sequence[tuple[Hashable, JobInfo]]]]


class MountGuard:
    """The guards of all shared folders, for one command, job or terminal."""

    def __init__(self, owner: MountGuards) -> None:
        self._owner = owner
        self._guards: list[WorkspaceGuard] = []
        self._ending = asyncio.Lock()

    async def begin(self) -> None:
        """Start watching the folders. A folder that this host lacks is on another machine, and is skipped."""
        for source, target in self._owner.folders:
            if await self._owner.has_here(source):
                daemon, show = await get_host_daemon(), self._owner.show_in(target)
                guard = WorkspaceGuard(daemon, source, self._owner.protect, contained=True, show=show)
                self._guards.append(guard)
                await run_to_completion(guard.begin())

    async def end(self) -> None:
        """Process the last changes. A second call waits for the first, so that it sees them, too."""
        async with self._ending:
            try:
                for guard in self._guards:
                    await guard.end()
            finally:
                self._owner.open.discard(self)

    @property
    def moved(self) -> list[str]:
        return [path for guard in self._guards for path in guard.moved]

    def explain(self, error: str) -> str:
        return explain_stuck(error, [path for guard in self._guards for path in guard.stuck])

    def add_to(self, executed: CommandResult) -> CommandResult:
        """Return the result of a command with the plants that were neutralised."""
        return {**executed, "error": self.explain(executed["error"]), "moved": [*executed["moved"], *self.moved]}


class MountGuards:
    """All guards of one event loop. `folders` are pairs: a path on this host, and its path in the container.

    Jobs are polled: the guard of a job ends within a second after the job, even if its result is not read.
    """

    def __init__(self, folders: Sequence[tuple[str, str]], workdir: str, protect: Sequence[str]) -> None:
        self.folders, self.protect, self._workdir = folders, protect, workdir
        self.open: set[MountGuard] = set()
        self._here: set[str] = set()  # folders that exist on this host
        self._jobs: dict[tuple[Hashable, str], MountGuard] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._following = False

    async def has_here(self, source: str) -> bool:
        """Return True if a folder exists on this host."""
        if source not in self._here and await run_in_thread(lambda: os.path.isdir(source), "command"):
            self._here.add(source)
        return source in self._here

    def show_in(self, target: str) -> Callable[[str], str]:
        """Return a function from a path in a shared folder to the path that commands know."""

        def show(path: str) -> str:
            full, workdir = posixpath.join(target, path), f"{self._workdir}/"
            return full[len(workdir) :] if full.startswith(workdir) else full

        return show

    async def begin(self) -> MountGuard:
        guard = MountGuard(self)
        self.open.add(guard)
        try:
            await guard.begin()
        except BaseException:
            await guard.end()
            raise
        return guard

    @asynccontextmanager
    async def guard_command(self) -> AsyncIterator[MountGuard]:
        """Watch the folders while a command runs."""
        guard = await self.begin()
        try:
            yield guard
        finally:
            await guard.end()

    # -- jobs -------------------------------------------------------------------------------------------------------

    def follow(
        self, runner: Hashable, id: str, guard: MountGuard, list_jobs: ListJobs, tidy: Callable[[], None]
    ) -> None:
        """End a guard when a job or its runner has ended; `tidy` ends the processes that the job left."""
        if not self.folders:
            return
        self._jobs[runner, id] = guard
        if not self._following:
            self._following = True
            task = asyncio.create_task(self._follow(list_jobs, tidy), name="guards of a container", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow(self, list_jobs: ListJobs, tidy: Callable[[], None]) -> None:
        try:
            while any(guard in self.open for guard in self._jobs.values()):
                await asyncio.sleep(constants.WATCH_SECONDS)
                with suppress(BackendError):
                    known = {(runner, job["id"]) for runner, job in await list_jobs()}
                    for key in self._jobs.keys() - known:
                        lost = self._jobs.pop(key)
                        if lost in self.open:
                            tidy()
                            await lost.end()
        finally:
            self._following = False

    async def explain(self, runner: Hashable, job: JobInfo) -> JobInfo:
        """End the guard of a job that has ended; return the job with the plants that were neutralised."""
        guard = self._jobs.get((runner, job["id"]))
        if guard is None or job["running"]:
            return job
        if guard in self.open:
            await guard.end()
        return {**job, "error": explain_moved(guard.explain(job["error"]), guard.moved)}

    async def close(self) -> None:
        """Process the last changes of a removed container, and stop watching."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for guard in [*self.open]:
            await guard.end()
        self._jobs.clear()
        if self._here:
            with suppress(BackendError):
                daemon = await get_host_daemon()
                for source in self._here:
                    await daemon.unwatch(source)
