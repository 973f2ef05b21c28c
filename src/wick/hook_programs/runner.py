"""One call of a program: clean environment, time limit, capped output, and its process tree killed.

    runner = Runner(cwd="/srv/app")
    ran = await runner.run(["./check", "run"], stdin=b"{}")
    if ran.problem:                          # continues a sentence: "did not answer within 30 s"
        ...

A failure of the program is reported as `problem`, never raised.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any, TypeVar

from wick import constants
from wick.backends.daemon_client import get_host_daemon
from wick.backends.local import DEFAULT_LIMITS
from wick.backends.sandbox.launch import DEADLY_SIGNALS, Launch, SandboxedWorkspace
from wick.backends.sandbox.selection import choose_sandbox
from wick.errors import BackendError, ConfigError
from wick.hook_programs.failure_policy import one_line
from wick.workspace.processes import CANNOT_EXECUTE, NOT_FOUND, UNREAD, clean_environment, describe_exit
from wick.workspace.protected import PROTECTED
from wick.workspace.results import CommandResult

T = TypeVar("T")

TIME_LIMIT = 124  # exit code
STDERR_CHARS = 20_000  # the last characters of stderr that are returned
_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}  # bytecode files beside a program would not be trusted


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The result of one call of a program. `problem` continues a sentence about the program, or is empty.

    `unread` says that it exited before it had read its stdin.
    """

    exit_code: int = 0
    stdout: bytes = b""
    stderr: str = ""
    problem: str = ""
    milliseconds: float = 0.0
    unread: bool = False


# A program may exit while a child process still has its stdout open and could answer. wickd detects that, but not
# inside of a sandbox. There the shell waits for the end of a pipe, which all processes must have closed.
_TO_ITS_END = (
    "/bin/sh",
    "-c",
    'exec 4>&1; code=$({ { "$@" 3>&- 4>&-; echo $? >&3; } | cat >&4; } 3>&1); exit "$code"',
    "sh",
)


class _OutputTooLarge(Exception):
    """A program exceeded the output limit."""


class Runner:
    """Runs programs in a folder; with `sandbox`, in the sandbox of the local backend.

    A program gets wick's environment without its secrets, and `env`. In the sandbox it sees the folder, the system's
    programs and its own directory, and no network.
    """

    def __init__(
        self,
        *,
        cwd: str | Path,
        timeout: float = constants.HOOK_SECONDS,
        env: Mapping[str, str] | None = None,
        sandbox: bool = False,
    ) -> None:
        self.cwd, self.timeout, self.env = os.path.realpath(cwd), timeout, {**_ENVIRONMENT, **(env or {})}
        self.sandbox = choose_sandbox("auto") if sandbox else None
        if self.sandbox is not None:
            protection = self.sandbox.protection(False, "no limits")
            if protection.asks:
                raise ConfigError(f"sandbox=True needs a sandbox, and {protection.says}")

    async def run(
        self,
        argv: Sequence[str] = (),
        *,
        shell: str = "",
        stdin: bytes = b"",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> ProgramResult:
        """Run a program by its arguments, or a shell command, to its end."""
        start, limit = perf_counter(), self.timeout if timeout is None else timeout
        folder, command = os.fspath(cwd or self.cwd), [*argv] or ["/bin/sh", "-c", shell]
        printed = _CappedOutput()
        try:
            done = await self._execute(command, folder, {**self.env, **(env or {})}, stdin, limit, printed)
        except _OutputTooLarge:
            return ProgramResult(
                -1,
                problem=f"printed more than {constants.HOOK_OUTPUT_BYTES / 1_000_000:g} MB",
                milliseconds=_elapsed_ms(start),
            )
        except (BackendError, OSError) as error:
            return ProgramResult(-1, problem=f"could not be run: {error}", milliseconds=_elapsed_ms(start))
        stderr = done["stderr"][-STDERR_CHARS:]
        unread = done["error"] == UNREAD
        problem = _describe_problem({**done, "error": ""} if unread else done, limit, self.sandbox is not None)
        return ProgramResult(done["exit_code"], bytes(printed.stdout), stderr, problem, _elapsed_ms(start), unread)

    async def _execute(
        self, argv: list[str], cwd: str, env: Mapping[str, str], stdin: bytes, limit: float, printed: _CappedOutput
    ) -> CommandResult:
        daemon = await get_host_daemon()
        more: dict[str, Any] = {"stdin": stdin, "timeout": limit, "on_output": printed.take, "read": True}
        if self.sandbox is None:
            env = {**clean_environment(), **env}
            return await daemon.run(argv=argv, workdir=cwd, env=env, whole=True, **more)
        workspace = SandboxedWorkspace(
            cwd, self.sandbox, limits=DEFAULT_LIMITS, env=env, readable=readable_paths(argv[0], cwd), protect=PROTECTED
        )
        launch = Launch(workspace, [*_TO_ITS_END, *argv], daemon)
        try:
            await launch.begin()
            return launch.complete_result(await daemon.run(**launch.options, **more))
        finally:
            await launch.end()
            workspace.close()

    def run_blocking(self, argv: Sequence[str] = (), **options: Any) -> ProgramResult:
        """Run a program from synchronous code, such as the construction of an agent."""
        return run_blocking(lambda: self.run(argv, **options))


class _CappedOutput:
    """The output of a program, up to the limit."""

    __slots__ = ("size", "stdout")

    def __init__(self) -> None:
        self.stdout, self.size = bytearray(), 0

    def take(self, stream: str, data: bytes) -> None:
        self.size += len(data)
        if self.size > constants.HOOK_OUTPUT_BYTES:
            raise _OutputTooLarge
        if stream == "stdout":
            self.stdout += data


def run_blocking(work: Callable[[], Awaitable[T]]) -> T:
    """Run an awaitable from synchronous code; use a separate thread if an event loop is running."""

    async def done() -> T:
        return await work()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(done())
    outcome: list[tuple[T | None, BaseException | None]] = []

    def collect() -> None:
        try:
            outcome.append((asyncio.run(done()), None))
        except BaseException as error:  # raised again in the waiting thread
            outcome.append((None, error))

    thread = Thread(target=collect, name="wick hooks", daemon=True)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def _describe_problem(done: CommandResult, limit: float, confined: bool) -> str:
    """Return the problem of a call, which continues a sentence. A plain exit code is not a problem here."""
    error, code = done["error"], done["exit_code"]
    if error and code == TIME_LIMIT:
        return f"did not answer within {limit:g} s"
    if code in _NOT_STARTED and (detail := error or (confined and done["stderr"].strip())):
        return f"could not be started: {one_line(detail)}"
    if error:
        return error.removeprefix("the command ") if error.startswith("the command ") else f"was ended: {error}"
    return _ENDED.get(code, "") if confined else ""


# The exit codes by which a shell reports a fatal signal.
_ENDED = {128 + number: describe_exit(number)[1].removeprefix("the command ") for number in DEADLY_SIGNALS}
_NOT_STARTED = (NOT_FOUND, CANNOT_EXECUTE)


def readable_paths(program: str, cwd: str) -> list[str]:
    """Return the folder of the program, which may be outside of its working directory."""
    if "/" not in program:
        return []
    folder = os.path.dirname(os.path.realpath(os.path.join(cwd, program)))
    return [folder] if os.path.isdir(folder) and folder != "/" else []


def _elapsed_ms(start: float) -> float:
    return (perf_counter() - start) * 1000
