"""wick's own points as JSON: input of each operation, and allowed answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import echo, tool_call
from wick import (
    Ask,
    Block,
    Continue,
    FunctionModel,
    Message,
    ModelCall,
    Run,
    Step,
    Stop,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from wick._internal.aliases import POINT_NAMES
from wick.hook_programs.answers import InvalidAnswer, parse_answer, read_answer
from wick.hook_programs.runner import ProgramResult
from wick.hook_programs.wick_protocol import apply_answer, build_payload, parse_tool_result
from wick.operations import Operation, Result


def make_operation(point: str) -> Operation[Any]:
    run = Run(agent="helper", user="ada", input=[user("hello")], system="Be kind.")
    operations: dict[str, Operation[Any]] = {
        "run": run,
        "step": Step(run, 3, (tool_call("echo"),)),
        "model_call": ModelCall(run, FunctionModel(lambda request: "hi"), "Be kind.", [user("hello")], [echo], {}),
        "tool_use": ToolUse(run, tool_call("echo"), echo, {"text": "hi", "times": 1}),
    }
    return operations[point.partition("_")[2]]


RESULTS: dict[str, Any] = {
    "run": Result("hi"),
    "step": Stop("completed"),
    "model_call": assistant("hi", tool_call("echo")),
    "tool_use": ToolResult("hihi", data={"n": 1}),
}


@pytest.mark.parametrize("point", POINT_NAMES)
def test_every_point_is_sent_as_json(point: str) -> None:
    op = make_operation(point)
    told = build_payload(op, point, cwd="/srv/app")
    assert json.loads(json.dumps(told)) == told
    about = {"event": point, "run": op.run.id, "thread": op.run.thread.id, "agent": "helper", "user": "ada"}
    assert about.items() <= told.items() and (told["cwd"], told["invoked_by"]) == ("/srv/app", "main")
    assert "result" not in told and "error" not in told
    op.result = RESULTS[op.operation_name]
    assert (
        json.loads(json.dumps(build_payload(op, point, phase="after")))["result"] and build_payload(op, point)["result"]
    )


def test_each_operation_has_its_fields() -> None:
    assert build_payload(make_operation("before_run"), "before_run")["input"] == [{"role": "user", "content": "hello"}]
    step = build_payload(make_operation("before_step"), "before_step")
    assert (step["number"], step["pending"]) == (3, [{"call_id": "c1", "tool": "echo", "args": {"text": "hi"}}])
    asked = build_payload(make_operation("before_model_call"), "before_model_call")
    assert (asked["system"], asked["tools"], asked["purpose"]) == ("Be kind.", ["echo"], "")
    use = build_payload(make_operation("before_tool_use"), "before_tool_use")
    assert (use["tool"], use["args"], use["call_id"], use["kind"]) == ("echo", {"text": "hi", "times": 1}, "c1", "")


def test_children_and_errors_are_marked() -> None:
    run = Run(parent=Run())
    run.error = ValueError("lost")
    told = build_payload(run, "after_run")
    assert (told["invoked_by"], told["error"]) == ("subagent", "lost")
    run.error = ValueError()
    assert build_payload(run, "after_run")["error"] == "ValueError"


def test_an_unknown_tool_has_its_called_name() -> None:
    use = ToolUse(Run(), tool_call("nobody"), None, {"text": "hi"})
    assert build_payload(use, "after_tool_use")["tool"] == "nobody"


@pytest.mark.parametrize(
    ("point", "answer", "decision"),
    [
        ("guard_tool_use", {"decision": "block", "reason": "no"}, Block("no")),
        ("guard_tool_use", {"decision": "block"}, Block("a hook program refused it and gave no reason")),
        ("before_run", {"decision": "ask", "question": "May I?"}, Ask("May I?")),
        ("before_run", {"decision": "ask", "reason": "May I?"}, Ask("May I?")),
        ("after_step", {"decision": "stop", "reason": "enough"}, Stop("enough")),
        ("after_step", {"decision": "continue", "message": "go on"}, Continue("go on")),
        ("after_step", {"decision": "continue"}, Continue("")),
        ("before_step", {"decision": "allow", "reason": "fine"}, None),
        ("before_step", {"decision": None}, None),
        ("before_step", {}, None),
    ],
)
def test_a_decision_is_read(point: str, answer: dict[str, Any], decision: Any) -> None:
    assert apply_answer(answer, point, make_operation(point)) == decision


@pytest.mark.parametrize(
    ("point", "answer", "problem"),
    [
        ("before_run", {"colour": 1}, "answered with the field 'colour', which before_run does not have"),
        ("before_run", {"decision": 1}, "answered with a JSON number in 'decision', which is a text"),
        ("before_run", {"decision": True}, "answered with a JSON true or false in 'decision'"),
        ("before_run", {"decision": "perhaps"}, "answered with the decision 'perhaps'"),
        ("before_run", {"decision": "continue"}, "'continue', which is not possible at before_run"),
        ("after_run", {"decision": "stop"}, "'stop', which is not possible at after_run"),
        ("after_tool_use", {"decision": "ask"}, "'ask', which is not possible at after_tool_use"),
        ("guard_tool_use", {"args": {}}, "'args', which cannot be changed at guard_tool_use"),
        ("guard_run", {"input": "x"}, "'input', which cannot be changed at guard_run"),
        ("before_tool_use", {"result": "x"}, "'result', which cannot be changed at before_tool_use"),
        ("after_step", {"result": "x"}, "'result', which cannot be changed at after_step"),
        ("before_tool_use", {"args": []}, "answered with a JSON list in 'args', which is an object"),
        ("after_run", {"result": {}}, "answered with a JSON object in 'result', which is a text here"),
        ("after_tool_use", {"result": {"outputs": "x"}}, "answered with the field 'outputs'"),
    ],
)
def test_a_field_not_allowed_at_a_point_is_a_failure(point: str, answer: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        apply_answer(answer, point, make_operation(point))
    assert problem in str(caught.value)


def test_changes_are_made() -> None:
    run = make_operation("before_run")
    assert isinstance(run, Run)
    apply_answer({"input": "bye", "system": "Be brief."}, "before_run", run)
    assert ([message.text for message in run.input], run.system) == (["bye"], "Be brief.")
    call = make_operation("before_model_call")
    assert isinstance(call, ModelCall)
    apply_answer({"system": "Be brief."}, "before_model_call", call)
    assert call.system == "Be brief."
    use = make_operation("before_tool_use")
    assert isinstance(use, ToolUse)
    apply_answer({"args": {"text": "ho"}}, "before_tool_use", use)
    assert use.args == {"text": "ho", "times": 1}
    apply_answer({"result": "hoho"}, "after_tool_use", use)
    assert use.result == ToolResult("hoho")
    apply_answer({"result": {"error": "bad"}}, "after_tool_use", use)
    assert use.result == ToolResult(error="bad")
    reply = make_operation("after_model_call")
    apply_answer({"result": "bye"}, "after_model_call", reply)
    assert reply.result == Message("assistant", "bye")


def test_a_denial_changes_nothing() -> None:
    use = make_operation("before_tool_use")
    assert isinstance(use, ToolUse)
    assert apply_answer({"decision": "block", "args": {"text": "ho"}}, "before_tool_use", use) is not None
    assert use.args == {"text": "hi", "times": 1}


def test_a_result_is_a_text_or_its_parts() -> None:
    assert parse_tool_result("x") == ToolResult("x") == parse_tool_result({"output": "x"})
    assert parse_tool_result({"output": "x", "data": [1], "error": None}) == ToolResult("x", data=[1])


@pytest.mark.parametrize(
    ("printed", "problem"),
    [
        (b"[1]", "a JSON list"),
        (b'"x"', "a JSON text"),
        (b"null", "a JSON null"),
        (b"true", "a JSON true or false"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1, "a": 2}', "'a' is there twice"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"a":' + b"[" * 150 + b"]" * 150 + b"}", "nested more than 100 levels deep"),
        (b"{} {}", "answered twice"),
        (b"\xff", "not UTF-8"),
        (b"{", "not JSON: '{'"),
    ],
)
def test_output_is_one_json_object(printed: bytes, problem: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        parse_answer(printed)
    assert problem in str(caught.value)


def test_nothing_is_an_empty_answer_and_an_exit_code_is_a_failure() -> None:
    assert parse_answer(b"") == parse_answer(b" \n") == {} and parse_answer(b' {"a": [1.5]}\n') == {"a": [1.5]}
    assert read_answer(ProgramResult(stdout=b"{}")) == {}
    for ran, problem in (
        (ProgramResult(problem="hangs"), "hangs"),
        (ProgramResult(3), "ended with exit code 3"),
        (ProgramResult(3, stderr="a\nb"), "a b"),
    ):
        with pytest.raises(InvalidAnswer, match=problem):
            read_answer(ran)
