"""One program: its calls become tool uses in the log, and their results drive the interpreter.

The log has an entry for each call and each result. Results reach the program one by one, in the order of the log, and
its clock stands still, so a program that runs again takes the same course. Any process can continue it: from the stored
state of the interpreter, if that belongs to this log, this owner and this version, and is undamaged; otherwise from the
beginning. Its calls are then compared with the log and get their logged results, so that none takes effect twice.
"""

from __future__ import annotations

import ast
import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from wick._internal.frozen import canonical_json, digest
from wick._internal.tasks import cancel_and_wait
from wick._internal.worker_threads import run_in_thread
from wick.capabilities.code_mode.interpreter import FunctionCall, Interpreter, ProgramLimits
from wick.capabilities.code_mode.stubs import bind_arguments, format_output, format_stubs, order_parameters
from wick.capabilities.code_mode.syntax import find_problem
from wick.constants import PROGRAM_CHARS, PROGRAM_STATE_BYTES, PROGRAM_WAIT_SECONDS
from wick.errors import InvalidArgs, Paused, ToolError
from wick.loop import answer_call, create_tool_uses
from wick.operations import ToolUse
from wick.run_log import list_labelers
from wick.run_state import ProgramFlow
from wick.threads.state import ProgramState
from wick.tools import Tool

FAILURE = "failure of a call in a program"  # in the notes of the program's tool use
_TAIL_CHARS = 2_000


class Program:
    """A program of one tool use, from its start or from where another process left it."""

    def __init__(self, code: str, use: ToolUse, functions: Mapping[str, Tool], limits: ProgramLimits) -> None:
        self.code, self.use, self.run, self.thread = code, use, use.run, use.run.thread
        self.functions, self.limits, self.id = functions, limits, use.call.id
        calls = self.thread.current.calls
        self.log = calls.programs.get(self.id) or ProgramState()
        self.prefix = f"{self.id}."
        while any(id.startswith(self.prefix) for id in calls.positions):  # the model chose the ids of its calls
            self.prefix += "."
        # the clock of the program stands at the reply that has it
        replies = (entry.at for entry in reversed(self.thread.entries) if getattr(entry.data, "tool_calls", ()))
        self.interpreter = Interpreter(frozenset(functions), limits, next(replies, 0.0))
        self.open: dict[str, int] = {}  # calls that the program waits for, with the interpreter's numbers
        self.count = self.read = 0  # calls so far; results that the program has got
        self.started: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()  # tool uses
        self.failures: list[BaseException] = []

    async def execute(self) -> str:
        """Run the program to its end and return its output. Raise Paused if a call waits for an answer."""
        interpreter = self.interpreter
        try:
            calls = await self._begin()
            while not interpreter.is_over:
                await self._add_calls(calls)
                calls = await self._continue()
            if calls:
                name, line = calls[0].name, self._find_line(calls[0].place[0])
                lost = f"line {line}: `{name}(…)` did not run, because nothing awaited it"
                raise ToolError(f"{lost}; write `await {name}(…)`")
            await self._finish_tasks()  # calls that the program did not wait for
            self._raise_failures()
        except ToolError as error:
            await self._finish_tasks()
            self._raise_failures()  # a call that waits for an answer still gets it
            count, printed = len(self.log.results), interpreter.printed[-_TAIL_CHARS:]
            done = f"{count} of its tool calls had ended before; they are not undone" if count else ""
            texts = (str(error), done, f"It had printed:\n{printed}" if printed else "")
            raise ToolError("\n".join(filter(None, texts))) from None
        finally:
            await cancel_and_wait([*self.tasks])
            interpreter.close()
        return format_output(interpreter.printed, interpreter.value, interpreter.dropped, self.limits.output)

    @property
    def is_trusted(self) -> bool:
        """True if no call returned untrusted text, so that the output has none."""
        return all(map(_is_trusted, self.log.results))

    async def _begin(self) -> list[FunctionCall]:
        """Run the program up to its first calls, or up to where it is stored."""
        parsing = run_in_thread(self._parse, "program")
        if (row := self._find_state()) is None:
            self.flow, stubs = await parsing
            return await self.interpreter.start(self.code, stubs)
        self.count, self.read, self.open = row["count"], row["read"], dict(row["open"])
        self.interpreter.printed, self.interpreter.dropped = row["printed"], row["dropped"]
        loading = asyncio.gather(self.interpreter.load(b64decode(row["state"])), parsing)
        await self._start_uses()  # they run while the state is loaded
        calls, (self.flow, _) = await loading
        return calls

    def _parse(self) -> tuple[ProgramFlow | None, str]:
        """Return the flow of data, and the stubs for the check of types: none if the program runs again."""
        if len(self.code) > PROGRAM_CHARS:
            raise ToolError(f"nothing ran: a program has at most {PROGRAM_CHARS:,} characters")
        try:
            tree = ast.parse(self.code)
            if problem := find_problem(tree, self.functions):
                raise ToolError(f"nothing ran: {problem}")
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            used = {name: item for name, item in self.functions.items() if name in names}
            labelers = list_labelers(self.run)
            flow = labelers[0].analyze_program(self.code, tree, self.functions) if labelers else None
            return flow, "" if self.log.calls else format_stubs(used)
        except SyntaxError as error:
            line = f"line {error.lineno}: " if error.lineno else ""
            raise ToolError(f"nothing ran: {line}{error.msg}") from None
        except (RecursionError, MemoryError, ValueError):
            raise ToolError("nothing ran: the program is nested too deeply") from None

    def _find_line(self, place: int) -> int:
        return self.code.encode()[:place].count(b"\n") + 1

    # -- calls --------------------------------------------------------------------------------------------------------

    async def _add_calls(self, calls: Sequence[FunctionCall]) -> None:
        """Log new calls, or compare them with the log, and start those without a result."""
        for call in calls:
            self.count += 1
            if self.count > self.limits.calls:
                raise ToolError(self.limits.too_many_calls)
            id = f"{self.prefix}{self.count}"
            self._log_call(id, call)
            self.open[id] = call.number
        await self._start_uses()

    def _log_call(self, id: str, call: FunctionCall) -> None:
        item = self.functions[call.name]
        try:
            made: dict[str, Any] = {"name": item.name, "args": bind_arguments(item, call.args, call.kwargs)}
        except TypeError as error:
            made = {"name": item.name, "args": {}, "invalid": str(error)}
        rows = [row for row in self.log.results[: self.read] if row.get("refused") and row["name"] == item.name]
        with suppress(InvalidArgs):  # a program could ask the user again and again, also with `3.0` instead of `3`
            if item.validate(made["args"]) in [item.validate(self.log.calls[row["call"]]["args"]) for row in rows]:
                made["invalid"] = f"the user has refused this call of {item.name} before; do not repeat it"
        logged = self.log.calls.get(id)
        if logged is None:
            lines = [*map(self._find_line, call.place)]
            about = {"call": id, "program": self.id, "run": self.run.id, "lines": lines, "place": call.place}
            self.thread.append("call", {**about, **made, **self._label_arguments(call.place, item, made["args"])})
            self.log = self.thread.current.calls.programs[self.id]
        elif canonical_json({name: logged.get(name, "") for name in made}) != canonical_json(made):
            raise ToolError(
                f"the program was interrupted, and took another course when it ran again: its call {self.count} was "
                f"{logged['name']}({_shorten(logged['args'])}), and now is {item.name}({_shorten(made['args'])}); the "
                f"{len(self.log.results)} calls before have taken effect and are not repeated"
            )

    def _label_arguments(self, place: tuple[int, int], item: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return which arguments of a call are clean: no result with untrusted text has reached them."""
        if self.flow is None:
            return {}
        order = order_parameters(item.parameters)
        positions = {name: order.index(name) if name in order else -1 for name in args}
        calls = [self.log.calls[row["call"]] for row in self.log.results[: self.read] if not _is_trusted(row)]
        tainted = {tuple(call.get("place", ())) for call in calls}
        return {"clean": self.flow.list_clean(place, positions, tainted)}

    async def _start_uses(self) -> None:
        """Start the calls without a result together, as those of one step. Tools that run alone wait for all others."""
        nested = self.thread.current.calls.nested
        calls = [nested[id] for id in self.open if id in nested and id not in self.started]
        self.started.update(call.id for call in calls)
        uses = await create_tool_uses(self.run, calls)
        is_alone = any(use.tool is not None and use.tool.alone for use in uses)
        if is_alone:
            await self._finish_tasks()
        self.tasks |= {asyncio.create_task(self._use_tool(use), name=use.call.name) for use in uses}
        if is_alone:
            await self._finish_tasks()

    async def _use_tool(self, use: ToolUse) -> None:
        try:
            await answer_call(use)
        except (Exception, Paused) as error:  # a task that stores its error would be in a reference cycle
            self.failures.append(error)

    # -- results ------------------------------------------------------------------------------------------------------

    async def _continue(self) -> list[FunctionCall]:
        """Give the program the next result of the log. Wait until there is one, or pause."""
        if len(self.log.results) == self.read:
            await self._wait()
        if any(isinstance(failure, Exception) for failure in self.failures) or self.run.stopping is not None:
            await self._finish_tasks()
            self._raise_failures()
            raise ToolError(f"the program ended early, because the run ends: {self.run.stopping}")
        row = self.log.results[self.read]
        number = self.open.pop(row["call"], None)
        if number is None:
            raise ToolError("the program was interrupted, and took another course when it ran again; it is ended")
        self.read += 1
        if "error" in row:
            raised = "PermissionError" if row.get("denied") else "RuntimeError"
            return await self.interpreter.resume(number, {"exc_type": raised, "message": row["error"]})
        value = json.loads(row["output"]) if row.get("is_json") else row["output"]
        return await self.interpreter.resume(number, {"return_value": value})

    async def _wait(self) -> None:
        """Wait for a result, and pause if all tool uses that are left wait for answers.

        A program that waits for an answer is stored, as its process may end before.
        """
        seconds = PROGRAM_WAIT_SECONDS
        while self.tasks and len(self.log.results) == self.read:
            waiting = asyncio.wait(self.tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            done, self.tasks = await waiting
            questions = self.run.root.thread.questions.values()
            if not done and any(question.get("call_id") in self.open for question in questions):
                await self._store()
            seconds *= 4
        if len(self.log.results) == self.read:
            if all(isinstance(failure, Paused) for failure in self.failures):
                await self._store()
            self._raise_failures()
            raise ToolError("the program waits for a call that cannot end")

    async def _finish_tasks(self) -> None:
        if self.tasks:
            await asyncio.wait(self.tasks)
        self.tasks = set()

    def _raise_failures(self) -> None:
        """Raise the first error of a call, or else its pause. A failed hook fails the run."""
        failures, self.failures = self.failures, []
        for failure in sorted(failures, key=lambda failure: isinstance(failure, Paused)):
            if isinstance(failure, Exception):
                self.use.notes[FAILURE] = failure
                raise ToolError("the program ended early, because a hook failed at one of its calls")
            raise failure

    # -- the stored state ---------------------------------------------------------------------------------------------

    async def _store(self) -> None:
        """Log the state of the interpreter. A state that is too large is left out: the program can run again."""
        stored = self.log.suspended
        if stored is not None and (stored["count"], stored["read"]) == (self.count, self.read):
            return
        state = await self.interpreter.dump()
        if len(state) > PROGRAM_STATE_BYTES:
            return
        row = {
            "program": self.id, "run": self.run.id, "version": self.interpreter.version, "count": self.count,
            "read": self.read, "open": dict(self.open), "printed": self.interpreter.printed,
            "dropped": self.interpreter.dropped, "state": b64encode(state).decode(),
        }  # fmt: skip
        self.thread.append("suspended", {**row, "hash": self._hash_state(row)})
        self.log = self.thread.current.calls.programs[self.id]
        await self.thread.saved()

    def _hash_state(self, row: Mapping[str, Any]) -> str:
        """Return the hash of a state with its place in the log and its owner."""
        return digest(canonical_json([self.run.root.user, self.thread.id, self.code, row]))

    def _find_state(self) -> Mapping[str, Any] | None:
        """Return the stored state, or None if the program has to run again."""
        row = self.log.suspended
        if row is None or row.get("version") != self.interpreter.version:
            return None
        hashed = {name: value for name, value in row.items() if name != "hash"}
        if row.get("hash") == self._hash_state(hashed) and row["count"] == len(self.log.calls):
            return row
        self.run.record("program_state_refused", call=self.id)  # damaged, of another owner, or older than the log
        return None


def _is_trusted(row: Mapping[str, Any]) -> bool:
    return row.get("label", {}).get("trusted") is True


def _shorten(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={str(value)[:50]!r}" for name, value in args.items())[:200]
