"""A program that goes on, spoken to in lines over its input and its output.

    pipe = await Pipe.open(["./check", "serve"], workdir="/srv/app", env={}, take=print, lost=print)
    pipe.send(b'{"id": "1"}')
    await pipe.close()

wickd runs the program, so nothing that it starts outlives it. Its input and its output are named pipes that lead
straight here, so a line costs what the kernel takes for it; their names are gone as soon as both sides hold them.
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

# The output comes first: whoever has opened the input has opened both.
_PLUMBING = 'in=$1 out=$2; shift 2; exec "$@" >"$out" <"$in"'
_DRAIN_SECONDS = 0.1  # for the last answers of a program that no longer reads

Lost = Callable[[Any, str], None]  # the pipe, and the rest of a sentence about the program
Ended = Callable[[], Awaitable[None]]


class Pipe(asyncio.Protocol):
    """A program at work. `take` is given each line; `lost` is told once why there will be no more of them."""

    def __init__(self, take: Callable[[bytes], None], lost: Lost) -> None:
        self._take, self._lost = take, lost
        self.gone = asyncio.Event()  # all of it has ended, and `lost` was told
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
        """Start a program. `options` are those of `Daemon.job`; `after` is done when all of it has ended.

        A program that cannot be started is a BackendError.
        """
        pipe = cls(take, lost)
        pipe._after = after
        try:
            pipe._daemon = await get_host_daemon()
            async with _fifos() as (to_program, from_program):
                await pipe._start(to_program, from_program, argv, options)
        except BaseException:
            await pipe._abandon()
            raise
        return pipe

    async def _start(self, to_program: str, from_program: str, argv: Sequence[str], options: Mapping[str, Any]) -> None:
        assert self._daemon is not None
        loop = asyncio.get_running_loop()
        with ExitStack() as opened:
            output = opened.enter_context(_opened(from_program, os.O_RDONLY))  # else the program waits for a reader
            plumbed = ["/bin/sh", "-c", _PLUMBING, "sh", to_program, from_program, *argv]
            self._job = (await self._daemon.job(argv=plumbed, label=" ".join(argv)[:200], **options))["id"]
            input = opened.enter_context(await self._other_side(to_program))
            self._reader, _ = await loop.connect_read_pipe(lambda: self, output)
            self._writer, _ = await loop.connect_write_pipe(lambda: _Input(self._deaf), input)
            opened.pop_all()  # they are closed with their transports now
        if self._silent:
            self.end("")

    async def _other_side(self, path: str) -> IO[bytes]:
        """The program's input, which can be opened as soon as the program has opened it."""
        delay, until = 0.001, asyncio.get_running_loop().time() + constants.WARM_START_SECONDS
        while (opened := _if_read(path)) is None:
            if asyncio.get_running_loop().time() > until or (delay > 0.05 and not await self._runs()):
                raise BackendError("could not be started: it did not open its input", "failed")
            await asyncio.sleep(delay)
            delay = min(2 * delay, 0.1)
        return opened

    async def _runs(self) -> bool:
        assert self._daemon is not None
        return any(job["id"] == self._job and job["running"] for job in await self._daemon.jobs())

    # -- lines ------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether a line can still be sent."""
        return self._writer is not None and self._ending is None and not self._writer.is_closing()

    def send(self, line: bytes) -> None:
        """Send a line, which waits here while the program does not read; too much that waits is a BackendError."""
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
        """Its output has ended: whatever it has not answered, it will not."""
        self._silent = True
        if self._writer is not None:
            self.end("")

    def _deaf(self) -> None:
        """Its input has ended. What it has answered before may still be on its way."""
        if self._ending is None:
            asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self.end, "closed its input")

    def end(self, problem: str) -> None:
        """End the program, for this reason; without one the program says itself how it ended."""
        if self._ending is None:
            self._hang_up()
            self._ending = asyncio.create_task(self._end(problem), name="end a hook program")

    async def _end(self, problem: str) -> None:
        told = ""
        try:
            told = await self._epilogue(problem)
        finally:
            if self._after is not None:
                await self._after()
            self.gone.set()
            self._lost(self, problem or told or "ended with the process that ran it")

    async def _epilogue(self, problem: str) -> str:
        """How it ended, once all of it has."""
        assert self._daemon is not None
        with suppress(BackendError):
            by_itself = not problem and await self._ends_by_itself()
            done = await self._daemon.end_job(self._job)
            said = (await self._daemon.job_output(self._job))["output"].strip()
            how = f"ended with exit code {done['exit_code']}" + (f" ({done['error']})" if done["error"] else "")
            how = how if by_itself else "closed its output"
            return how + (f": {said[-constants.WARM_STDERR_CHARS :]}" if said else "")
        return ""

    async def _ends_by_itself(self) -> bool:
        """Whether a program that has no output any more is about to end."""
        for delay in (0.0, 0.001, 0.005, 0.02, 0.05, 0.1):
            await asyncio.sleep(delay)
            if not await self._runs():
                return True
        return False

    async def close(self) -> None:
        """End the program and all that it started, and wait until they have ended."""
        self.end("was stopped")
        await self.gone.wait()

    def _hang_up(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()

    async def _abandon(self) -> None:
        """Undo a start that came to nothing."""
        self._hang_up()
        self._writer = None
        if self._job and self._daemon is not None:
            with suppress(BackendError):
                await self._daemon.end_job(self._job)
        if self._after is not None:
            await self._after()


_TOO_LONG = f"printed a line of more than {constants.WARM_LINE_BYTES / 1e6:g} MB"


class _Input(asyncio.BaseProtocol):
    """Notices that the program no longer reads."""

    def __init__(self, deaf: Callable[[], None]) -> None:
        self._deaf = deaf

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf()


# -- named pipes ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _fifos() -> AsyncIterator[tuple[str, str]]:
    """Two named pipes in a folder that nobody else can enter."""
    folder = tempfile.mkdtemp(prefix="wick-pipe-")
    try:
        paths = f"{folder}/in", f"{folder}/out"
        for path in paths:
            os.mkfifo(path, 0o600)
        yield paths
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _opened(path: str, way: int) -> IO[bytes]:
    descriptor = os.open(path, way | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(descriptor, "rb" if way == os.O_RDONLY else "wb", buffering=0)


def _if_read(path: str) -> IO[bytes] | None:
    """A named pipe to write to; None if nobody reads from it yet."""
    try:
        return _opened(path, os.O_WRONLY)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None
