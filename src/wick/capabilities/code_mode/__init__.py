"""Code mode: the model writes a program that calls tools. Each call passes the gate.

program       the calls of a program as tool uses in the log; pauses, and where a program continues
interpreter   the process that runs a program, and its limits
stubs         tools as typed Python functions
syntax        the part of Python that programs may use

Outside of this folder, `wick.threads.state` folds the log entries of programs. If labels are used, `InformationFlow`
analyzes which results may have reached an argument of a call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from wick import constants
from wick._internal.tool_flow import RESULT_FLOW, ToolFlow
from wick._internal.visible_text import format_count
from wick.capabilities._tool_ranking import QUERY_CHARS, rank_tools
from wick.capabilities.code_mode.interpreter import ProgramLimits, import_monty
from wick.capabilities.code_mode.program import FAILURE, Program
from wick.capabilities.code_mode.stubs import format_stub, name_functions
from wick.capabilities.code_mode.syntax import IMPORTS
from wick.capability import Capability
from wick.errors import ConfigError
from wick.hooks import after, before
from wick.operations import ModelCall, Run, ToolUse
from wick.tools import Tool, tool

INNER = -60.0  # after other hooks have added tools to the request
RESULTS = 8
RUN, SEARCH = "run_code", "search_tools"
# Tools that the model calls itself: the user, the plan and the instructions are not data for a program.
DIRECT = ("ask_user", "write_todos", "update_todo", "load_skill", "tools", "plan", "look")

GUIDE = """\
Run a Python program that calls tools as functions. Use it whenever a task takes several calls: loop, filter, combine, \
and print only what you need. Await each call where you write it: `await name(argument=value)`, or several at once \
with `await asyncio.gather(*[name(argument=item) for item in items])`. A call that is refused raises PermissionError, \
one that fails RuntimeError. \
The output is the printed text, and the value of the last expression. Programs share no variables. They have no files, \
no network and no generators, and import only """
HIDDEN = """\
There are {count} more functions. Find them with `print(await search_tools(query="…"))`, and call them in the next \
program."""


class CodeMode(Capability):
    """Adds `run_code`: instead of calling one tool after the other, the model writes a program that calls them.

    Each call in it is a tool use of its own, with all hooks and guards. The tools named in `direct` are called by the
    model itself; `tools` limits programs to some tools. Of more than `listed` functions, the others are found with
    `search_tools`. The limits are those of one program.
    """

    def __init__(
        self,
        tools: Iterable[str] | None = None,
        *,
        direct: Iterable[str] = DIRECT,
        listed: int = constants.FUNCTIONS_LISTED,
        seconds: float = constants.PROGRAM_SECONDS,
        memory_mb: int = constants.PROGRAM_MEMORY_MB,
        calls: int = constants.PROGRAM_CALLS,
        depth: int = constants.PROGRAM_DEPTH,
        output: int = constants.PROGRAM_OUTPUT_CHARS,
    ) -> None:
        if isinstance(tools, str) or isinstance(direct, str):
            raise ConfigError("CodeMode(tools=…, direct=…) take lists of names, also of one: ['name']")
        if type(seconds) not in (int, float) or seconds <= 0:
            raise ConfigError(f"CodeMode(seconds={seconds!r}): give a number above 0")
        counts = {"memory_mb": memory_mb, "calls": calls, "depth": depth, "output": output}
        for name, count in {**counts, "listed": listed}.items():
            if type(count) is not int or count < 0 or (count == 0 and name in counts):
                raise ConfigError(f"CodeMode({name}={count!r}): give a whole number above 0")
        import_monty()
        self.allowed = None if tools is None else frozenset(tools)
        self.direct, self.listed = frozenset(direct), listed
        self.limits = ProgramLimits(seconds, memory_mb, calls, depth, output)

    @before(ModelCall, priority=INNER)
    def describe_functions(self, call: ModelCall) -> None:
        """Describe the functions in the request, in place of their tools."""
        own = call.run.tools.get(RUN)
        if call.purpose or own is None or own not in call.tools:
            return
        functions = self._list_functions(call.run)
        found = [name for name, item in functions.items() if item.name != SEARCH]
        found.sort(key=lambda name: functions[name].foreign is not None)  # the agent's own tools come first
        search = [name for name in functions if name not in found] if len(found) > self.listed else []
        stubs = "\n".join(format_stub(name, functions[name]) for name in [*search, *found[: self.listed]])
        hidden = HIDDEN.format(count=len(found) - self.listed) if search else ""
        texts = [GUIDE + ", ".join(IMPORTS) + ".", f"```python\n{stubs}\n```", hidden]
        described = replace(own, description="\n\n".join(filter(None, texts)))
        in_programs = {item.name for item in functions.values()}
        call.tools = [described if item is own else item for item in call.tools if item.name not in in_programs]

    @tool(name=RUN, read_only=True, alone=True, kind="agent", effect="read", returns="untrusted", max_output=10**6)
    async def run_code(self, code: Annotated[str, "the whole program"], use: ToolUse) -> str:
        """Run a Python program that calls tools as functions."""
        program = Program(code, use, self._list_functions(use.run), self.limits)
        try:
            return await program.execute()
        finally:
            if program.is_trusted:
                use.notes[RESULT_FLOW] = ToolFlow("read", "own", declared=True)  # trusted

    @after(ToolUse, match=RUN)
    def fail_with_call(self, use: ToolUse) -> None:
        """Fail the run if a hook failed at a call in the program: an error of a tool would only be its result."""
        if (failure := use.notes.pop(FAILURE, None)) is not None:
            use.error = failure

    @tool(name=SEARCH, read_only=True, effect="read", returns="own")
    async def search_tools(self, query: Annotated[str, "what the tool should do, in a few words"], run: Run) -> str:
        """Find functions that are not listed: their signatures and descriptions."""
        functions = self._list_functions(run)
        names = {item.name: name for name, item in functions.items() if item.name != SEARCH}
        found = rank_tools([functions[name] for name in names.values()], query[:QUERY_CHARS])[:RESULTS]
        lines = [format_stub(names[item.name], item) for item in found]
        if not lines:
            return f"No function fits; try other words. The agent has {format_count(len(names), 'function')}."
        return "\n".join(lines)

    def _list_functions(self, run: Run) -> dict[str, Tool]:
        """Return the tools that programs of a run may call, by the names of their functions."""
        direct = {RUN, *self.direct}  # an answer of the run is no step of a program
        items = [item for item in run.tools.values() if item.name not in direct and item.kind != "answer"]
        allowed = self.allowed
        return name_functions(
            item for item in items if allowed is None or item.name == SEARCH or not allowed.isdisjoint(item.names)
        )
