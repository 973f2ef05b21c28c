"""Commands in a container by the engine's exec, for an image without Python or while wickd is lost.

A command runs under a small sh script. Its processes inherit a mark in their environment. One script kills the
processes with a mark and their process groups: when the command ends, times out or is cancelled, or wick itself ends.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Literal

from wick import constants
from wick.backends.containers.engine import ContainerProcess, Engine, EngineError
from wick.errors import BackendError
from wick.protocols import OnOutput
from wick.wickd.output_buffers import HeadTailBuffer
from wick.workspace.results import CommandResult

MARK = "WICK_CALL"  # the environment variable with the mark of a command
TIME_LIMIT, NO_SHELL = 124, (126, 127)  # exit codes
KILL_SECONDS = 10.0  # for the script that kills processes, on a busy machine
STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}
SIGNALS = {128 + number: number.name for number in signal.Signals}  # by exit code
LEFT = "; not everything that it started could be ended"

# Kill the processes with the mark $1 except $$, and then their process groups, until none is left. Fail if new ones
# keep appearing. grep itself must not carry the mark.
KILL = """
end() {
    tries=0
    while files=$(WICK_CALL= grep -ls "WICK_CALL=$1" /proc/[0-9]*/environ); pids=
        for file in $files; do pid=${file#/proc/} pid=${pid%/environ}; [ "$pid" = $$ ] || pids="$pids $pid"; done
        [ "$pids" ]
    do
        [ $tries -lt 20 ] || return 1
        tries=$((tries + 1))
        for pid in $pids; do kill -KILL "$pid"; done
        for pid in $pids; do kill -KILL "-$pid"; done
    done
    return 0
} 2>/dev/null
"""
# $1 the folder, $2 the number of bytes of stdin, $3 the command, $4 the lifeline, which waits for the end of the
# connection. A script that cannot fork or cannot kill everything kills itself, so that wick kills the rest.
RUN = f"""{KILL}
cd -- "$1" || exit
trap 'kill -KILL $$' EXIT
exec 3>&2 4<&0 2>/dev/null
{{ head -c "$2" <&4; {MARK}= sh -c "$4" wick-lifeline "${MARK}" <&4 >/dev/null 3>&- 4<&- & }} |
    sh -c "$3" 2>&3 3>&- 4<&-
code=$?
end "${MARK}" && trap - EXIT
exit $code
"""
LIFELINE = f'{KILL}\ncat >/dev/null\nend "$1"'


class ExecRunner:
    """A runner of commands in one container by exec."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine, self._container = engine, container
        self.daemon_mark = f"{secrets.token_hex(12)}-wickd"  # of the commands that wickd runs
        self._cleanup: asyncio.Task[bool] | None = None

    @asynccontextmanager
    async def _start(self, argv: list[str], stdin: bytes, env: Mapping[str, str]) -> AsyncIterator[ContainerProcess]:
        """Start a process, and write its stdin; close the connection at the end."""
        try:
            "".join([*argv, *env.values()]).encode()
        except UnicodeEncodeError:  # the engine's JSON would replace the bytes
            raise BackendError("without wickd in the container, names and commands are UTF-8", "unsupported") from None
        process = await self._engine.exec(self._container, argv, stdin=True, env=env)
        feeding = asyncio.create_task(_write_stdin(process, stdin))
        try:
            yield process
        finally:
            feeding.cancel()
            process.close()
            await asyncio.gather(feeding, return_exceptions=True)

    async def run_script(self, script: str, *args: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run an internal script; return its exit code, stdout and stderr."""
        output, most = {1: bytearray(), 2: bytearray()}, constants.ENGINE_ANSWER_BYTES
        async with self._start(["sh", "-c", script, "wick", *args], stdin, {}) as process:
            while pieces := await process.read():
                for stream, data in pieces:
                    output[stream] += data
                if len(output[1]) + len(output[2]) > most:
                    raise BackendError(f"the container answered with more than {most} bytes", "too_large")
            return await process.exit_code(), bytes(output[1]), bytes(output[2])

    async def kill(self, mark: str) -> bool:
        """Kill the processes with a mark; return True if none is left."""
        with suppress(BackendError, OSError):  # TimeoutError is one
            async with asyncio.timeout(KILL_SECONDS):
                return (await self.run_script(f'{KILL}\nend "$1"', mark))[0] == 0
        return False

    def kill_daemon_commands(self) -> None:
        """Kill the commands that a lost wickd left, in the background."""
        self._cleanup = asyncio.create_task(self.kill(self.daemon_mark), name="kill commands of wickd")

    async def close(self) -> None:
        if self._cleanup is not None:
            self._cleanup.cancel()
            await asyncio.gather(self._cleanup, return_exceptions=True)

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
        out, err = (HeadTailBuffer(constants.OUTPUT_HEAD_BYTES, constants.OUTPUT_TAIL_BYTES) for _ in STREAMS)
        started, mark = time.monotonic(), secrets.token_hex(12)
        argv = ["sh", "-c", RUN, "wick-run", workdir, str(len(stdin)), command, LIFELINE]
        async with self._start(argv, stdin, {**(env or {}), MARK: mark}) as process:

            async def collect_output() -> None:
                while pieces := await process.read():
                    for stream, data in pieces:
                        (out if stream == 1 else err).add(data)
                        if on_output:
                            on_output(STREAMS[stream], data)

            try:
                async with asyncio.timeout(timeout):
                    await collect_output()
                    code = await process.exit_code()
                error = f"the command was ended by {SIGNALS[code]}" if code in SIGNALS else ""
                if code > 128 and not await self.kill(mark):  # if the script itself was killed, its children are left
                    error += LEFT
            except TimeoutError:
                code, error = TIME_LIMIT, f"the command was stopped after {timeout:g} s, its time limit"
                error += "; give it more time" if await self.kill(mark) else LEFT
                with suppress(EngineError, OSError):
                    async with asyncio.timeout(constants.END_SECONDS):
                        await collect_output()
            except (EngineError, OSError) as reason:
                raise BackendError(f"the command began, and how it ended is not known: {reason}", "unknown") from None
            except BaseException:  # cancelled, or the output callback raised
                await asyncio.shield(self.kill(mark))
                raise
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
            "seconds": time.monotonic() - started,
            "moved": [],
        }


async def _write_stdin(process: ContainerProcess, data: bytes) -> None:
    with suppress(OSError):  # a command need not read all of its stdin
        for at in range(0, len(data), constants.ENGINE_BUFFER_BYTES):
            process.write(data[at : at + constants.ENGINE_BUFFER_BYTES])
            await process.drain()
