"""A tunnel to an engine on another machine: a local unix socket, forwarded by ssh."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from wick import constants

# Without password prompts, and with a timeout for unreachable machines.
OPTIONS = ("-T", "-oBatchMode=yes", f"-oConnectTimeout={constants.CONNECT_SECONDS:.0f}", "-oServerAliveInterval=15")
REMOTE = ("docker", "system", "dial-stdio")


class SshTunnel:
    """A unix socket; each connection to it is one `ssh … docker system dial-stdio`."""

    def __init__(self, destination: tuple[str, ...]) -> None:
        self._command = ("ssh", *OPTIONS, *destination, *REMOTE)
        self._stderr = b""  # tail of ssh's stderr, for error messages
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder = ""
        self._server: asyncio.AbstractServer | None = None
        self._ending: set[asyncio.Task[None]] = set()  # each waits for an ssh process, independent of cancellation

    async def open(self) -> str:
        """Start listening; return the socket's path, in a folder with mode 0700."""
        self._folder = tempfile.mkdtemp(prefix="wick-ssh-")
        path = str(Path(self._folder) / "engine.sock")
        self._server = await asyncio.start_unix_server(self._accept, path)
        return path

    async def close(self) -> None:
        if self._server:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*self._ending)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def last_error(self) -> str:
        """Return the tail of ssh's stderr, after a short wait for it."""
        for _ in range(20):
            if self._stderr:
                break
            await asyncio.sleep(0.05)
        return " ".join(self._stderr.decode(errors="replace").split())[-300:]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection through an ssh process."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            ssh = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
            assert ssh.stdin and ssh.stdout and ssh.stderr
            sending = asyncio.create_task(_copy_stream(reader, ssh.stdin))
            collecting = asyncio.create_task(self._collect_stderr(ssh.stderr))
            try:
                await _copy_stream(ssh.stdout, writer)
            finally:
                sending.cancel()
                ending = asyncio.create_task(_end_ssh(ssh, sending, collecting))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
                await asyncio.shield(ending)
        except OSError as error:  # ssh is not installed
            self._stderr = f"ssh cannot be started: {error.strerror}".encode()
        except asyncio.CancelledError:
            pass  # the tunnel is closed; the task has no waiter
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _collect_stderr(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(4_096):
            self._stderr = (self._stderr + data)[-4_096:]


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(constants.ENGINE_BUFFER_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _end_ssh(ssh: Process, *tasks: asyncio.Task[None]) -> None:
    with suppress(ProcessLookupError):
        ssh.terminate()
    try:
        async with asyncio.timeout(1):
            await ssh.wait()
    except TimeoutError:
        ssh.kill()
        await ssh.wait()
    await asyncio.gather(*tasks, return_exceptions=True)
