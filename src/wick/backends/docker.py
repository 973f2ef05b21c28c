"""The Docker backend: a workspace in a container of Docker or Podman.

    backend = Docker("python:3.12-slim", volumes={"./project": "/workspace"})
    await backend.execute("make test")
    await backend.stop()

The container is created on first use, and confined as described in wick.backends.containers.spec. Commands and file
operations use wickd, a daemon inside the container, over the stdin and stdout of one exec. Without Python in the
image, or while the daemon is lost, each is an exec of its own: a fallback for files and commands only, with weaker
promises, see `LIMITS`. A command is never run twice: if the daemon is lost while one runs, the error states that it may
have run.
"""

from __future__ import annotations

import posixpath
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from wick import constants
from wick.backends.containers import socket_folder
from wick.backends.containers.container import reap_containers as reap_containers
from wick.backends.containers.engine import Engine, EngineError, ProcessNotStarted
from wick.backends.containers.exec_commands import ExecRunner
from wick.backends.containers.file_search import search_files
from wick.backends.containers.lifecycle import ContainerLifecycle, ContainerLink
from wick.backends.containers.spec import ContainerLimits, ContainerSpec, build_mounts
from wick.backends.daemon_client import Daemon, DaemonLost
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
from wick.workspace.text import is_argument_text

T = TypeVar("T")
DAEMONS = ("stdio", "tcp", "unix", "none")
LIMITS = (  # of the fallback without wickd
    "there are no background commands, no terminals, no glob and no grep; file operations follow no links; a process "
    "that clears its environment and leaves its process group may outlive its command; a link that appears between the "
    "check of a path and its use may be followed"
)
INSTEAD = {  # of the operations that need wickd
    "glob": "`find . -name '*.py'`",
    "grep": "`grep -rn TEXT .`",
    "background command": "a command with a longer time limit",
    "terminal": "single commands",
}
READ_OPERATIONS = frozenset(("ls", "stat", "read", "lines"))  # idempotent


class Docker:
    """A workspace in a container of an image.

    `id` names the container, so that a restarted server finds it. `owner` labels its owner, and `server` the server
    that cleans it up (see `reap`). `engine` is the address of the engine; default: DOCKER_HOST, or this machine's.
    `daemon` is the transport to wickd: `stdio`, `tcp` on loopback, a `unix` socket, or `none`.
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
        limits: Mapping[str, float | str] | ContainerLimits | None = None,
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
        client = Engine(engine, tls=tls)
        local = client.address.is_local
        if daemon not in DAEMONS:
            raise ConfigError(f"there is no daemon {daemon!r}; it is one of {', '.join(DAEMONS)}")
        if daemon in ("tcp", "unix") and not local:
            raise ConfigError(f"daemon={daemon!r} is for an engine on this machine; use 'stdio' for {engine}")
        self.id = id or secrets.token_hex(8)
        self._spec = ContainerSpec(
            id=self.id,
            image=image,
            workdir=workdir,
            owner=owner,
            server=server,
            user=str(user),
            network=network,
            limits=ContainerLimits.parse(limits),
            env=dict(env or {}),
            binds=build_mounts(volumes, local=local),
            read_only=read_only,
            publish=daemon == "tcp",
            shared=socket_folder.folder_path(self.id) if daemon == "unix" else "",
        )
        self._protect, self._timeout, self._is_local = tuple(protect), timeout, local
        self._lifecycle = ContainerLifecycle(client, self._spec, daemon=daemon, protect=self._protect, pull=pull)
        self._lifecycle.may_exist = bool(id)  # without an id, no earlier container can exist

    def __repr__(self) -> str:
        return f"Docker({self._spec.image!r}, id={self.id!r})"

    @property
    def name(self) -> str:
        return "docker"

    @property
    def workdir(self) -> str:
        return self._spec.workdir

    @property
    def host_folder(self) -> str:
        """The folder of this machine that is mounted as `workdir`; empty if the files are in a volume."""
        if not self._is_local:
            return ""
        binds = (bind.rsplit(":", 2) if bind.endswith(":ro") else bind.rsplit(":", 1) for bind in self._spec.binds)
        return next((bind[0] for bind in binds if bind[1] == self.workdir and bind[0].startswith("/")), "")

    @property
    def has_network(self) -> bool:
        """True if commands can reach a network."""
        return self._spec.network != "none"

    @property
    def status(self) -> Status:
        return self._lifecycle.status

    @property
    def protection(self) -> Protection:
        watched = ", ".join(source for source, _ in self._lifecycle.watched)
        note = f"; while commands run, code that they plant in {watched} is neutralised" if watched else ""
        note += f"; without wickd in the container, {LIMITS}" if self._lifecycle.is_fallback else ""
        return Protection("strong", "docker", self._spec.describe() + note)

    @property
    def uses_daemon(self) -> bool:
        """True while commands use the daemon rather than the engine's exec."""
        return self._lifecycle.has_daemon

    # -- lifecycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Create, find or start the container, and its daemon."""
        await self._lifecycle.ensure_ready()

    async def stop(self) -> None:
        """Stop and remove the container. Only files in volumes remain."""
        await self._lifecycle.end()

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
        folder, link = self._resolve_workdir(workdir), await self._lifecycle.ensure_ready()
        await self._check_workdir(folder)
        async with link.guards.guard_command() as guard:
            executed = await self._run(
                link,
                "the command",
                lambda link, runner: runner.run(
                    command,
                    workdir=folder,
                    stdin=stdin,
                    timeout=limit,
                    env={**link.env, **(env or {})},
                    on_output=on_output,
                ),
            )
        return guard.add_to(executed)

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        _check_command(command)
        folder, link = self._resolve_workdir(workdir), await self._lifecycle.ensure_ready()
        await self._check_workdir(folder)
        guard = await link.guards.begin()
        try:
            daemon, job = await self._run_by_daemon(
                link,
                "background command",
                lambda link, daemon: daemon.job(command, workdir=folder, env=link.env),
            )
        except BaseException:
            await guard.end()
            raise
        link.guards.follow(
            daemon, job["id"], guard, lambda: self._list_jobs(link), self._lifecycle.kill_daemon_commands
        )
        return job

    async def jobs(self) -> Sequence[JobInfo]:
        link = self._lifecycle.link
        return [job for _, job in await self._list_jobs(link)] if link else []

    async def _list_jobs(self, link: ContainerLink) -> list[tuple[Daemon, JobInfo]]:
        """Return the jobs, each with its daemon."""
        daemon = link.daemon
        return [(daemon, await link.guards.explain(daemon, job)) for job in await daemon.jobs()] if daemon else []

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        return await _find_daemon(await self._lifecycle.ensure_ready(), id).job_output(id, offset=offset)

    async def end_job(self, id: str) -> JobInfo:
        link = await self._lifecycle.ensure_ready()
        daemon = _find_daemon(link, id)
        return await link.guards.explain(daemon, await daemon.end_job(id))

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> Terminal:
        def open_terminal(link: ContainerLink, daemon: Daemon) -> Awaitable[Terminal]:
            env = {"TERM": "xterm-256color", **link.env}
            return daemon.terminal(SHELL, rows=rows, columns=columns, workdir=self.workdir, env=env)

        link = await self._lifecycle.ensure_ready()
        guard = await link.guards.begin()
        try:
            _, inner = await self._run_by_daemon(link, "terminal", open_terminal)
        except BaseException:
            await guard.end()
            raise
        return GuardedTerminal(inner, guard, lambda _: None)

    def _resolve_workdir(self, workdir: str) -> str:
        """Return the working directory of a command as an absolute path in the container."""
        if "\0" in workdir:
            raise BackendError("a path is a text that has no NUL in it", "invalid")
        folder = posixpath.normpath(posixpath.join(self.workdir, workdir))
        if folder != self.workdir and not folder.startswith(f"{self.workdir}/"):
            raise BackendError(f"{workdir} is outside of the workspace; give a path inside {self.workdir}", "escapes")
        return folder

    async def _check_workdir(self, folder: str) -> None:
        """Raise unless a folder is inside the workspace, with links resolved."""
        if folder == self.workdir:
            return
        await self.stat(folder)
        try:
            await self.stat(f"{folder}/.wick-{secrets.token_hex(4)}")  # a random name: only the folder is checked
        except BackendError as error:
            if error.code != "not_found":
                raise

    async def _run(
        self,
        link: ContainerLink,
        what: str,
        do: Callable[[ContainerLink, Daemon | ExecRunner], Awaitable[T]],
        *,
        is_repeatable: bool = False,
    ) -> T:
        """Run an operation by the daemon, or else by the engine's exec.

        An operation that the daemon may have started is not repeated, unless it is repeatable. One that the engine
        did not start is retried once, in a new container.
        """
        if daemon := link.daemon:
            try:
                return await do(link, daemon)
            except DaemonLost as lost:
                link = await self._replace_daemon(lost, what, is_repeatable=is_repeatable)
        for is_retry in (False, True):
            try:
                return await do(link, cast(ExecRunner, link.exec_runner))
            except EngineError as error:
                self._lifecycle.mark_lost(link, error)
                if is_retry or not isinstance(error, ProcessNotStarted):
                    raise
            link = await self._lifecycle.ensure_ready()
        raise AssertionError("unreachable")

    async def _run_by_daemon(
        self,
        link: ContainerLink,
        what: str,
        do: Callable[[ContainerLink, Daemon], Awaitable[T]],
        *,
        is_repeatable: bool = False,
    ) -> tuple[Daemon, T]:
        """Run an operation that the fallback does not have; return its daemon and its result."""
        if daemon := link.daemon:
            try:
                return daemon, await do(link, daemon)
            except DaemonLost as lost:
                link = await self._replace_daemon(lost, f"the {what}", is_repeatable=is_repeatable)
        if daemon := link.daemon:
            return daemon, await do(link, daemon)
        remedy = "add python3 to the image" if link.retry_at == float("inf") else "try again"
        remedy = remedy if link.no_daemon_reason else "choose another `daemon`"
        reason = link.no_daemon_reason or "the backend has daemon='none'"
        message = f"{reason}, so there is no {what}; {remedy}, or use execute: {INSTEAD[what]}"
        raise BackendError(message, "unsupported")

    async def _replace_daemon(self, lost: DaemonLost, what: str, *, is_repeatable: bool) -> ContainerLink:
        """Start another daemon; raise an error if the operation may have run and must not be repeated."""
        if lost.began and not is_repeatable:
            self._lifecycle.kill_daemon_commands()
            raise BackendError(
                f"the connection to the container was lost: {what} may have run, wholly or in part; "
                f"look before you do it again ({lost})",
                "unknown",
            ) from None
        return await self._lifecycle.ensure_ready()

    # -- files ------------------------------------------------------------------------------------------------------

    async def _run_file_operation(self, op: str, **args: Any) -> Any:
        def do(link: ContainerLink, runner: Daemon | ExecRunner) -> Awaitable[Any]:
            if isinstance(runner, Daemon):
                return runner.file(op, self.workdir, self._protect, **args)
            done: Awaitable[Any] = getattr(link.files, op)(**args)
            return done

        link = await self._lifecycle.ensure_ready()
        if op in INSTEAD:
            return (await self._run_by_daemon(link, op, do, is_repeatable=True))[1]
        return await self._run(link, op, do, is_repeatable=op in READ_OPERATIONS)

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        return cast(Listing, await self._run_file_operation("ls", path=path, **_links_argument(links)))

    async def stat(self, path: str) -> FileStat:
        return cast(FileStat, await self._run_file_operation("stat", path=path))

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        return cast(
            ReadResult,
            await self._run_file_operation("read", path=path, offset=offset, limit=limit, **_links_argument(links)),
        )

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        return cast(
            FileLines,
            await self._run_file_operation("lines", path=path, offset=offset, limit=limit, **_links_argument(links)),
        )

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        return cast(
            WriteResult, await self._run_file_operation("write", path=path, content=content, **_links_argument(links))
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
        args = {"old": old, "new": new, "replace_all": replace_all, "occurrence": occurrence, **_links_argument(links)}
        return cast(EditResult, await self._run_file_operation("edit", path=path, **args))

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        args = {"path": path, "everything": everything, **_links_argument(links)}
        return cast(GlobResult, await self._run_file_operation("glob", pattern=pattern, **args))

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
        search = LineSearch(pattern, ignore_case=ignore_case)  # validate with RE2, whatever engine searches
        args = {"path": path, "glob": glob, "everything": everything, **_links_argument(links)}
        try:
            found = await self._run_file_operation("grep", pattern=pattern, ignore_case=ignore_case, **args)
        except BackendError as error:
            if error.code != "no_engine":
                raise
            return await search_files(self, search, path, glob=glob, everything=everything, links=links)
        return cast(GrepResult, found)

    async def mkdir(self, path: str) -> None:
        await self._run_file_operation("mkdir", path=path)

    async def move(self, source: str, target: str) -> None:
        await self._run_file_operation("move", source=source, target=target)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        await self._run_file_operation("delete", path=path, recursive=recursive)


def _links_argument(links: bool) -> dict[str, bool]:
    """Return the argument of an operation that follows no links; most have none."""
    return {} if links else {"links": False}


def _find_daemon(link: ContainerLink, id: str) -> Daemon:
    """Return the daemon of a job."""
    if link.daemon is None:
        raise BackendError(f"there is no command {id!r} in the background", "not_found")
    return link.daemon


SHELL = "command -v bash >/dev/null 2>&1 && exec bash; exec sh"


def _check_command(command: str, limit: float = 1.0, env: Mapping[str, str] | None = None) -> None:
    if not command.strip() or not is_argument_text(command):
        raise BackendError("a command is a text that is not empty and has no NUL in it", "invalid")
    if not 0 < limit < float("inf"):
        raise BackendError(f"a time limit is a number of seconds above 0, not {limit}", "invalid")
    for name, value in (env or {}).items():
        if not name or "=" in name or not is_argument_text(name + value):
            raise BackendError(f"the environment variable {name!r} has a name or a value that none can have", "invalid")


async def reap(
    engine: str = "", *, tls: str | ssl.SSLContext | None = None, server: str = "", keep: Sequence[str] = ()
) -> list[str]:
    """Remove the leftover containers of a server, except the ids in `keep`; return the removed ids."""
    client = Engine(engine, tls=tls)
    try:
        removed = await reap_containers(client, server=server, keep=keep)
        for id in removed:
            socket_folder.remove_folder(socket_folder.folder_path(id))
        return removed
    finally:
        await client.close()
