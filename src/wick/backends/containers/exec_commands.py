"""Commands in a container by the engine's exec, for an image without Python or while wickd is lost.

A command runs under a small sh script. Its processes inherit a mark in their environment. One script kills the
processes with a mark and their process groups: when the command ends, times out or is cancelled, or wick itself ends.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

from wick import constants
from wick._internal.tasks import cancel_and_wait
from wick.backends.containers.engine import ContainerProcess, Engine, EngineError
from wick.errors import BackendError
from wick.protocols import OnOutput
from wick.wickd.output_buffers import HeadTailBuffer, build_command_result
from wick.workspace.results import CommandResult

MARK = "WICK_CALL"  # the environment variable with the mark of a command
TIME_LIMIT = 124  # an exit code
KILL_SECONDS = 10.0  # for the script that kills processes, on a busy machine
STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}

# Kill the processes with the mark $1 except $$, until none is left; fail if new ones keep appearing. Their process
# groups come last, as one of them may be the group of $$. grep itself must not carry the mark.
KILL = """
end() {
    tries=0
    while [ $((tries += 1)) -le 20 ]; do
        pids=
        for file in $(WICK_CALL= grep -ls "WICK_CALL=$1" /proc/[0-9]*/environ); do
            pid=${file#/proc/}; pid=${pid%/environ}
            [ "$pid" = $$ ] || pids="$pids $pid"
        done
        [ "$pids" ] || return 0
        kill -KILL $pids
        for pid in $pids; do kill -KILL "-$pid"; done
    done
    return 1
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
        self._cleanups: list[asyncio.Task[bool]] = []

    async def run_script(self, seconds: float, *argv: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        """Run an internal script with its arguments; return its exit code, stdout and stderr."""
        output, most = {"stdout": bytearray(), "stderr": bytearray()}, constants.ENGINE_ANSWER_BYTES

        def receive(stream: str, data: bytes) -> None:
            output[stream] += data
            if len(output[stream]) > most:
                raise BackendError(f"the container answered with more than {most} bytes; do it in parts", "too_large")

        try:
            async with asyncio.timeout(seconds):
                code = await _finish(await self._start(["sh", "-c", *argv], {}), stdin, receive)
        except TimeoutError:
            raise BackendError(f"the container took longer than {seconds:g} s", "failed") from None
        return code, bytes(output["stdout"]), output["stderr"].decode(errors="replace")

    async def kill(self, mark: str) -> bool:
        """Kill the processes with a mark; return True if none is left."""
        with suppress(BackendError):
            return (await self.run_script(KILL_SECONDS, f'{KILL}\nend "$1"', "wick", mark))[0] == 0
        return False

    def kill_daemon_commands(self) -> None:
        """Kill the commands that a lost wickd left, in the background."""
        self._cleanups.append(asyncio.create_task(self.kill(self.daemon_mark), name="kill commands of wickd"))

    async def close(self) -> None:
        await cancel_and_wait(self._cleanups)

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
        head, tail = constants.OUTPUT_HEAD_BYTES, constants.OUTPUT_TAIL_BYTES
        output = {stream: HeadTailBuffer(head, tail) for stream in STREAMS.values()}

        def receive(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            output[stream].add(data)
            if on_output:
                on_output(stream, data)

        started, mark = time.monotonic(), secrets.token_hex(12)
        code, notes, is_ended = TIME_LIMIT, list[str](), False
        argv = ["sh", "-c", RUN, "wick-run", workdir, str(len(stdin)), command, LIFELINE]
        process = await self._start(argv, {**(env or {}), MARK: mark})
        try:
            async with asyncio.timeout(timeout):
                code = await _finish(process, stdin, receive)
            is_ended = code <= 128  # if the script itself was killed, its children are left
        except TimeoutError:
            notes.append(f"the command was stopped after {timeout:g} s, its time limit; give it more time")
        finally:
            is_ended = is_ended or await asyncio.shield(self.kill(mark))
        if not is_ended:
            notes.append("not everything that it started could be ended")
        seconds = time.monotonic() - started
        return build_command_result(output["stdout"], output["stderr"], code, "; ".join(notes), seconds)

    async def _start(self, argv: list[str], env: Mapping[str, str]) -> ContainerProcess:
        try:
            "".join([*argv, *env.values()]).encode()
        except UnicodeEncodeError:  # the engine's JSON would replace the bytes
            raise BackendError("without wickd in the container, names and commands are UTF-8", "unsupported") from None
        return await self._engine.exec(self._container, argv, stdin=True, env=env)


async def _finish(process: ContainerProcess, stdin: bytes, receive: OnOutput) -> int:
    """Receive the output of a process to its end, close the connection, and return the exit code."""
    try:
        process.write(stdin)  # not awaited: a command need not read all of it
        while pieces := await process.read():
            for stream, data in pieces:
                receive(STREAMS[stream], data)
        return await process.exit_code()
    except (EngineError, OSError) as error:
        raise EngineError(f"the process began, and how it ended is not known: {error}", "unknown") from None
    finally:
        process.close()
