"""The client of wickd: runs commands and file operations on this host or in a container.

    daemon = await on_host()
    done = await daemon.run("make test", workdir="/srv/app", timeout=60)

`Daemon` is an asyncio protocol, so it works over any transport: a socket pair (`get_host_daemon`), TCP, a unix socket,
or the stream of an exec in a container (a frame decoder passes the payload to `data_received`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from wick import constants
from wick._internal.tasks import run_detached
from wick.backends import daemon_replies
from wick.backends.daemon_protocol import DaemonConnection, DaemonLost, OnChunk, PendingRequest, encode_base64
from wick.errors import BackendError
from wick.protocols import OnOutput
from wick.workspace.processes import clean_environment
from wick.workspace.results import CommandResult, JobInfo, JobOutput, Json

__all__ = ["Daemon", "DaemonLost", "DaemonTerminal", "get_host_daemon"]


class Daemon(DaemonConnection):
    """One connection to a wickd.

    `loop.create_connection(Daemon, …)` and similar set its transport; `Daemon.from_streams(reader, writer)` wraps
    asyncio's streams. `token` authenticates the connection if wickd listens on a port or a socket.
    """

    def __init__(self, *, name: str = "wickd", token: str = "") -> None:
        super().__init__(name=name, token=token)
        self._command_slots = asyncio.Semaphore(constants.COMMANDS_AT_ONCE)

    @classmethod
    def from_streams(cls, reader: Any, writer: Any, *, name: str = "wickd", token: str = "") -> Daemon:
        """Return a daemon over `await reader.read(n)` and a writer's `write`, `close` and `is_closing`."""
        daemon = cls(name=name, token=token)
        daemon.connection_made(writer)
        daemon.read_from(reader)
        return daemon

    async def _request_result(self, request: Json, limit: float = constants.DAEMON_ANSWER_SECONDS) -> Json:
        return daemon_replies.parse_result(await self.request(request, limit))

    # -- commands ---------------------------------------------------------------------------------------------------

    async def run(
        self,
        cmd: str = "",
        *,
        argv: Sequence[str] = (),
        workdir: str = "",
        stdin: bytes = b"",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        limits: Mapping[str, float] | None = None,
        cgroup: Sequence[str] = (),
        data: Sequence[bytes] = (),
        landlock: Mapping[str, Any] | None = None,
        disk: Mapping[str, Any] | None = None,
        read: bool = False,
        whole: bool = False,
    ) -> CommandResult:
        """Run a shell command or an argument list, and wait for it. Cancelling ends it and waits for its end.

        `env` is the whole environment; without it the command gets wickd's, from an allow-list. `limits` are rlimits:
        memory, pids, cpu, files, file_size. `cgroup` names cgroup.procs files to join. Each of `data` can be read by
        the command from a descriptor whose number replaces "%fd0%", "%fd1%" … in argv. `landlock` is
        {"read": [paths], "write": [paths], "pinned": [paths], "fixed": [paths], "network": bool}. `disk` is
        {"paths": [paths], "quota": bytes, "used": bytes, "reserve": bytes}: the command is ended when its workspace is
        too large, or the disk too full. With `read` it is an error if the command ends before it has read all
        of `stdin`, with `whole` if a child process then still has its output open.
        """
        limit = constants.COMMAND_SECONDS if timeout is None else timeout
        request = {"timeout": limit, **_command_fields(cmd, argv, workdir, env, limits, cgroup, data, landlock, disk)}
        if stdin:
            request["stdin64"] = encode_base64(stdin)
        if on_output is not None:
            request["stream"] = True
        request |= {name: True for name, wanted in (("read", read), ("whole", whole)) if wanted}
        async with self._command_slots:
            reply = await self.request(request, limit + constants.DAEMON_GRACE_SECONDS, cast(OnChunk | None, on_output))
        return daemon_replies.parse_executed(reply)

    async def job(
        self,
        cmd: str = "",
        *,
        argv: Sequence[str] = (),
        workdir: str = "",
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, float] | None = None,
        cgroup: Sequence[str] = (),
        data: Sequence[bytes] = (),
        landlock: Mapping[str, Any] | None = None,
        disk: Mapping[str, Any] | None = None,
        label: str = "",
        guard: str = "",
    ) -> JobInfo:
        """Start a background command; `label` is the value of `Job.command` (default: the command)."""
        request = _command_fields(cmd, argv, workdir, env, limits, cgroup, data, landlock, disk)
        return daemon_replies.parse_job(
            await self._request_result({"op": "job", "label": label, "guard": guard, **request})
        )

    async def jobs(self) -> list[JobInfo]:
        """Return the jobs of this connection, including recently ended ones."""
        return daemon_replies.parse_jobs(await self._request_result({"op": "jobs"}))

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        """Return the output of a job since `offset`, or since the oldest buffered byte."""
        return daemon_replies.parse_job_output(
            await self._request_result({"op": "job_output", "job": id, "offset": offset})
        )

    async def end_job(self, id: str) -> JobInfo:
        """End a job and its child processes, and wait for their end."""
        return daemon_replies.parse_job(await self._request_result({"op": "end_job", "job": id}))

    async def terminal(
        self,
        cmd: str = "",
        *,
        argv: Sequence[str] = (),
        rows: int = 24,
        columns: int = 80,
        workdir: str = "",
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, float] | None = None,
        cgroup: Sequence[str] = (),
        data: Sequence[bytes] = (),
        landlock: Mapping[str, Any] | None = None,
        disk: Mapping[str, Any] | None = None,
    ) -> DaemonTerminal:
        """Start a command in a pseudo-terminal."""
        request = _command_fields(cmd, argv, workdir, env, limits, cgroup, data, landlock, disk)
        terminal = DaemonTerminal(self)
        await terminal.open({"op": "pty", "rows": rows, "columns": columns, **request})
        return terminal

    # -- protected paths --------------------------------------------------------------------------------------------

    async def guard(self, root: str, protect: Sequence[str], *, arm: bool = True, contained: bool = False) -> Json:
        """Watch a workspace while a command runs there; return its protected paths as `entries`, and a `guard`."""
        request = {"op": "guard", "root": root, "protect": [*protect], "arm": arm, "contained": contained}
        return await self._request_result(request, constants.GUARD_WALK_SECONDS)

    async def release(self, guard: str) -> Json:
        """Release a guard after its command; return the neutralised plants (`moved`) and the others (`stuck`)."""
        return await self._request_result({"op": "release", "guard": guard}, constants.GUARD_WALK_SECONDS)

    async def unwatch(self, root: str) -> None:
        """Stop watching a workspace in which no command runs."""
        await self._request_result({"op": "unwatch", "root": root})

    # -- files and the rest -----------------------------------------------------------------------------------------

    async def file(
        self, op: str, root: str, protect: Sequence[str] | None = None, /, *, timeout: float | None = None, **args: Any
    ) -> Json:
        """Do a file operation of `Workspace(root, protect)`: `await daemon.file("read", root, path="a.txt")`.

        Failures raise a BackendError with a code. `write` takes `content` as text or bytes.
        """
        if isinstance(args.get("content"), bytes):
            args["content64"] = encode_base64(args.pop("content"))
        limit = constants.FILE_SECONDS if timeout is None else timeout
        request = {**args, "op": op, "root": root, "timeout": limit}
        if protect is not None:
            request["protect"] = list(protect)
        return daemon_replies.parse_file_result(
            op, await self._request_result(request, limit + constants.DAEMON_GRACE_SECONDS)
        )

    async def ping(self, timeout: float = 5.0) -> Json:
        """Return wickd's protocol, pid, python and uid; close the connection at the timeout."""
        return await self._request_result({"op": "ping"}, timeout)


def _command_fields(
    cmd: str,
    argv: Sequence[str],
    workdir: str,
    env: Mapping[str, str] | None,
    limits: Mapping[str, float] | None,
    cgroup: Sequence[str],
    data: Sequence[bytes],
    landlock: Mapping[str, Any] | None,
    disk: Mapping[str, Any] | None,
) -> Json:
    """Return the non-empty fields of a request that describe its command."""
    fields: Json = {
        "cmd": cmd,
        "argv": list(argv),
        "workdir": workdir,
        "limits": dict(limits or {}),
        "cgroup": list(cgroup),
        "data": [encode_base64(one) for one in data],
    }
    given = {name: value for name, value in fields.items() if value}
    if env is not None:
        given["env"] = dict(env)
    if landlock is not None:
        given["landlock"] = dict(landlock)
    if disk is not None:
        given["disk"] = dict(disk)
    return given


class DaemonTerminal:
    """A terminal of wickd (`wick.protocols.Terminal`). `exit_code` is set once its end has been read."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._changed = asyncio.Event()
        self._pending: PendingRequest | None = None
        self.exit_code: int | None = None

    async def open(self, request: Json) -> None:
        began = asyncio.Event()
        pending = self._pending = await self._daemon.send_request(request, self._receive, began.set)
        pending.final.add_done_callback(lambda _: began.set())
        pending.final.add_done_callback(lambda _: self._changed.set())
        try:
            async with asyncio.timeout(constants.DAEMON_ANSWER_SECONDS):
                await began.wait()
        except TimeoutError:
            self._daemon.abort("it did not open a terminal")
        except asyncio.CancelledError:
            await self._daemon.cancel_request(pending)
            raise
        if pending.final.done():
            daemon_replies.raise_error(pending.final.result())

    def _receive(self, name: str, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered_bytes += len(data)
        self._changed.set()
        if self._buffered_bytes > 4 * constants.TERMINAL_WINDOW_BYTES:
            self._daemon.abort("it sent more of a terminal's output than it may")

    @property
    def _request_id(self) -> str:
        return self._pending.id if self._pending else ""

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        while not self._chunks:
            if self._pending is None:
                return b""
            if self._pending.final.done():
                with suppress(DaemonLost):
                    self.exit_code = daemon_replies.parse_exit_code(self._pending.final.result())
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._buffered_bytes = 0
        self._daemon.send({"op": "taken", "target": self._request_id, "bytes": len(data)})
        return data

    async def write(self, data: bytes) -> None:
        """Write input; wait while the programs in the terminal do not read."""
        for start in range(0, len(data), 32_768):
            request = {"op": "input", "target": self._request_id, "data": encode_base64(data[start : start + 32_768])}
            while True:
                try:
                    await self._daemon._request_result(request)
                    break
                except BackendError as error:
                    if error.code != "busy":
                        raise
                await asyncio.sleep(0.05)  # wickd sends no event for this

    async def resize(self, rows: int, columns: int) -> None:
        await self._daemon._request_result(
            {"op": "resize", "target": self._request_id, "rows": rows, "columns": columns}
        )

    async def close(self) -> None:
        """End the terminal and all processes in it."""
        if self._pending is not None and not self._pending.final.done():
            await self._daemon.cancel_request(self._pending)
        self._chunks.clear()
        self._changed.set()


# -- the wickd of this host -----------------------------------------------------------------------------------------

# wickd needs few modules of wick, so they are imported without running `wick/__init__.py`.
_LAUNCH = """
import sys, types
folder = sys.argv[1]
sys.modules["wick"] = types.ModuleType("wick")
sys.modules["wick"].__path__ = [folder]
from wick.wickd.__main__ import main
main(sys.argv[2:])
"""
_PACKAGE = str(Path(__file__).parent.parent)


@dataclass(slots=True)
class _HostState:
    """The wickd of an event loop, the generator that holds it, and the lock for starting it."""

    lock: asyncio.Lock
    daemon: Daemon | None = None
    holder: AsyncGenerator[Daemon, None] | None = None


_hosts: WeakKeyDictionary[asyncio.AbstractEventLoop, _HostState] = WeakKeyDictionary()


class _HostDaemon(Daemon):
    """A wickd that this process has started."""

    def __init__(self) -> None:
        super().__init__(name="wickd on this host")
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, theirs: socket.socket) -> None:
        """Start the process with a clean environment, in a new session, so that Ctrl-C reaches only wick."""
        command = [sys.executable, "-I", "-S", "-c", _LAUNCH, _PACKAGE, "--parent", str(os.getpid())]
        stream, env = theirs.fileno(), clean_environment()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: ASYNC220 - it returns once the process is started
                    command, stdin=stream, stdout=stream, env=env, start_new_session=True, cwd="/"
                )
            await self.ping(constants.HOST_START_SECONDS)
        except (OSError, DaemonLost) as error:
            raise DaemonLost(f"wickd cannot be started with {sys.executable}: {error}", began=False) from None

    def connection_lost(self, exc: Exception | None) -> None:
        """Kill wickd if it does not exit by itself, for example because it is stopped."""
        super().connection_lost(exc)
        if self._process is not None:
            asyncio.get_running_loop().call_later(constants.CANCEL_GRACE_SECONDS, self._process.kill)

    async def stop(self) -> None:
        await self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(constants.CANCEL_GRACE_SECONDS + constants.DAEMON_GRACE_SECONDS):
                while self._process is not None and self._process.poll() is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)


async def get_host_daemon() -> Daemon:
    """Return the wickd of this host for this event loop: started on demand, and ended with the loop."""
    loop = asyncio.get_running_loop()
    host = _hosts.get(loop)
    if host is None:
        host = _hosts[loop] = _HostState(asyncio.Lock())
    if host.daemon is not None and host.daemon.alive:
        return host.daemon
    async with host.lock:
        if host.daemon is not None and host.daemon.alive:
            return host.daemon
        holder, host.daemon = host.holder, None
        if holder is not None:
            await holder.aclose()
        host.holder = _hold_daemon()
        host.daemon = await anext(host.holder)
        return host.daemon


async def _hold_daemon() -> AsyncGenerator[Daemon, None]:
    """Hold a wickd. An ending event loop closes its async generators, and so ends wickd and its commands."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    try:
        _, daemon = await run_detached(loop.create_unix_connection(_HostDaemon, sock=ours))
    except BaseException:
        ours.close()
        theirs.close()
        raise
    try:
        await daemon.start(theirs)
        yield daemon
    finally:
        host = _hosts.get(loop)
        if host is not None and host.daemon is daemon:
            del _hosts[loop]  # the daemon refers to its loop, the key, which would never be freed
        await daemon.stop()
