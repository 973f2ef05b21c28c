"""Locality of workspaces: which server of a cluster has the files of a user's agent, and how they move to another one.

A workspace is at a place: a folder of workspaces, which servers of one machine may share. It moves only with a run,
after all servers of its place have died or drained. The server that performs the run first restores the last snapshot.
Without a snapshot the run pauses with a question.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import inf
from time import monotonic, time
from typing import Any

from wick._internal.worker_threads import run_in_thread
from wick.capabilities.snapshots import Snapshots, can_change_files, settle_files
from wick.capability import Capability
from wick.decisions import Block
from wick.errors import BackendError, Paused
from wick.hooks import Hook, after, before
from wick.operations import Run, ToolUse
from wick.protocols import Backend, Store, WorkspaceHome
from wick.server.agents.workspaces import Workspaces, load_or_create_id
from wick.workspace.snapshots.restore import RestoreReport

PLACE_FILE = ".place"  # in the folder of workspaces
MOVES = 5  # attempts to move a workspace while other servers do the same
ALIVE_SECONDS = 1.0  # for which the places of live servers are cached


class Locality:
    """Where the workspaces of a cluster are. With a store of one process they are all here, and nothing is recorded."""

    def __init__(self, store: Store, workspaces: Workspaces) -> None:
        self.workspaces, self.place = workspaces, ""
        self._store: Any = store
        self.is_shared = hasattr(store, "find_workspace")
        self._alive: tuple[float, frozenset[str]] = (-inf, frozenset())

    async def start(self) -> None:
        """Load the id of this place from the folder of workspaces; create it on first use."""
        if self.is_shared:
            path = self.workspaces.data / "workspaces" / PLACE_FILE
            self.place = await run_in_thread(lambda: load_or_create_id(path), "start")

    async def find_home(self, owner: str, agent: str) -> WorkspaceHome:
        """Return where a workspace is. If there is no record of it, it is here from now on."""
        home: WorkspaceHome = await self._store.find_workspace(owner, agent)
        if home.place == self.place and not home.changed:
            folder = self.workspaces.folder(owner, agent)
            if await run_in_thread(lambda: folder.is_dir() and any(folder.iterdir()), "workspace"):
                await self._store.record_change(owner, agent)  # it has files from before it was recorded
        return home

    async def can_run_here(self, owner: str, agent: str) -> bool:
        """Return False if a live server at another place performs the runs of a workspace."""
        home = await self.find_home(owner, agent)
        return home.place == self.place or not home.in_use

    async def is_alive(self, place: str) -> bool:
        """Return True if a server of a place was seen recently."""
        since, alive = self._alive
        if monotonic() - since > ALIVE_SECONDS:
            alive = frozenset(server.place for server in await self._store.servers() if server.alive)
            self._alive = monotonic(), alive
        return place in alive

    # -- moving -------------------------------------------------------------------------------------------------------

    async def settle(self, owner: str, agent: str, snapshots: Snapshots | None) -> tuple[str, RestoreReport | None]:
        """Bring a workspace to this server before a run. Return the reason if that is not possible, and a report."""
        report: RestoreReport | None = None
        for _ in range(MOVES):
            home = await self.find_home(owner, agent)
            if home.place == self.place:
                if snapshots is not None and not home.snapshot:
                    await self.record_snapshot(owner, agent, snapshots)  # the first one, before anything changes
                return "", report
            if home.in_use:
                raise Paused("its workspace is on another server, which continues the run")
            problem, report = await self._restore(home, snapshots)
            if problem:
                return f"they are on {home.host.partition(':')[0] or 'a server'}, which is away, and {problem}", None
            await self._store.move_workspace(owner, agent, home, home.snapshot)  # the next attempt finds the result
        return "other servers move them at the same time", None

    async def _restore(self, home: WorkspaceHome, snapshots: Snapshots | None) -> tuple[str, RestoreReport | None]:
        if not home.snapshot:
            return "have no snapshot" if home.changed else "", None
        if snapshots is None:
            return "the agent takes no snapshots any more", None
        try:
            return "", await snapshots.adopt(home.snapshot)
        except BackendError as error:
            return f"the last snapshot cannot be restored here: {error}; let `snapshots` be a shared folder", None

    async def start_afresh(self, owner: str, agent: str, snapshots: Snapshots | None) -> None:
        """Let a workspace be here, empty. Files that this server has of it are moved beside its folder."""
        home, folder = await self.find_home(owner, agent), self.workspaces.folder(owner, agent)
        if home.place != self.place and not await self._store.move_workspace(owner, agent, home, ""):
            raise Paused("its workspace was moved to another server, which continues the run")

        def set_aside() -> None:
            names = os.listdir(folder) if folder.is_dir() else ()
            aside = folder.with_name(f"{folder.name}.{int(time())}")
            for name in names:
                aside.mkdir(exist_ok=True)
                os.rename(folder / name, aside / name)

        await run_in_thread(set_aside, "workspace")
        if snapshots is not None:
            await snapshots.start_afresh()
            await self.record_snapshot(owner, agent, snapshots)

    # -- changes ------------------------------------------------------------------------------------------------------

    async def record_snapshot(self, owner: str, agent: str, snapshots: Snapshots) -> None:
        """Take a snapshot and record it. Without one, the last one must not be restored: it is too old."""
        try:
            id = (await snapshots.take()).id
        except BackendError:
            id = ""
        await self._store.record_change(owner, agent, id)

    async def record_change(self, owner: str, agent: str, snapshot: str | None = None) -> None:
        """Record that files of a workspace change, or the snapshot that has the changes."""
        await self._store.record_change(owner, agent, snapshot)

    async def forget(self, owner: str, agent: str) -> None:
        """Delete the record of a workspace whose files are deleted."""
        if self.is_shared:
            await self._store.forget_workspace(owner, agent)


class WorkspaceMove(Capability):
    """Brings the workspace of a run to this server, and records its snapshots for the server that resumes the run."""

    def __init__(self, locality: Locality, owner: str, agent: str, backend: Backend) -> None:
        self._locality, self._key, self._backend = locality, (owner, agent), backend

    @before(Run, priority=inf)
    async def bring_files(self, run: Run) -> Block | None:
        """Restore the files of a workspace from another server. Pause with a question if that is not possible."""
        if run.parent is not None:
            return None
        run.progress.extensions.observers.append(self)
        snapshots = find_snapshots(run.loop.hooks)

        async def find_problem() -> str:
            problem, report = await self._locality.settle(*self._key, snapshots)
            if report is not None:
                Snapshots.record_restore(run, report)
            return problem

        return await settle_files(run, find_problem, lambda: self._locality.start_afresh(*self._key, snapshots))

    async def before_effect(self, use: ToolUse) -> str:
        root = use.run.root
        if self not in root.scratch and find_snapshots(root.loop.hooks) is None and can_change_files(use.bound):
            await self._locality.record_change(*self._key)
            root.scratch[self] = True  # once is enough
        return ""

    async def after_effect(self, use: ToolUse) -> None:
        """Take a snapshot before the end of a tool is logged: the files of the last logged effect can be restored."""
        snapshots = find_snapshots(use.run.root.loop.hooks)
        if snapshots is not None and can_change_files(use.bound):
            taken, _ = await snapshots.record_snapshot(use.run, "after", use.call.id)
            await self._locality.record_change(*self._key, "" if taken is None else taken.id)

    @after(Run, on_error="log")
    async def record_end(self, run: Run) -> None:
        """Record the snapshot that was taken at the end of the run."""
        snapshots = find_snapshots(run.loop.hooks)
        if run.parent is None and snapshots is not None and snapshots.has_current(run):
            last = await run_in_thread(lambda: snapshots.history.last(), "snapshots")
            await self._locality.record_change(*self._key, last)


def find_snapshots(hooks: Iterable[Hook]) -> Snapshots | None:
    """Return the snapshots capability among the hooks of an agent."""
    return next((hook.owner for hook in hooks if isinstance(hook.owner, Snapshots)), None)
