"""Reasons of a tool call's outcome, from real runs."""

from __future__ import annotations

from typing import Any

import pytest

from wick import Agent, Allow, Ask, Block, Scripted, Thread, ToolCall, ToolUse, assistant, before, guard, tool
from wick.api.types import CallReasons
from wick.capabilities.recorder import Recorder
from wick.server.runs.call_history import explain_call


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@before(ToolUse)
def double(use: ToolUse) -> None:
    use.args["a"] *= 2


@guard(ToolUse)
def careful(use: ToolUse) -> Ask | Block | None:
    if use.args["b"] > 100:
        return Block("that is too much")
    return Ask("Really add?") if use.args["b"] > 10 else None


async def thread_of(*calls: ToolCall, answer: Any = True, hooks: Any = ()) -> Thread:
    thread = Thread()
    model = Scripted(*(assistant("", call) for call in calls), "done")
    agent = Agent(model, tools=[add], hooks=[double, careful, *hooks], ask=lambda question: answer)
    await agent.run("go", thread=thread)
    return thread


def find_reasons(thread: Thread, call_id: str, seq: int | None = None) -> CallReasons:
    known = explain_call(thread, call_id, seq)
    assert known is not None
    return known


async def test_a_call_that_ran() -> None:
    why = find_reasons(await thread_of(ToolCall("1", "add", {"a": 2, "b": 3})), "1")
    assert (why.tool, why.args, why.result) == ("add", {"a": 2, "b": 3}, "7")
    (attempt,) = why.attempts
    assert (attempt.number, attempt.args, attempt.ended) == (1, {"a": 4, "b": 3}, "done")
    assert why.questions == [] and why.result_seq and why.result_seq > why.seq


async def test_a_call_that_was_blocked() -> None:
    why = find_reasons(await thread_of(ToolCall("1", "add", {"a": 2, "b": 300})), "1")
    assert [(row.hook, row.position, row.verdict, row.reason) for row in why.verdicts] == [
        ("careful", "guard", "block", "that is too much")
    ]
    assert why.attempts == [] and why.result is not None and "that is too much" in why.result


@pytest.mark.parametrize(("answer", "allowed"), [(True, True), (False, False), (Allow({"a": 1, "b": 20}), True)])
async def test_a_call_the_user_was_asked_about(answer: Any, allowed: bool) -> None:
    why = find_reasons(await thread_of(ToolCall("1", "add", {"a": 2, "b": 30}), answer=answer), "1")
    (asked,) = why.questions
    assert (asked.question, asked.allowed) == ("Really add?", allowed)
    assert asked.args == {"a": 4, "b": 30}  # as sealed, not as in the call
    assert asked.answered_at is not None and asked.answered_at >= asked.at
    assert len(why.attempts) == allowed
    (row,) = [row for row in why.verdicts if row.position == "gate"]
    assert (row.hook, row.verdict) == ("user", "approved" if allowed else "refused")
    assert row.changed == ({"a": [4, 1], "b": [30, 20]} if isinstance(answer, Allow) else None)


async def test_the_answer_is_listed_once_with_a_recorder() -> None:
    why = find_reasons(await thread_of(ToolCall("1", "add", {"a": 2, "b": 30}), hooks=[Recorder()]), "1")
    assert [row.verdict for row in why.verdicts if row.position == "gate"] == ["approved"]


async def test_with_a_recorder_passing_hooks_are_listed() -> None:
    why = find_reasons(await thread_of(ToolCall("1", "add", {"a": 2, "b": 3}), hooks=[Recorder()]), "1")
    assert {(row.hook, row.verdict) for row in why.verdicts} >= {("double", "pass"), ("careful", "pass")}
    changed = next(row.changed for row in why.verdicts if row.hook == "double")
    assert changed == {"a": [2, 4]}


async def test_of_two_calls_with_one_id_the_last_or_the_requested() -> None:
    thread = await thread_of(ToolCall("1", "add", {"a": 1, "b": 1}), ToolCall("1", "add", {"a": 2, "b": 300}))
    first, last = [entry.seq for entry in thread.entries if getattr(entry.data, "tool_calls", ())]
    assert find_reasons(thread, "1").seq == last and find_reasons(thread, "1", last).attempts == []
    assert find_reasons(thread, "1", first).result == "3" and find_reasons(thread, "1", first).verdicts == []


async def test_a_call_that_is_not_there() -> None:
    thread = await thread_of(ToolCall("1", "add", {"a": 1, "b": 1}))
    assert (
        explain_call(thread, "2") is None
        and explain_call(thread, "1", 1) is None
        and explain_call(Thread(), "1") is None
    )


async def test_a_call_that_waits_has_no_result() -> None:
    thread = Thread()
    thread.append("message", assistant("", ToolCall("1", "add", {"a": 1, "b": 1})))
    assert find_reasons(thread, "1").result is None


async def test_a_call_that_could_not_be_read() -> None:
    why = find_reasons(await thread_of(ToolCall("1", "add", raw='{"a": 1, "b"')), "1")
    assert why.invalid and why.attempts == [] and why.result is not None
