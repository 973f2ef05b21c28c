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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wick._internal.frozen import canonical_json, digest
from wick._internal.tasks import ToolUseOrder, cancel_and_wait
from wick._internal.worker_threads import run_in_thread
from wick.capabilities.code_mode.data_flow import DataFlow
from wick.capabilities.code_mode.interpreter import FunctionCall, Interpreter, Printed, ProgramLimits, Turn
from wick.capabilities.code_mode.stubs import HEADER, bind_arguments, format_output, format_stub, order_parameters
from wick.capabilities.code_mode.syntax import find_problem
from wick.constants import PROGRAM_CHARS, PROGRAM_STATE_BYTES, PROGRAM_WAIT_SECONDS
from wick.errors import Paused, ToolError
from wick.loop import answer_call, create_tool_use
from wick.operations import ToolUse
from wick.threads.state import ProgramState
from wick.tools import Tool


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
        self.printed = Printed(limits.output)  # the clock of the program stands at the reply that has it
        replies = (entry.at for entry in reversed(self.thread.entries) if getattr(entry.data, "tool_calls", ()))
        self.interpreter = Interpreter(frozenset(functions), limits, next(replies, 0.0), self.printed)
        self.open: dict[str, int] = {}  # calls that the program waits for, with the interpreter's numbers
        self.count = self.read = 0  # calls so far; results that the program has got
        self.sites: dict[str, tuple[int, int]] = {}  # the place of each call in the program
        self.tainted: set[tuple[int, int]] = set()  # the places of calls whose results have untrusted text
        self.started: set[str] = set()
        self.batches: list[list[ToolUse]] = []  # calls that wait for tools which run alone
        self.tasks: dict[asyncio.Task[None], bool] = {}  # tool uses, and whether their tools run alone
        self.failures: list[BaseException] = []
        self.asked = asyncio.get_running_loop().create_future()  # done when a call has asked the user

    async def execute(self) -> str:
        """Run the program to its end and return its output. Raise Paused if a call waits for an answer."""
        is_over, delegates = False, self.run.progress.extensions.delegates
        delegates.append(self._note_question)
        try:
            turn = await self._begin()
            while not turn.is_over:
                await self._add_calls(turn.calls)
                turn = await self._continue()
            if turn.calls:
                name, line = turn.calls[0].name, self.code.encode()[: turn.calls[0].span[0]].count(b"\n") + 1
                lost = f"line {line}: `{name}(…)` did not run, because nothing awaited it"
                raise ToolError(f"{lost}; write `await {name}(…)`")
            await self._finish_tasks()  # calls that the program did not wait for
            self._raise_failures()
            is_over = True
        except ToolError as error:
            await self._finish_tasks()
            self._raise_failures()  # a call that waits for an answer still gets it
            count, printed = len(self.log.results), self.printed.text[-_TAIL_CHARS:]
            done = f"{count} of its tool calls had ended before; they are not undone" if count else ""
            texts = (str(error), done, f"It had printed:\n{printed}" if printed else "")
            raise ToolError("\n".join(filter(None, texts))) from None
        finally:
            delegates.remove(self._note_question)
            await cancel_and_wait([*self.tasks])
            await self.interpreter.close(kill=not is_over)
        return format_output(self.printed.text, turn.value, self.printed.dropped, self.limits.output)

    @property
    def is_trusted(self) -> bool:
        """True if no call returned untrusted text, so that the output has none."""
        return all(map(_is_trusted, self.log.results))

    async def _begin(self) -> Turn:
        parsing = run_in_thread(self._parse, "program")
        state = self._read_state()
        if state is not None:
            (_, self.flow), turn = await asyncio.gather(parsing, self.interpreter.load(state))
            await self._queue()
            return turn
        tree, self.flow = await parsing
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        stubs = (format_stub(name, item) for name, item in self.functions.items() if name in names)
        checked = bool(self.log.calls)
        return await self.interpreter.start(self.code, HEADER + "\n".join(stubs), checked=checked)

    def _parse(self) -> tuple[ast.Module, DataFlow]:
        if len(self.code) > PROGRAM_CHARS:
            raise ToolError(f"nothing ran: a program has at most {PROGRAM_CHARS:,} characters")
        try:
            tree = ast.parse(self.code)
            problem = find_problem(tree, self.functions)
            if problem:
                raise ToolError(f"nothing ran: {problem}")
            return tree, DataFlow(self.code, tree, self.functions)
        except SyntaxError as error:
            raise ToolError(f"nothing ran: line {error.lineno}: {error.msg}") from None
        except (RecursionError, MemoryError, ValueError):
            raise ToolError("nothing ran: the program is nested too deeply") from None

    # -- calls --------------------------------------------------------------------------------------------------------

    async def _add_calls(self, calls: Sequence[FunctionCall]) -> None:
        """Log new calls, or compare them with the log, and start those without a result."""
        for call in calls:
            self.count += 1
            if self.count > self.limits.calls:
                raise ToolError(self.limits.too_many_calls)
            id = f"{self.prefix}{self.count}"
            self._log_call(id, call)
            self.sites[id] = call.span
            self.open[id] = call.number
        await self._queue()

    def _log_call(self, id: str, call: FunctionCall) -> None:
        item = self.functions[call.name]
        try:
            made: dict[str, Any] = {"name": item.name, "args": bind_arguments(item, call.args, call.kwargs)}
        except TypeError as error:
            made = {"name": item.name, "args": {}, "invalid": str(error)}
        logged = self.log.calls.get(id)
        if logged is None:
            order = order_parameters(item.parameters)
            places = {name: order.index(name) if name in order else -1 for name in made["args"]}
            clean = self.flow.list_clean(call.span, places, self.tainted)
            lines = [self.code.encode()[:place].count(b"\n") + 1 for place in call.span]
            about = {"call": id, "program": self.id, "run": self.run.id, "lines": lines}
            self.thread.append("call", {**about, **made, "clean": clean})
            self.log = self.thread.current.calls.programs[self.id]
        elif canonical_json({name: logged.get(name, "") for name in made}) != canonical_json(made):
            raise ToolError(
                f"the program was interrupted, and took another course when it ran again: its call {self.count} was "
                f"{logged['name']}({_shorten(logged['args'])}), and now is {item.name}({_shorten(made['args'])}); the "
                f"{len(self.log.results)} calls before have taken effect and are not repeated"
            )

    async def _queue(self) -> None:
        """Start the calls without a result together, as those of one step."""
        nested = self.thread.current.calls.nested
        calls = [nested[id] for id in self.open if id in nested and id not in self.started]
        self.started.update(call.id for call in calls)
        for call in calls:
            if (item := self.run.tools.get(call.name)) is not None and not call.invalid:
                await item.prepare(call.args)
        if calls:
            turns = ToolUseOrder([self._runs_alone(call.name) for call in calls])
            self.batches.append([create_tool_use(self.run, call, turns, n) for n, call in enumerate(calls)])
        self._start_batches()

    def _start_batches(self) -> None:
        """Start the next tool uses. A tool that runs alone waits for those before it, and holds up those after it."""

        async def use_tool(use: ToolUse) -> None:
            try:
                await answer_call(use)
            except (Exception, Paused) as error:  # a task that stores its error would be in a reference cycle
                self.failures.append(error)

        while self.batches:
            alone = any(self._runs_alone(use.call.name) for use in self.batches[0])
            if self.tasks and (alone or any(self.tasks.values())):
                return
            for use in self.batches.pop(0):
                self.tasks[asyncio.create_task(use_tool(use), name=use.call.name)] = alone

    def _runs_alone(self, name: str) -> bool:
        item = self.run.tools.get(name)
        return item is not None and item.alone

    # -- results ------------------------------------------------------------------------------------------------------

    async def _continue(self) -> Turn:
        """Give the program the next result of the log. Wait until there is one, or pause."""
        while len(self.log.results) == self.read:
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
        if not _is_trusted(row):
            self.tainted.add(self.sites[row["call"]])
        if "error" in row:
            raised = "PermissionError" if row.get("denied") else "RuntimeError"
            return await self.interpreter.resume(number, {"exc_type": raised, "message": row["error"]})
        value = json.loads(row["output"]) if row.get("is_json") else row["output"]
        return await self.interpreter.resume(number, {"return_value": value})

    async def _wait(self) -> None:
        """Wait for a tool use to end. If all that are left wait for answers, store the program and pause."""
        before = len(self.log.results)
        while self.tasks and len(self.log.results) == before:
            await asyncio.wait([*self.tasks, self.asked], return_when=asyncio.FIRST_COMPLETED)
            if self.asked.done():
                await self._store_waiting()
            self._collect([task for task in self.tasks if task.done()])
        if len(self.log.results) > before:
            return
        if all(isinstance(failure, Paused) for failure in self.failures) and not self._is_stored():
            await self._store()
        self._raise_failures()
        raise ToolError("the program waits for a call that cannot end")

    async def _note_question(self, *_: object) -> tuple[None, str]:
        """Note a question without answering it."""
        if not self.asked.done():
            self.asked.set_result(None)
        return None, ""

    async def _store_waiting(self) -> None:
        """Store the program if the question of a call is not answered soon: its process may end before."""
        done, _ = await asyncio.wait([*self.tasks], timeout=PROGRAM_WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return
        self.asked = asyncio.get_running_loop().create_future()
        questions = self.run.root.thread.questions.values()
        if not self._is_stored() and any(question.get("call_id") in self.open for question in questions):
            await self._store()

    def _collect(self, done: Iterable[asyncio.Task[None]]) -> None:
        for task in done:
            del self.tasks[task]
        self._start_batches()

    async def _finish_tasks(self) -> None:
        while self.tasks:
            self._collect((await asyncio.wait([*self.tasks], return_when=asyncio.FIRST_COMPLETED))[0])

    def _raise_failures(self) -> None:
        """Raise the first error of a call, or else its pause. A failed hook fails the run."""
        failures, self.failures = self.failures, []
        for failure in sorted(failures, key=lambda failure: isinstance(failure, Paused)):
            if isinstance(failure, Exception):
                self.use.notes[FAILURE] = failure
                raise ToolError("the program ended early, because a hook failed at one of its calls")
            raise failure

    # -- the stored state ---------------------------------------------------------------------------------------------

    def _is_stored(self) -> bool:
        stored = self.log.suspended
        return stored is not None and (stored["count"], stored["read"]) == (self.count, self.read)

    async def _store(self) -> None:
        """Log the state of the interpreter. A state that is too large is left out: the program can run again."""
        state = await self.interpreter.dump()
        if len(state) > PROGRAM_STATE_BYTES:
            return
        about = {
            "program": self.id, "run": self.run.id, "version": self.interpreter.version, "count": self.count,
            "read": self.read, "open": dict(self.open), "printed": self.printed.text, "dropped": self.printed.dropped,
            "sites": self.sites,
        }  # fmt: skip
        row = {**about, "hash": self._hash_state(about, state), "state": b64encode(state).decode()}
        self.thread.append("suspended", row)
        self.log = self.thread.current.calls.programs[self.id]
        await self.thread.saved()

    def _hash_state(self, about: Mapping[str, Any], state: bytes) -> str:
        """Return the hash of a state with its place in the log and its owner."""
        owner = [self.run.root.user, self.thread.id, digest(self.code.encode("utf-8", "surrogatepass"))]
        return digest(canonical_json([owner, about]) + state)

    def _read_state(self) -> bytes | None:
        """Return the stored state and restore what belongs to it, or None if the program has to run again."""
        row = self.log.suspended
        if row is None or row.get("version") != self.interpreter.version:
            return None
        try:
            state = b64decode(row["state"], validate=True)
            about = {name: row[name] for name in row if name not in ("hash", "state")}
            intact = self._hash_state(about, state) == row["hash"]
        except (LookupError, TypeError, ValueError):
            intact = False
        if not intact or len(self.log.calls) != row["count"]:  # damaged, of another owner, or older than the log
            self.run.record("program_state_refused", call=self.id)
            return None
        self.sites = {id: (start, end) for id, (start, end) in row["sites"].items()}
        self.tainted = {self.sites[one["call"]] for one in self.log.results[: row["read"]] if not _is_trusted(one)}
        self.count, self.read, self.open = row["count"], row["read"], dict(row["open"])
        self.printed.text, self.printed.dropped = row["printed"], row["dropped"]
        return state


def _is_trusted(row: Mapping[str, Any]) -> bool:
    label: Mapping[str, Any] = row.get("label", {})
    return label.get("trusted") is True


def _shorten(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={str(value)[:50]!r}" for name, value in args.items())[:200]


_TAIL_CHARS = 2_000
FAILURE = "failure of a call in a program"  # in the notes of the program's tool use
