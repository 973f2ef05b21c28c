"""Typical user code with agents and tools: all of it passes mypy --strict."""

from __future__ import annotations

from typing import Any, assert_type

from wick import (
    Agent,
    Allow,
    Block,
    FunctionModel,
    Limits,
    Result,
    Run,
    Scripted,
    Thread,
    Tool,
    ToolCall,
    assistant,
    tool,
    user,
)
from wick.decisions import Question
from wick.protocols import Request


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True, timeout=3, kind="read", aliases=["look"])
async def lookup(word: str, run: Run) -> dict[str, int]:
    """Look a word up."""
    return {word: len(word)}


def plain(text: str) -> str:
    """A function that is no tool yet."""
    return text


assert_type(add(2, b=3), int)  # a tool is still the function it was
assert_type(add.parameters, dict[str, Any])


async def ask(question: Question) -> Allow | Block | bool:
    return Allow({"a": 1}) if question.about else False


def answer(request: Request) -> str:
    return request.messages[-1].text


def chat() -> Agent:
    script = Scripted("hello", assistant("", ToolCall("1", "add", {"a": 2})), ValueError("broken"), spare=True)
    agent = Agent(script, tools=[add, lookup, plain], hooks=[Limits(steps=3)], ask=ask, settings={"temperature": 0})
    return agent.with_tools(len).with_hooks(Limits.strict())


async def use() -> None:
    agent, thread = chat(), Thread()
    assert_type(await agent.run("hello", thread=thread, user="ada"), Result)
    assert_type(agent.run_sync([user("a"), assistant("b"), user("c")]), Result)
    async for event in agent.stream(user("hello")):
        assert_type(event.to_json(), dict[str, Any])
    assert_type(thread.messages.last_content, str)
    assert_type(Agent(FunctionModel(answer)).tools, tuple[Tool, ...])
