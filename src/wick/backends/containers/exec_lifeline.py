"""Somebody inside a container who ends processes there: when told to, and when nobody is there any more to tell."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Literal

from wick._internal.tasks import run_detached
from wick.backends.containers.engine import Engine, Process
from wick.backends.containers.shell_scripts import LIFELINE
from wick.errors import BackendError

ANSWER_SECONDS = 5.0  # for what takes milliseconds, unless somebody leaves it no processor


class Lifeline:
    """A script in a container. `name` is how the marks of all begin whom it may have to end."""

    def __init__(self, engine: Engine, container: str, name: str) -> None:
        self._engine, self._container, self._name = engine, container, name
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()
        self._asked, self._said = 0, b""
        self._closed = False

    async def hold(self) -> None:
        """See to it that it is there."""
        if not self._lives:
            async with self._asking:
                await self._held()

    @property
    def _lives(self) -> bool:
        return self._process is not None and not self._process.over  # a command may have ended it

    async def _held(self) -> Process:
        if not self._lives:
            await self._let_go()
            argv = ["sh", "-c", LIFELINE, "wick", self._name]
            process = await run_detached(self._engine.exec(self._container, argv, stdin=True))
            if self._closed:
                process.close()
                raise BackendError("the container was let go of meanwhile", "not_running")
            self._process, self._said = process, b""
            self._keeper = asyncio.create_task(_keep(process), name="a lifeline", context=Context())
        assert self._process is not None
        return self._process

    async def signal(self, signal: Literal["TERM", "KILL"], mark: str) -> bool:
        """Signal all that carry a mark; whether that was done."""
        return await self._ask(f"{signal} {mark}")

    async def end_all(self) -> bool:
        """End all that was begun; whether nobody is left."""
        return await self._ask("all")

    async def tidy(self) -> bool:
        """Nothing runs that is known: end who is there all the same; whether nobody is left."""
        return await self._ask("tidy")

    async def _ask(self, order: str) -> bool:
        """Have something done. If it was ended meanwhile, the next one does it."""
        async with self._asking:
            for _ in range(2):
                process = await self._held()
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        if answer := await self._answer(process, order):
                            return answer == b"0"
                except TimeoutError:
                    return False
                except OSError:
                    await self._let_go()
            return False

    async def _answer(self, process: Process, order: str) -> bytes:
        """What it says to this; there may be answers that nobody waited for. Nothing if it has ended."""
        self._asked += 1
        number = b"%d" % self._asked
        process.write(b"%b %b\n" % (number, order.encode()))
        while pieces := await process.read():
            self._said += b"".join(data for stream, data in pieces if stream == 1)
            *lines, self._said = self._said.split(b"\n")
            for line in lines:
                asked, _, answer = line.partition(b" ")
                if asked == number:
                    return answer
        return b""

    async def close(self) -> None:
        """Let it go for good: it ends all that was begun, and itself."""
        self._closed = True
        await self._let_go()

    async def _let_go(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._process = self._keeper = None


async def _keep(process: Process) -> None:
    """Hold on to a process for as long as the event loop runs."""
    try:
        await asyncio.Event().wait()
    finally:
        process.close()
