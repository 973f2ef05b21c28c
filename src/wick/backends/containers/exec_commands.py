"""Commands in a container by the engine's exec, for an image without Python or while wickd is lost.

A command runs under a small sh script in a session of its own. Its processes inherit a mark in their environment.
They are found by that mark, and ended with their process groups, when the command ends, times out or is cancelled. A
lifeline process in the container does the same when wick itself ends. A process that both cleared its environment and
left the process group of its command is not found, and may outlive it.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Literal
from weakref import WeakSet

from wick import constants
from wick._internal.tasks import run_detached
from wick.backends.containers.engine import ContainerProcess, Engine, EngineError
from wick.errors import BackendError
from wick.protocols import OnOutput
from wick.wickd.jobs import BackgroundCommand
from wick.wickd.output_buffers import HeadTailBuffer
from wick.workspace.results import CommandResult, JobInfo, JobOutput

MARK = "WICK_CALL"  # the environment variable with the mark of a command
TIME_LIMIT, NO_SHELL = 124, (126, 127)  # exit codes
LOOK_SECONDS = 1.0  # interval of checking a silent command: a child with its output open may outlive it
LAST_SECONDS = 0.3  # to read the last output of an ended command, as a child may keep writing
SCRIPT_SECONDS = 10.0  # for a script that ends processes, on a busy machine
STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}

# Arguments are octal escapes, as the engine's JSON holds only UTF-8. A dot protects trailing newlines.
DECODE = """
text() { decoded=$(printf '%b.' "$1"); decoded=${decoded%.}; }
"""

# Signal $2 to the processes with the mark $1 except $$, and then to their process groups. With KILL, repeat until
# none is left; fail if new ones keep appearing. grep itself must not carry the mark.
END = """
end() {
    tries=0
    while files=$(WICK_CALL= grep -ls "WICK_CALL=$1" /proc/[0-9]*/environ); pids=
        for file in $files; do pid=${file#/proc/} pid=${pid%/environ}; [ "$pid" = $$ ] || pids="$pids $pid"; done
        [ "$pids" ]
    do
        [ $tries -lt 20 ] || return 1
        tries=$((tries + 1))
        for pid in $pids; do kill "-$2" "$pid"; done
        for pid in $pids; do kill "-$2" "-$pid"; done
        [ "$2" = KILL ] || return 0
    done
} 2>/dev/null
"""

# $1 the folder, $2 the number of bytes of stdin, $3 the command. The shell's own messages about how the command ended
# are discarded. SIGTERM does not end the script, so that its process group can still be killed. A script that cannot
# fork or cannot end everything kills itself, so that wick ends the rest.
RUN = f"""{DECODE}{END}
trap : TERM
text "$1"
cd -- "$decoded" || exit
text "$3"
trap 'kill -KILL $$' EXIT
exec 3>&2 2>/dev/null
if [ "$2" -gt 0 ]; then
    head -c "$2" | sh -c "$decoded" 2>&3 3>&-
else
    sh -c "$decoded" </dev/null 2>&3 3>&-
fi
code=$?
end "${MARK}" KILL && trap - EXIT
exit $code
"""
LIFELINE = f'{END}\nwhile read -r _; do :; done\nend "$1" KILL'


def escape_argument(text: str) -> str:
    """Return an argument as `printf %b` decodes it."""
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\0{byte:03o}" for byte in data)


class ExecRunner:
    """A runner of commands in one container by exec."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine, self._container = engine, container
        self._name = secrets.token_hex(8)  # the prefix of all marks of this runner
        self.daemon_mark = f"{self._name}-wickd"  # of the commands that wickd runs
        self._active: set[str] = set()  # marks of running commands, jobs and terminals
        self._jobs: dict[str, _ExecJob] = {}
        self._terminals: WeakSet[ExecTerminal] = WeakSet()
        self._lifeline: asyncio.Task[None] | None = None
        self._lifeline_lock = asyncio.Lock()
        self._cleanup: asyncio.Task[bool] | None = None

    # -- processes --------------------------------------------------------------------------------------------------

    async def run_script(
        self, script: str, *args: str, stdin: bytes = b"", most: int = constants.ENGINE_ANSWER_BYTES
    ) -> tuple[int, bytes, bytes]:
        """Run an internal script; return its exit code, stdout and stderr. More than `most` bytes raise."""
        argv = ["sh", "-c", script, "wick", *map(escape_argument, args)]
        process = await self._engine.exec(self._container, argv, stdin=bool(stdin))
        feeding = asyncio.create_task(_write_stdin(process, stdin))
        output = {1: bytearray(), 2: bytearray()}
        try:
            while pieces := await process.read():
                for stream, data in pieces:
                    output[stream] += data
                if max(map(len, output.values())) > most:
                    raise BackendError(f"the container answered with more than {most} bytes", "too_large")
            return await process.exit_code(), bytes(output[1]), bytes(output[2])
        finally:
            feeding.cancel()
            process.close()
            await asyncio.gather(feeding, return_exceptions=True)

    async def end(self, mark: str, *, gently: bool = True, restart: bool = True) -> bool:
        """End the processes with a mark; return True if they ended.

        With `restart`, the container is restarted as a last resort, if nothing else runs in it.
        """
        script, path = f'{END}\nend "$1" "$2"', f"/containers/{self._container}"
        with suppress(BackendError, OSError):
            with suppress(BackendError, OSError):  # where processes fork without end, no other can be started
                async with asyncio.timeout(SCRIPT_SECONDS):
                    if gently:
                        await self.run_script(script, mark, "TERM")
                        await asyncio.sleep(constants.COMMAND_GRACE_SECONDS)
                    if (await self.run_script(script, mark, "KILL"))[0] == 0:
                        return True
            state = (await self._engine.request("GET", f"{path}/json"))["State"]["Status"]
            if restart and state == "running" and not self._active - {mark}:
                await self._engine.request("POST", f"{path}/restart", {"t": 0}, seconds=constants.LAUNCH_SECONDS)
                return True
        return False

    def end_daemon_commands(self) -> None:
        """End the commands that a lost wickd left, in the background."""
        self._cleanup = asyncio.create_task(
            self.end(self.daemon_mark, gently=False, restart=False), name="end commands of wickd"
        )

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        *,
        stdin: bool = False,
        tty: tuple[int, int] | None = None,
        workdir: str = "",
    ) -> tuple[str, ContainerProcess]:
        """Start a process under a new mark; return both. The lifeline ends it if this process is killed."""
        async with self._lifeline_lock:
            if self._lifeline is None or self._lifeline.done():
                lifeline = ["sh", "-c", LIFELINE, "wick-lifeline", f"{self._name}-"]
                process = await run_detached(self._engine.exec(self._container, lifeline, stdin=True))
                self._lifeline = asyncio.create_task(_hold_process(process), name="a lifeline", context=Context())
        mark = f"{self._name}-{secrets.token_hex(12)}"
        self._active.add(mark)
        options: dict[str, Any] = {"stdin": stdin, "tty": tty, "workdir": workdir, "env": {**(env or {}), MARK: mark}}
        try:
            return mark, await self._engine.exec(self._container, argv, **options)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                await asyncio.shield(self.end(mark))
            self._active.discard(mark)
            raise

    # -- commands ---------------------------------------------------------------------------------------------------

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
        argv = ["sh", "-c", RUN, "wick-run", escape_argument(workdir), str(len(stdin)), escape_argument(command)]
        mark, process = await self._start(argv, env, stdin=bool(stdin))
        feeding = asyncio.create_task(_write_stdin(process, stdin))
        try:
            return await ExecCommand(self, mark, process, on_output).wait(timeout)
        finally:
            self._active.discard(mark)
            feeding.cancel()
            process.close()
            await asyncio.gather(feeding, return_exceptions=True)

    # -- jobs and terminals -----------------------------------------------------------------------------------------

    async def job(self, command: str, *, workdir: str, env: Mapping[str, str] | None = None) -> JobInfo:
        if sum(job.running for job in self._jobs.values()) >= constants.JOBS_AT_ONCE:
            raise BackendError(
                f"{constants.JOBS_AT_ONCE} commands run in the background already; end one first", "failed"
            )
        argv = ["sh", "-c", RUN, "wick-run", escape_argument(workdir), "0", escape_argument(command)]
        mark, process = await self._start(argv, env)
        job = _ExecJob(command, mark, process)
        job.task.add_done_callback(lambda _: self._active.discard(mark))
        self._jobs[job.id] = job
        for old in [one.id for one in self._jobs.values() if not one.running][: -constants.JOBS_KEPT]:
            del self._jobs[old]
        return job.describe()

    async def jobs(self) -> list[JobInfo]:
        return [job.describe() for job in self._jobs.values()]

    def has_job(self, id: str) -> bool:
        return id in self._jobs

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        return self._find_job(id).read_since(offset)

    async def end_job(self, id: str) -> JobInfo:
        job = self._find_job(id)
        if job.running:
            await self.end(job.mark)
            await asyncio.wait([job.task], timeout=constants.END_SECONDS + LOOK_SECONDS + LAST_SECONDS)
        return job.describe()

    def _find_job(self, id: str) -> _ExecJob:
        if id not in self._jobs:
            raise BackendError(f"there is no command {id!r} in the background", "not_found")
        return self._jobs[id]

    async def terminal(
        self, command: str, *, rows: int, columns: int, workdir: str, env: Mapping[str, str]
    ) -> ExecTerminal:
        mark, process = await self._start(["sh", "-c", command], env, stdin=True, tty=(rows, columns), workdir=workdir)
        terminal = ExecTerminal(self, process, mark)
        self._terminals.add(terminal)
        return terminal

    async def end_terminal(self, mark: str) -> None:
        if mark in self._active:
            await self.end(mark)
            self._active.discard(mark)

    async def close(self) -> None:
        """End background jobs and terminals by closing the lifeline."""
        for terminal in self._terminals:
            terminal.close_connection()
        tasks = [task for task in (*(job.task for job in self._jobs.values()), self._cleanup, self._lifeline) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._jobs.clear()


class ExecCommand:
    """A running command: collects its output until it ends, or ends it at its time limit."""

    def __init__(self, runner: ExecRunner, mark: str, process: ContainerProcess, on_output: OnOutput | None) -> None:
        self._runner, self._mark, self._process, self._on_output = runner, mark, process, on_output
        self._outputs = {n: HeadTailBuffer(constants.OUTPUT_HEAD_BYTES, constants.OUTPUT_TAIL_BYTES) for n in STREAMS}
        self._started = time.monotonic()

    async def wait(self, timeout: float) -> CommandResult:
        """Wait for the end of the command; return its result."""
        try:
            async with asyncio.timeout(timeout):
                await self._collect_output()
                code = await self._process.exit_code()
            error = _describe_signal(code)
            if code > 128:  # if the script itself was killed, its children are left
                await self._runner.end(self._mark, gently=False)
        except TimeoutError:
            code, error = TIME_LIMIT, f"the command was stopped after {timeout:g} s, its time limit; give it more time"
            error += ", or run it in the background"
            if not await self._runner.end(self._mark):
                error += "; not everything that it started could be ended"
            with suppress(TimeoutError, EngineError, OSError):
                async with asyncio.timeout(constants.END_SECONDS):
                    await self._collect_output()
        except (EngineError, OSError) as reason:
            raise BackendError(f"the command began, and how it ended is not known: {reason}", "unknown") from None
        except BaseException:  # cancelled, or the output callback raised
            await asyncio.shield(self._runner.end(self._mark))
            raise
        return self._build_result(code, error)

    async def _collect_output(self) -> None:
        while pieces := await _read_output(self._process):
            for stream, data in pieces:
                self._outputs[stream].add(data)
                if self._on_output:
                    self._on_output(STREAMS[stream], data)

    def _build_result(self, code: int, error: str) -> CommandResult:
        out, err = self._outputs[1], self._outputs[2]
        stdout, stderr = out.to_text(), err.to_text()
        if code in NO_SHELL and "exec failed" in stdout + stderr:
            raise BackendError(f"the engine could not run the command: {(stdout + stderr)[:300]}", "failed")
        return {
            "stdout": stdout,
            "stderr": stderr,
            "exit_code": code,
            "error": error,
            "truncated": out.truncated or err.truncated,
            "stdout_bytes": out.size,
            "stderr_bytes": err.size,
            "seconds": time.monotonic() - self._started,
            "moved": [],
        }


class _ExecJob(BackgroundCommand):
    """A background command, with its buffered output."""

    def __init__(self, command: str, mark: str, process: ContainerProcess) -> None:
        super().__init__(secrets.token_hex(4), command)
        self.mark = mark
        self.task = asyncio.create_task(self._follow(process), name=f"wick job {self.id}")

    async def _follow(self, process: ContainerProcess) -> None:
        try:
            while pieces := await _read_output(process):
                for _, data in pieces:
                    self.output.add(data)
            self.exit_code = await process.exit_code()
            self.error = _describe_signal(self.exit_code)
        except (BackendError, OSError) as error:
            self.error = f"how it ended is not known: {error}"
        finally:
            self.running = False
            process.close()


class ExecTerminal:
    """A shell in a terminal of the engine."""

    def __init__(self, runner: ExecRunner, process: ContainerProcess, mark: str) -> None:
        self._runner, self._process, self._mark = runner, process, mark

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
        await self._runner.end_terminal(self._mark)


async def _hold_process(process: ContainerProcess) -> None:
    """Hold the connection to a process until it ends, the task is cancelled or the event loop ends."""
    try:
        while await process.read():
            pass
    finally:
        process.close()


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
    if code <= 128:
        return ""
    try:
        return f"the command was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return ""
