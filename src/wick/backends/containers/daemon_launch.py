"""Launch of wickd in a container, and the connection to it by stdio, TCP or a unix socket."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from wick import constants
from wick.backends.containers import socket_folder
from wick.backends.containers.container import Container
from wick.backends.containers.engine import ContainerProcess, EngineError
from wick.backends.containers.spec import DAEMON_FOLDER, PORT
from wick.backends.daemon_client import Daemon
from wick.errors import BackendError

FILE = f"{DAEMON_FOLDER}/wickd.pyz"
GREETING = b"wickd\n"
TOO_OLD, CHANGED = 97, 98  # exit codes

# The code that runs is the code that was checked: the bytes are read once, compared, and imported from memory. All
# modules are imported at once, as the processes that wickd forks close unneeded descriptors.
LAUNCH = f"""
import hashlib, os, sys, tempfile
if sys.version_info < (3, 8):
    sys.stderr.write("its Python is %d.%d, and wickd needs 3.8" % sys.version_info[:2])
    sys.exit({TOO_OLD})
with open(sys.argv[1], "rb") as file:
    code = file.read()
if hashlib.sha256(code).hexdigest() != sys.argv[2]:
    sys.stderr.write("the daemon's file is not the one that was put there")
    sys.exit({CHANGED})
kept = os.memfd_create("wickd") if hasattr(os, "memfd_create") else os.dup(tempfile.TemporaryFile().fileno())
while code:
    code = code[os.write(kept, code):]
sys.path.insert(0, "/proc/self/fd/%d" % kept)
import wick.workspace.workspace
from wick.wickd.__main__ import main
os.write(1, b"wickd\\n")
main(sys.argv[3:])
"""


class DaemonUnavailable(Exception):
    """Raised if there is no daemon; `final` if this container cannot run one."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class _DaemonFileChanged(DaemonUnavailable):
    """Raised if the daemon file in the container differs from the expected one."""


@dataclass(slots=True, eq=False)
class LaunchedDaemon:
    """A daemon, and the generator that holds it until the event loop ends."""

    daemon: Daemon
    holder: AsyncGenerator[Daemon, None]

    async def close(self) -> None:
        await self.holder.aclose()


async def launch_daemon(container: Container, found: dict[str, Any], how: str, token: str) -> LaunchedDaemon:
    """Start a daemon in a running container, or raise DaemonUnavailable."""
    try:
        async with asyncio.timeout(constants.DAEMON_SECONDS):
            try:
                return await _launch_once(container, found, how, token)
            except _DaemonFileChanged:
                await container.inject_daemon()
                return await _launch_once(container, found, how, token)
    except TimeoutError:
        raise DaemonUnavailable(f"the daemon did not answer within {constants.DAEMON_SECONDS:g} s") from None
    except (EngineError, OSError) as error:
        raise DaemonUnavailable(f"the daemon could not be started: {error}") from None
    except BackendError as error:
        raise DaemonUnavailable(f"the daemon did not answer: {error}") from None


async def _launch_once(container: Container, found: dict[str, Any], how: str, token: str) -> LaunchedDaemon:
    holder = _hold_daemon(container, found, how, token)
    return LaunchedDaemon(await anext(holder), holder)


async def _hold_daemon(
    container: Container, found: dict[str, Any], how: str, token: str
) -> AsyncGenerator[Daemon, None]:
    """Hold a daemon. An ending event loop closes its async generators, and so the connection."""
    if how == "stdio":
        process = await _start_wickd(container, found, [])
        daemon = Daemon(name="the daemon in the container")
        process.attach(daemon)
    else:
        daemon = await _connect_socket(container, found, how, token)
    try:
        await daemon.ping(constants.DAEMON_SECONDS)
        yield daemon
    finally:
        await daemon.close()


async def _connect_socket(container: Container, found: dict[str, Any], how: str, token: str) -> Daemon:
    """Connect to a listening daemon, which outlives its clients; replace one with another token."""
    try:
        return await _open_connection(found, container, how, token)
    except OSError:
        stranger = False
    except BackendError:
        stranger = how == "unix"  # a published port accepts connections even if no process listens inside
    for again in (stranger, True):
        if again:
            await container.restart()
            found = await container.ensure_running()
        if daemon := await _start_listening(container, found, how, token):
            return daemon
    raise DaemonUnavailable("the daemon cannot listen")


async def _start_listening(container: Container, found: dict[str, Any], how: str, token: str) -> Daemon | None:
    """Start a listening daemon and connect; return None if it ended, as its address is in use."""
    place = ["--tcp", f"0.0.0.0:{PORT}"] if how == "tcp" else ["--unix", f"/tmp/{socket_folder.SOCKET}"]
    process = await _start_wickd(container, found, [*place, "--token-stdin"], token)
    try:
        while await process.is_running():
            try:
                return await _open_connection(found, container, how, token)
            except (BackendError, OSError):
                await asyncio.sleep(0.05)
    finally:
        process.close()
    return None


async def _open_connection(found: dict[str, Any], container: Container, how: str, token: str) -> Daemon:
    loop = asyncio.get_running_loop()
    daemon = Daemon(name="the daemon in the container", token=token)
    if how == "unix":
        await loop.create_unix_connection(lambda: daemon, sock=socket_folder.connect_socket(container.spec.shared))
    else:
        ports = (found["NetworkSettings"].get("Ports") or {}).get(f"{PORT}/tcp") or []
        if not ports:
            raise ConnectionRefusedError("the engine has not published the daemon's port")
        await loop.create_connection(lambda: daemon, "127.0.0.1", int(ports[0]["HostPort"]))
    try:
        await daemon.ping(1.0)
    except BaseException:
        await daemon.close()
        raise
    return daemon


async def _start_wickd(
    container: Container, found: dict[str, Any], options: list[str], token: str = ""
) -> ContainerProcess:
    """Start wickd, and wait for its greeting."""
    digest = hashlib.sha256(container.daemon).hexdigest()
    argv = ["python3", "-I", "-S", "-c", LAUNCH, FILE, digest, *options]
    process = await container.engine.exec(str(found["Id"]), argv, stdin=True, workdir=container.spec.workdir)
    output, complaint = b"", b""
    try:
        if token:
            process.write(token.encode() + b"\n")
        while output != GREETING and len(output) < 1_000 and (pieces := await process.read()):
            output += b"".join(data for stream, data in pieces if stream == 1)[:1_000]
            complaint = (complaint + b"".join(data for stream, data in pieces if stream != 1))[-1_000:]
        if output == GREETING:
            return process
        code = await process.exit_code()
        words = " ".join((output + complaint).decode(errors="replace").split())[-300:]
        if code in (126, 127) and ("not found" in words or "no such file" in words):  # not a stopping container
            raise DaemonUnavailable("the image has no python3", final=True)
        if code == CHANGED:
            raise _DaemonFileChanged(words)
        raise DaemonUnavailable(words or f"the daemon ended with exit code {code}", final=code == TOO_OLD)
    except BaseException:
        process.close()
        raise
