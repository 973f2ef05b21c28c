"""The local backend: a folder of this machine as a workspace, with commands in a sandbox.

backend = Local("./workspace")
await backend.execute("make test")
print(backend.protection.says)           how its commands are confined
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from threading import Lock
from typing import Any, Literal, TypeVar

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.backends.daemon_client import Daemon, get_host_daemon
from wick.backends.sandbox import cgroups
from wick.backends.sandbox.jobs import StartedJob
from wick.backends.sandbox.launch import Launch, SandboxedWorkspace
from wick.backends.sandbox.quota import Quota
from wick.backends.sandbox.ripgrep import GrepRequest
from wick.backends.sandbox.selection import choose_sandbox
from wick.backends.workspace_guard import GuardedTerminal
from wick.errors import BackendError, ConfigError, WorkspaceError
from wick.protocols import OnOutput, Protection, Status
from wick.workspace.processes import DEFAULT_PATH, LIMITS
from wick.workspace.protected import PROTECTED
from wick.workspace.results import (
    CommandResult,
    EditResult,
    FileLines,
    FileStat,
    GlobResult,
    GrepResult,
    JobInfo,
    JobOutput,
    Listing,
    ReadResult,
    WriteResult,
)
from wick.workspace.text import is_argument_text
from wick.workspace.workspace import Workspace

T = TypeVar("T")

SHELL, BASH = "/bin/sh", "/bin/bash"
DAY = 86_400.0
DEFAULT_LIMITS: Mapping[str, float] = {"memory": constants.COMMAND_MEMORY, "pids": constants.COMMAND_PIDS}

# System folders and their parents are not accepted as workspaces.
SYSTEM_FOLDERS = (
    *"/bin /boot /dev /etc /home /lib /opt /proc /root /run /sbin /srv /sys /tmp /usr /var".split(),
    *"/Applications /Library /System /Users /Volumes /private/tmp /private/var".split(),
)


class Local:
    """A folder of this machine; commands run in bubblewrap where that is possible.

    `sandbox` is `auto` (the strongest that works here), or one by name; `none` must be chosen explicitly. `limits` are
    `memory` and `file_size` in bytes, `pids`, `cpu` in seconds and `files`; None lifts a limit. `readable` are folders
    outside the workspace that commands may read, such as a toolchain's. `pinned` are files and folders in the
    workspace that neither file tools nor commands change, `fixed` folders that they do not move, delete or replace.
    `disk` is how many bytes the workspace may take, `reserve` how many stay free on its disk.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "./workspace",
        *,
        sandbox: Literal["auto", "bubblewrap", "landlock", "sandbox-exec", "none"] = "auto",
        network: bool = False,
        limits: Mapping[str, float | None] | None = None,
        env: Mapping[str, str] | None = None,
        readable: Sequence[str | os.PathLike[str]] = (),
        protect: Sequence[str] = PROTECTED,
        pinned: Sequence[str] = (),
        fixed: Sequence[str] = (),
        disk: int = 0,
        reserve: int = 0,
        timeout: float = constants.COMMAND_SECONDS,
    ) -> None:
        if not 0 < timeout <= DAY:
            raise ConfigError(f"timeout is a number of seconds above 0, at most a day; not {timeout}")
        self._folder = _ensure_folder(path)
        self._sandbox = choose_sandbox(sandbox)
        self._network, self._timeout = network, timeout
        self._limits = _merge_limits(limits or {})
        self._env = dict(env or {})
        if (invalid := _invalid_env_name(self._env)) is not None:
            raise ConfigError(f"the environment variable {invalid!r} has a name or a value that none can have")
        self._readable = [os.path.realpath(folder) for folder in readable]
        self._protect, self._pinned, self._fixed = tuple(protect), _check_relative(pinned), _check_relative(fixed)
        if disk < 0 or reserve < 0:
            raise ConfigError(f"disk and reserve are numbers of bytes, 0 for no limit; not {disk} and {reserve}")
        self._quota = Quota(disk, reserve)
        self._has_ripgrep = self._sandbox.covers and shutil.which("rg", path=DEFAULT_PATH) is not None
        self._workspace: SandboxedWorkspace | None = None
        self._daemon: Daemon | None = None
        self._open_lock = Lock()
        self._started_jobs: dict[str, StartedJob] = {}
        self._terminals: set[GuardedTerminal] = set()
        self._running_tasks: set[asyncio.Task[Any]] = set()
        self._stopped_tasks: set[asyncio.Task[Any]] = set()
        self._numbers = count(1)

    @property
    def name(self) -> str:
        return "local"

    @property
    def workdir(self) -> str:
        return self._folder

    @property
    def host_folder(self) -> str:
        """The folder of this machine that has the files."""
        return self._folder

    @property
    def has_network(self) -> bool:
        """True if commands can reach the network."""
        return self._network or self.protection.level == "none"

    @property
    def status(self) -> Status:
        return Status("launched" if self._workspace else "idle")

    @property
    def protection(self) -> Protection:
        grouped, limits = cgroups.get_controllers(), []  # a limit without a controller holds per process only
        if memory := self._limits.get("memory"):
            scope = "" if "memory" in grouped else " for each process"
            limits.append(f"memory {cgroups.format_bytes(memory)}{scope}")
        if pids := self._limits.get("pids"):
            limits.append(f"{pids:g} processes" + ("" if "pids" in grouped else " more than the user has now"))
        return self._sandbox.protection(self._network, ", ".join(limits) or "no limits")

    async def start(self) -> None:
        await self._ensure_workspace()

    async def stop(self) -> None:
        """End every command, job and terminal of this backend; it can be started again."""
        here = {task for task in self._running_tasks if task.get_loop() is asyncio.get_running_loop()}
        self._stopped_tasks |= here
        for task in here:
            task.cancel()
        await asyncio.gather(*here, return_exceptions=True)
        await asyncio.gather(*(terminal.close() for terminal in [*self._terminals]))
        await asyncio.gather(*(job.end() for job in self._started_jobs.values()))
        self._started_jobs.clear()
        with self._open_lock:
            workspace, self._workspace = self._workspace, None
        if workspace:
            workspace.close()
            if self._daemon is not None and self._daemon.alive:
                with suppress(BackendError):
                    await self._daemon.unwatch(self._folder)
        await run_in_thread(cgroups.remove_idle_groups, "stop")

    async def _ensure_workspace(self) -> SandboxedWorkspace:
        """Return the workspace; open it on first use."""
        if self._workspace is not None:
            return self._workspace

        def open_workspace() -> SandboxedWorkspace:
            with self._open_lock:
                if self._workspace is None:
                    self._workspace = SandboxedWorkspace(
                        self._folder,
                        self._sandbox,
                        network=self._network,
                        limits=self._limits,
                        env=self._env,
                        readable=self._readable,
                        protect=self._protect,
                        pinned=self._pinned,
                        fixed=self._fixed,
                        quota=self._quota,
                    )
                return self._workspace

        return await run_in_thread(open_workspace, "start")

    # -- commands ---------------------------------------------------------------------------------------------------

    async def execute(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        workdir: str = "",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        approved: bool = False,
    ) -> CommandResult:
        """Run a shell command and wait for it; cancelling ends it. Its child processes end with it."""
        self._check_allowed(command, approved)
        limit = self._timeout if timeout is None else timeout
        if not 0 < limit <= DAY:
            raise BackendError(f"a time limit is a number of seconds above 0, at most a day; not {limit}", "invalid")
        if (invalid := _invalid_env_name(env or {})) is not None:
            raise BackendError(
                f"the environment variable {invalid!r} has a name or a value that none can have", "invalid"
            )
        launched = self._open_launch([SHELL, "-c", command], workdir=workdir, env=env)
        return await self._run_until_stopped(
            self._run_launch(launched, stdin=stdin, timeout=limit, on_output=on_output)
        )

    async def _run_launch(self, launched: AbstractAsyncContextManager[Launch], **options: Any) -> CommandResult:
        async with launched as launch:
            executed = await launch.daemon.run(**launch.options, **options)
        return launch.complete_result(executed)

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        """Start a background command, which runs until it exits, is ended, or the backend stops."""
        self._check_allowed(command, approved)
        if len(self._started_jobs) > constants.JOBS_KEPT:
            ended = [job["id"] for job in await self.jobs() if not job["running"]]
            for old in ended[: len(self._started_jobs) - constants.JOBS_KEPT]:
                del self._started_jobs[old]
        launch = await self._begin_launch([SHELL, "-c", command], workdir=workdir)
        started = launch.daemon.job(**launch.options, label=command, guard=launch.guard)
        job = await self._end_on_error(launch, started)
        id = f"job-{next(self._numbers)}"
        self._started_jobs[id] = StartedJob(launch.daemon, job["id"], launch, {**job, "id": id})
        return self._started_jobs[id].job

    async def jobs(self) -> Sequence[JobInfo]:
        """Return the jobs of this backend, including recently ended ones."""
        states: dict[tuple[Daemon, str], JobInfo] = {}
        for daemon in {started.daemon for started in self._started_jobs.values() if started.daemon.alive}:
            states |= {(daemon, job["id"]): job for job in await daemon.jobs()}
        return [await job.update(states.get((job.daemon, job.id))) for job in [*self._started_jobs.values()]]

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        """Return the output of a job since `offset`."""
        return await self._find_job(id).output(offset)

    async def end_job(self, id: str) -> JobInfo:
        """End a job and its child processes."""
        return await self._find_job(id).end()

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> GuardedTerminal:
        """Open an interactive shell in the same sandbox."""
        self._check_allowed("a terminal", approved)
        shell = BASH if os.access(BASH, os.X_OK) else SHELL
        launch = await self._begin_launch([shell], env={"TERM": "xterm-256color"}, terminal=True)
        inner = await self._end_on_error(launch, launch.daemon.terminal(**launch.options, rows=rows, columns=columns))
        terminal = GuardedTerminal(inner, launch, self._terminals.discard)
        self._terminals.add(terminal)
        return terminal

    def _check_allowed(self, command: str, approved: bool) -> None:
        if not command.strip() or not is_argument_text(command):
            raise BackendError(
                "a command is a text that is not empty and has no NUL or half a character in it", "invalid"
            )
        if self.protection.asks and not approved:
            raise BackendError(
                f"nothing confines commands here, so the user is asked about: {command}", "needs_approval"
            )

    def _find_job(self, id: str) -> StartedJob:
        if id not in self._started_jobs:
            known = ", ".join(self._started_jobs) or "none"
            raise BackendError(f"there is no job {id!r}; the jobs are: {known}", "not_found")
        return self._started_jobs[id]

    @asynccontextmanager
    async def _open_launch(self, argv: Sequence[str], **options: Any) -> AsyncIterator[Launch]:
        launch = await self._begin_launch(argv, **options)
        try:
            yield launch
        finally:
            await launch.end()

    async def _begin_launch(self, argv: Sequence[str], **options: Any) -> Launch:
        self._daemon = await get_host_daemon()
        launch = Launch(await self._ensure_workspace(), argv, self._daemon, **options)
        await self._end_on_error(launch, launch.begin())
        return launch

    async def _end_on_error(self, launch: Launch, work: Awaitable[T]) -> T:
        """Await work that follows a launch; end the launch on an error."""
        try:
            return await work
        except BaseException:
            await launch.end()
            raise

    async def _run_until_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work in a task that `stop` cancels."""
        task = asyncio.ensure_future(work)
        self._running_tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if task in self._stopped_tasks:
                raise BackendError("the backend was stopped, and the command with it", "not_running") from None
            raise
        finally:
            self._running_tasks.discard(task)
            self._stopped_tasks.discard(task)

    # -- files ------------------------------------------------------------------------------------------------------

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        return await self._run_file_operation(lambda files: files.ls(path, links=links), "ls")

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        """Read bytes of a file; without a limit, up to the size cap."""
        return await self._run_file_operation(
            lambda files: files.read(path, offset=offset, limit=limit, links=links), "read"
        )

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        """Read lines of a text file, counted from 0, with unchanged line endings."""
        return await self._run_file_operation(
            lambda files: files.lines(path, offset=offset, limit=limit, links=links), "lines"
        )

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        """Replace a file atomically, or create it with its parent folders."""
        return await self._run_write_operation(
            lambda files: files.write(path, content, links=links), len(content), "write"
        )

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        occurrence: Literal["only", "first"] = "only",
        links: bool = True,
    ) -> EditResult:
        """Replace a text that occurs once; line endings and encoding are preserved."""
        options: Any = {"replace_all": replace_all, "occurrence": occurrence, "links": links}
        return await self._run_write_operation(lambda files: files.edit(path, old, new, **options), len(new), "edit")

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        """Find files by a path pattern; ignored and heavy folders are skipped unless `everything`."""
        return await self._run_file_operation(
            lambda files: files.glob(pattern, path, everything=everything, links=links), "glob"
        )

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        glob: str = "",
        ignore_case: bool = False,
        everything: bool = False,
        links: bool = True,
    ) -> GrepResult:
        """Find lines that match a regular expression (RE2)."""
        request = GrepRequest(pattern, path, glob, ignore_case, everything, links)
        command = await self._run_file_operation(request.build_ripgrep, "grep") if self._has_ripgrep else None
        if command is None:
            return await self._run_file_operation(request.search_files, "grep")
        argv, reading = command  # ripgrep, in a read-only sandbox

        def run() -> Awaitable[CommandResult]:
            launched = self._open_launch(argv, read_only=True)
            return self._run_launch(launched, timeout=constants.FILE_SECONDS, on_output=reading.receive)

        executed = await self._run_until_stopped(reading.run_limited(run))
        found = await run_in_thread(lambda: reading.parse_matches(executed), "grep")
        if found is None:  # ripgrep could not do it
            return await self._run_file_operation(request.search_files, "grep")
        if links:
            return found
        matches = found["matches"]  # ripgrep opens files by path, so check them without following links
        return {**found, "matches": await self._run_file_operation(lambda files: files.verify_matches(matches), "grep")}

    async def mkdir(self, path: str) -> None:
        await self._run_write_operation(lambda files: files.mkdir(path), 0, "mkdir")

    async def move(self, source: str, target: str) -> None:
        await self._run_file_operation(lambda files: files.move(source, target), "move")

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        await self._run_file_operation(lambda files: files.delete(path, recursive=recursive), "delete")

    async def stat(self, path: str) -> FileStat:
        return await self._run_file_operation(lambda files: files.stat(path), "stat")

    async def _run_write_operation(self, do: Callable[[Workspace], T], size: int, name: str) -> T:
        """Run a file operation that needs disk space, and check the quota first."""
        workspace = await self._ensure_workspace()

        def put() -> T:
            workspace.disk_space.check(size)
            done = do(workspace.files)
            workspace.disk_space.add_written(size)
            return done

        return await run_in_thread(put, name)

    async def _run_file_operation(self, do: Callable[[Workspace], T], name: str) -> T:
        workspace = await self._ensure_workspace()
        return await run_in_thread(lambda: do(workspace.files), name)


# -- validation of options ------------------------------------------------------------------------------------------


def _ensure_folder(path: str | os.PathLike[str]) -> str:
    """Create the folder if it is missing; return its real path."""
    folder = os.path.realpath(os.path.expanduser(path))
    home = os.path.realpath(os.path.expanduser("~"))
    if folder == "/" or any(f"{one}/".startswith(f"{folder}/") for one in (*SYSTEM_FOLDERS, home)):
        raise WorkspaceError(
            f"{folder} cannot be a workspace, as it holds more than a project; give a folder inside it"
        )
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise WorkspaceError(f"the workspace {folder} cannot be made: {error.strerror}") from None
    return folder


def _check_relative(paths: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for path in paths:
        names = [name for name in path.split("/") if name not in ("", ".")]
        if path.startswith("/") or ".." in names or not names:
            raise ConfigError(f"a pinned file is a path in the workspace, such as conf/agents.yaml; not {path!r}")
        found.append("/".join(names))
    return tuple(found)


def _merge_limits(limits: Mapping[str, float | None]) -> dict[str, float]:
    """Return the default limits, overridden by the given ones."""
    for name, limit in limits.items():
        if name not in LIMITS:
            raise ConfigError(f"there is no limit {name!r}; there are {', '.join(LIMITS)}")
        if limit is not None and not limit > 0:
            raise ConfigError(f"the limit {name!r} is a number above 0, or None for no limit; not {limit!r}")
    return {name: limit for name, limit in {**DEFAULT_LIMITS, **limits}.items() if limit is not None}


def _invalid_env_name(env: Mapping[str, str]) -> str | None:
    """Return the name of an environment variable that the system would reject, or None."""
    return next(
        (name for name, text in env.items() if not name or "=" in name or not is_argument_text(name + text)), None
    )
