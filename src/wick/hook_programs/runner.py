"""One call of a program: clean environment, a time limit, capped output, and its whole process tree ended.

    runner = Runner(cwd="/srv/app")
    ran = await runner.run(["./check", "run"], stdin=b"{}")
    if ran.problem:                          # the rest of a sentence: "did not answer within 30 s"
        ...

Whatever the program does, nothing is raised for it.
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
from wick.hook_programs.failure_policy import words
from wick.workspace.processes import CANNOT_EXECUTE, NOT_FOUND, UNREAD, clean_environment, describe_exit
from wick.workspace.protected import PROTECTED
from wick.workspace.results import CommandResult

T = TypeVar("T")

TIME_LIMIT = 124  # exit code
STDERR_CHARS = 20_000  # kept of what a program says there
_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}  # what Python would write beside a program is nothing that was trusted


@dataclass(frozen=True, slots=True)
class Ran:
    """How a call of a program ended. `problem` is the rest of a sentence about the program, or empty.

    `unread`: it ended before it had read what it was told.
    """

    exit_code: int = 0
    stdout: bytes = b""
    stderr: str = ""
    problem: str = ""
    milliseconds: float = 0.0
    unread: bool = False


# A program may exit and leave something behind that has its output open and could still answer. wickd tells, but not
# from inside of a sandbox; there a pipe is waited for, which ends only when nobody has it open.
_TO_ITS_END = (
    "/bin/sh",
    "-c",
    'exec 4>&1; code=$({ { "$@" 3>&- 4>&-; echo $? >&3; } | cat >&4; } 3>&1); exit "$code"',
    "sh",
)


class _TooMuch(Exception):
    """A program printed more than is read."""


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
        self.sandbox = _confined() if sandbox else None

    async def run(
        self,
        argv: Sequence[str] = (),
        *,
        shell: str = "",
        stdin: bytes = b"",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> Ran:
        """Run a program by its arguments, or a shell command, to its end."""
        start, limit = perf_counter(), self.timeout if timeout is None else timeout
        folder, told = os.fspath(cwd or self.cwd), [*argv] or ["/bin/sh", "-c", shell]
        printed = _Printed()
        try:
            done = await self._executed(told, folder, {**self.env, **(env or {})}, stdin, limit, printed)
        except _TooMuch:
            return Ran(
                -1, problem=f"printed more than {_size(constants.HOOK_OUTPUT_BYTES)}", milliseconds=_since(start)
            )
        except (BackendError, OSError) as error:
            return Ran(-1, problem=f"could not be run: {error}", milliseconds=_since(start))
        stderr = done["stderr"][-STDERR_CHARS:]
        unread = done["error"] == UNREAD
        problem = _problem({**done, "error": ""} if unread else done, limit, self.sandbox is not None)
        return Ran(done["exit_code"], bytes(printed.stdout), stderr, problem, _since(start), unread)

    async def _executed(
        self, argv: list[str], cwd: str, env: Mapping[str, str], stdin: bytes, limit: float, printed: _Printed
    ) -> CommandResult:
        daemon = await get_host_daemon()
        more: dict[str, Any] = {"stdin": stdin, "timeout": limit, "on_output": printed.take, "read": True}
        if self.sandbox is None:
            env = {**clean_environment(), **env}
            return await daemon.run(argv=argv, workdir=cwd, env=env, whole=True, **more)
        place = SandboxedWorkspace(
            cwd, self.sandbox, limits=DEFAULT_LIMITS, env=env, readable=_seen(argv[0], cwd), protect=PROTECTED
        )
        launch = Launch(place, [*_TO_ITS_END, *argv], daemon)
        try:
            await launch.begin()
            return launch.complete_result(await daemon.run(**launch.options, **more))
        finally:
            await launch.end()
            place.close()

    def blocking(self, argv: Sequence[str] = (), **options: Any) -> Ran:
        """The same where nothing can be awaited, as while an agent is made."""
        return blocking(lambda: self.run(argv, **options))


class _Printed:
    """What a program prints, up to the cap."""

    __slots__ = ("size", "stdout")

    def __init__(self) -> None:
        self.stdout, self.size = bytearray(), 0

    def take(self, stream: str, data: bytes) -> None:
        self.size += len(data)
        if self.size > constants.HOOK_OUTPUT_BYTES:
            raise _TooMuch
        if stream == "stdout":
            self.stdout += data


def blocking(work: Callable[[], Awaitable[T]]) -> T:
    """Do something asynchronous, and wait for it here; in a thread of its own where an event loop runs."""

    async def done() -> T:
        return await work()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(done())
    outcome: list[tuple[T | None, BaseException | None]] = []
    thread = Thread(target=lambda: outcome.append(_outcome(done)), name="wick hooks", daemon=True)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return asyncio.run(work()), None
    except BaseException as error:  # whatever it is, it belongs to the one who waits
        return None, error


def _problem(done: CommandResult, limit: float, confined: bool) -> str:
    """What went wrong, as the rest of a sentence; that a program ends with a code of its own is no problem here."""
    error, code = done["error"], done["exit_code"]
    if error and code == TIME_LIMIT:
        return f"did not answer within {limit:g} s"
    if code in _NOT_STARTED and (said := error or (confined and done["stderr"].strip())):
        return f"could not be started: {words(said)}"
    if error:
        return error.removeprefix("the command ") if error.startswith("the command ") else f"was ended: {error}"
    return _ENDED.get(code, "") if confined else ""


def _by_signal() -> dict[int, str]:
    """How a shell tells that a signal ended a program."""
    return {128 + number: describe_exit(number)[1].removeprefix("the command ") for number in DEADLY_SIGNALS}


_ENDED = _by_signal()
_NOT_STARTED = (NOT_FOUND, CANNOT_EXECUTE)


def _confined() -> Any:
    sandbox = choose_sandbox("auto")
    protection = sandbox.protection(False, "no limits")
    if protection.asks:
        raise ConfigError(f"sandbox=True needs a sandbox, and {protection.says}")
    return sandbox


def _seen(program: str, cwd: str) -> list[str]:
    """Where the program itself is, which may be outside of the folder it works in."""
    if "/" not in program:
        return []
    folder = os.path.dirname(os.path.realpath(os.path.join(cwd, program)))
    return [folder] if os.path.isdir(folder) and folder != "/" else []


def _since(start: float) -> float:
    return (perf_counter() - start) * 1000


def _size(count: int) -> str:
    return f"{count / 1_000_000:g} MB"
