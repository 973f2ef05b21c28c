"""A program that is kept: started when first asked, asked over its pipes, started anew when it fails.

    program = Serving(["/srv/hooks/check", "serve"], Runner(cwd="/srv/app"))
    answer = await program.ask({"event": "guard_tool_use", "tool": "execute"}, timeout=5)

Each event loop has a process of its own. `ask` raises `Failed`, whose text is the rest of a sentence about the program.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, finalize

from wick import constants
from wick.backends.daemon_client import get_host_daemon
from wick.backends.local import DEFAULT_LIMITS
from wick.backends.sandbox.launch import Launch, SandboxedWorkspace
from wick.errors import BackendError
from wick.hook_programs.answers import Unfit, encoded, parsed
from wick.hook_programs.failure_policy import words
from wick.hook_programs.pipe import Pipe
from wick.hook_programs.runner import Runner
from wick.workspace.processes import clean_environment
from wick.workspace.protected import PROTECTED

Answer = dict[str, Any]
Identity = tuple[int, int, int, int]


class Failed(Exception):
    """A program did not answer; the text is the rest of a sentence. `sent`: it may have begun what it was asked."""

    def __init__(self, problem: str, *, sent: bool = False) -> None:
        super().__init__(problem)
        self.sent = sent


class Serving:
    """A program that is kept, wherever it is asked from."""

    def __init__(self, argv: Sequence[str], runner: Runner, *, idle: float = constants.WARM_IDLE_SECONDS) -> None:
        self._argv, self._runner, self._idle = [*argv], runner, idle
        self._here: _Processes = WeakKeyDictionary()
        finalize(self, _dismiss, self._here).atexit = False

    async def ask(self, request: Mapping[str, Any], *, timeout: float) -> Answer:
        """Its answer to a request."""
        loop = asyncio.get_running_loop()
        process = self._here.get(loop)
        if process is None:
            process = self._here[loop] = _Process(self._argv, self._runner, self._idle, self._here)
        return await process.ask(request, timeout)

    async def close(self) -> None:
        """Stop it; it is started again when it is asked again. What runs in another event loop ends with that."""
        process = self._here.pop(asyncio.get_running_loop(), None)
        if process is not None:
            await process.close()


@dataclass(slots=True)
class _Call:
    answer: asyncio.Future[Answer]
    late: asyncio.TimerHandle


class _Process:
    """The program as one event loop has it: at most one process at a time, and the calls that it has not answered."""

    def __init__(self, argv: Sequence[str], runner: Runner, idle: float, here: _Processes) -> None:
        self._argv, self._runner, self._idle, self._here = argv, runner, idle, here
        self._loop = asyncio.get_running_loop()
        self._starting = asyncio.Lock()
        self._pipe: Pipe | None = None
        self._going: set[Pipe] = set()  # those that have been given up and have not ended yet
        self._keeper: AsyncGenerator[None, None] | None = None
        self._calls: dict[str, _Call] = {}
        self._answered: deque[str] = deque(maxlen=constants.WARM_ANSWERED)
        self._ids = count(1)
        self._failures, self._not_before, self._why = 0, 0.0, ""
        self._used, self._closed = 0.0, False
        self._file: Identity | None = None  # what was started
        self._rest: asyncio.TimerHandle | None = None

    # -- a call -----------------------------------------------------------------------------------------------------

    async def ask(self, request: Mapping[str, Any], timeout: float) -> Answer:
        until = self._loop.time() + timeout
        self._look_whether_replaced()
        pipe = self._pipe
        if pipe is None or not pipe.alive:
            pipe = await self._ready(timeout)
        id = str(next(self._ids))
        line = encoded({"id": id, **request})
        try:
            pipe.send(line)
        except BackendError as error:
            raise Failed(str(error)) from None
        call = _Call(self._loop.create_future(), self._loop.call_at(until, self._late, id, timeout))
        self._calls[id] = call  # until it is answered, though nobody may wait for it any more
        self._used = self._loop.time()
        return await call.answer

    def _take(self, line: bytes) -> None:
        """An answer. Whoever cannot be understood cannot be trusted with the calls that are open."""
        try:
            answer = parsed(line)
        except Unfit as error:
            return self._give_up(str(error))
        id = answer.pop("id", None)
        if not isinstance(id, str):
            return self._give_up("printed a line without the id of a call")
        call = self._calls.pop(id, None)
        if call is None:
            twice = id in self._answered
            return self._give_up(f"answered {'twice' if twice else 'a call that nobody made'} (id {words(id, 40)!r})")
        self._answered.append(id)
        self._failures = 0
        call.late.cancel()
        if not call.answer.done():
            call.answer.set_result(answer)

    def _late(self, id: str, timeout: float) -> None:
        problem = f"did not answer within {timeout:g} s"
        _fail(self._calls.pop(id), problem)
        self._failed(problem)
        self._retire("was ended, for it did not answer another call in time")

    def _look_whether_replaced(self) -> None:
        """A process that was started from another file than the one that is there now does not speak for it."""
        if (there := _identity(self._argv[0])) is None:
            self._retire("stands no longer where it was")
            raise Failed("stands no longer where it was")
        if there != self._file:
            self._retire("was replaced by another file meanwhile")

    # -- a process --------------------------------------------------------------------------------------------------

    async def _ready(self, timeout: float) -> Pipe:
        try:
            async with asyncio.timeout(timeout), self._starting:
                if self._pipe is not None and not self._pipe.alive:
                    await self._pipe.gone.wait()  # and all that it has not answered has failed
                if self._closed:
                    raise Failed("was stopped")
                if self._pipe is None:
                    await self._back_off()
                    self._pipe = await self._started()
                return self._pipe
        except TimeoutError:
            raise Failed(f"could not be started within {timeout:g} s") from None
        except (BackendError, OSError) as error:
            self._failed(f"could not be run: {words(error)}")
            raise Failed(self._why) from None

    async def _back_off(self) -> None:
        """Wait before it is started again; for a program that keeps failing, nobody waits."""
        wait = self._not_before - self._loop.time()
        if wait > constants.WARM_PATIENCE_SECONDS:
            raise Failed(f"keeps failing (it {self._why}) and is not started again for {wait:.1f} s")
        await asyncio.sleep(max(0.0, wait))

    async def _started(self) -> Pipe:
        if self._keeper is None:
            self._keeper = self._keep()
            await anext(self._keeper)
        self._file = _identity(self._argv[0])
        options, after = await _launched(self._runner, self._argv)
        pipe = await Pipe.open(take=self._take, lost=self._lost, after=after, **options)
        self._used = self._loop.time()
        if self._rest is None:
            self._rest = self._loop.call_later(self._idle, self._look_whether_idle)
        return pipe

    async def _keep(self) -> AsyncGenerator[None, None]:
        """Holds the process. A loop that ends closes its async generators, and so ends it."""
        try:
            yield
        finally:
            await self._stop()

    def _give_up(self, problem: str) -> None:
        """End a process that has failed."""
        if self._pipe is not None:
            self._failed(problem)
        self._retire(problem)

    def _retire(self, problem: str) -> None:
        """End the process, and with it every call that is open."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._going.add(pipe)
            pipe.end(problem)
        self._drop(problem)

    def _lost(self, pipe: Pipe, problem: str) -> None:
        """A process has ended, by itself or because it was given up."""
        self._going.discard(pipe)
        if pipe is self._pipe:
            self._pipe = None
            self._failed(problem)
            self._drop(problem)

    def _failed(self, problem: str) -> None:
        first, longest = constants.WARM_BACKOFF_SECONDS
        self._why, wait = problem, min(longest, first * 2 ** min(self._failures, 20))
        self._failures += 1
        self._not_before = self._loop.time() + wait

    def _drop(self, problem: str) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            _fail(call, problem)

    # -- rest -------------------------------------------------------------------------------------------------------

    def _look_whether_idle(self) -> None:
        self._rest = None
        idle = self._loop.time() - self._used
        if self._pipe is None:
            return
        if not self._calls and idle >= self._idle:
            self._retire("was stopped, as nobody asked it")
        else:
            self._rest = self._loop.call_later(max(self._idle - idle, 0.01), self._look_whether_idle)

    async def close(self) -> None:
        if self._keeper is not None:
            await self._keeper.aclose()

    def dismiss(self) -> None:
        """End it, for there is nobody left who could ask it."""
        self._retire("was stopped")

    async def _stop(self) -> None:
        async with self._starting:
            self._closed, pipe, self._pipe = True, self._pipe, None
        if self._rest is not None:
            self._rest.cancel()
        self._drop("was stopped")
        if self._here.get(self._loop) is self:
            del self._here[self._loop]  # it refers to its loop, which would never be freed
        for one in {*self._going, *filter(None, [pipe])}:
            await one.close()


_Processes = WeakKeyDictionary[asyncio.AbstractEventLoop, _Process]


def _dismiss(here: _Processes) -> None:
    """Nobody has the program any more."""
    for loop, process in [*here.items()]:
        with suppress(RuntimeError):  # the loop is closed, and the process has ended with it
            loop.call_soon_threadsafe(process.dismiss)


def _fail(call: _Call, problem: str) -> None:
    call.late.cancel()
    if not call.answer.done():
        call.answer.set_exception(Failed(problem, sent=True))


def _identity(path: str) -> Identity | None:
    """What tells a file from another, or from itself after a change."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size


# -- how it is started ----------------------------------------------------------------------------------------------


def _folder(program: str) -> str:
    return os.path.dirname(os.path.realpath(program))


async def _launched(runner: Runner, argv: Sequence[str]) -> tuple[dict[str, Any], Callable[[], Awaitable[None]] | None]:
    """What wickd is told, and what is to be done when the program has ended."""
    if runner.sandbox is None:
        env = {**clean_environment(), **runner.env}
        return {"argv": [*argv], "workdir": runner.cwd, "env": env}, None
    seen = [_folder(argv[0])]  # the program itself may be outside of the folder it works in
    place = SandboxedWorkspace(
        runner.cwd, runner.sandbox, limits=DEFAULT_LIMITS, env=runner.env, readable=seen, protect=PROTECTED
    )
    launch = Launch(place, argv, await get_host_daemon())

    async def end() -> None:
        await launch.end()
        place.close()

    try:
        await launch.begin()
    except BaseException:
        await end()
        raise
    return dict(launch.options), end
