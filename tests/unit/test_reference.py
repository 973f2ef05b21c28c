"""Generated agents follow the rules: `reference.py` computes the outcome, and wick must agree.

A failure shows the smallest agent that does something else, written so that it can be pasted into a test.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_specs import Call, Hook, Reply, Spec
from generated_agents import Observed, build_agent, deaf_specs, expected_outcome, observe_agent, specs, yield_to_others
from wick import Agent, FunctionModel, Scripted, Thread, ToolCall, ToolResult, ToolUse, assistant, tool, wrap
from wick.hooks import Next

SETTLE = 4  # a cancellation passes from a run to its tools, to a child and to the child's tools


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Silence the log: thousands of hooks fail here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@settings(max_examples=max(100, settings().max_examples))
@given(specs)
def test_an_agent_follows_the_reference(spec: Spec) -> None:
    agree(spec)


HOOKS = {
    "a Stop stands, though the run is tried again": [
        Hook("h0", "wrap", "run", "twice"),
        Hook("h1", "after", "step", "stop"),
    ],
    "a Stop stands, though the step is tried again": [
        Hook("h0", "wrap", "step", "twice"),
        Hook("h1", "after", "model_call", "stop"),
    ],
    "a Stop does not hide that something failed": [
        Hook("h0", "after", "step"),
        Hook("h1", "guard", "tool_use", "stop"),
        Hook("h2", "after", "tool_use", "pass"),
        Hook("h3", "wrap", "tool_use", "raise late"),
    ],
    "a Stop wins over a Block": [
        Hook("h0", "guard", "tool_use", "block"),
        Hook("h1", "guard", "tool_use", "stop"),
        Hook("h2", "guard", "tool_use", "budget"),
    ],
    "who has agreed is not asked again": [
        Hook("h0", "wrap", "step", "ask"),
        Hook("h1", "wrap", "step", "twice"),
    ],
    "setting the result of a step heals it": [
        Hook("h0", "after", "step", "heal"),
        Hook("h1", "before", "model_call", "raise"),
    ],
    "Continue is given up after a while": [Hook("h0", "after", "step", "continue")],
}


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
def test_reference_cases(hooks: list[Hook]) -> None:
    script = (Reply(calls=(Call("c0a", "add"), Call("c0b", "safe"))), Reply("done"))
    agree(Spec(tuple((hook,) for hook in hooks), script, steps=20))
    agree(Spec((tuple(hooks),), script, steps=20))  # together, as one capability
    agree(Spec((), (Reply(calls=(Call("c0a", "child"),)),), child=Spec((tuple(hooks),), script, steps=20)))


def test_a_repeated_step_after_a_reply_asks_to_continue() -> None:
    calls = [Reply(calls=(Call(f"c{number}a", "add"),)) for number in range(2)]
    agree(Spec(((Hook("h0", "wrap", "step", "twice"),),), (*calls, Reply("done")), steps=2))


def agree(spec: Spec) -> None:
    """Check that the observed behaviour equals the computed one."""
    reference, expected = expected_outcome(spec)
    observed, outcome = asyncio.run(observe_agent(spec))
    assert traced(observed) == dict(reference.trace)
    assert observed.messages == [row for row in reference.messages if len(row) == 3]
    assert outcome == expected
    assert observed.why == {strand: rows for strand, rows in reference.why.items() if strand in observed.why}
    assert [event.event for event in observed.terminal] == ["error" if outcome[0] == "failed" else "done"]
    assert not [pair for pair in observed.overlaps if "solo" in pair], "a tool that works alone did not"


@settings(max_examples=settings().max_examples // 3)
@given(specs | deaf_specs, st.booleans())
def test_an_agent_can_be_cancelled_at_every_await(spec: Spec, twice: bool) -> None:
    reference, _ = expected_outcome(spec)
    finished, ticks = False, 0
    with asyncio.Runner() as runner:
        while not finished:
            ticks += 1
            observed, finished = runner.run(cancelled_after(ticks, spec, twice))
            for strand, rows in traced(observed).items():
                assert rows == reference.trace[strand][: len(rows)], f"cancelled after {ticks}, it did something else"


async def cancelled_after(ticks: int, spec: Spec, twice: bool) -> tuple[Observed, bool]:
    """Yield a number of times, then cancel. Exactly one end and usable threads must remain."""
    observed = Observed()
    run = build_agent(spec, observed).run("go", thread=observed.thread, emit=observed.events.append)
    task = asyncio.create_task(run)
    await yield_to_others(ticks)
    finished = task.done()
    task.cancel()
    await yield_to_others(1)
    task.cancel() if twice else None  # cancelled early
    await yield_to_others(SETTLE)
    begun = tools_used(observed)
    await asyncio.wait((task,))
    assert tools_used(observed) == begun, "a tool was begun after the run was cancelled"
    await yield_to_others(SETTLE * twice)  # a cancelled task ends before its work
    assert asyncio.all_tasks() == {asyncio.current_task()}, "work is left behind"
    (terminal,) = observed.terminal
    assert observed.events[-1] is terminal
    assert finished or terminal.data()["outcome"] == "cancelled"
    for thread in (observed.thread, *observed.below):
        await check(thread)
    return observed, finished


async def check(thread: Thread) -> None:
    """Check that a thread is valid, has only pending questions, and can be continued."""
    assert Thread.from_json(thread.to_json()).messages == thread.messages.validate()
    assert not thread.busy
    assert not thread.pending or thread.entries[-1].data["outcome"] == "interrupted"
    result = await Agent(FunctionModel(lambda request: "hello")).run("again", thread=thread)
    assert result.text == "hello"
    assert not thread.pending


async def test_a_wrap_that_ignores_its_cancellation_gets_no_further() -> None:
    deaf, used = asyncio.Event(), list[str]()

    @wrap(ToolUse)
    async def deafly(use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        with suppress(asyncio.CancelledError):
            deaf.set()
            await asyncio.sleep(10)
        return await next(use)

    @tool
    async def touch(path: str) -> None:
        used.append(path)

    model = Scripted(assistant("", ToolCall("c1", "touch", {"path": "x"})))
    task = asyncio.create_task(Agent(model, tools=[touch], hooks=[deafly]).run("go"))
    await deaf.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert used == []


def tools_used(observed: Observed) -> int:
    return sum(row[0] == "tool" for rows in observed.trace.values() for row in rows)


def traced(observed: Observed) -> dict[str, list[Any]]:
    return {strand: rows for strand, rows in observed.trace.items() if rows}
