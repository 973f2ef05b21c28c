"""Commands in a container by the engine's exec, where no daemon runs: slower, with the same results.

A command runs under a small sh script. Its child processes carry a mark in their environment. By that mark they are
found and ended when the command ends, times out or is cancelled. A lifeline process in the container does the same
when wick itself ends. A process that cleared its environment and left its parents is ended as an orphan once no other
command runs, as it could belong to that. As the last resort, the container is restarted.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakSet

from wick import constants
from wick.backends.containers.engine import ContainerProcess, Engine, EngineError
from wick.backends.containers.exec_lifeline import Lifeline
from wick.backends.containers.shell_scripts import MARK, RUN, SHELL, escaped
from wick.errors import BackendError
from wick.protocols import OnOutput
from wick.wickd.jobs import BackgroundCommand
from wick.wickd.output_buffers import HeadTailBuffer
from wick.workspace.results import CommandResult, JobInfo, JobOutput

TIME_LIMIT, NO_SHELL = 124, (126, 127)  # exit codes
LOOK_SECONDS = 1.0  # interval of checking a silent command: a child with its output open may outlive it
LAST_SECONDS = 0.3  # to read the last output of an ended command, as a child may keep writing
SETTLE_SECONDS = 0.2  # after which an unused container is cleaned up
STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}


@dataclass(slots=True, eq=False)
class _RunningCommand:
    """A running command, and its output so far."""

    limit: float
    mark: str
    on_output: OnOutput | None = None
    started_at: float = field(default_factory=time.monotonic)
    outputs: dict[int, HeadTailBuffer] = field(
        default_factory=lambda: {
            n: HeadTailBuffer(constants.OUTPUT_HEAD_BYTES, constants.OUTPUT_TAIL_BYTES) for n in STREAMS
        }
    )

    def receive(self, pieces: list[tuple[int, bytes]]) -> None:
        for stream, data in pieces:
            if stream in STREAMS:
                self.outputs[stream].add(data)
                if self.on_output:
                    self.on_output(STREAMS[stream], data)

    def result(self, exit_code: int, error: str) -> CommandResult:
        out, err = self.outputs[1], self.outputs[2]
        return {
            "stdout": out.to_text(),
            "stderr": err.to_text(),
            "exit_code": exit_code,
            "error": error,
            "truncated": out.truncated or err.truncated,
            "stdout_bytes": out.size,
            "stderr_bytes": err.size,
            "seconds": time.monotonic() - self.started_at,
            "moved": [],
        }


class ExecRunner:
    """A runner of commands in one container by exec."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine, self._container = engine, container
        self._active_count = 0  # running commands, jobs and terminals
        self._jobs: dict[str, _ExecJob] = {}
        self._terminals: WeakSet[ExecTerminal] = WeakSet()
        self._name = secrets.token_hex(8)
        self._lifeline = Lifeline(engine, container, self._name)
        self._begin_lock = asyncio.Lock()  # a new command waits for a running cleanup
        self._cleanup_timer: asyncio.TimerHandle | None = None
        self._cleanup_task: asyncio.Task[None] | None = None
        self.cleaned_up = asyncio.Event()  # set while no process of a command can remain
        self.cleaned_up.set()
        self._closed = False

    def _new_mark(self) -> str:
        return f"{self._name}-{secrets.token_hex(12)}"

    def _finish_command(self) -> None:
        self._active_count -= 1
        self.schedule_cleanup()

    def schedule_cleanup(self) -> None:
        """Schedule a cleanup of escaped processes, if no command runs."""
        if self._cleanup_timer is not None:
            self._cleanup_timer.cancel()
        if not (self._active_count or self._closed):
            self.cleaned_up.clear()
            self._cleanup_timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._start_cleanup)

    def _start_cleanup(self) -> None:
        self._cleanup_task = asyncio.create_task(self._clean_up(), name="tidying up in a container")

    async def _clean_up(self) -> None:
        """End escaped processes, if no command runs; restart the container if that fails."""
        async with self._begin_lock:
            if self._active_count:
                return
            with suppress(BackendError, OSError):  # the container is gone with its processes
                if not await self._lifeline.end_orphans():
                    path = f"/containers/{self._container}/restart"
                    await self._engine.request("POST", path, {"t": 0}, seconds=constants.LAUNCH_SECONDS)
            self.cleaned_up.set()

    async def _begin_command(self) -> None:
        """Count a new command, after starting the lifeline that ends it if this process is killed."""
        async with self._begin_lock:
            await self._lifeline.ensure_running()
            self._active_count += 1
            self.cleaned_up.clear()

    @asynccontextmanager
    async def _begin_detached(self) -> AsyncIterator[None]:
        """Begin a detached command; undo it if the block raises."""
        await self._begin_command()
        try:
            yield
        except BaseException:
            self._finish_command()
            raise

    async def run(
        self,
        command: str,
        *,
        workdir: str,
        stdin: bytes = b"",
        timeout: float = constants.COMMAND_SECONDS,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a shell command until it ends, times out or is cancelled."""
        await self._begin_command()
        call = _RunningCommand(timeout, self._new_mark(), on_output)
        try:
            return await self._run_command(call, command, workdir, stdin, env)
        finally:
            self._finish_command()

    async def _run_command(
        self, call: _RunningCommand, command: str, workdir: str, stdin: bytes, env: Mapping[str, str] | None
    ) -> CommandResult:
        process = await self._start_process(call, command, workdir, stdin, env)
        feeding = asyncio.create_task(_write_stdin(process, stdin))
        try:
            async with asyncio.timeout(call.limit):
                await _collect_output(process, call)
                code = await process.exit_code()
        except TimeoutError:
            return await self._stop_at_limit(process, call)
        except (EngineError, OSError) as error:
            raise BackendError(f"the command began, and how it ended is not known: {error}", "unknown") from None
        except BaseException:  # cancelled, or the output callback raised
            await asyncio.shield(self.end(call.mark))
            raise
        finally:
            feeding.cancel()
            process.close()
            await asyncio.gather(feeding, return_exceptions=True)
        return await self._build_result(call, code, workdir)

    async def _start_process(
        self, call: _RunningCommand, command: str, workdir: str, stdin: bytes, env: Mapping[str, str] | None
    ) -> ContainerProcess:
        argv = ["sh", "-c", RUN, "wick-run", escaped(workdir), call.mark, str(len(stdin)), escaped(command)]
        try:
            return await self.start(argv, stdin=bool(stdin), env=env)
        except asyncio.CancelledError:
            await asyncio.shield(self.end(call.mark))
            raise

    async def _build_result(self, call: _RunningCommand, code: int, workdir: str) -> CommandResult:
        if code == 125 and call.outputs[2].to_text() == call.mark:
            raise BackendError(f"the folder {workdir!r} cannot be entered", "not_found")
        if (
            code in NO_SHELL
            and (output := call.outputs[1].to_text() + call.outputs[2].to_text())
            and "exec failed" in output
        ):
            raise BackendError(f"the engine could not run the command: {output[:300]}", "failed")
        if code <= 128:
            return call.result(code, "")
        await self.end(call.mark, gently=False)  # if our own shell was killed, its children are left
        return call.result(code, _describe_signal(code))

    async def _stop_at_limit(self, process: ContainerProcess, call: _RunningCommand) -> CommandResult:
        """End a command at its time limit, and collect its remaining output."""
        gone = await self.end(call.mark)
        with suppress(TimeoutError, EngineError, OSError):
            async with asyncio.timeout(constants.END_SECONDS):
                await _collect_output(process, call)
        error = f"the command was stopped after {call.limit:g} s, its time limit; give it more time"
        error += ", or run it in the background"
        return call.result(TIME_LIMIT, error if gone else f"{error}; not everything that it started could be ended")

    async def end(self, mark: str, *, gently: bool = True) -> bool:
        """End the processes with a mark; return True if they are known to have ended."""
        try:
            async with asyncio.timeout(constants.END_SECONDS + 2):
                if gently:
                    await self._lifeline.send_signal("TERM", mark)
                    await asyncio.sleep(constants.COMMAND_GRACE_SECONDS)
                return await (
                    self._lifeline.end_all() if self._active_count == 1 else self._lifeline.send_signal("KILL", mark)
                )
        except (BackendError, OSError):
            return False

    async def start(
        self, argv: Sequence[str], *, stdin: bool = False, env: Mapping[str, str] | None = None
    ) -> ContainerProcess:
        """Start an attached process in the container."""
        return await self._engine.exec(self._container, argv, stdin=stdin, env=env)

    async def run_script(self, text: str, *args: str, stdin: bytes = b"", most: int = 0) -> tuple[int, bytes, bytes]:
        """Run an internal script; return its exit code, stdout and stderr, of at most `most` bytes."""
        process = await self.start(["sh", "-c", text, "wick", *args], stdin=bool(stdin))
        feeding = asyncio.create_task(_write_stdin(process, stdin))
        output = {1: bytearray(), 2: bytearray()}
        try:
            while pieces := await process.read():
                for stream, data in pieces:
                    output.setdefault(stream, bytearray()).extend(data)
                if max(map(len, output.values())) > (most or constants.ENGINE_ANSWER_BYTES):
                    raise BackendError("the container answered with more than was asked for", "too_large")
            return await process.exit_code(), bytes(output[1]), bytes(output[2])
        finally:
            feeding.cancel()
            process.close()
            await asyncio.gather(feeding, return_exceptions=True)

    # -- background jobs --------------------------------------------------------------------------------------------

    async def job(self, command: str, *, workdir: str, env: Mapping[str, str] | None = None) -> JobInfo:
        if sum(job.running for job in self._jobs.values()) >= constants.JOBS_AT_ONCE:
            raise BackendError(
                f"{constants.JOBS_AT_ONCE} commands run in the background already; end one first", "failed"
            )
        job = _ExecJob(command, self._new_mark())
        async with self._begin_detached():
            argv = ["sh", "-c", RUN, "wick-run", escaped(workdir), job.mark, "0", escaped(command)]
            process = await self.start(argv, env=env)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(job.follow(process), name=f"wick job {job.id}")
        job.task.add_done_callback(lambda _: self._finish_command())
        for old in [one.id for one in self._jobs.values() if not one.running][: -constants.JOBS_KEPT]:
            del self._jobs[old]
        return job.describe()

    def jobs(self) -> list[JobInfo]:
        return [job.describe() for job in self._jobs.values()]

    def has_job(self, id: str) -> bool:
        return id in self._jobs

    def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        return self._find_job(id).read_since(offset)

    async def end_job(self, id: str) -> JobInfo:
        job = self._find_job(id)
        if job.running:
            await self.end(job.mark)
            await asyncio.wait([job.task] if job.task else [], timeout=constants.END_SECONDS)
        return job.describe()

    def _find_job(self, id: str) -> _ExecJob:
        if id not in self._jobs:
            raise BackendError(f"there is no command {id!r} in the background", "not_found")
        return self._jobs[id]

    async def terminal(self, rows: int, columns: int, *, workdir: str, env: Mapping[str, str]) -> ExecTerminal:
        mark = self._new_mark()
        argv, full_env = ["sh", "-c", SHELL, "wick", escaped(workdir)], {"TERM": "xterm", **env, MARK: mark}
        async with self._begin_detached():
            process = await self._engine.exec(self._container, argv, stdin=True, tty=(rows, columns), env=full_env)

        async def end() -> None:
            await self.end(mark)
            self._finish_command()

        terminal = ExecTerminal(process, end)
        self._terminals.add(terminal)
        return terminal

    async def close(self) -> None:
        """End background jobs and terminals by closing the lifeline."""
        self._closed = True
        self.schedule_cleanup()
        for terminal in self._terminals:
            terminal.close_connection()
        tasks = [task for task in (*(job.task for job in self._jobs.values()), self._cleanup_task) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lifeline.close()
        self._jobs.clear()
        self.cleaned_up.set()


class _ExecJob(BackgroundCommand):
    """A background command, with its buffered output."""

    def __init__(self, command: str, mark: str) -> None:
        super().__init__(secrets.token_hex(4), command)
        self.mark = mark
        self.task: asyncio.Task[None] | None = None

    async def follow(self, process: ContainerProcess) -> None:
        try:
            while pieces := await _read_output(process):
                for _, data in pieces:
                    self.output.add(data)
            self.exit_code = await process.exit_code()
            self.error = _describe_signal(self.exit_code) if self.exit_code > 128 else ""
        except (BackendError, OSError) as error:
            self.error = f"how it ended is not known: {error}"
        finally:
            self.running = False
            process.close()


class ExecTerminal:
    """A shell in a terminal of the engine."""

    def __init__(self, process: ContainerProcess, end: Callable[[], Awaitable[object]]) -> None:
        self._process, self._end, self._closed = process, end, False

    async def read(self) -> bytes:
        with suppress(OSError):
            return b"".join(data for _, data in await self._process.read())
        return b""

    async def write(self, data: bytes) -> None:
        with suppress(OSError):  # the shell has ended
            self._process.write(data)
            await self._process.drain()

    async def resize(self, rows: int, columns: int) -> None:
        with suppress(EngineError):
            await self._process.resize(rows, columns)

    def close_connection(self) -> None:
        self._process.close()

    async def close(self) -> None:
        self.close_connection()
        if not self._closed:
            self._closed = True
            await self._end()


async def _collect_output(process: ContainerProcess, call: _RunningCommand) -> None:
    while pieces := await _read_output(process):
        call.receive(pieces)


async def _read_output(process: ContainerProcess) -> list[tuple[int, bytes]]:
    """Return the next output; empty once the command has ended, even if a child has its output open."""
    patience = LOOK_SECONDS
    while True:
        try:
            async with asyncio.timeout(patience):
                return await process.read()
        except TimeoutError:
            if patience == LAST_SECONDS:
                return []
            if not await process.is_running():  # more output may have arrived during the request
                patience = LAST_SECONDS


async def _write_stdin(process: ContainerProcess, data: bytes) -> None:
    with suppress(OSError):  # a command need not read all of its stdin
        for at in range(0, len(data), constants.ENGINE_BUFFER_BYTES):
            process.write(data[at : at + constants.ENGINE_BUFFER_BYTES])
            await process.drain()


def _describe_signal(code: int) -> str:
    """Describe the signal of an exit code above 128; a shell cannot tell 128 + signal from a plain exit code."""
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return ""
    return f"the command was ended by {name}"
