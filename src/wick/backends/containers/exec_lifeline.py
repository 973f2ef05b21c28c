"""A script inside a container that ends processes: on request, and when the connection to wick is lost."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Literal

from wick._internal.tasks import run_detached
from wick.backends.containers.engine import ContainerProcess, Engine
from wick.backends.containers.shell_scripts import LIFELINE
from wick.errors import BackendError

ANSWER_SECONDS = 5.0  # usually milliseconds, unless commands use all CPU time


class Lifeline:
    """The script in a container. `name` is the prefix of the marks of all processes that it may end."""

    def __init__(self, engine: Engine, container: str, name: str) -> None:
        self._engine, self._container, self._name = engine, container, name
        self._process: ContainerProcess | None = None
        self._holder: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._order_count, self._buffer = 0, b""
        self._closed = False

    async def ensure_running(self) -> None:
        """Start the script if it does not run."""
        if not self._is_running:
            async with self._lock:
                await self._ensure_process()

    @property
    def _is_running(self) -> bool:
        return self._process is not None and not self._process.is_over  # a command may have killed it

    async def _ensure_process(self) -> ContainerProcess:
        if not self._is_running:
            await self._release_process()
            argv = ["sh", "-c", LIFELINE, "wick", self._name]
            process = await run_detached(self._engine.exec(self._container, argv, stdin=True))
            if self._closed:
                process.close()
                raise BackendError("the container was released meanwhile", "not_running")
            self._process, self._buffer = process, b""
            self._holder = asyncio.create_task(_hold_process(process), name="a lifeline", context=Context())
        assert self._process is not None
        return self._process

    async def send_signal(self, signal: Literal["TERM", "KILL"], mark: str) -> bool:
        """Signal all processes with a mark; return True on success."""
        return await self._send_order(f"{signal} {mark}")

    async def end_all(self) -> bool:
        """End all marked processes; return True if none is left."""
        return await self._send_order("all")

    async def end_orphans(self) -> bool:
        """End processes that escaped their command, while no command runs; return True if none is left."""
        return await self._send_order("tidy")

    async def _send_order(self, order: str) -> bool:
        """Send an order to the script; restart the script once if it was killed."""
        async with self._lock:
            for _ in range(2):
                process = await self._ensure_process()
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        if answer := await self._read_reply(process, order):
                            return answer == b"0"
                except TimeoutError:
                    return False
                except OSError:
                    await self._release_process()
            return False

    async def _read_reply(self, process: ContainerProcess, order: str) -> bytes:
        """Send an order and return its reply, skipping earlier replies; empty if the script has ended."""
        self._order_count += 1
        number = b"%d" % self._order_count
        process.write(b"%b %b\n" % (number, order.encode()))
        while pieces := await process.read():
            self._buffer += b"".join(data for stream, data in pieces if stream == 1)
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                asked, _, answer = line.partition(b" ")
                if asked == number:
                    return answer
        return b""

    async def close(self) -> None:
        """Close the connection: the script ends all marked processes, and itself."""
        self._closed = True
        await self._release_process()

    async def _release_process(self) -> None:
        if self._holder is not None:
            self._holder.cancel()
            await asyncio.gather(self._holder, return_exceptions=True)
        self._process = self._holder = None


async def _hold_process(process: ContainerProcess) -> None:
    """Hold a process until the task is cancelled or the event loop ends."""
    try:
        await asyncio.Event().wait()
    finally:
        process.close()
