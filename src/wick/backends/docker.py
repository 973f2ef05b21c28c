"""A workspace in a container, by Docker or Podman.

    backend = Docker("python:3.12-slim", volumes={"./project": "/workspace"})
    await backend.execute("make test")
    await backend.stop()

The container is made when it is first needed, and confined as wick.backends.containers.spec says. Commands and files go
through wickd, a daemon inside the container that is reached by the stdin and stdout of one exec; where there is no
Python for it, or while it is gone, through the engine's own exec, and whoever asks does not notice. A command is never
run twice: if the daemon is lost while one runs, the error says that it may have run.
"""

from __future__ import annotations

import os
import posixpath
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from wick import constants
from wick.backends.containers import socket_folder
from wick.backends.containers.container import reap as reap_containers
from wick.backends.containers.engine import Engine, EngineError, NotBegun
from wick.backends.containers.exec_commands import Plain
from wick.backends.containers.lifecycle import Life, Link
from wick.backends.containers.shell_files import ShellFiles
from wick.backends.containers.spec import Limits, Plan, mounts
from wick.backends.daemon_client import Daemon, Gone
from wick.backends.workspace_guard import GuardedTerminal
from wick.errors import BackendError, ConfigError
from wick.protocols import OnOutput, Protection, Status, Terminal
from wick.workspace.grep import LineSearch
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

T = TypeVar("T")
DAEMONS = ("stdio", "tcp", "unix", "none")
READS = frozenset(("ls", "stat", "read", "lines", "glob", "grep"))  # may be done again without harm


class Docker:
    """A workspace in a container of an image.

    `id` names the container for as long as it lives: with one, a server that starts again finds it again. `owner` is
    whose it is, `server` whose to clean up (see `reap`). `engine` is where the engine is: nothing means DOCKER_HOST or
    this machine's. `daemon` is how wickd is reached: by `stdio`, by `tcp` on loopback, by a `unix` socket, or `none`.
    """

    def __init__(
        self,
        image: str,
        *,
        workdir: str = "/workspace",
        engine: str = "",
        tls: str | ssl.SSLContext | None = None,
        volumes: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, float | str] | Limits | None = None,
        network: str = "none",
        user: str = "",
        daemon: Literal["stdio", "tcp", "unix", "none"] = "stdio",
        read_only: bool = False,
        pull: bool = False,
        id: str = "",
        owner: str = "",
        server: str = "",
        protect: Sequence[str] = PROTECTED,
        timeout: float = constants.COMMAND_SECONDS,
    ) -> None:
        there = Engine(engine, tls=tls)
        local = there.address.local
        if daemon not in DAEMONS:
            raise ConfigError(f"there is no daemon {daemon!r}; it is one of {', '.join(DAEMONS)}")
        if daemon in ("tcp", "unix") and not local:
            raise ConfigError(f"daemon={daemon!r} is for an engine on this machine; use 'stdio' for {engine}")
        self.id = id or secrets.token_hex(8)
        self._plan = Plan(
            id=self.id,
            image=image,
            workdir=workdir,
            owner=owner,
            server=server,
            user=str(user),
            network=network,
            limits=Limits.read(limits),
            env=dict(env or {}),
            mounts=mounts(volumes, local=local),
            read_only=read_only,
            publish=daemon == "tcp",
            shared=socket_folder.place(self.id) if daemon == "unix" else "",
        )
        self._protect, self._timeout = tuple(protect), timeout
        self._life = Life(there, self._plan, daemon=daemon, protect=self._protect, pull=pull)
        self._life.begun = bool(id)  # one without an id of its own is known to nobody else

    def __repr__(self) -> str:
        return f"Docker({self._plan.image!r}, id={self.id!r})"

    @property
    def name(self) -> str:
        return "docker"

    @property
    def workdir(self) -> str:
        return self._plan.workdir

    @property
    def status(self) -> Status:
        return self._life.status

    @property
    def protection(self) -> Protection:
        watched = ", ".join(source for source, _ in self._life.watched)
        note = f"; while commands run, code that they plant in {watched} is neutralised" if watched else ""
        return Protection("strong", "docker", self._plan.says() + note)

    @property
    def uses_daemon(self) -> bool:
        """Whether commands go through the daemon at the moment, rather than the engine's exec."""
        return self._life.has_daemon

    # -- its life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make, find or start the container, and its daemon."""
        await self._life.ready()

    async def stop(self) -> None:
        """Stop the container and remove it. What is not in a volume is gone with it."""
        await self._life.end()

    async def restart(self) -> None:
        """Stop the container and start a new one."""
        await self.stop()
        await self.start()

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
        limit = self._timeout if timeout is None else timeout
        _check_command(command, limit, env or {})
        folder, link = self._folder(workdir), await self._life.ready()
        await self._enter(link, folder)
        options: dict[str, Any] = {"workdir": folder, "stdin": stdin, "timeout": limit}
        async with link.guards.held() as guard:
            executed = await self._run(link, command, env, on_output, options)
        return guard.add_to(executed)

    async def _run(
        self,
        link: Link,
        command: str,
        env: Mapping[str, str] | None,
        on_output: OnOutput | None,
        options: dict[str, Any],
    ) -> CommandResult:
        if daemon := link.daemon:
            told = {**link.env, **(env or {})}
            try:
                return await daemon.run(command, env=told, on_output=on_output, **options)
            except Gone as gone:
                link = await self._instead(gone, "the command")
        return await self._plainly(link, lambda plain: plain.run(command, env=env, on_output=on_output, **options))

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        _check_command(command)
        folder, link = self._folder(workdir), await self._life.ready()
        await self._enter(link, folder)
        guard = await link.guards.begin()
        try:
            runner, job = await self._start_job(link, command, folder)
        except BaseException:
            await guard.end()
            raise
        link.guards.follow(runner, job["id"], guard, lambda: self._jobs(link), self._life.settle)
        return job

    async def _start_job(self, link: Link, command: str, folder: str) -> tuple[Daemon | Plain, JobInfo]:
        if daemon := link.daemon:
            try:
                return daemon, await daemon.job(command, workdir=folder, env=link.env)
            except Gone as gone:
                link = await self._instead(gone, "the command")
        job = await self._plainly(link, lambda plain: plain.job(command, workdir=folder))
        return cast(Plain, link.plain), job

    async def jobs(self) -> Sequence[JobInfo]:
        link = self._life.link
        return [job for _, job in await self._jobs(link)] if link else []

    async def _jobs(self, link: Link) -> list[tuple[Daemon | Plain, JobInfo]]:
        """Return the jobs, each with its runner."""
        found: list[tuple[Daemon | Plain, JobInfo]] = []
        if daemon := link.daemon:
            found += [(daemon, job) for job in await daemon.jobs()]
        if plain := link.plain:
            found += [(plain, job) for job in plain.jobs()]
        return [(runner, await link.guards.explain(runner, job)) for runner, job in found]

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        link = await self._life.ready()
        if link.daemon and not (link.plain and link.plain.has(id)):
            return await link.daemon.job_output(id, offset=offset)
        assert link.plain is not None
        return link.plain.job_output(id, offset=offset)

    async def end_job(self, id: str) -> JobInfo:
        link = await self._life.ready()
        if link.daemon and not (link.plain and link.plain.has(id)):
            return await link.guards.explain(link.daemon, await link.daemon.end_job(id))
        assert link.plain is not None
        return await link.guards.explain(link.plain, await link.plain.end_job(id))

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> Terminal:
        link = await self._life.ready()
        guard = await link.guards.begin()
        try:
            inner = await self._start_terminal(link, rows, columns)
        except BaseException:
            await guard.end()
            raise
        return GuardedTerminal(inner, guard, lambda _: None)

    async def _start_terminal(self, link: Link, rows: int, columns: int) -> Terminal:
        env = {"TERM": "xterm-256color", **link.env}
        if daemon := link.daemon:
            try:
                return await daemon.terminal(SHELL, rows=rows, columns=columns, workdir=self.workdir, env=env)
            except Gone as gone:
                link = await self._instead(gone, "the terminal")
        return await self._plainly(link, lambda plain: plain.terminal(rows, columns, workdir=self.workdir, env=env))

    def _folder(self, workdir: str) -> str:
        """Where a command runs: beneath the workspace, as a path inside the container."""
        if "\0" in workdir:
            raise BackendError("a path is a text that has no NUL in it", "invalid")
        folder = posixpath.normpath(posixpath.join(self.workdir, workdir))
        if folder != self.workdir and not folder.startswith(f"{self.workdir}/"):
            raise BackendError(f"{workdir} is outside of the workspace; give a path inside {self.workdir}", "escapes")
        return folder

    async def _enter(self, link: Link, folder: str) -> None:
        """Nothing, if a folder is one of the workspace: links do not lead a command out of it unnoticed."""
        if folder == self.workdir:
            return
        if link.daemon is None:
            return await self._plainly(link, lambda _: cast(ShellFiles, link.files).enter(folder))
        await self.stat(folder)
        try:
            await self.stat(f"{folder}/.wick-{secrets.token_hex(4)}")  # what no folder has, but any may
        except BackendError as error:
            if error.code != "not_found":
                raise

    async def _plainly(self, link: Link, do: Callable[[Plain], Awaitable[T]]) -> T:
        """Do something by the engine's exec; if the container is gone, nothing has begun, and the next one does it."""
        for last in (False, True):
            try:
                return await do(cast(Plain, link.plain))
            except EngineError as error:
                self._life.lost(link, error)
                if last or not isinstance(error, NotBegun):
                    raise
            await self._life.ready()
        raise AssertionError("unreachable")

    async def _instead(self, gone: Gone, what: str) -> Link:
        """The way without the daemon, if it has surely not begun what it was asked for."""
        if gone.began:
            self._life.settle()
            raise BackendError(
                f"the connection to the container was lost: {what} may have run, wholly or in part; "
                f"look before you do it again ({gone})",
                "unknown",
            ) from None
        return await self._life.ready()

    # -- files ------------------------------------------------------------------------------------------------------

    async def _file(self, op: str, **args: Any) -> Any:
        link = await self._life.ready()
        if daemon := link.daemon:
            try:
                return await daemon.file(op, self.workdir, self._protect, **args)
            except Gone as gone:
                link = await self._life.ready() if op in READS else await self._instead(gone, op)
            except BackendError as error:
                if error.code != "no_engine":  # nothing there can search: its bytes come here
                    raise
        return await self._plainly(link, lambda _: getattr(link.files, op)(**args))

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        return cast(Listing, await self._file("ls", path=path, **_strict(links)))

    async def stat(self, path: str) -> FileStat:
        return cast(FileStat, await self._file("stat", path=path))

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        return cast(ReadResult, await self._file("read", path=path, offset=offset, limit=limit, **_strict(links)))

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        return cast(FileLines, await self._file("lines", path=path, offset=offset, limit=limit, **_strict(links)))

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        return cast(WriteResult, await self._file("write", path=path, content=content, **_strict(links)))

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
        args = {"old": old, "new": new, "replace_all": replace_all, "occurrence": occurrence, **_strict(links)}
        return cast(EditResult, await self._file("edit", path=path, **args))

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        args = {"path": path, "everything": everything, **_strict(links)}
        return cast(GlobResult, await self._file("glob", pattern=pattern, **args))

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
        if "\0" in pattern:
            raise BackendError("a regular expression has no NUL in it", "invalid")
        LineSearch(pattern, ignore_case=ignore_case)  # what RE2 does not know is refused, whatever searches in there
        args = {"path": path, "glob": glob, "everything": everything, **_strict(links)}
        return cast(GrepResult, await self._file("grep", pattern=pattern, ignore_case=ignore_case, **args))

    async def mkdir(self, path: str) -> None:
        await self._file("mkdir", path=path)

    async def move(self, source: str, target: str) -> None:
        await self._file("move", source=source, target=target)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        await self._file("delete", path=path, recursive=recursive)


def _strict(links: bool) -> dict[str, bool]:
    """Return the argument of an operation that follows no links; most have none."""
    return {} if links else {"links": False}


SHELL = "command -v bash >/dev/null 2>&1 && exec bash; exec sh"


def _check_command(command: str, limit: float = 1.0, env: Mapping[str, str] | None = None) -> None:
    if not command.strip() or not _is_text(command):
        raise BackendError("a command is a text that is not empty and has no NUL in it", "invalid")
    if not 0 < limit < float("inf"):
        raise BackendError(f"a time limit is a number of seconds above 0, not {limit}", "invalid")
    for name, value in (env or {}).items():
        if not name or "=" in name or not _is_text(name + value):
            raise BackendError(f"the environment variable {name!r} has a name or a value that none can have", "invalid")


def _is_text(text: str) -> bool:
    """Whether a program can be given a text."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


async def reap(
    engine: str = "", *, tls: str | ssl.SSLContext | None = None, server: str = "", keep: Sequence[str] = ()
) -> list[str]:
    """Remove the containers that a server left behind, but for the ids it still knows; which they were."""
    there = Engine(engine, tls=tls)
    try:
        gone = await reap_containers(there, server=server, keep=keep)
        for id in gone:
            socket_folder.remove(socket_folder.place(id))
        return gone
    finally:
        await there.close()
