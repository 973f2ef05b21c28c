"""The interpreter of programs: a `monty` process of its own for each one, driven from a thread.

The process has no file, no network, an empty environment, and no value of this process besides JSON data. It stops at
each call of a tool function. `Interpreter` collects such calls until the program waits for one of them.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import FunctionType
from typing import Any, TypeVar

from wick._internal.worker_threads import run_in_thread, start_in_thread
from wick.errors import MissingExtra, ToolError

MFD_EXEC = 0x10  # of memfd_create; Python has no name for it
_ERROR_CHARS = 4_000
_REFUSED = {"exc_type": "PermissionError", "message": "programs have no files, network or environment; use a tool"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of one program."""

    seconds: float  # computing time, without the time of its tool calls
    memory_mb: int
    calls: int  # tool calls
    depth: int  # nested function calls
    output: int  # characters of printed text and of the value of the last expression

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
    place: tuple[int, int]  # the bytes of the call in the program


class Interpreter:
    """One program in its process. Every method that runs a part of the program does so in a thread.

    Such a method returns the new calls of the program. Then the program waits for a result, or has ended with a value.
    """

    def __init__(self, functions: frozenset[str], limits: ProgramLimits, now: float) -> None:
        self._monty = import_monty()
        self.version: str = self._monty.__version__
        self.limits, self.now = limits, now
        # the interpreter reads only the name of a function
        self._functions = {name: FunctionType((lambda: None).__code__, {}, name) for name in functions}
        self.printed, self.dropped = "", 0  # the text so far, and the number of characters after it
        self.is_over, self.value = False, None  # the value of the last expression
        self._process = ExitStack()
        self._snapshot: Any = None  # where the program waits
        self._pid: int | None = None
        self._is_closed = False

    async def start(self, code: str, stubs: str) -> list[FunctionCall]:
        """Check the types of a program if there are stubs, and run it up to its first calls."""
        return await self._run(lambda: self._collect(self._open(stubs).feed_start(code, print_callback=self._print)))

    async def load(self, state: bytes) -> list[FunctionCall]:
        """Continue from the state of another process."""
        return await self._run(lambda: self._collect(self._open("").load_snapshot(state, print_callback=self._print)))

    async def resume(self, number: int, result: Mapping[str, Any]) -> list[FunctionCall]:
        """Give the program the result of a call, and run it up to where it waits again."""
        return await self._run(lambda: self._collect(self._snapshot.resume({number: result})))

    async def dump(self) -> bytes:
        """Return the state of the program, which waits for a call."""
        return await self._run(lambda: bytes(self._snapshot.dump()))

    def close(self) -> None:
        """Kill the process, also if the program computes in an abandoned thread. A thread waits for its end."""
        self._is_closed = True
        self._kill()
        start_in_thread(self._release, "program")

    def _kill(self) -> None:
        pid, self._pid = self._pid, None  # once it is reaped, another process may get its id
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _release(self) -> None:
        self._snapshot = None
        with suppress(self._monty.MontyError, RuntimeError):
            self._process.close()

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await run_in_thread(work, "program")
        except self._monty.MontyError as error:
            if isinstance(error, self._monty.MontyCrashedError):
                self._pid = None  # another process may get this id
            raise ToolError(self._describe(error)) from None

    def _open(self, stubs: str) -> Any:
        """Start the process and return its session."""
        limits, enter = self.limits, self._process.enter_context
        pool = enter(self._monty.Monty(binary_path=find_launcher(), min_processes=1, max_processes=1))
        session = pool.checkout(
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
        self._pid = enter(session).worker_pid
        if self._is_closed:  # the run was cancelled while this thread started the process
            self._kill()
            self._release()
            raise ToolError("the program was cancelled")
        return session

    def _print(self, stream: str, text: str) -> None:
        room = self.limits.output - len(self.printed)
        self.printed += text[:room]
        self.dropped += len(text[room:])

    def _collect(self, snapshot: Any) -> list[FunctionCall]:
        """Collect the calls of a program until it waits for one of them, or has ended."""
        calls, monty = list[FunctionCall](), self._monty
        while isinstance(snapshot, monty.FunctionSnapshot | monty.NameLookupSnapshot):
            if isinstance(snapshot, monty.NameLookupSnapshot):  # a function that is used as a value
                value = self._functions.get(snapshot.variable_name) if snapshot.object_id is None else None
                snapshot = snapshot.resume() if value is None else snapshot.resume(value=value)
            elif snapshot.is_os_function or snapshot.object_id or snapshot.function_name not in self._functions:
                snapshot = snapshot.resume(_REFUSED)
            else:
                place = (snapshot.position.start, snapshot.position.end)
                name, args, kwargs = snapshot.function_name, snapshot.args, snapshot.kwargs
                calls.append(FunctionCall(snapshot.call_id, name, args, kwargs, place))
                if len(calls) > self.limits.calls:
                    raise ToolError(self.limits.too_many_calls)
                snapshot = snapshot.resume({"future": ...})
        self._snapshot, self.is_over = snapshot, isinstance(snapshot, monty.MontyComplete)
        self.value = snapshot.output if self.is_over else None
        return calls

    def _describe(self, error: Any) -> str:
        """Return an error of the interpreter as a sentence, or the program's own traceback."""
        if isinstance(error, self._monty.MontyTypingError):
            return f"nothing ran, because the program has errors:\n{error.display().strip()[:_ERROR_CHARS]}"
        limits, text, is_killed = self.limits, str(error), isinstance(error, self._monty.MontyCrashedError)
        if error.timed_out if is_killed else text.startswith("TimeoutError: feed time limit") and not error.traceback():
            return f"the program computed for more than {limits.seconds:g} s; do less in one program"
        if is_killed:
            return "the interpreter ended unexpectedly; simplify the program"
        display = str(error.display().replace("<python-input-0>", "program")[-_ERROR_CHARS:])
        limit = ""  # the traceback is shown as well: a program or a tool can raise an error with the same text
        if text.startswith(("MemoryError: memory limit", "MemoryError: the worker exceeded")):
            limit = f"the program needs more than {limits.memory_mb} MB of memory; process the data in smaller parts"
        elif text.startswith("RuntimeError: suspension limit"):
            limit = limits.too_many_calls
        elif text.startswith("RecursionError"):
            limit = f"the program nests more than {limits.depth} function calls; use a loop"
        return f"{limit}\n{display[-500:]}" if limit else display


def find_launcher() -> str:
    """Return the path of a script that starts the interpreter with an empty environment."""
    return _write_launcher().replace("<pid>", str(os.getpid()))  # which a fork changes


@cache
def _write_launcher() -> str:
    from pydantic_monty._binary import find_monty_binary

    script = f'#!/bin/sh\nexec env -i {shlex.quote(find_monty_binary())} "$@"\n'.encode()
    if not hasattr(os, "memfd_create"):
        path = Path(mkdtemp(prefix="wick-monty-"), "monty")
        atexit.register(rmtree, path.parent, ignore_errors=True)
        path.write_bytes(script)
        path.chmod(0o700)
        return str(path)
    try:  # a file in memory, so that none is left if this process is killed
        descriptor = os.memfd_create("wick-monty", os.MFD_CLOEXEC | MFD_EXEC)
    except OSError:  # before Linux 6.3, where every file in memory can be executed
        descriptor = os.memfd_create("wick-monty")
    os.write(descriptor, script)
    return f"/proc/<pid>/fd/{descriptor}"


def import_monty() -> Any:
    """Return the module of the interpreter; raise MissingExtra without it."""
    try:
        import pydantic_monty
    except ImportError:
        raise MissingExtra("code", "pydantic-monty", "running programs") from None
    return pydantic_monty
