"""The interpreter of programs: a `monty` process of its own for each one, driven from a thread.

The process has no file, no network, an empty environment, and no value of this process besides JSON data. It stops at
each call of a tool function. `Interpreter` collects such calls until the program waits for one of them.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from wick._internal.worker_threads import run_in_thread
from wick.errors import ConfigError, MissingExtra, ToolError

MFD_EXEC = 0x10  # of memfd_create; Python has no name for it

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of one program."""

    seconds: float  # computing time, without the time of its tool calls
    memory_mb: int
    calls: int  # tool calls
    depth: int  # nested function calls
    output: int  # characters of printed text and of the value of the last expression

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if type(value) not in (int, float) or value <= 0 or (name != "seconds" and type(value) is not int):
                raise ConfigError(f"CodeMode({name}={value!r}): give a number above 0")

    @property
    def too_many_calls(self) -> str:
        return f"a program makes at most {self.calls} tool calls; continue in another program"


@dataclass(slots=True)
class FunctionCall:
    """A call of a tool function, as the program made it."""

    number: int  # the interpreter's number of the call
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    span: tuple[int, int]  # the bytes of the call in the program


@dataclass(slots=True)
class Turn:
    """The program up to where it waits for a call, or to its end."""

    calls: list[FunctionCall] = field(default_factory=list)  # new ones
    is_over: bool = False
    value: Any = None  # of the last expression


class Printed:
    """The printed text of a program, up to a number of characters. The rest is only counted."""

    def __init__(self, most: int, text: str = "") -> None:
        self.text, self.most, self.dropped = text, most, 0

    def __call__(self, stream: str, text: str) -> None:
        room = max(self.most - len(self.text), 0)
        self.text += text[:room]
        self.dropped += len(text[room:])


class Interpreter:
    """One program in its process. Every method that runs a part of the program does so in a thread."""

    def __init__(self, functions: frozenset[str], limits: ProgramLimits, now: float, printed: Printed) -> None:
        self._monty = import_monty()
        self.version: str = self._monty.__version__
        self.functions, self.limits, self.now, self.printed = functions, limits, now, printed
        self._values: dict[str, Callable[[], None]] = {}
        for name in functions:  # the interpreter reads only the name of a function
            self._values[name] = lambda: None
            self._values[name].__name__ = name
        self._pool: Any = None
        self._session: Any = None
        self._snapshot: Any = None  # where the program waits
        self._pid: int | None = None
        self._is_closed = False

    async def start(self, code: str, stubs: str, *, checked: bool) -> Turn:
        """Check the types of a program unless they are checked already, and run it up to its first calls."""

        def begin() -> Turn:
            self._open(stubs)
            return self._collect(self._session.feed_start(code, print_callback=self.printed, skip_type_check=checked))

        return await self._run(begin)

    async def load(self, state: bytes) -> Turn:
        """Continue from the state of another process."""

        def begin() -> Turn:
            self._open("")
            return self._collect(self._session.load_snapshot(state, print_callback=self.printed))

        return await self._run(begin)

    async def resume(self, number: int, result: Mapping[str, Any]) -> Turn:
        """Give the program the result of a call, and run it up to where it waits again."""
        return await self._run(lambda: self._collect(self._snapshot.resume({number: result})))

    async def dump(self) -> bytes:
        """Return the state of the program, which waits for a call."""
        return await self._run(lambda: bytes(self._snapshot.dump()))

    async def close(self, *, kill: bool = False) -> None:
        """End the process. `kill` also ends a program that computes in an abandoned thread."""
        self._is_closed = True
        await run_in_thread(lambda: self._close(kill), "program")

    def _close(self, kill: bool) -> None:
        if kill and self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._snapshot = None
        for part in (self._session, self._pool):
            if part is not None:
                with suppress(self._monty.MontyError, RuntimeError):
                    part.__exit__(None, None, None)
        self._session = self._pool = self._pid = None

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await run_in_thread(work, "program")
        except self._monty.MontyError as error:
            if isinstance(error, self._monty.MontyCrashedError):
                self._pid = None  # another process may get this id
            raise ToolError(describe_error(error, self._monty, self.limits)) from None

    def _open(self, stubs: str) -> None:
        limits = self.limits
        self._pool = self._monty.Monty(binary_path=find_launcher(), min_processes=1, max_processes=1)
        self._pool.__enter__()
        self._session = self._pool.checkout(
            script_name="program",
            limits={
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory_mb * 1_000_000,
                "max_recursion_depth": limits.depth,
                "max_suspensions": 1000 + 20 * limits.calls,
            },
            type_check=bool(stubs),
            type_check_stubs=stubs or None,
            type_check_format="concise",
            # a program that runs again must take the same course, so its clock stands still
            os_policy={"datetime": datetime.fromtimestamp(self.now, UTC), "sleep": "zero"},
        )
        self._session.__enter__()
        self._pid = self._session.worker_pid
        if self._is_closed:  # the run was cancelled while this thread started the process
            self._close(kill=True)
            raise ToolError("the program was cancelled")

    def _collect(self, snapshot: Any) -> Turn:
        """Collect the calls of a program until it waits for one of them, or has ended."""
        turn, monty = Turn(), self._monty
        while True:
            if isinstance(snapshot, monty.FunctionSnapshot):
                if snapshot.is_os_function or snapshot.object_id or snapshot.function_name not in self.functions:
                    snapshot = snapshot.resume(_REFUSED)
                    continue
                span = (snapshot.position.start, snapshot.position.end)
                turn.calls.append(
                    FunctionCall(snapshot.call_id, snapshot.function_name, snapshot.args, snapshot.kwargs, span)
                )
                if len(turn.calls) > self.limits.calls:
                    raise ToolError(self.limits.too_many_calls)
                snapshot = snapshot.resume({"future": ...})
            elif isinstance(snapshot, monty.NameLookupSnapshot):  # a function that is used as a value
                value = self._values.get(snapshot.variable_name) if snapshot.object_id is None else None
                snapshot = snapshot.resume() if value is None else snapshot.resume(value=value)
            elif isinstance(snapshot, monty.FutureSnapshot):
                self._snapshot = snapshot
                return turn
            else:
                turn.is_over, turn.value = True, snapshot.output
                return turn


def describe_error(error: Any, monty: Any, limits: ProgramLimits) -> str:
    """Return an error of the interpreter as a sentence, or the program's own traceback."""
    text = str(error)
    if isinstance(error, monty.MontyTypingError):
        return f"nothing ran, because the program has errors:\n{error.display().strip()}"
    if isinstance(error, monty.MontyCrashedError):
        return "the interpreter ended unexpectedly; simplify the program"
    if text.startswith("TimeoutError: feed time limit"):
        return f"the program computed for more than {limits.seconds:g} s; do less in one program"
    if text.startswith("MemoryError: memory limit"):
        return f"the program needs more than {limits.memory_mb} MB of memory; process the data in smaller parts"
    if text.startswith("RuntimeError: suspension limit"):
        return limits.too_many_calls
    display: str = error.display().replace("<python-input-0>", "program") if hasattr(error, "display") else text
    if text.startswith("RecursionError"):
        return f"the program nests more than {limits.depth} function calls; use a loop\n{display[-500:]}"
    return display


def find_launcher() -> str:
    """Return the path of a script that starts the interpreter with an empty environment. A process writes it once."""
    from pydantic_monty._binary import find_monty_binary

    with _launcher_lock:
        if not _launchers:
            script = f'#!/bin/sh\nexec env -i {shlex.quote(find_monty_binary())} "$@"\n'
            _launchers.append(_write_script(script.encode()))
    return f"/proc/{os.getpid()}/fd/{_launchers[0]}" if isinstance(_launchers[0], int) else _launchers[0]


def _write_script(script: bytes) -> int | str:
    """Return the descriptor of an executable file in memory, or the path of a temporary file outside of Linux."""
    if sys.platform == "linux":  # no file is left if this process is killed
        try:
            descriptor = os.memfd_create("wick-monty", os.MFD_CLOEXEC | MFD_EXEC)
        except OSError:  # before Linux 6.3, where every file in memory can be executed
            descriptor = os.memfd_create("wick-monty")
        os.write(descriptor, script)
        return descriptor
    descriptor, path = tempfile.mkstemp(prefix="wick-monty-")
    with open(descriptor, "wb") as file:
        file.write(script)
    os.chmod(path, 0o700)
    atexit.register(Path(path).unlink, missing_ok=True)
    return path


def import_monty() -> Any:
    """Return the module of the interpreter; raise MissingExtra without it."""
    try:
        import pydantic_monty
    except ImportError:
        raise MissingExtra("code", "pydantic-monty", "running programs") from None
    return pydantic_monty


_launchers: list[int | str] = []
_launcher_lock = Lock()
_REFUSED = {"exc_type": "PermissionError", "message": "programs have no files, network or environment; use a tool"}
