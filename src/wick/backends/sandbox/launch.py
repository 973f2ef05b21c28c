"""Preparation and cleanup of one command of the local backend: limits, protected paths, and its result.

    launch = Launch(workspace, ["sh", "-c", "make"], daemon, workdir="src")
    await launch.begin()                     starts the workspace guard, creates a control group
    await daemon.run(**launch.options)
    await launch.end()                       neutralises planted files, removes the group
    launch.complete_result(executed)

Blocking system calls run in a worker thread.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypedDict

from wick._internal.worker_threads import run_in_thread
from wick.backends.daemon_client import Daemon
from wick.backends.sandbox import cgroups, protected_paths
from wick.backends.sandbox.base import Sandbox, SandboxedCommand, SandboxView
from wick.backends.sandbox.pinned_paths import plan_pinned_covers
from wick.backends.sandbox.quota import DiskSpace, Quota
from wick.backends.workspace_guard import WorkspaceGuard, explain_stuck, run_to_completion
from wick.errors import BackendError
from wick.workspace.processes import describe_exit
from wick.workspace.results import CommandResult
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.workspace import Workspace

Identity = tuple[int, int]

# Fatal signals. bubblewrap reports a program that one of them ended by the exit code 128 + signal.
TIME_LIMIT = 124  # exit code
DEADLY_SIGNALS = (4, 5, 6, 7, 8, 9, 11, 15, 24, 25, 31)


class SandboxedWorkspace:
    """An open workspace, and the options of its commands."""

    def __init__(
        self,
        folder: str,
        sandbox: Sandbox,
        *,
        network: bool = False,
        limits: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
        readable: Sequence[str] = (),
        protect: Sequence[str] = (),
        pinned: Sequence[str] = (),
        fixed: Sequence[str] = (),
        quota: Quota | None = None,
    ) -> None:
        self.tree, self.files = RootedFolder(folder), Workspace(folder, protect, pinned=pinned, fixed=fixed)
        self.sandbox, self.network, self.limits, self.env = sandbox, network, limits or {}, env or {}
        self.readable, self.protect, self.pinned, self.fixed = readable, protect, pinned, fixed
        self.disk_space = DiskSpace(self.tree.path, quota or Quota())
        self.scratch = tempfile.mkdtemp(prefix="wick-") if sandbox.scratch else ""
        self.close = weakref.finalize(self, _close_workspace, self.tree, self.files, self.scratch)

    def check(self) -> None:
        """Raise if the path of the workspace no longer leads to the open folder: commands get it by path."""
        try:
            found = os.stat(self.tree.path)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != _identity(self.tree):
            raise _missing_workspace_error(self.tree)

    def resolve_folder(self, path: str) -> tuple[str, ...]:
        """Return the resolved names of a folder in the workspace."""
        if "\0" in path:
            raise BackendError(f"{path!r} is not a folder: it has a NUL in it", "invalid")
        inside = self.tree.relative_path(path or ".")
        if inside is None:
            raise BackendError(
                f"{path!r} is outside of the workspace; give a folder inside {self.tree.path}", "escapes"
            )
        try:
            return self.tree.resolve_names(inside)
        except OSError as error:
            code, what = _FOLDER_ERRORS.get(error.errno or 0, ("failed", error.strerror))
            raise BackendError(f"the folder {path!r} {what}", code) from None


_FOLDER_ERRORS = {
    errno.ENOENT: ("not_found", "does not exist"),
    errno.ENOTDIR: ("not_directory", "is not a folder"),
    errno.EXDEV: ("escapes", "is outside of the workspace"),
    errno.ELOOP: ("loop", "is a link that leads to itself"),
    errno.EACCES: ("denied", "cannot be entered: permission denied"),
    errno.ENAMETOOLONG: ("invalid", "has a name that is too long"),
}


def _close_workspace(tree: RootedFolder, files: Workspace, scratch: str) -> None:
    tree.close()
    files.close()
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)


class LaunchOptions(TypedDict):
    """The arguments of a wickd command request."""

    argv: list[str]
    workdir: str
    env: Mapping[str, str]
    data: list[bytes]
    landlock: Mapping[str, Any] | None
    disk: Mapping[str, Any] | None
    limits: Mapping[str, float]
    cgroup: list[str]


class Launch:
    """One command, from its preparation to its cleanup."""

    def __init__(
        self,
        place: SandboxedWorkspace,
        argv: Sequence[str],
        daemon: Daemon,
        *,
        workdir: str = "",
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
        read_only: bool = False,
    ) -> None:
        self._workspace, self._argv, self.daemon, self._workdir = place, argv, daemon, workdir
        self._terminal, self._read_only = terminal, read_only
        self._env = {**place.env, **(env or {})}
        self._protected_entries: protected_paths.Entries = {}
        self._group: cgroups.ControlGroup | None = None
        self._command: SandboxedCommand | None = None
        self._registered_in: Identity | None = None
        self._file_bytes = 0  # maximum size of a file; 0: no limit
        self._guard = WorkspaceGuard(daemon, place.tree.path, place.protect, arm=not read_only)
        self._reached_limit = ""  # a sentence about the reached limit

    async def begin(self) -> None:
        """Prepare the command. Each `begin` needs an `end`."""
        await run_to_completion(run_in_thread(self._workspace.check, "command"))
        self._protected_entries = await run_to_completion(self._guard.begin())
        await run_to_completion(run_in_thread(self._prepare, "command"))

    @property
    def guard(self) -> str:
        """The name of the workspace guard in wickd."""
        return self._guard.name

    @property
    def moved(self) -> list[str]:
        """Protected paths that appeared and were renamed."""
        return self._guard.moved

    def _prepare(self) -> None:
        place = self._workspace
        workdir = "/".join([place.tree.path.rstrip("/"), *place.resolve_folder(self._workdir)])
        self._file_bytes = 0 if self._read_only else place.disk_space.check()
        self._registered_in = _identity(place.tree)
        entries = self._protected_entries
        with _lock:
            existing = _ActiveCommands(frozenset(entry.identity for entry in entries.values()))
            active = _active.setdefault(self._registered_in, existing)
            active.count += 1
        if self._read_only:  # a read-only command may read everything but secrets
            entries = {path: entry for path, entry in entries.items() if entry.secret}
        covers = protected_paths.plan_covers(place.tree, entries, active.firm) if place.sandbox.covers else []
        if not self._read_only:
            covers += plan_pinned_covers(place.tree, place.pinned, place.fixed, covers)
            covers.sort(key=lambda cover: cover.path.count("/"))  # parents first: a mount hides earlier mounts below it
        self._group = cgroups.create_group(place.limits)
        mounted = {(cover.path, cover.how) for cover in covers}
        view = SandboxView(
            workspace=place.tree.path,
            workdir=workdir,
            env=self._env,
            network=place.network,
            readable=place.readable,
            covers=covers,
            scratch=place.scratch,
            memory=int(place.limits.get("memory") or 0),
            terminal=self._terminal,
            read_only=self._read_only,
            pinned=[path for path in place.pinned if (path, "show") in mounted],
            fixed=[path for path in place.fixed if (path, "keep") in mounted],
        )
        self._command = place.sandbox.command(self._argv, view)

    @property
    def options(self) -> LaunchOptions:
        assert self._command is not None
        command, group = self._command, self._group
        grouped = group.limits if group else {}  # the others are rlimits, per process
        limits = {name: limit for name, limit in self._workspace.limits.items() if limit and name not in grouped}
        if "pids" in limits:  # RLIMIT_NPROC counts all processes of the user
            limits["pids"] += _count_user_processes()
        if self._file_bytes and limits:
            limits["file_size"] = min(limits.get("file_size", self._file_bytes), self._file_bytes)
        joins = group.join_files if group else []
        if limits or self._terminal or command.landlock or all(file.endswith("/tasks") for file in joins):
            argv, left = [*([] if limits else _join_prefix([], self._file_bytes)), *command.argv], joins
        else:  # wickd can use posix_spawn, which is twice as fast as fork
            argv, left = [*_join_prefix(joins, self._file_bytes), *command.argv], []
        return {
            "argv": argv,
            "workdir": command.workdir,
            "env": command.env,
            "data": command.data,
            "landlock": command.landlock,
            "disk": None if self._read_only else self._workspace.disk_space.watch_limits(self._workspace.scratch),
            "limits": limits,
            "cgroup": left,
        }

    async def end(self) -> None:
        """End the guard and release the control group; a second call changes nothing."""
        await self._guard.end()
        await run_to_completion(run_in_thread(self._clean_up, "command"))

    def _clean_up(self) -> None:
        workspace, self._registered_in = self._registered_in, None
        if self._group:
            self._reached_limit = self._reached_limit or self._group.describe_reached_limit()
            self._group.release()
            self._group = None
        if workspace is not None:
            with _lock:
                active = _active[workspace]
                active.count -= 1
                if not active.count:
                    del _active[workspace]

    def complete_result(self, executed: CommandResult) -> CommandResult:
        """Return the result of the command with the explained error and the moved paths."""
        error = self.explain_error(executed["exit_code"], executed["error"])
        return {**executed, "error": error, "moved": self.moved}

    def explain_error(self, exit_code: int, error: str) -> str:
        """Return the error of the command with the reached limit and the remaining plants."""
        if self._reached_limit:
            error = f"{self._reached_limit}; {error}" if exit_code == TIME_LIMIT else self._reached_limit
        if not error and self._workspace.sandbox.hides_signals and exit_code - 128 in DEADLY_SIGNALS:
            error = describe_exit(exit_code - 128)[1]
        return explain_stuck(error, self._guard.stuck)


# -- running commands -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ActiveCommands:
    """The number of running commands in a workspace, and the protected paths from before the first of them."""

    firm: frozenset[Identity]
    count: int = 0


_active: dict[Identity, _ActiveCommands] = {}
_lock = Lock()


def _identity(tree: RootedFolder) -> Identity:
    try:
        info = os.fstat(tree.fd)
    except OSError:  # the backend was stopped concurrently
        raise _missing_workspace_error(tree) from None
    return info.st_dev, info.st_ino


def _missing_workspace_error(tree: RootedFolder) -> BackendError:
    return BackendError(f"the workspace {tree.path} is not there any more; stop the backend", "not_running")


# -- limits ---------------------------------------------------------------------------------------------------------


def _join_prefix(files: Sequence[str], file_bytes: int = 0) -> list[str]:
    """Return an argv prefix that joins control groups, limits the file size and executes the command."""
    if not files and not file_bytes:
        return []
    steps = [f'echo 0 >"${number}"' for number in range(1, len(files) + 1)]
    steps += [f"{{ ulimit -f {max(file_bytes // 512, 1)} || :; }}"] if file_bytes else []
    return ["/bin/sh", "-c", f'{" && ".join(steps)} && shift {len(files)} && exec "$@"', "sh", *files]


def _count_user_processes() -> int:
    user, count = os.getuid(), 0
    try:
        with os.scandir("/proc") as entries:
            for entry in entries:
                if entry.name.isdigit() and entry.stat().st_uid == user:
                    count += len(os.listdir(f"/proc/{entry.name}/task"))
    except OSError:  # a process ended meanwhile, or there is no /proc
        return count + 100
    return count
