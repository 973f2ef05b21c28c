"""Locality of workspaces: which server of a cluster has the files of a user's agent, and how they move to another one.

A workspace is at a place: a folder of workspaces, which servers of one machine may share. It moves with a run after all
servers of its place have died or drained, and with a request for its files after they have died. The server that needs
the files restores the last snapshot first. Without a snapshot a run pauses with a question, and a request is refused.

Two locks protect a move. The row of the workspace changes only if it is still the one that was read, so one place wins.
Among the servers of one place a file lock is held from the restoration to that change: a second restoration would
revert changes that were made after the first one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from time import monotonic, time
from typing import Any, BinaryIO

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
MOVED_AWAY = "its workspace was moved to another server, which continues the run"
LOCK_PAUSE = 0.05  # seconds between two attempts to lock a workspace


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """The result of an attempt to move a workspace: where it is, and why it could not be moved if it is not in use."""

    home: WorkspaceHome
    problem: str = ""
    report: RestoreReport | None = None  # of the files that were restored


class Locality:
    """Where the workspaces of a cluster are. With a store of one process they are all here, and nothing is recorded."""

    def __init__(self, store: Store, workspaces: Workspaces) -> None:
        self.workspaces, self.place = workspaces, ""
        self._store: Any = store
        self.is_shared = hasattr(store, "find_workspace")
        self._alive: tuple[float, frozenset[str]] = (-inf, frozenset())
        self._moves: dict[tuple[str, str], asyncio.Task[MoveOutcome]] = {}

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
            alive = frozenset(server.place for server in await self._store.servers(alive_only=True))
            self._alive = monotonic(), alive
        return place in alive

    # -- moving -------------------------------------------------------------------------------------------------------

    async def settle(self, owner: str, agent: str, snapshots: Snapshots | None) -> tuple[str, RestoreReport | None]:
        """Bring a workspace to this server before a run. Return the reason if that is not possible, and a report."""
        moved = MoveOutcome(await self.find_home(owner, agent))
        if moved.home.place != self.place:
            moved = await self.bring_here(owner, agent, snapshots)
        if moved.problem:
            return moved.problem, None
        if moved.home.place != self.place:
            raise Paused("its workspace is on another server, which continues the run")
        if snapshots is not None and not moved.home.snapshot:
            await self.record_snapshot(owner, agent, snapshots)  # the first one, before anything changes
        return "", moved.report

    async def bring_here(self, owner: str, agent: str, snapshots: Snapshots | None) -> MoveOutcome:
        """Move a workspace to this place and restore its last snapshot, unless a server at its place uses it.

        Concurrent calls share one move. It continues if its caller is cancelled: a worker thread writes the files.
        """
        key = owner, agent
        if (moving := self._moves.get(key)) is None:
            moving = self._moves[key] = asyncio.create_task(self._move(owner, agent, snapshots), name="moving files")
            moving.add_done_callback(lambda _: self._moves.pop(key, None))
        return await asyncio.shield(moving)

    async def _move(self, owner: str, agent: str, snapshots: Snapshots | None) -> MoveOutcome:
        report: RestoreReport | None = None
        async with self._lock(owner, agent):
            for _ in range(MOVES):
                home = await self.find_home(owner, agent)
                if home.place == self.place or home.in_use:
                    return MoveOutcome(home, report=report)
                problem, report = await self._restore(home, snapshots)
                if problem:
                    name = home.host.partition(":")[0] or "a server"
                    return MoveOutcome(home, f"they are on {name}, which is away, and {problem}")
                await self._store.move_workspace(owner, agent, home, home.snapshot)  # the next attempt finds the result
            home = await self.find_home(owner, agent)
            is_settled = home.place == self.place or home.in_use
            return MoveOutcome(home, "" if is_settled else "other servers move them at the same time", report)

    @asynccontextmanager
    async def _lock(self, owner: str, agent: str) -> AsyncIterator[None]:
        """Hold the lock of a workspace among the servers of this place."""
        folder = self.workspaces.folder(owner, agent)

        def open_file() -> BinaryIO:
            folder.parent.mkdir(parents=True, exist_ok=True)
            return open(folder.with_name(f".{folder.name}.lock"), "ab")

        with await run_in_thread(open_file, "workspace") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(LOCK_PAUSE)
            yield

    async def _restore(self, home: WorkspaceHome, snapshots: Snapshots | None) -> tuple[str, RestoreReport | None]:
        if not home.snapshot:
            return "have no snapshot" if home.changed else "", None
        if snapshots is None:
            return "the agent takes no snapshots any more", None
        try:
            return "", await snapshots.adopt(home.snapshot)
        except BackendError as error:
            return f"the last snapshot cannot be restored here: {error}; let all servers share `snapshots`", None

    async def start_afresh(self, owner: str, agent: str, snapshots: Snapshots | None) -> None:
        """Let a workspace be here, empty. Files that this server has of it are moved beside its folder."""
        folder = self.workspaces.folder(owner, agent)

        def set_aside() -> None:
            names = os.listdir(folder) if folder.is_dir() else ()
            aside = folder.with_name(f"{folder.name}.{int(time())}")
            for name in names:
                aside.mkdir(exist_ok=True)
                os.rename(folder / name, aside / name)

        async with self._lock(owner, agent):
            home = await self.find_home(owner, agent)
            if home.place == self.place:
                return  # another run has started afresh, and its files stay
            await run_in_thread(set_aside, "workspace")  # before the move: a crash must not make an old copy current
            if not await self._store.move_workspace(owner, agent, home, ""):
                raise Paused(MOVED_AWAY)
            if snapshots is not None:
                await snapshots.start_afresh()
                await self.record_snapshot(owner, agent, snapshots)

    # -- changes ------------------------------------------------------------------------------------------------------

    async def record_snapshot(self, owner: str, agent: str, snapshots: Snapshots) -> bool:
        """Take a snapshot and record it; return False if the workspace is at another place now.

        If that fails, the last snapshot must not be restored: it is too old.
        """
        try:
            taken = await snapshots.take()
        except BackendError:
            return await self.record_change(owner, agent, "", time())
        return await self.record_change(owner, agent, taken.id, taken.at)

    async def record_change(self, owner: str, agent: str, snapshot: str | None = None, at: float = 0.0) -> bool:
        """Record that files change, or the snapshot with the changes; return False if the workspace has moved."""
        return bool(await self._store.record_change(owner, agent, snapshot, at))

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
            if not await self._locality.record_change(*self._key):
                raise Paused(MOVED_AWAY)
            root.scratch[self] = True  # once is enough
        return ""

    async def after_effect(self, use: ToolUse) -> None:
        """Take a snapshot before the end of a tool is logged: the files of the last logged effect can be restored."""
        snapshots = find_snapshots(use.run.root.loop.hooks)
        if snapshots is not None and can_change_files(use.bound):
            taken, _ = await snapshots.record_snapshot(use.run, "after", use.call.id)
            id, at = ("", time()) if taken is None else (taken.id, taken.at)
            if not await self._locality.record_change(*self._key, id, at):
                raise Paused(MOVED_AWAY)  # the effect is on a copy of the files, so it must not be logged as done

    async def release_effect(self, use: ToolUse) -> None:
        """Release nothing."""

    @after(Run, on_error="log")
    async def record_end(self, run: Run) -> None:
        """Record the snapshot that was taken at the end of the run."""
        snapshots = find_snapshots(run.loop.hooks)
        if run.parent is None and snapshots is not None and (last := snapshots.find_current(run)) is not None:
            await self._locality.record_change(*self._key, last.id, last.at)


def find_snapshots(hooks: Iterable[Hook]) -> Snapshots | None:
    """Return the snapshots capability among the hooks of an agent."""
    return next((hook.owner for hook in hooks if isinstance(hook.owner, Snapshots)), None)
