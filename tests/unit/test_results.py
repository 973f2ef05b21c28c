"""The result of a run, and changes of results by hooks."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
import weakref
from typing import Any

import pytest

from kit import echo, echo_agent, tool_call, tool_calls_reply
from wick import (
    Agent,
    Block,
    Continue,
    Message,
    ModelCall,
    Operation,
    Result,
    Run,
    Scripted,
    Step,
    Stop,
    ToolResult,
    ToolUse,
    after,
    before,
    tool,
    user,
    wrap,
)
from wick.constants import CRASHES_KEPT
from wick.errors import HookError, clear_tracebacks
from wick.hooks import Next
from wick.operations import OPERATIONS
from wick.results import ModelCallResults, ResultRules, RunResults, StepResults, ToolUseResults

RULES = (RunResults, StepResults, ModelCallResults, ToolUseResults)


def _operations() -> tuple[Run, Step, ModelCall, ToolUse]:
    run = Run()
    return run, Step(run, 1), ModelCall(run, Scripted(spare=True), "", [], [], {}), ToolUse(run, tool_call(), echo, {})


# the rules


def test_each_operation_has_its_rules_with_their_specification() -> None:
    found = [(type(op), type(op.result_rules)) for op in _operations()]
    assert found == [*zip(OPERATIONS, RULES, strict=True)]
    for rules in RULES:
        assert rules.__doc__ and rules.__doc__.startswith("The rules for the `") and "\n    - " in rules.__doc__


def test_another_operation_has_no_rules() -> None:
    with pytest.raises(TypeError, match="not one of the four operations"):
        Operation().result_rules  # noqa: B018


def test_a_hooks_own_result_must_be_of_the_right_kind() -> None:
    run = Run()
    use = ToolUse(run, tool_call(), echo, {})
    model_call = ModelCall(run, Scripted(spare=True), "", [], [], {})
    assert use.result_rules.coerce("text") == ToolResult("text", tool_call_id="c1", name="echo")
    assert model_call.result_rules.coerce("text") == Message("assistant", "text")
    assert run.result_rules.coerce("text").text == "text"
    for op, wrong in (
        (use, 3),
        (use, None),
        (model_call, user("hi")),
        (model_call, b""),
        (run, 3),
        (Step(run, 1), "x"),
    ):
        with pytest.raises(HookError, match="result"):
            op.result_rules.coerce(wrong)


def test_a_skipped_operation_has_a_result_with_the_reason() -> None:
    run = Run()
    assert ToolUse(run, tool_call(), echo, {}).result_rules.blocked("no").error == "no"
    assert ModelCall(run, Scripted(spare=True), "", [], [], {}).result_rules.blocked("no").text == "no"
    run.halt(Stop("blocked: no"))
    assert Step(run, 1).result_rules.blocked("no") == Stop("blocked: no")
    assert (run.result_rules.blocked("no").outcome, run.result_rules.blocked("no").reason) == ("stopped", "blocked: no")


def test_a_blocked_run_step_or_model_call_ends_the_run_and_a_blocked_tool_use_does_not() -> None:
    for op in _operations():
        op.result_rules.prevent(Block("no"))
        assert op.prevented == Block("no")
        assert op.run.stopping == (None if isinstance(op, ToolUse) else Stop("blocked: no"))
        op.run.progress.stopping = None
        op.result_rules.prevent(Stop("enough"))
        assert op.run.stopping == Stop("stop requested: enough")
        op.run.progress.stopping = None


def test_a_result_in_place_of_another_has_changed() -> None:
    run, step, model_call, use = _operations()
    pairs: list[tuple[Any, Any, Any]] = [
        (run, Result("a"), Result("a")),
        (step, Stop("a"), Stop("a")),
        (model_call, Message("assistant", "a"), Message("assistant", "b")),
        (use, ToolResult("a"), ToolResult("b")),
    ]
    for op, result, other in pairs:
        rules: ResultRules[Any] = op.result_rules
        op.result = rules.coerce(result)
        snapshot = rules.snapshot(op.result)
        assert not rules.has_changed(snapshot)
        op.result = other
        assert rules.has_changed(snapshot)


def test_a_tool_result_that_was_changed_in_place_has_changed() -> None:
    use = _operations()[3]
    use.result = use.result_rules.coerce(ToolResult("a", data={"rows": [1]}))
    snapshot = use.result_rules.snapshot(use.result)
    use.result.data["rows"].append(2)
    assert use.result_rules.has_changed(snapshot) and snapshot.copy is not None and snapshot.copy.data == {"rows": [1]}


def test_a_step_whose_result_is_set_to_a_stop_is_decided_and_has_no_error() -> None:
    step = _operations()[1]
    step.error, step.result = ValueError("x"), Stop("enough")
    assert step.result_rules.take_decision(None) == Stop("enough") and step.error is None
    step.result = Continue()
    assert step.result_rules.take_decision(step.result) is None


def test_a_withheld_result_is_an_error_except_that_of_a_run() -> None:
    for op in _operations():
        op.result = kept = Result("kept") if isinstance(op, Run) else None  # type: ignore[assignment]
        op.result_rules.withhold("the hook failed")
        if isinstance(op, Run):
            assert op.result is kept and op.error is None
        elif isinstance(op, ToolUse):
            assert (op.result.error, op.error) == ("the result was withheld: the hook failed", None)
        else:
            assert op.result is None and isinstance(op.error, HookError)


# tools that crash


@tool
def divide(number: float) -> float:
    """Divide by zero."""
    return number / 0


def _crashing(count: int) -> Scripted:
    return Scripted(
        *(tool_calls_reply(tool_call("divide", f"c{number}", number=number)) for number in range(count)), "bye"
    )


async def test_a_result_has_the_exceptions_of_tools_with_their_tracebacks() -> None:
    result = await Agent(_crashing(1), tools=[divide]).run("go")
    (crash,) = result.crashes
    text = "".join(traceback.format_exception(crash))
    assert "return number / 0" in text and "ZeroDivisionError" in text
    assert result.messages[-2].text == "divide: ZeroDivisionError: float division by zero"  # the text for the model
    assert "crashes" not in repr(result) and result.outcome == "completed"


async def test_a_result_has_the_last_exceptions_only() -> None:
    result = await Agent(_crashing(CRASHES_KEPT + 2), tools=[divide]).run("go")
    assert len(result.crashes) == CRASHES_KEPT and len({id(crash) for crash in result.crashes}) == CRASHES_KEPT


async def test_a_tool_that_only_fails_has_not_crashed() -> None:
    result = await echo_agent().run("go")
    assert result.crashes == ()


async def test_a_hook_that_answers_for_a_run_keeps_its_exceptions() -> None:
    @wrap(Run)
    async def answer(run: Run, next: Next[Result]) -> str:
        await next(run)
        return "instead"

    result = await Agent(_crashing(1), tools=[divide], hooks=[answer]).run("go")
    assert result.text == "instead" and [type(crash) for crash in result.crashes] == [ZeroDivisionError]


async def test_an_after_hook_finds_the_exception_also_if_an_inner_one_failed() -> None:
    seen: list[object] = []

    @after(ToolUse)
    def look(use: ToolUse) -> None:
        seen.append(use.exception)

    @after(ToolUse, on_error="log")
    def fail(use: ToolUse) -> None:
        raise ValueError("cannot look")

    result = await Agent(_crashing(1), tools=[divide], hooks=[look, fail]).run("go")
    assert seen == [*result.crashes] and isinstance(seen[0], ZeroDivisionError)


async def test_exceptions_without_tracebacks_keep_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("wick.run_log"), "disabled", True)  # a log record has the traceback, too
    states: list[weakref.ref[Any]] = []

    @before(Run)
    def look(run: Run) -> None:
        states.append(weakref.ref(run.state))

    gc.collect()
    gc.disable()
    try:
        result = await Agent(_crashing(2), tools=[divide], hooks=[look]).run("go")
        assert states[0]() is not None  # error → traceback → frame → run
        clear_tracebacks(*result.crashes)
        for _ in range(200):  # the worker thread of the tool may hold the error for a moment
            if states[0]() is None:
                break
            await asyncio.sleep(0.01)
        assert states[0]() is None
    finally:
        gc.enable()
