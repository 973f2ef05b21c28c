"""A run that exceeds its limits is stopped before its next step, with a reason."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest

from kit import ScriptedUser, echo, thread_entries, tool_calls_reply, tool_results
from wick import (
    Agent,
    Ask,
    FunctionModel,
    Limits,
    Message,
    Paused,
    Result,
    Scripted,
    Thread,
    ToolCall,
    ToolUse,
    assistant,
    guard,
    tool,
)
from wick.capabilities import limits
from wick.capabilities.fallback import Fallback
from wick.errors import ConfigError, ModelError
from wick.protocols import Request

SONNET = "anthropic:claude-sonnet-4-5"  # 3 dollars a million tokens in, 15 out


def endless(*hooks: Any, name: str = "function", **options: Any) -> tuple[Agent, FunctionModel]:
    """An agent whose model always calls another tool."""

    def answer(request: Request) -> Message:
        return assistant("x" * 400, ToolCall(f"c{len(request.messages)}", "echo", {"text": "hi"}))

    model = FunctionModel(answer, name)
    return Agent(model, tools=[echo], hooks=hooks, **options), model


def stopped(result: Result, reason: str) -> bool:
    return (result.outcome, result.reason) == ("stopped", reason)


async def test_25_steps_by_default() -> None:
    agent, model = endless()
    result = await agent.run("go")
    assert stopped(result, "step limit")
    assert len(model.requests) == 25
    assert len(result.messages) == 1 + 2 * 25
    result.messages.validate()


async def test_steps() -> None:
    agent, model = endless(Limits(steps=3))
    assert stopped(await agent.run("go"), "step limit")
    assert len(model.requests) == 3


async def test_a_run_that_needs_no_more_completes() -> None:
    model = FunctionModel(lambda request: "done")
    result = await Agent(model, hooks=[Limits(steps=1, tokens=1, seconds=60)]).run("go")
    assert result.outcome == "completed"


async def test_tokens() -> None:
    agent, model = endless(Limits(tokens=250))
    result = await agent.run("go")
    assert stopped(result, "token limit")
    assert len(model.requests) == 3  # about 100 each, and a bit for the result of echo
    assert result.usage.total_tokens >= 250


async def test_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(limits, "monotonic", lambda: next(now))
    agent, model = endless(Limits(seconds=35))
    assert stopped(await agent.run("go"), "time limit")
    assert len(model.requests) == 3


async def test_no_limits() -> None:
    model = FunctionModel(
        lambda request: (
            "enough"
            if len(request.messages) > 60
            else assistant("", ToolCall(f"c{len(request.messages)}", "echo", {"text": "hi"}))
        )
    )
    result = await Agent(model, tools=[echo], hooks=[Limits(steps=None)]).run("go")
    assert (result.outcome, len(model.requests)) == ("completed", 31)


async def test_the_next_run_has_its_own_steps() -> None:
    agent, model = endless(Limits(steps=2))
    thread = Thread()
    for _ in range(3):
        assert stopped(await agent.run("go", thread=thread), "step limit")
    assert len(model.requests) == 6


async def test_input_messages_do_not_count_as_steps() -> None:
    talk = [message for _ in range(30) for message in (Message("user", "hi"), Message("assistant", "hello"))]
    agent = Agent(FunctionModel(lambda request: "done"))
    assert (await agent.run([*talk, Message("user", "well?")])).outcome == "completed"


async def test_a_resumed_run_continues_its_count() -> None:
    @guard(ToolUse, match="echo")
    def careful(use: ToolUse) -> Ask | None:
        return Ask("sure?") if use.call.id == "c3" else None

    agent, model = endless(Limits(steps=4), careful, ask=ScriptedUser(Paused("later"), True))
    thread = Thread()
    assert (await agent.run("go", thread=thread)).outcome == "interrupted"
    assert stopped(await agent.run(thread=thread), "step limit")
    assert len(model.requests) == 4


async def test_cost() -> None:
    agent, model = endless(Limits(cost=0.004), name=SONNET)
    result = await agent.run("go")
    assert result.outcome == "stopped" and result.reason.startswith(
        "budget: the run may cost $0.004, and has cost $0.0"
    )
    assert result.price is not None and result.price >= Decimal("0.004")
    assert len(model.requests) == 3  # about 0.0016 each


async def test_child_costs_count() -> None:
    child = Agent(FunctionModel(lambda request: "x" * 4_000, SONNET), name="child")

    @tool
    async def delegate() -> str:
        """Delegate the task."""
        return (await child.run("do it")).text

    model = Scripted(ToolCall("c1", "delegate"), "done", spare=True)
    result = await Agent(model, tools=[delegate], hooks=[Limits(cost=0.015)]).run("go")
    assert result.outcome == "stopped" and result.reason.startswith("budget: ")


async def test_an_unknown_price_is_logged_once_and_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    agent, _ = endless(Limits(steps=4, cost=0.0001))
    with caplog.at_level(logging.WARNING, "wick.capabilities.limits"):
        result = await agent.run("go")
    assert stopped(result, "step limit")
    assert [event["data"] for event in thread_entries(result.thread, "event")] == [{"model": "function"}]
    assert ["the price of function is not known" in line for line in caplog.messages] == [True]


async def test_the_cost_of_a_fallback_counts_if_the_first_price_is_unknown() -> None:
    away = FunctionModel(lambda request: ModelError("gone", status=404), "at-home")
    spare, _ = endless(name=SONNET)
    agent = Agent(away, tools=[echo], hooks=[Fallback(spare.model), Limits(cost=0.001)])
    result = await agent.run("go")
    assert result.reason.startswith("budget: ")


async def test_tool_calls() -> None:
    agent, model = endless(Limits(tool_calls=3))
    result = await agent.run("go")
    assert stopped(result, "step limit: 3 tool calls")
    assert len(model.requests) == 4
    assert tool_results(result) == ["hi", "hi", "hi", "step limit: 3 tool calls"]
    result.messages.validate()


async def test_tool_calls_of_one_reply_count_one_by_one() -> None:
    wanted = [ToolCall(f"c{number}", "echo", {"text": "hi"}) for number in range(4)]
    agent = Agent(Scripted(tool_calls_reply(*wanted), "done", spare=True), tools=[echo], hooks=[Limits(tool_calls=2)])
    result = await agent.run("go")
    assert stopped(result, "step limit: 2 tool calls")
    assert tool_results(result).count("hi") == 2


async def test_as_many_tool_calls_as_there_may_be() -> None:
    model = Scripted(ToolCall("c1", "echo", {"text": "hi"}), "done")
    assert (await Agent(model, tools=[echo], hooks=[Limits(tool_calls=1)]).run("go")).outcome == "completed"


async def test_a_resumed_run_continues_its_tool_call_count() -> None:
    @guard(ToolUse, match="echo")
    def careful(use: ToolUse) -> Ask | None:
        return Ask("sure?") if use.call.id == "c3" else None

    agent, _ = endless(Limits(tool_calls=3), careful, ask=ScriptedUser(Paused("later"), True))
    thread = Thread()
    assert (await agent.run("go", thread=thread)).outcome == "interrupted"
    result = await agent.run(thread=thread)
    assert stopped(result, "step limit: 3 tool calls")
    assert tool_results(result) == ["hi", "hi", "hi", "step limit: 3 tool calls"]


def test_without_tool_limits_there_is_no_tool_hook() -> None:
    assert [hook.name for hook in Limits().hooks()] == ["limits.start", "limits.check"]
    assert "limits.count" in [hook.name for hook in Limits(tool_calls=1).hooks()]


def test_strict() -> None:
    strict = Limits.strict()
    assert (strict.steps, strict.tokens, strict.seconds) == (20, 32_768, 300)
    assert (strict.cost, strict.tool_calls) == (None, None)


WRONG = [
    *({"steps": 0}, {"steps": -1}, {"tokens": 0}, {"seconds": -0.5}, {"cost": 0}, {"tool_calls": 0}),
    *({"steps": "5"}, {"tokens": True}, {"seconds": float("nan")}, {"cost": "1"}, {"tool_calls": [1]}),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_limit_is_above_zero(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a limit is a number above 0, or None"):
        Limits(**wrong)
