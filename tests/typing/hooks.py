"""Typical user code with hooks: all of it passes mypy --strict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_type

from wick import (
    Ask,
    Block,
    Capability,
    Continue,
    Hook,
    Message,
    ModelCall,
    Operation,
    Run,
    Step,
    Stop,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick.hooks import Next
from wick.program import Program


@guard(ToolUse, match="execute", timeout=5, shadow=True)
async def refuse(use: ToolUse) -> Block | Ask | None:
    return Block("no") if use.args else Ask("really?")


@before(ModelCall, match=lambda call: call.purpose == "", priority=1, on_error="log", inherit=True)
def add_to_the_prompt(call: ModelCall) -> None:
    call.system += " Be brief."


@before(Run, tools=["lookup", "mcp_*"])
def greet(run: Run) -> Stop | None:
    run.record("greeted", user=run.user)
    return None if run.user else Stop("who are you?")


@wrap(ToolUse, match=["read_*", "ls"])
async def measure(use: ToolUse, next: Next[ToolResult]) -> ToolResult | Block:
    result: ToolResult = await next(replace(use, args={**use.args}))
    return result if result.output else Block("empty")


@after(Step)
def send_back(step: Step) -> Continue | None:
    return Continue("go on") if isinstance(step.result, Stop) else None


@after(ModelCall, hold=True)
def heal(call: ModelCall) -> None:
    if call.error is not None:
        call.result = Message("assistant", "sorry")


@after(Operation)
def watch(op: Operation[Any]) -> None:
    print(op.operation_name, [row.verdict for row in op.why])


assert_type(refuse, Hook)
assert_type(refuse.point, str)


class Notes(Capability):
    """Its methods take `self` first."""

    @before(Run)
    def start(self, run: Run) -> None:
        run.scratch[self] = 0

    @guard(ToolUse)
    async def check(self, use: ToolUse) -> Block | None:
        return None

    @wrap(ModelCall)
    async def around(self, call: ModelCall, next: Next[Message]) -> Message:
        reply: Message = await next(call)
        return reply

    @tool
    def remember(self, text: str, run: Run) -> str:
        """Remember something."""
        return text


assert_type(Notes().check, Hook)
assert_type(Notes().hooks(), list[Hook])


# -- without parentheses: the annotation names the operation ---------------------------------------------------------


@guard
def refuse_bare(use: ToolUse) -> Block | Ask | None:
    return Block("no") if use.args else None


@guard
async def check_bare(run: Run) -> Stop | None:
    return None


@before
def prepare_bare(call: ModelCall) -> None:
    call.system = "Be brief."


@wrap
async def around_bare(use: ToolUse, next: Next[ToolResult]) -> ToolResult | Block:
    return await next(use)


@after
def continue_bare(step: Step) -> Continue | None:
    return None


@after
async def watch_bare(use: ToolUse) -> Block | Stop | None:
    return None


class BareNotes(Capability):
    @guard
    def check(self, use: ToolUse) -> Block | None:
        return None

    @wrap
    async def around(self, call: ModelCall, next: Next[Message]) -> Message:
        return await next(call)


assert_type(refuse_bare, Hook)
assert_type(around_bare, Hook)
assert_type(continue_bare, Hook)
assert_type(BareNotes().check, Hook)

program = Program()


@program.guard_tool_use(match="execute")
def no_force(call: dict[str, Any]) -> dict[str, Any] | None:
    return None


@program.after_run
def say_done(call: dict[str, Any]) -> None: ...


@program.tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


assert_type(count_words("one two"), int)
