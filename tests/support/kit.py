"""Shared helpers: tools, agents that use them once, and hooks at any point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wick import (
    Agent,
    FunctionModel,
    Hook,
    Message,
    Operation,
    Result,
    Scripted,
    Thread,
    Tool,
    ToolCall,
    ToolUse,
    assistant,
    tool,
)
from wick.decisions import Answer, Question
from wick.events import Event
from wick.hook_checks import Position


@tool(idempotent=True)
async def echo(text: str, times: int = 1) -> str:
    """Say it again."""
    return text * times


@tool(kind="shell")
async def execute(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


def tool_call(name: str = "echo", id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(id, name, args or {"text": "hi"})


def tool_calls_reply(*calls: ToolCall) -> Message:
    """A reply that asks for tools."""
    return assistant("", *calls)


def hello_agent(*hooks: Any, **options: Any) -> Agent:
    """An agent that replies "hello"."""
    return Agent(FunctionModel(lambda request: "hello"), hooks=hooks, **options)


def tool_agent(tool: Tool, *hooks: Any, args: dict[str, Any] | None = None, **options: Any) -> Agent:
    """An agent that uses one tool once and replies "done"."""
    wanted = tool_call(tool.name, **(args or {}))
    options.setdefault("tools", [tool])
    return Agent(Scripted(tool_calls_reply(wanted), "done", spare=True), hooks=hooks, **options)


def echo_agent(*hooks: Any, **options: Any) -> Agent:
    """An agent that echoes "hi" and replies "done"."""
    return tool_agent(echo, *hooks, **options)


def agent_for(operation: type[Operation[Any]], *hooks: Any, **options: Any) -> Agent:
    """An agent with exactly one operation of that kind."""
    return echo_agent(*hooks, **options) if operation is ToolUse else hello_agent(*hooks, **options)


def hook_at(position: Position, operation: type[Operation[Any]], answer: Any, **options: Any) -> Hook:
    """A hook that gives that answer, with nothing in its signature that gives it away."""

    async def look(op):  # type: ignore[no-untyped-def]
        return answer

    async def around(op, next):  # type: ignore[no-untyped-def]
        return answer

    options = {"name": "the_hook", "timeout": 30 if position == "guard" else None} | options
    return Hook(around if position == "wrap" else look, operation, position, **options)


def tool_results(result: Result) -> list[str]:
    """Return the tool results that the model received."""
    return [message.text for message in result.messages if message.role == "tool"]


def tool_result(result: Result) -> str:
    """Return the only tool result that the model received."""
    (text,) = tool_results(result)
    return text


def thread_entries(thread: Thread | None, kind: str) -> list[Any]:
    assert thread is not None
    return [entry.data for entry in thread.entries if entry.kind == kind]


def entry_kinds(thread: Thread, *wanted: str) -> list[str]:
    return [entry.kind for entry in thread.entries if entry.kind in wanted]


class OperationLog:
    """Operations that passed one of its hooks, as they were then."""

    def __init__(self) -> None:
        self.ops: list[Any] = []

    def __call__(self, op: Any) -> None:
        self.ops.append(op)

    @property
    def op(self) -> Any:
        (op,) = self.ops
        return op


class ScriptedUser:
    """A user with scripted answers; the last one is repeated."""

    def __init__(self, *answers: Answer | BaseException | Callable[[Question], Any]) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []

    async def __call__(self, question: Question) -> Any:
        self.questions.append(question)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer(question) if callable(answer) else answer

    @property
    def question(self) -> Question:
        (question,) = self.questions
        return question


async def collect_events(agent: Agent, text: str = "go", **options: Any) -> list[Event]:
    return [event async for event in agent.stream(text, **options)]


def text_deltas(events: Sequence[Event], name: str = "on_chat_model_stream") -> str:
    return "".join(event.delta for event in events if event.event == name)  # type: ignore[attr-defined]
