"""Any output of a program is parsed, or is a failure with a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import execute, tool_call
from wick import Run, Step, ToolUse, user
from wick.decisions import Block, Stop
from wick.hook_programs import kodelet, wick_protocol
from wick.hook_programs.answers import InvalidAnswer, encode_payload, parse_answer
from wick.hook_programs.claude.answers import HandlerResult, combine_answers
from wick.hook_programs.claude.handlers import interpret_result
from wick.hook_programs.claude.settings import HookHandler
from wick.hook_programs.runner import ProgramResult

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


def a_use() -> ToolUse:
    use = ToolUse(Run(), tool_call("execute", command="ls"), execute, {"command": "ls"})
    use.validate()
    return use


# -- a program that is not understood has failed, in every field ---------------------------------------------------

KODELET = {
    "before_tool_call": {"blocked": bool, "reason": str, "input": dict},
    "after_tool_call": {"output": dict},
    "user_message_send": {"blocked": bool, "reason": str},
    "agent_stop": {"follow_up_messages": list},
}
POINTS = {
    "before_tool_use": {"decision": str, "reason": str, "question": str, "args": dict},
    "guard_tool_use": {"decision": str, "reason": str, "question": str},
    "after_tool_use": {"result": (str, dict)},
    "before_run": {"decision": str, "input": str, "system": str},
    "after_step": {"decision": str, "message": str},
}
CLAUDE = {
    "continue": bool, "stopReason": str, "suppressOutput": bool, "systemMessage": str, "decision": str, "reason": str,
    "hookSpecificOutput": dict,
}  # fmt: skip
SPECIFIC = {
    "hookEventName": str, "permissionDecision": str, "permissionDecisionReason": str, "updatedInput": dict,
    "additionalContext": str, "initialUserMessage": str, "decision": dict,
}  # fmt: skip


def an_operation(event: str) -> Any:
    if "step" in event or event == "agent_stop":
        return Step(Run(), 1)
    if "run" in event or event == "user_message_send":
        return Run(input=[user("hello")])
    use = a_use()
    use.result = use.result_rules.coerce("ran ls")
    return use


def fits(value: Any, kinds: Any) -> bool:
    return value is None or type(value) in (kinds if isinstance(kinds, tuple) else (kinds,))


@given(st.sampled_from([(event, field) for event in KODELET for field in KODELET[event]]), VALUES)
def test_a_wrong_type_in_a_field_of_one_program_per_hook(place: tuple[str, str], value: Any) -> None:
    event, field = place
    try:
        kodelet.KodeletEvent(event).apply_answer(parse_answer(encode_payload({field: value})), an_operation(event))
    except InvalidAnswer:
        return
    assert fits(value, KODELET[event][field])


@given(st.sampled_from([(event, field) for event in POINTS for field in POINTS[event]]), VALUES)
def test_a_wrong_type_in_a_field_of_a_point(place: tuple[str, str], value: Any) -> None:
    event, field = place
    try:
        wick_protocol.apply_answer(parse_answer(encode_payload({field: value})), event, an_operation(event))
    except InvalidAnswer:
        return
    assert fits(value, POINTS[event][field])


@given(
    st.sampled_from(["PreToolUse", "PostToolUse"]),
    st.sampled_from([*CLAUDE, *(f"hookSpecificOutput.{name}" for name in SPECIFIC)]),
    VALUES,
)
def test_a_wrong_type_in_a_field_of_settings(event: str, field: str, value: Any) -> None:
    above, _, name = field.rpartition(".")
    told = {above: {"hookEventName": event, name: value}} if above else {name: value}
    said = interpret_result(HookHandler(event, command="check"), ProgramResult(stdout=encode_payload(told)))
    wanted = (SPECIFIC if above else CLAUDE)[name]
    assert said.problem or fits(value, wanted)


@given(st.binary(max_size=60))
def test_any_bytes_are_understood_or_a_failure(printed: bytes) -> None:
    for event in ("PreToolUse", "UserPromptSubmit", "Stop"):
        said = interpret_result(HookHandler(event, command="check"), ProgramResult(stdout=printed))
        assert isinstance(said, HandlerResult)
    try:
        assert isinstance(parse_answer(printed), dict)
    except InvalidAnswer as problem:
        assert str(problem).startswith("answered ")


# -- exit codes with output -----------------------------------------------------------------------------------------

DENY = '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}'
ALLOW = DENY.replace("deny", "allow")
AGREES = {"nothing": "", "a text": "looks good", "an object": "{}", "an allow": ALLOW, "blanks": "\r\n {}\r\n"}
REFUSES = {
    "a deny": DENY,
    "a deny after a mark": f"\ufeff{DENY}",
    "a deny with other line ends": f"\r\n{DENY}\r\n",
    "a deny below a text": f"checking\n{DENY}",
    "a deny between texts": f"checking\n  {DENY}\ndone",
    "two answers": f"{ALLOW}\n{DENY}",
    "an answer and more": f"{ALLOW} and more",
    "half an answer": DENY[:40],
    "another type": '{"continue": "no"}',
    "an unknown decision": DENY.replace("deny", "no"),
    "no UTF-8": b"\xff\xfe{",
    "half of UTF-16": DENY.encode("utf-16-le"),
    "zeros": b"ok\0\0",
    "a number without an end": '{"a": NaN}',
    "nested without an end": '{"a":' + "[" * 100_000,
}
SIGNALS = (129, 137, 139, 143)


def decision(printed: str | bytes, code: int, event: str = "PreToolUse", **options: Any) -> Any:
    stdout = printed if isinstance(printed, bytes) else printed.encode()
    said = interpret_result(HookHandler(event, command="check", **options), ProgramResult(code, stdout, "why"))
    return combine_answers(Run(), [said], "?").decision


@pytest.mark.parametrize("printed", [*AGREES, *REFUSES])
def test_only_0_with_something_that_agrees_is_agreement(printed: str) -> None:
    text = (AGREES | REFUSES)[printed]
    assert (decision(text, 0) is None) == (printed in AGREES)
    for code in (1, 2, 3, 126, 127, 255, *SIGNALS):
        assert isinstance(decision(text, code), Block), code


@pytest.mark.parametrize("code", [0, 1, 126])
@pytest.mark.parametrize("printed", ["nothing", "half an answer", "no UTF-8", "a deny below a text"])
def test_fail_open_ignores_an_invalid_answer(printed: str, code: int) -> None:
    assert decision((AGREES | REFUSES)[printed], code, fail="open") is None


def test_fail_open_still_honours_a_denial() -> None:
    assert isinstance(decision(DENY, 0, fail="open"), Block) and isinstance(decision("", 2, fail="open"), Block)
    assert isinstance(decision('{"continue": false}', 1, fail="open"), Stop)


def test_objects_inside_text_are_not_answers() -> None:
    assert decision('the config is\n{"retries": 3}\nand that is fine', 0) is None
    assert decision('I would say {"decision": "block"} is too much', 0) is None


def test_input_is_formatted_for_shell_scripts() -> None:
    assert encode_payload({"tool_name": "bash", "tool_input": {"command": "größer"}}) == (
        '{"tool_name":"bash","tool_input":{"command":"größer"}}'.encode()
    )


def test_lone_surrogates_are_passed() -> None:
    assert json.loads(encode_payload({"command": "rm \ud800"})) == {"command": "rm \ud800"}
