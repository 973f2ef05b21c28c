"""A hook program that stays running: started at the first request, restarted after failures.

    program = ProgramWorker(["/srv/hooks/check", "serve"], Runner(cwd="/srv/app"))
    answer = await program.ask({"event": "guard_tool_use", "tool": "execute"}, timeout=5)

Each event loop has its own process. `ask` raises `ProgramFailed`; its message continues a sentence about the program.
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
from wick.hook_programs.answers import InvalidAnswer, encode_payload, parse_answer
from wick.hook_programs.failure_policy import one_line
from wick.hook_programs.pipe import Pipe
from wick.hook_programs.runner import Runner, readable_paths
from wick.workspace.processes import clean_environment
from wick.workspace.protected import PROTECTED

Answer = dict[str, Any]
Identity = tuple[int, int, int, int]


class ProgramFailed(Exception):
    """A request without an answer; the message continues a sentence. `sent` says that work may have started."""

    def __init__(self, problem: str, *, sent: bool = False) -> None:
        super().__init__(problem)
        self.sent = sent


class ProgramWorker:
    """A program that stays running, with one process for each event loop."""

    def __init__(self, argv: Sequence[str], runner: Runner, *, idle: float = constants.WARM_IDLE_SECONDS) -> None:
        self._argv, self._runner, self._idle = [*argv], runner, idle
        self._here: _Processes = WeakKeyDictionary()
        finalize(self, _dismiss_all, self._here).atexit = False

    async def ask(self, request: Mapping[str, Any], *, timeout: float) -> Answer:
        """Send a request and return the answer."""
        loop = asyncio.get_running_loop()
        process = self._here.get(loop)
        if process is None:
            process = self._here[loop] = _Process(self._argv, self._runner, self._idle, self._here)
        return await process.ask(request, timeout)

    async def close(self) -> None:
        """Stop the process of this event loop; the next request starts it again. Others end with their loops."""
        process = self._here.pop(asyncio.get_running_loop(), None)
        if process is not None:
            await process.close()


@dataclass(slots=True)
class _Call:
    answer: asyncio.Future[Answer]
    timer: asyncio.TimerHandle


class _Process:
    """The program in one event loop: at most one process at a time, and its pending calls."""

    def __init__(self, argv: Sequence[str], runner: Runner, idle: float, here: _Processes) -> None:
        self._argv, self._runner, self._idle, self._here = argv, runner, idle, here
        self._loop = asyncio.get_running_loop()
        self._starting = asyncio.Lock()
        self._pipe: Pipe | None = None
        self._retired: set[Pipe] = set()  # retired processes that have not ended yet
        self._until_close: AsyncGenerator[None, None] | None = None
        self._calls: dict[str, _Call] = {}
        self._answered: deque[str] = deque(maxlen=constants.WARM_ANSWERED)
        self._ids = count(1)
        self._failures, self._not_before, self._last_problem = 0, 0.0, ""
        self._used, self._closed = 0.0, False
        self._file: Identity | None = None  # the file that was started
        self._idle_timer: asyncio.TimerHandle | None = None

    # -- a call -----------------------------------------------------------------------------------------------------

    async def ask(self, request: Mapping[str, Any], timeout: float) -> Answer:
        until = self._loop.time() + timeout
        file = _file_identity(self._argv[0])
        if file is None:
            self._retire("no longer exists")
            raise ProgramFailed("no longer exists")
        if file != self._file:
            self._retire("was replaced by another file meanwhile")
        pipe = self._pipe
        if pipe is None or not pipe.is_alive:
            pipe = await self._ensure_started(timeout)
        id = str(next(self._ids))
        line = encode_payload({"id": id, **request})
        try:
            pipe.send(line)
        except BackendError as error:
            raise ProgramFailed(str(error)) from None
        call = _Call(self._loop.create_future(), self._loop.call_at(until, self._on_timeout, id, timeout))
        self._calls[id] = call  # pending until it is answered, even if its caller was cancelled
        self._used = self._loop.time()
        return await call.answer

    def _on_line(self, line: bytes) -> None:
        """Resolve the call that a line answers. An invalid line fails all pending calls."""
        try:
            answer = parse_answer(line)
        except InvalidAnswer as error:
            return self._abort(str(error))
        id = answer.pop("id", None)
        if not isinstance(id, str):
            return self._abort("printed a line without the id of a call")
        call = self._calls.pop(id, None)
        if call is None:
            twice = id in self._answered
            return self._abort(f"answered {'twice' if twice else 'a call that was not made'} (id {one_line(id, 40)!r})")
        self._answered.append(id)
        self._failures = 0
        call.timer.cancel()
        if not call.answer.done():
            call.answer.set_result(answer)

    def _on_timeout(self, id: str, timeout: float) -> None:
        problem = f"did not answer within {timeout:g} s"
        _fail_call(self._calls.pop(id), problem)
        self._record_failure(problem)
        self._retire("was ended, for it did not answer another call in time")

    # -- a process --------------------------------------------------------------------------------------------------

    async def _ensure_started(self, timeout: float) -> Pipe:
        try:
            async with asyncio.timeout(timeout), self._starting:
                if self._pipe is not None and not self._pipe.is_alive:
                    await self._pipe.gone.wait()  # its pending calls have failed by then
                if self._closed:
                    raise ProgramFailed("was stopped")
                if self._pipe is None:
                    self._pipe = await self._start()
                return self._pipe
        except TimeoutError:
            raise ProgramFailed(f"could not be started within {timeout:g} s") from None
        except (BackendError, OSError) as error:
            self._record_failure(f"could not be run: {one_line(error)}")
            raise ProgramFailed(self._last_problem) from None

    async def _start(self) -> Pipe:
        """Start the process after the restart delay; raise ProgramFailed if the delay is too long to wait for."""
        wait = self._not_before - self._loop.time()
        if wait > constants.WARM_PATIENCE_SECONDS:
            raise ProgramFailed(f"keeps failing (it {self._last_problem}) and is not started again for {wait:.1f} s")
        await asyncio.sleep(max(0.0, wait))
        if self._until_close is None:
            self._until_close = self._hold_until_close()
            await anext(self._until_close)
        self._file = _file_identity(self._argv[0])
        options, after = await _launch_options(self._runner, self._argv)
        pipe = await Pipe.open(take=self._on_line, lost=self._on_exit, after=after, **options)
        self._used = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(self._idle, self._check_idle)
        return pipe

    async def _hold_until_close(self) -> AsyncGenerator[None, None]:
        """Stop the process when the event loop shuts down: a closing loop closes its async generators."""
        try:
            yield
        finally:
            async with self._starting:
                self._closed, pipe, self._pipe = True, self._pipe, None
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._fail_calls("was stopped")
            if self._here.get(self._loop) is self:
                del self._here[self._loop]  # the value refers to its key, the loop, which would never be freed
            for leftover in {*self._retired, *filter(None, [pipe])}:
                await leftover.close()

    def _abort(self, problem: str) -> None:
        """Record a failure and retire the process."""
        if self._pipe is not None:
            self._record_failure(problem)
        self._retire(problem)

    def _retire(self, problem: str) -> None:
        """End the process and fail its pending calls."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._retired.add(pipe)
            pipe.end(problem)
        self._fail_calls(problem)

    def _on_exit(self, pipe: Pipe, problem: str) -> None:
        """Handle the exit of a process, by itself or after it was retired."""
        self._retired.discard(pipe)
        if pipe is self._pipe:
            self._pipe = None
            self._record_failure(problem)
            self._fail_calls(problem)

    def _record_failure(self, problem: str) -> None:
        first, longest = constants.WARM_BACKOFF_SECONDS
        self._last_problem, wait = problem, min(longest, first * 2 ** min(self._failures, 20))
        self._failures += 1
        self._not_before = self._loop.time() + wait

    def _fail_calls(self, problem: str) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            _fail_call(call, problem)

    # -- idle -------------------------------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        self._idle_timer = None
        idle = self._loop.time() - self._used
        if self._pipe is None:
            return
        if not self._calls and idle >= self._idle:
            self._retire("was stopped, as it was idle")
        else:
            self._idle_timer = self._loop.call_later(max(self._idle - idle, 0.01), self._check_idle)

    async def close(self) -> None:
        if self._until_close is not None:
            await self._until_close.aclose()

    def dismiss(self) -> None:
        """Retire the process, as no worker refers to it."""
        self._retire("was stopped")


_Processes = WeakKeyDictionary[asyncio.AbstractEventLoop, _Process]


def _dismiss_all(here: _Processes) -> None:
    """Retire the processes of a worker that was garbage collected."""
    for loop, process in [*here.items()]:
        with suppress(RuntimeError):  # the loop is closed, and the process has ended with it
            loop.call_soon_threadsafe(process.dismiss)


def _fail_call(call: _Call, problem: str) -> None:
    call.timer.cancel()
    if not call.answer.done():
        call.answer.set_exception(ProgramFailed(problem, sent=True))


def _file_identity(path: str) -> Identity | None:
    """Return the device, inode, modification time and size of a file; None if it is missing."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size


# -- launch ---------------------------------------------------------------------------------------------------------


async def _launch_options(
    runner: Runner, argv: Sequence[str]
) -> tuple[dict[str, Any], Callable[[], Awaitable[None]] | None]:
    """Return the job options for wickd, and the cleanup for the end of the program."""
    if runner.sandbox is None:
        env = {**clean_environment(), **runner.env}
        return {"argv": [*argv], "workdir": runner.cwd, "env": env}, None
    folders = readable_paths(argv[0], runner.cwd)
    workspace = SandboxedWorkspace(
        runner.cwd, runner.sandbox, limits=DEFAULT_LIMITS, env=runner.env, readable=folders, protect=PROTECTED
    )
    launch = Launch(workspace, argv, await get_host_daemon())

    async def end() -> None:
        await launch.end()
        workspace.close()

    try:
        await launch.begin()
    except BaseException:
        await end()
        raise
    return dict(launch.options), end
