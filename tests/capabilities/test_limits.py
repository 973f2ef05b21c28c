"""A run that goes on for too long is stopped, before its next step, with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from kit import User, echo
from wick import Agent, Ask, FunctionModel, Limits, Message, Paused, Result, Thread, ToolCall, ToolUse, assistant, guard
from wick.capabilities import limits
from wick.errors import ConfigError
from wick.protocols import Request


def endless(*hooks: Any, **options: Any) -> tuple[Agent, FunctionModel]:
    """An agent whose model always wants another tool."""

    def answer(request: Request) -> Message:
        return assistant("x" * 400, ToolCall(f"c{len(request.messages)}", "echo", {"text": "hi"}))

    model = FunctionModel(answer)
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


async def test_a_conversation_given_as_input_does_not_count_as_steps() -> None:
    talk = [message for _ in range(30) for message in (Message("user", "hi"), Message("assistant", "hello"))]
    agent = Agent(FunctionModel(lambda request: "done"))
    assert (await agent.run([*talk, Message("user", "well?")])).outcome == "completed"


async def test_a_run_that_is_taken_up_goes_on_counting() -> None:
    @guard(ToolUse, match="echo")
    def careful(use: ToolUse) -> Ask | None:
        return Ask("sure?") if use.call.id == "c3" else None

    agent, model = endless(Limits(steps=4), careful, ask=User(Paused("later"), True))
    thread = Thread()
    assert (await agent.run("go", thread=thread)).outcome == "interrupted"
    assert stopped(await agent.run(thread=thread), "step limit")
    assert len(model.requests) == 4


def test_strict() -> None:
    strict = Limits.strict()
    assert (strict.steps, strict.tokens, strict.seconds) == (20, 32_768, 300)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": -1}, {"tokens": 0}, {"seconds": -0.5}])
def test_a_limit_is_above_zero(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a limit is a number above 0, or None"):
        Limits(**wrong)
