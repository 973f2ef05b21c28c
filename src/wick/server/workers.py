"""Worker processes: several servers on one port, started, restarted and stopped by one supervisor.

The supervisor opens the listening socket and every worker inherits it. A worker that drains closes only its own copy,
so that connections in the queue go to the others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from wick.errors import ConfigError
from wick.server.server import Server, bind_socket
from wick.server.settings import Settings
from wick.workspace.processes import PDEATHSIG, prctl

logger = logging.getLogger("wick.server")

FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0  # seconds before a crashed worker is replaced; doubled each time
STABLE_SECONDS = 60.0  # after which a crash starts at the first pause again
KILL_SECONDS = 15.0  # beyond the time for draining, before a worker is killed


@dataclass(eq=False, slots=True)
class Worker:
    """A worker process. It is ready once it has sent the first line of its startup message."""

    process: asyncio.subprocess.Process
    started: float = field(default_factory=monotonic)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_ready(self, stopping: asyncio.Event) -> bool:
        """Wait until the worker serves requests; return False if it ended before, or if all workers are to stop."""
        waits = (self.ready.wait(), self.process.wait(), stopping.wait())
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        return self.ready.is_set()


class WorkerSupervisor:
    """Starts `count` workers with a command, and replaces those that crash.

    SIGTERM and SIGINT drain all workers. SIGHUP replaces them one after the other: the new one serves before the old
    one drains. The command gets two file descriptors as its last arguments: the listening socket, and a pipe for the
    lines of its startup message. `tell` is called with those of the first worker.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        listener: socket.socket,
        *,
        drain_seconds: float,
        tell: Callable[[str], object],
    ) -> None:
        self._command, self._count, self._listener = command, count, listener
        self._drain_seconds, self._tell = drain_seconds, tell
        self._workers: dict[int, Worker] = {}  # by slot
        self._locks = [asyncio.Lock() for _ in range(count)]  # of slots, until their new worker is ready or has failed
        self._pauses: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping, self._restart = asyncio.Event(), asyncio.Event()

    async def supervise(self) -> int:
        """Run the workers until a signal; return an exit code. If the first worker does not start, return its code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._restart.set)
        try:
            async with self._locks[0]:
                first = await self._start_worker(0, self._tell)
                if not await first.wait_ready(self._stopping) and not self._stopping.is_set():
                    return await first.process.wait()  # the settings are wrong, and a retry would not help
            for slot in range(1, self._count):
                if not self._stopping.is_set():
                    await self._start_worker(slot)
            await self._handle_signals()
            return 0
        finally:
            self._stopping.set()
            await asyncio.gather(*(self._stop_worker(worker) for worker in self._workers.values()))
            while self._tasks:  # a worker that was being started adds its own
                await asyncio.gather(*self._tasks)

    async def _start_worker(self, slot: int, tell: Callable[[str], object] | None = None) -> Worker:
        """Start a worker in a slot. It replaces the current worker of the slot, which is not ended."""
        lines, written = os.pipe()
        listener = self._listener.fileno()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                str(listener),
                str(written),
                pass_fds=(listener, written),
                process_group=0,  # Ctrl-C is for the supervisor, which drains the workers
            )
        finally:
            os.close(written)
        worker = self._workers[slot] = Worker(process)
        self._create_task(self._read_lines(worker, lines, tell))
        self._create_task(self._replace_crashed(slot, worker))
        if self._stopping.is_set():  # since the call: the workers that are stopped do not include this one
            self._create_task(self._stop_worker(worker))
        return worker

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_lines(self, worker: Worker, pipe: int, tell: Callable[[str], object] | None) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
        )
        try:
            async for line in reader:
                worker.ready.set()
                if tell is not None:
                    tell(line.decode(errors="replace").rstrip("\n"))
        finally:
            transport.close()

    async def _replace_crashed(self, slot: int, worker: Worker) -> None:
        """Start another worker when this one has crashed, after a pause that grows."""
        code = await worker.process.wait()
        async with self._locks[slot]:
            if self._workers.get(slot) is not worker or self._stopping.is_set():
                return
        is_stable = monotonic() - worker.started >= STABLE_SECONDS
        pause = FIRST_PAUSE if is_stable else self._pauses.get(slot, FIRST_PAUSE)
        self._pauses[slot] = min(2 * pause, MAX_PAUSE)
        logger.warning("worker %d ended with %d; another one starts in %g s", worker.process.pid, code, pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)
        async with self._locks[slot]:
            if not self._stopping.is_set() and self._workers.get(slot) is worker:
                await self._start_worker(slot)

    async def _handle_signals(self) -> None:
        while not self._stopping.is_set():
            signals = [asyncio.ensure_future(event.wait()) for event in (self._stopping, self._restart)]
            await asyncio.wait(signals, return_when=asyncio.FIRST_COMPLETED)
            for waiting in signals:
                waiting.cancel()
            if self._restart.is_set() and not self._stopping.is_set():
                self._restart.clear()
                await self._restart_workers()

    async def _restart_workers(self) -> None:
        """Replace the workers one after the other. If a new one does not start, the old ones stay."""
        for slot in range(self._count):
            async with self._locks[slot]:
                old = self._workers[slot]
                is_ready = await (await self._start_worker(slot)).wait_ready(self._stopping)
                if not is_ready and not self._stopping.is_set():
                    self._workers[slot] = old  # if it has crashed meanwhile, it is replaced now
                    logger.error("the new worker did not start, so the workers are not replaced; the log has its error")
                    return
            await self._stop_worker(old)
            if self._stopping.is_set():
                return
        logger.warning("all %d workers are replaced", self._count)

    async def _stop_worker(self, worker: Worker) -> None:
        """Drain a worker, and kill it if it does not end in time."""
        with suppress(ProcessLookupError):
            worker.process.terminate()
        try:
            await asyncio.wait_for(worker.process.wait(), self._drain_seconds + KILL_SECONDS)
        except TimeoutError:
            logger.warning("worker %d did not end in time and is killed", worker.process.pid)
            worker.process.kill()
            await worker.process.wait()


def supervise_workers(settings: Settings, count: int, tell: Callable[[str], object]) -> int:
    """Run worker processes with the arguments of this process until a signal, and return the exit code."""
    if not settings.on_postgres:
        raise ConfigError(
            f"--workers {count} needs a store that several processes can share; set --store postgresql://… "
            "or remove --workers"
        )
    command = [sys.executable, "-m", "wick.cli", *sys.argv[1:], "--worker"]
    drain_seconds = settings.drain_delay + settings.grace

    async def supervise() -> int:
        with bind_socket(settings.host, settings.port) as listener:
            return await WorkerSupervisor(command, count, listener, drain_seconds=drain_seconds, tell=tell).supervise()

    return asyncio.run(supervise())


def serve_as_worker(server: Server, listener: int, lines: int, count: int) -> None:
    """Serve on an inherited socket, and write the startup message to a pipe. End when the supervisor ends.

    `count` is the number of workers that it has started.
    """
    supervisor = os.getppid()
    server.service.workers = f"{socket.gethostname()}-{supervisor}", count
    if sys.platform == "linux":
        prctl(PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:  # the supervisor died before prctl
            return
    for number in (listener, lines):
        os.set_inheritable(number, False)  # programs that agents start do not get them
    with open(lines, "w", encoding="utf-8", buffering=1) as pipe, socket.socket(fileno=listener) as bound:
        server.start(tell=lambda line: print(line, file=pipe), listener=bound)
