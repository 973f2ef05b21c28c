"""Mistakes that mypy --strict finds. Each is on a line with the code of its error, and must be found there."""

from __future__ import annotations

from wick import (
    Agent,
    Block,
    Capability,
    ModelCall,
    Scripted,
    ToolCall,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick.decisions import Question
from wick.hooks import Next


@before(ModelCall)  # type: ignore[arg-type]
def for_another_operation(use: ToolUse) -> None: ...


@wrap(ToolUse)  # type: ignore[arg-type]
async def without_next(use: ToolUse) -> ToolResult:
    return ToolResult("done")


@wrap(ToolUse)  # type: ignore[arg-type]
def not_async(use: ToolUse, next: Next[ToolResult]) -> ToolResult:
    return ToolResult("done")


@before(ToolUse)  # type: ignore[arg-type]
def says_a_text(use: ToolUse) -> str:
    return "no"


@before(ToolUse, on_error="ignore")  # type: ignore[arg-type]
def has_an_unknown_option(use: ToolUse) -> None: ...


@guard(ToolUse, timeout=None)  # type: ignore[arg-type]
def without_a_time_limit(use: ToolUse) -> None: ...


@before("tool_use")  # type: ignore[arg-type]
def at_a_name(use: ToolUse) -> None: ...


@after(ToolUse)
def gives_a_text(use: ToolUse) -> None:
    use.result = "done"  # type: ignore[assignment]


@guard(ToolUse)
def forgets_an_end(use: ToolUse) -> Block | None:  # type: ignore[return]
    if use.args:
        return Block("no")


class Notes(Capability):
    @before(ModelCall)  # type: ignore[arg-type]
    def for_another_operation(self, use: ToolUse) -> None: ...


@tool(timout=3)  # type: ignore[call-overload, untyped-decorator]
def misspelt(text: str) -> str:
    return text


async def answers_a_text(question: Question) -> str:
    return "yes"


Block()  # type: ignore[call-arg]
ToolCall("1", "add", args=[2, 3])  # type: ignore[arg-type]
Agent(42)  # type: ignore[arg-type]
Agent(Scripted(), hooks=[len])  # type: ignore[list-item]
Agent(Scripted(), ask=answers_a_text)  # type: ignore[arg-type]
Agent(Scripted()).run_sync(42)  # type: ignore[arg-type]
