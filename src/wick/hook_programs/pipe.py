"""A running program that exchanges lines over its stdin and stdout.

    pipe = await Pipe.open(["./check", "serve"], workdir="/srv/app", env={}, take=print, lost=print)
    pipe.send(b'{"id": "1"}')
    await pipe.close()

wickd runs the program, so that its child processes end with it. Its stdin and stdout are named pipes to this process,
without wickd in between. The pipes are unlinked as soon as both sides have opened them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import IO, Any

from wick import constants
from wick.backends.daemon_client import Daemon, get_host_daemon
from wick.errors import BackendError

# The output is opened first, so that an open input implies an open output.
_PLUMBING = 'in=$1 out=$2; shift 2; exec "$@" >"$out" <"$in"'
_DRAIN_SECONDS = 0.1  # for the last answers after the program closed its stdin

Lost = Callable[[Any, str], None]  # the pipe, and a problem that continues a sentence about the program
Ended = Callable[[], Awaitable[None]]


class Pipe(asyncio.Protocol):
    """A running program. `take` is called with each line, and `lost` once with the reason of the end."""

    def __init__(self, take: Callable[[bytes], None], lost: Lost) -> None:
        self._take, self._lost = take, lost
        self.gone = asyncio.Event()  # all its processes have ended, and `lost` was called
        self._rest = bytearray()
        self._daemon: Daemon | None = None
        self._job = ""
        self._after: Ended | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._reader: asyncio.ReadTransport | None = None
        self._ending: asyncio.Task[None] | None = None
        self._silent = False  # its output has ended

    @classmethod
    async def open(
        cls,
        argv: Sequence[str],
        *,
        take: Callable[[bytes], None],
        lost: Lost,
        after: Ended | None = None,
        **options: Any,
    ) -> Pipe:
        """Start a program. `options` are those of `Daemon.job`; `after` is called when all its processes have ended.

        Raise BackendError if it cannot be started.
        """
        pipe = cls(take, lost)
        pipe._after = after
        try:
            pipe._daemon = await get_host_daemon()
            async with _fifos() as (to_program, from_program):
                await pipe._start(to_program, from_program, argv, options)
        except BaseException:
            pipe._close_transports()
            pipe._writer = None
            if pipe._job and pipe._daemon is not None:
                with suppress(BackendError):
                    await pipe._daemon.end_job(pipe._job)
            if after is not None:
                await after()
            raise
        return pipe

    async def _start(self, to_program: str, from_program: str, argv: Sequence[str], options: Mapping[str, Any]) -> None:
        assert self._daemon is not None
        loop = asyncio.get_running_loop()
        with ExitStack() as opened:
            # Without a reader the program would block.
            output = opened.enter_context(_open_fifo(from_program, os.O_RDONLY))
            plumbed = ["/bin/sh", "-c", _PLUMBING, "sh", to_program, from_program, *argv]
            self._job = (await self._daemon.job(argv=plumbed, label=" ".join(argv)[:200], **options))["id"]
            input = opened.enter_context(await self._open_input(to_program))
            self._reader, _ = await loop.connect_read_pipe(lambda: self, output)
            self._writer, _ = await loop.connect_write_pipe(lambda: _Input(self._on_input_closed), input)
            opened.pop_all()  # the transports own the files now
        if self._silent:
            self.end("")

    async def _open_input(self, path: str) -> IO[bytes]:
        """Open the program's stdin; retry until the program has opened its side."""
        delay, until = 0.001, asyncio.get_running_loop().time() + constants.WARM_START_SECONDS
        while True:
            try:
                return _open_fifo(path, os.O_WRONLY)
            except OSError as error:
                if error.errno != errno.ENXIO:  # it has no reader yet
                    raise
            if asyncio.get_running_loop().time() > until or (delay > 0.05 and not await self._is_running()):
                raise BackendError("could not be started: it did not open its input", "failed")
            await asyncio.sleep(delay)
            delay = min(2 * delay, 0.1)

    async def _is_running(self) -> bool:
        assert self._daemon is not None
        return any(job["id"] == self._job and job["running"] for job in await self._daemon.jobs())

    # -- lines ------------------------------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Return True if a line can still be sent."""
        return self._writer is not None and self._ending is None and not self._writer.is_closing()

    def send(self, line: bytes) -> None:
        """Send a line, buffered while the program does not read; raise BackendError if the buffer is full."""
        assert self._writer is not None
        if self._writer.get_write_buffer_size() + len(line) > constants.WARM_QUEUE_BYTES:
            raise BackendError(f"has {constants.WARM_QUEUE_BYTES / 1e6:g} MB waiting that it does not read", "busy")
        self._writer.write(line + b"\n")

    def data_received(self, data: bytes) -> None:
        first, *more = data.split(b"\n")
        self._rest += first
        if more:
            whole, self._rest = bytes(self._rest), bytearray(more.pop())
            for line in (whole, *more):
                if self._ending is not None:
                    return
                if len(line) > constants.WARM_LINE_BYTES:
                    return self.end(_TOO_LONG)
                self._take(line)
        if len(self._rest) > constants.WARM_LINE_BYTES:
            self.end(_TOO_LONG)

    # -- its end ----------------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """End the program after its stdout was closed, as no more answers can arrive."""
        self._silent = True
        if self._writer is not None:
            self.end("")

    def _on_input_closed(self) -> None:
        """End the program after its stdin was closed, with a delay for answers in transit."""
        if self._ending is None:
            asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self.end, "closed its input")

    def end(self, problem: str) -> None:
        """End the program with this problem, or with its exit status if the problem is empty."""
        if self._ending is None:
            self._close_transports()
            self._ending = asyncio.create_task(self._end(problem), name="end a hook program")

    async def _end(self, problem: str) -> None:
        """Wait for the end of all processes, and report how the program ended."""
        assert self._daemon is not None
        status = ""
        try:
            with suppress(BackendError):
                by_itself = not problem and await self._exits_soon()
                done = await self._daemon.end_job(self._job)
                stderr = (await self._daemon.job_output(self._job))["output"].strip()
                status = f"ended with exit code {done['exit_code']}" + (f" ({done['error']})" if done["error"] else "")
                status = status if by_itself else "closed its output"
                status += f": {stderr[-constants.WARM_STDERR_CHARS :]}" if stderr else ""
        finally:
            if self._after is not None:
                await self._after()
            self.gone.set()
            self._lost(self, problem or status or "ended with the process that ran it")

    async def _exits_soon(self) -> bool:
        """Return True if a program with closed stdout exits within a short time."""
        for delay in (0.0, 0.001, 0.005, 0.02, 0.05, 0.1):
            await asyncio.sleep(delay)
            if not await self._is_running():
                return True
        return False

    async def close(self) -> None:
        """End the program and all that it started, and wait until they have ended."""
        self.end("was stopped")
        await self.gone.wait()

    def _close_transports(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()


_TOO_LONG = f"printed a line of more than {constants.WARM_LINE_BYTES / 1e6:g} MB"


class _Input(asyncio.BaseProtocol):
    """The protocol of the program's stdin, which reports that it was closed."""

    def __init__(self, on_closed: Callable[[], None]) -> None:
        self._on_closed = on_closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_closed()


# -- named pipes ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _fifos() -> AsyncIterator[tuple[str, str]]:
    """Create two named pipes in a private folder."""
    folder = tempfile.mkdtemp(prefix="wick-pipe-")
    try:
        paths = f"{folder}/in", f"{folder}/out"
        for path in paths:
            os.mkfifo(path, 0o600)
        yield paths
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _open_fifo(path: str, flags: int) -> IO[bytes]:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb", buffering=0)
