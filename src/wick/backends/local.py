"""A folder of this machine as a workspace, with commands in a sandbox.

backend = Local("./workspace")
await backend.execute("make test")
print(backend.protection.says)           what really confines its commands
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
from wick.backends.daemon_client import Daemon, on_host
from wick.backends.sandbox import cgroups
from wick.backends.sandbox.jobs import StartedJob
from wick.backends.sandbox.launch import Launch, Place
from wick.backends.sandbox.quota import Quota
from wick.backends.sandbox.ripgrep import Asked
from wick.backends.sandbox.selection import choose
from wick.backends.workspace_guard import GuardedTerminal
from wick.errors import BackendError, ConfigError
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
from wick.workspace.workspace import Workspace

T = TypeVar("T")

SHELL, BASH = "/bin/sh", "/bin/bash"
DAY = 86_400.0
DEFAULT_LIMITS: Mapping[str, float] = {"memory": constants.COMMAND_MEMORY, "pids": constants.COMMAND_PIDS}

# Folders of the system are no workspaces, and nothing above them is.
SYSTEM = (
    *"/bin /boot /dev /etc /home /lib /opt /proc /root /run /sbin /srv /sys /tmp /usr /var".split(),
    *"/Applications /Library /System /Users /Volumes /private/tmp /private/var".split(),
)


class Local:
    """A folder of this machine; commands run in bubblewrap where that is possible.

    `sandbox` is `auto` (the strongest that works here), or one by name; `none` is for those who mean it. `limits` are
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
        self._folder = _made(path)
        self._sandbox = choose(sandbox)
        self._network, self._timeout = network, timeout
        self._limits = _merged(limits or {})
        self._env = dict(env or {})
        if (odd := _odd(self._env)) is not None:
            raise ConfigError(f"the environment variable {odd!r} has a name or a value that none can have")
        self._readable = [os.path.realpath(folder) for folder in readable]
        self._protect, self._pinned, self._fixed = tuple(protect), _relative(pinned), _relative(fixed)
        if disk < 0 or reserve < 0:
            raise ConfigError(f"disk and reserve are numbers of bytes, 0 for no limit; not {disk} and {reserve}")
        self._quota = Quota(disk, reserve)
        self._has_ripgrep = self._sandbox.covers and shutil.which("rg", path=DEFAULT_PATH) is not None
        self._place: Place | None = None
        self._daemon: Daemon | None = None
        self._opening = Lock()
        self._started: dict[str, StartedJob] = {}
        self._terminals: set[GuardedTerminal] = set()
        self._running: set[asyncio.Task[Any]] = set()
        self._stopped: set[asyncio.Task[Any]] = set()
        self._numbers = count(1)

    @property
    def name(self) -> str:
        return "local"

    @property
    def workdir(self) -> str:
        return self._folder

    @property
    def status(self) -> Status:
        return Status("launched" if self._place else "idle")

    @property
    def protection(self) -> Protection:
        return self._sandbox.protection(self._network, _told(self._limits))

    async def start(self) -> None:
        await self._ready()

    async def stop(self) -> None:
        """End every command, job and terminal that was started here; it can be started again."""
        here = {task for task in self._running if task.get_loop() is asyncio.get_running_loop()}
        self._stopped |= here
        for task in here:
            task.cancel()
        await asyncio.gather(*here, return_exceptions=True)
        await asyncio.gather(*(terminal.close() for terminal in [*self._terminals]))
        await asyncio.gather(*(job.end() for job in self._started.values()))
        self._started.clear()
        with self._opening:
            place, self._place = self._place, None
        if place:
            place.close()
            if self._daemon is not None and self._daemon.alive:
                with suppress(BackendError):
                    await self._daemon.unwatch(self._folder)
        await run_in_thread(cgroups.forget, "stop")

    async def _ready(self) -> Place:
        return await run_in_thread(self._opened, "start") if self._place is None else self._place

    def _opened(self) -> Place:
        """The workspace, held open from the first use on."""
        with self._opening:
            if self._place is None:
                self._place = Place(
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
            return self._place

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
        """Run a shell command to its end; cancelling ends it. What it started ends with it."""
        self._may(command, approved)
        limit = self._timeout if timeout is None else timeout
        if not 0 < limit <= DAY:
            raise BackendError(f"a time limit is a number of seconds above 0, at most a day; not {limit}", "invalid")
        if (odd := _odd(env or {})) is not None:
            raise BackendError(f"the environment variable {odd!r} has a name or a value that none can have", "invalid")
        launched = self._launched([SHELL, "-c", command], workdir=workdir, env=env)
        return await self._until_stopped(self._executed(launched, stdin=stdin, timeout=limit, on_output=on_output))

    async def _executed(self, launched: AbstractAsyncContextManager[Launch], **options: Any) -> CommandResult:
        async with launched as launch:
            executed = await launch.daemon.run(**launch.options, **options)
        return launch.told(executed)

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        """Start a command that goes on by itself until it ends, is ended, or the backend stops."""
        self._may(command, approved)
        await self._forget_old_jobs()
        launch = await self._begun([SHELL, "-c", command], workdir=workdir)
        started = launch.daemon.job(**launch.options, label=command, guard=launch.guard)
        job = await self._or_ended(launch, started)
        id = f"job-{next(self._numbers)}"
        self._started[id] = StartedJob(launch.daemon, job["id"], launch, {**job, "id": id})
        return self._started[id].job

    async def jobs(self) -> Sequence[JobInfo]:
        """The jobs of this backend, those that ended lately among them."""
        there: dict[tuple[Daemon, str], JobInfo] = {}
        for daemon in {started.daemon for started in self._started.values() if started.daemon.alive}:
            there |= {(daemon, job["id"]): job for job in await daemon.jobs()}
        return [await job.update(there.get((job.daemon, job.id))) for job in [*self._started.values()]]

    async def _forget_old_jobs(self) -> None:
        if len(self._started) > constants.JOBS_KEPT:
            ended = [job["id"] for job in await self.jobs() if not job["running"]]
            for id in ended[: len(self._started) - constants.JOBS_KEPT]:
                del self._started[id]

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        """What a job has printed since `offset`."""
        return await self._job(id).output(offset)

    async def end_job(self, id: str) -> JobInfo:
        """End a job and everything it started."""
        return await self._job(id).end()

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> GuardedTerminal:
        """A shell that somebody types into, in the same sandbox."""
        self._may("a terminal", approved)
        shell = BASH if os.access(BASH, os.X_OK) else SHELL
        launch = await self._begun([shell], env={"TERM": "xterm-256color"}, terminal=True)
        inner = await self._or_ended(launch, launch.daemon.terminal(**launch.options, rows=rows, columns=columns))
        terminal = GuardedTerminal(inner, launch, self._terminals.discard)
        self._terminals.add(terminal)
        return terminal

    def _may(self, command: str, approved: bool) -> None:
        if not command.strip() or not _possible(command):
            raise BackendError(
                "a command is a text that is not empty and has no NUL or half a character in it", "invalid"
            )
        if self.protection.asks and not approved:
            raise BackendError(
                f"nothing confines commands here, so the user is asked about: {command}", "needs_approval"
            )

    def _job(self, id: str) -> StartedJob:
        if id not in self._started:
            known = ", ".join(self._started) or "none"
            raise BackendError(f"there is no job {id!r}; the jobs are: {known}", "not_found")
        return self._started[id]

    @asynccontextmanager
    async def _launched(self, argv: Sequence[str], **options: Any) -> AsyncIterator[Launch]:
        launch = await self._begun(argv, **options)
        try:
            yield launch
        finally:
            await launch.end()

    async def _begun(self, argv: Sequence[str], **options: Any) -> Launch:
        self._daemon = await on_host()
        launch = Launch(await self._ready(), argv, self._daemon, **options)
        await self._or_ended(launch, launch.begin())
        return launch

    async def _or_ended(self, launch: Launch, work: Awaitable[T]) -> T:
        """What follows from a launch; if nothing does, it ends."""
        try:
            return await work
        except BaseException:
            await launch.end()
            raise

    async def _until_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that `stop` ends."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if task in self._stopped:
                raise BackendError("the backend was stopped, and the command with it", "not_running") from None
            raise
        finally:
            self._running.discard(task)
            self._stopped.discard(task)

    # -- files ------------------------------------------------------------------------------------------------------

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        return await self._file(lambda files: files.ls(path, links=links), "ls")

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        """Bytes of a file; without a limit as much as the cap allows."""
        return await self._file(lambda files: files.read(path, offset=offset, limit=limit, links=links), "read")

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        """Lines of a text file, counted from 0, with their ends as they are."""
        return await self._file(lambda files: files.lines(path, offset=offset, limit=limit, links=links), "lines")

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        """Replace a file in one go, or make it, with the folders it needs."""
        return await self._put(lambda files: files.write(path, content, links=links), len(content), "write")

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
        """Replace a text that occurs once; line ends and the encoding stay as they are."""
        options: Any = {"replace_all": replace_all, "occurrence": occurrence, "links": links}
        return await self._put(lambda files: files.edit(path, old, new, **options), len(new), "edit")

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        """Files whose path matches; what is ignored or heavy is left out unless `everything`."""
        return await self._file(lambda files: files.glob(pattern, path, everything=everything, links=links), "glob")

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
        """Lines that match a regular expression (RE2)."""
        asked = Asked(pattern, path, glob, ignore_case, everything, links)
        found = await self._ripgrep(asked) if self._has_ripgrep else None
        return await self._file(asked.walk, "grep") if found is None else found

    async def _ripgrep(self, asked: Asked) -> GrepResult | None:
        """What ripgrep finds in the sandbox, where it can only read; None for what is better done without it."""
        command = await self._file(asked.by_ripgrep, "grep")
        if command is None:
            return None
        argv, reading = command

        def run() -> Awaitable[CommandResult]:
            launched = self._launched(argv, read_only=True)
            return self._executed(launched, timeout=constants.FILE_SECONDS, on_output=reading.take)

        executed = await self._until_stopped(reading.enough_of(run))
        found = await run_in_thread(lambda: reading.result(executed), "grep")
        if found is None or asked.links:
            return found
        matches = found["matches"]  # ripgrep opens files by their paths, so they are compared with the files themselves
        return {**found, "matches": await self._file(lambda files: files.verify_matches(matches), "grep")}

    async def mkdir(self, path: str) -> None:
        await self._put(lambda files: files.mkdir(path), 0, "mkdir")

    async def move(self, source: str, target: str) -> None:
        await self._file(lambda files: files.move(source, target), "move")

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        await self._file(lambda files: files.delete(path, recursive=recursive), "delete")

    async def stat(self, path: str) -> FileStat:
        return await self._file(lambda files: files.stat(path), "stat")

    async def _put(self, do: Callable[[Workspace], T], size: int, name: str) -> T:
        """As `_file`, for what takes room on the disk."""
        place = await self._ready()

        def put() -> T:
            place.room.check(size)
            done = do(place.files)
            place.room.note(size)
            return done

        return await run_in_thread(put, name)

    async def _file(self, do: Callable[[Workspace], T], name: str) -> T:
        place = await self._ready()
        return await run_in_thread(lambda: do(place.files), name)


# -- what a backend is made with ------------------------------------------------------------------------------------


def _made(path: str | os.PathLike[str]) -> str:
    """The folder, which is made if it is missing; a link is followed once, now."""
    folder = os.path.realpath(os.path.expanduser(path))
    home = os.path.realpath(os.path.expanduser("~"))
    if folder == "/" or any(f"{one}/".startswith(f"{folder}/") for one in (*SYSTEM, home)):
        raise ConfigError(f"{folder} cannot be a workspace, as it holds more than a project; give a folder inside it")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the workspace {folder} cannot be made: {error.strerror}") from None
    return folder


def _relative(paths: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for path in paths:
        names = [name for name in path.split("/") if name not in ("", ".")]
        if path.startswith("/") or ".." in names or not names:
            raise ConfigError(f"a pinned file is a path in the workspace, such as conf/agents.yaml; not {path!r}")
        found.append("/".join(names))
    return tuple(found)


def _merged(limits: Mapping[str, float | None]) -> dict[str, float]:
    """The limits that hold: the default ones, unless others are given."""
    for name, limit in limits.items():
        if name not in LIMITS:
            raise ConfigError(f"there is no limit {name!r}; there are {', '.join(LIMITS)}")
        if limit is not None and not limit > 0:
            raise ConfigError(f"the limit {name!r} is a number above 0, or None for no limit; not {limit!r}")
    return {name: limit for name, limit in {**DEFAULT_LIMITS, **limits}.items() if limit is not None}


def _told(limits: Mapping[str, float]) -> str:
    """The limits as a person reads them: what holds for a command, and what only for each of its processes."""
    grouped = cgroups.controllers()
    said = []
    if memory := limits.get("memory"):
        said.append(f"memory {cgroups.amount(memory)}" + ("" if "memory" in grouped else " for each process"))
    if pids := limits.get("pids"):
        said.append(f"{pids:g} processes" + ("" if "pids" in grouped else " more than the user has now"))
    return ", ".join(said) or "no limits"


def _odd(env: Mapping[str, str]) -> str | None:
    """The name of an environment variable that the system cannot have."""
    return next((name for name, text in env.items() if not name or "=" in name or not _possible(name + text)), None)


def _possible(text: str) -> bool:
    """Whether a program can be given this text."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
