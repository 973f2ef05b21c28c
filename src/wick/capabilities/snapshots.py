"""Snapshots of the workspace before tools change it, and undo.

    snapshots = Snapshots(backend)
    agent = Agent(model, hooks=[Filesystem(backend), snapshots])
    result = await agent.run("Delete all logs.")
    await snapshots.diff(result.thread, 0)              the changes that an undo would make
    await snapshots.restore(result.thread, 0)           the files as they were after the entry 0

A snapshot is an event in the log of the thread. The files of the moment after an entry are those of the first snapshot
that follows it: every later change was made after that snapshot.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from wick import constants
from wick._internal.frozen import digest
from wick._internal.paths import data_folder
from wick._internal.worker_threads import run_in_thread
from wick.approvals import START_AFRESH, ask_user, new_question_id
from wick.capability import Capability
from wick.decisions import Block, Question
from wick.errors import BackendError, ConfigError
from wick.hooks import after, before
from wick.operations import Run, ToolUse
from wick.protocols import Backend
from wick.stores.s3 import SCHEME, UNAVAILABLE, BucketAddress, S3Bucket
from wick.stores.snapshot_bucket import BucketStorage
from wick.threads import Thread
from wick.threads.state import Entry
from wick.tools import Tool
from wick.workspace.os_errors import to_backend_error
from wick.workspace.snapshots.compare import FileChange
from wick.workspace.snapshots.history import Snapshot, SnapshotHistory
from wick.workspace.snapshots.restore import RestoreReport
from wick.workspace.snapshots.scan import DEFAULT_EXCLUDE

T = TypeVar("T")

TAKEN, FAILED, RESTORED = "snapshot", "snapshot_failed", "files_restored"  # names of events
MOVED = "workspace_restored"  # the event of a missing workspace that was restored
AFRESH = "workspace_started_afresh"  # the event of a run that continues in an empty folder, as its user has chosen
ATTEMPTS = 20  # to find the files, in one process
HISTORIES = 64  # open histories of workspaces in one process
LISTED = 20  # paths in an event


@dataclass(frozen=True, slots=True)
class OutsideUse:
    """A tool use that may have had an effect outside of the workspace, which an undo does not revert."""

    seq: int
    tool: str
    reason: str


@dataclass(slots=True, eq=False)
class _RunState:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    step: int = -1  # of the last snapshot
    at: float = -inf
    has_failed: bool = False
    last: Snapshot | None = None  # unless the last attempt has failed


class Snapshots(Capability):
    """Takes a snapshot of the workspace before tools that can change files, so that `restore` can undo the changes.

    There is one before the first such tool of each step, and within a step one every `seconds`. `exclude` has patterns
    in the syntax of .gitignore, in addition to the default ones; `!name` includes a default one. Excluded files are
    neither stored nor restored. With `required`, a tool is blocked if no snapshot can be taken.

    `folder` stores the snapshots. It can be a bucket, as in `s3://bucket/prefix?endpoint=https://…`; then `cache` is
    the folder of this machine for copies of its objects.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        folder: str | Path = "",
        cache: str | Path = "",
        seconds: float = constants.SNAPSHOT_SECONDS,
        exclude: Sequence[str] = (),
        required: bool = False,
    ) -> None:
        if isinstance(backend, type) or not isinstance(getattr(backend, "workdir", None), str):
            raise ConfigError(f"Snapshots needs a backend, such as Local('./workspace'), not {backend!r}")
        if isinstance(exclude, str) or not all(isinstance(pattern, str) for pattern in exclude):
            raise ConfigError("Snapshots(exclude=…): give a list of patterns, such as ['build/', '*.log']")
        if seconds < 0:
            raise ConfigError("Snapshots(seconds=…): give a number of seconds of at least 0")
        self.backend, self.seconds, self.required = backend, seconds, required
        self.exclude = (*DEFAULT_EXCLUDE, *exclude)
        self._folder, self._cache = str(folder), str(cache)
        if self._folder.startswith(SCHEME):
            self._folder = str(BucketAddress.parse(self._folder))
        elif self._cache:
            raise ConfigError("Snapshots(cache=…) is for a folder like 's3://bucket/prefix'; leave it out")

    @property
    def history(self) -> SnapshotHistory:
        """The snapshots of the workspace; raise a BackendError if it is not in a folder of this machine."""
        root = str(getattr(self.backend, "host_folder", ""))
        if not root:
            name = self.backend.name
            raise BackendError(
                f"the backend {name} has no snapshots, as its files are not in a folder of this machine", "unsupported"
            )
        place = digest(os.fsencode(os.path.realpath(root)))[:24]
        if self._folder.startswith(SCHEME):
            cache = self._cache or str(data_folder() / "snapshot-cache" / digest(self._folder.encode())[:16] / place)
            return _open_history(cache, root, self.exclude, self._folder)
        return _open_history(self._folder or str(data_folder() / "snapshots" / place), root, self.exclude)

    # -- moving -------------------------------------------------------------------------------------------------------

    @before(Run)
    async def restore_missing(self, run: Run) -> Block | None:
        """Restore the files of a workspace that is missing. Pause with a question if that is not possible."""
        run.progress.extensions.observers.append(self)
        root = str(getattr(self.backend, "host_folder", ""))
        if run.parent is not None or not root or not await run_in_thread(lambda: _is_empty(root), "snapshots"):
            return None

        async def find_problem() -> str:
            try:
                report = await self._call_history(lambda: restore_missing_workspace(self.history, run.thread))
            except BackendError as error:
                # otherwise nothing shows that there were files
                is_missing = error.code in ("not_found", UNAVAILABLE) or _find_logged_files(run.thread)
                return str(error) if is_missing else ""
            if report is not None:
                self.record_restore(run, report)
            return ""

        return await settle_files(run, find_problem, self.start_afresh)

    @staticmethod
    def record_restore(run: Run, report: RestoreReport) -> None:
        """Log that the files of a workspace were restored before the run continues."""
        run.record(MOVED, restored=len(report.restored), left=dict([*report.left.items()][:LISTED]))

    # -- taking -------------------------------------------------------------------------------------------------------

    async def before_effect(self, use: ToolUse) -> str:
        """Take a snapshot before a tool that can change files; return why the tool must not run without one."""
        if self not in use.run.progress.extensions.observers or not can_change_files(use.bound):
            return ""  # the tool that has started a child run has a snapshot
        state: _RunState = use.run.scratch.setdefault(self, _RunState())
        async with state.lock:  # a parallel tool waits for the snapshot, too
            step = use.run.thread.steps
            if state.step == step and monotonic() - state.at < self.seconds:
                return ""
            _, reason = await self.record_snapshot(use.run, "before", use.call.id)
            state.step, state.at = step, monotonic()
        if reason and self.required:
            return f"no snapshot could be taken, and the agent needs one before each change: {reason}"
        return ""

    async def after_effect(self, use: ToolUse) -> None:
        """Take no snapshot: the next one has the changes."""

    async def release_effect(self, use: ToolUse) -> None:
        """Release nothing."""

    @after(Run, on_error="log")
    async def take_last(self, run: Run) -> None:
        """Take a snapshot at the end of a run that used such a tool, store the index, and delete old snapshots."""
        if self.find_current(run) is None:
            return
        taken, _ = await self.record_snapshot(run, "end")
        if taken is not None:
            await self._call_history(lambda: self.history.save_index())
            await self._call_history(lambda: self.history.delete_old_daily())

    async def record_snapshot(self, run: Run, when: str, call: str = "") -> tuple[Snapshot | None, str]:
        """Take a snapshot, log it and return it. If that fails, return the reason, which is logged once in a run."""
        started, state = monotonic(), run.scratch.setdefault(self, _RunState())
        try:
            taken = await self.take()
        except BackendError as error:
            if not state.has_failed:
                run.record(FAILED, reason=str(error), code=error.code)
            state.has_failed, state.last = True, None
            return None, str(error)
        state.has_failed, state.last = False, taken
        ms = round((monotonic() - started) * 1000, 1)
        run.record(TAKEN, when=when, **({"call": call} if call else {}), **_describe(taken), ms=ms)
        return taken, ""

    def find_current(self, run: Run) -> Snapshot | None:
        """Return the last snapshot of a run, or None if it has taken none, or the last attempt has failed."""
        state: _RunState | None = run.scratch.get(self)
        return None if state is None else state.last

    async def take(self) -> Snapshot:
        """Take a snapshot of the workspace now; raise a BackendError if that is not possible."""
        return await self._call_history(lambda: self.history.take())

    async def adopt(self, id: str) -> RestoreReport:
        """Bring the workspace to a snapshot, whatever its folder has; raise a BackendError if that is not possible."""
        return await self._call_history(lambda: self.history.adopt(id))

    async def start_afresh(self) -> Snapshot:
        """Take a snapshot of the folder as it is; create it if it is missing. It does not count as missing any more."""
        os.makedirs(self.history.root, exist_ok=True)
        return await self.take()

    async def _call_history(self, work: Callable[[], T]) -> T:
        """Run a function in a worker thread; raise a BackendError if the folder of snapshots cannot be used."""
        try:
            return await run_in_thread(work, "snapshots")
        except OSError as error:
            raise to_backend_error(error, self._folder or "the folder of snapshots") from error

    # -- undo ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def snapshot_entries(thread: Thread) -> Iterator[tuple[Entry, str]]:
        """Yield the entries of a thread with a snapshot, and its id: the state of the files at that moment."""
        for entry in thread.entries:
            if entry.kind == "event" and entry.data["name"] in (TAKEN, RESTORED):
                data = entry.data["data"]
                yield entry, str(data["id" if entry.data["name"] == TAKEN else "before"])

    @classmethod
    def find_snapshot(cls, thread: Thread, seq: int) -> tuple[Entry, str]:
        """Return the snapshot of the moment after the entry `seq`; raise a BackendError without one."""
        for entry, id in cls.snapshot_entries(thread):
            if entry.seq > seq:
                return entry, id
        raise BackendError(
            f"there is no snapshot after entry {seq} of thread {thread.id}: no tool has changed files since, or the "
            "agent has no `snapshots`",
            "not_found",
        )

    @classmethod
    def find_last_turn(cls, thread: Thread) -> int:
        """Return the entry before the first snapshot of the last run that used a tool that can change files."""
        first = dict[str, int]()
        for entry, _ in cls.snapshot_entries(thread):
            if entry.data["name"] == TAKEN and entry.data["data"].get("when") == "before":
                first.setdefault(entry.data["run"], entry.seq)
        if not first:
            raise BackendError(f"thread {thread.id} has no snapshots, so there is nothing to undo", "not_found")
        return [*first.values()][-1] - 1

    async def diff(
        self, thread: Thread, seq: int, paths: Iterable[str] | None = None
    ) -> Sequence[tuple[FileChange, str]]:
        """Return the changes that `restore` would make, each with its changed lines. The files do not change."""
        _, id = self.find_snapshot(thread, seq)
        return await self._call_history(lambda: self.history.compare(id, paths))

    async def restore(self, thread: Thread, seq: int, paths: Sequence[str] | None = None) -> RestoreReport:
        """Restore the files of the moment after the entry `seq`, or the selected paths, and log it.

        A snapshot is taken first: `restore` with the entry before the logged one undoes the undo.
        """
        if thread.busy:
            raise BackendError(f"a run of thread {thread.id} is running; cancel it, then undo", "conflict")
        entry, id = self.find_snapshot(thread, seq)
        before, report = await self._call_history(lambda: self.history.restore(id, paths))
        left = dict([*report.left.items()][:LISTED])
        data = {"to": seq, "snapshot": entry.seq, "id": id, "before": before.id, "left": left}
        selected = {} if paths is None else {"paths": [*paths]}
        data |= {"restored": len(report.restored), **selected}
        thread.append("event", {"run": str(entry.data["run"]), "name": RESTORED, "data": data})
        await thread.saved()
        return report

    def list_outside_uses(self, thread: Thread, seq: int, tools: Iterable[Tool] = ()) -> list[OutsideUse]:
        """Return the tool uses after the entry `seq` that may have had effects which `restore` does not revert."""
        known = {name: tool for tool in tools for name in tool.names}
        uses = list[OutsideUse]()
        for entry in thread.entries[seq:]:
            if entry.kind == "intent":
                name = str(entry.data["tool"])
                if reason := self._explain_outside(known.get(name)):
                    uses.append(OutsideUse(entry.seq, name, reason))
        return uses

    def _explain_outside(self, tool: Tool | None) -> str:
        if tool is None:
            return "it is not a tool of this agent, so its effects are not known"
        if tool.read_only or tool.kind in ("read", "write"):
            return ""
        if tool.kind == "shell":
            has_network = getattr(self.backend, "has_network", True)
            return "commands have a network, or no sandbox confines them" if has_network else ""
        if tool.kind == "network":
            return "it uses the network"
        if tool.kind == "agent":
            return "a subagent has tools of its own"
        if tool.kind == "mcp":
            return "an MCP server is outside of the workspace"
        return "it is code outside of the workspace" if can_change_files(tool) else ""


def can_change_files(tool: Tool) -> bool:
    """Return True unless a tool only reads, only uses the network, or is one of wick without files, such as todos."""
    if tool.read_only or tool.kind in ("read", "network"):
        return False
    return bool(tool.kind) or not str(getattr(tool.fn, "__module__", "")).startswith("wick.capabilities.")


async def settle_files(
    run: Run, find_problem: Callable[[], Awaitable[str]], start_afresh: Callable[[], Awaitable[object]]
) -> Block | None:
    """Pause a run until the files of its workspace are there. `find_problem` restores them, or returns why it cannot.

    The user allows another attempt, or allows it with the arguments `{"workspace": "start afresh"}`, or denies the run.
    The log has the question and the answer. A plain approval never leads to an empty folder.
    """
    for _ in range(ATTEMPTS):
        if not (problem := await find_problem()):
            return None
        answered = sum(asked.data["hash"] in run.thread.answers for asked in run.thread.entries
                       if asked.kind == "asked" and "files" in asked.data)  # fmt: skip
        text = f"The files of this workspace are missing: {problem}. Try again, or start afresh in an empty folder?"
        about = {"files": "missing", "args": {"workspace": "try again"}}
        hash = digest(f"{run.id} files {answered}".encode())  # of each attempt: an earlier answer does not count
        answer = await ask_user(run, Question(text, new_question_id(), hash, about, run))
        if isinstance(answer, Block):
            return answer
        if answer.args is not None and answer.args.get("workspace") == START_AFRESH:
            run.record(AFRESH, problem=problem)
            await start_afresh()
            return None
    return Block(f"the files of this workspace are missing: {problem}")


def restore_missing_workspace(history: SnapshotHistory, thread: Thread) -> RestoreReport | None:
    """Restore the last snapshot of a workspace whose folder is missing, or new and empty.

    Return None if the folder is there, or if neither the history nor the thread has a snapshot with files. Raise a
    BackendError if the files cannot be restored: a run must not continue in an empty folder.
    """
    if not _is_empty(history.root):
        return None
    if not history.last():
        if id := _find_logged_files(thread):
            raise BackendError(f"snapshot {id[:12]} is not on this server", "not_found")
        return None
    id = history.find_missing()
    if not id or not history.manifest(id).files:
        return None
    return history.restore_missing(id)


def _is_empty(root: str) -> bool:
    return not os.path.isdir(root) or not os.listdir(root)


def _find_logged_files(thread: Thread) -> str:
    """Return the id of the last snapshot in the log if it has files, or an empty text."""
    logged = [entry.data["data"] for entry in thread.entries if entry.kind == "event" and entry.data["name"] == TAKEN]
    return str(logged[-1]["id"]) if logged and logged[-1]["files"] else ""


@lru_cache(maxsize=HISTORIES)
def _open_history(folder: str, root: str, exclude: tuple[str, ...], bucket: str = "") -> SnapshotHistory:
    """Return the history of a workspace. It is shared in this process, with its index."""
    storage = BucketStorage(folder, S3Bucket(BucketAddress.parse(bucket))) if bucket else None
    return SnapshotHistory(folder, root, exclude=exclude, storage=storage)


def _describe(taken: Snapshot) -> Mapping[str, Any]:
    """Return a snapshot for the log. Lists of paths are shortened."""
    row: dict[str, Any] = {"id": taken.id, "files": taken.files, "bytes": taken.size, "read": taken.read}
    if taken.skipped:
        row["skipped"] = dict(taken.skipped[:LISTED])
    if taken.unstable:
        row["unstable"] = list(taken.unstable[:LISTED])
    return row
