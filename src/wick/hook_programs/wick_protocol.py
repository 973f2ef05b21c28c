"""wick's own points as JSON, for programs of any protocol.

    build_payload(op, "before_tool_use")            the JSON for the program
    apply_answer(answer, "before_tool_use", op)     its decision, after applying its changes to the operation

An answer is an object, or nothing:

    {"decision": "block", "reason": "…"}       do not do it
    {"decision": "ask", "question": "…"}       do it if the user agrees
    {"decision": "stop", "reason": "…"}        end the run
    {"decision": "continue", "message": "…"}   take another step; at after_step
    {"args": {…}}                              use these arguments; at before_tool_use
    {"result": …}                              take this for the result; at after_… and wrap_…
    {"input": "…"} and {"system": "…"}         at before_run; "system" at before_model_call too
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from wick._internal.frozen import thaw
from wick.decisions import Ask, Block, Continue, Decision, Stop
from wick.errors import InvalidArgs
from wick.hook_checks import allowed_decisions
from wick.hook_programs.answers import InvalidAnswer, check_fields
from wick.messages import Message, ToolResult, user
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse

_FIELDS = {
    "decision": str,
    "reason": str,
    "question": str,
    "message": str,
    "args": dict,
    "result": (str, dict),
    "input": str,
    "system": str,
}
_CHANGES = {
    "before_run": ("input", "system"),
    "before_model_call": ("system",),
    "before_tool_use": ("args",),
    "wrap_run": ("input", "system", "result"),
    "wrap_model_call": ("system", "result"),
    "wrap_tool_use": ("args", "result"),
    "after_run": ("result",),
    "after_model_call": ("result",),
    "after_tool_use": ("result",),
}


# -- payloads -------------------------------------------------------------------------------------------------------


def build_payload(op: Operation[Any], point: str, *, cwd: str = "", phase: str = "") -> dict[str, Any]:
    """Return an operation as JSON, with its result if any. `phase` is "before" or "after" for wraps."""
    run = op.run
    payload = {
        "event": point,
        "run": run.id,
        "thread": run.thread.id,
        "agent": run.agent,
        "user": run.user,
        "cwd": cwd,
        "invoked_by": "main" if run.parent is None else "subagent",
        **({"phase": phase} if phase else {}),
        **_describe_operation(op),
    }
    if op.error is not None:
        payload["error"] = str(op.error) or type(op.error).__name__
    elif op.result is not None:
        payload["result"] = _describe_result(op.result)
    return payload


def format_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as role and content."""
    return [{"role": message.role, "content": message.text} for message in messages]


def _describe_operation(op: Operation[Any]) -> dict[str, Any]:
    """Return the fields of an operation that depend on its type."""
    match op:
        case Run():
            return {"input": format_messages(op.input), "system": op.system}
        case Step():
            pending = [_format_call(call.id, call.name, call.args) for call in op.pending]
            return {"number": op.number, "pending": pending}
        case ModelCall():
            return {
                "model": op.model.name,
                "purpose": op.purpose,
                "system": op.system,
                "messages": format_messages(op.messages),
                "tools": [tool.name for tool in op.tools],
            }
        case ToolUse():
            name = op.tool.name if op.tool is not None else op.call.name
            fields = {"tool": name, "names": sorted(op.names), "kind": op.kind}
            return {**fields, "call_id": op.call.id, "args": thaw(op.args)}
    raise TypeError(f"{type(op).__name__} is not an operation of a run")


def _format_call(id: str, name: str, args: Any) -> dict[str, Any]:
    return {"call_id": id, "tool": name, "args": thaw(args)}


def _describe_result(result: Any) -> dict[str, Any]:
    """Return the fields of a result, whose type depends on the operation."""
    match result:
        case Result():
            return {"text": result.text, "outcome": result.outcome, "reason": result.reason}
        case Stop():
            return {"decision": "stop", "reason": result.reason}
        case Continue():
            return {"decision": "continue", "message": result.message}
        case Message():
            calls = [_format_call(call.id, call.name, call.args) for call in result.tool_calls]
            return {"text": result.text, "tool_calls": calls}
        case ToolResult():
            return {"output": result.output, "error": result.error, "data": thaw(result.data)}
    raise TypeError(f"{type(result).__name__} is not the result of an operation")


# -- answers -------------------------------------------------------------------------------------------------------


def apply_answer(answer: dict[str, Any], point: str, op: Operation[Any]) -> Decision | None:
    """Apply the changes of an answer and return its decision; raise `InvalidAnswer` if this point forbids it."""
    check_fields(answer, _FIELDS, point)
    given = {name: value for name, value in answer.items() if value is not None}
    decision: Decision | None = None
    word = given.get("decision", "")
    if word not in ("", "allow", "pass"):
        if word not in _DECISIONS:
            raise InvalidAnswer(f"answered with the decision {word[:40]!r}; the decisions are {', '.join(_DECISIONS)}")
        kind, text = _DECISIONS[word]
        position, _, operation = point.partition("_")
        if kind not in allowed_decisions(position, operation):  # type: ignore[arg-type]
            raise InvalidAnswer(f"answered with the decision {word!r}, which is not possible at {point}")
        decision = kind(given.get(text) or given.get("reason") or _UNSAID[word])
    for name in ("args", "result", "input", "system"):
        if name in given and name not in _CHANGES.get(point, ()):
            raise InvalidAnswer(f"answered with the field {name!r}, which cannot be changed at {point}")
    if isinstance(decision, Block | Stop):
        return decision
    for name in _CHANGES.get(point, ()):
        if name in given:
            _replace_field(op, name, given[name])
    return decision


_DECISIONS: dict[str, tuple[Any, str]] = {
    "block": (Block, "reason"),
    "ask": (Ask, "question"),
    "stop": (Stop, "reason"),
    "continue": (Continue, "message"),
}
_UNSAID = {
    "block": "a hook program refused it and gave no reason",
    "ask": "A hook program wants your agreement.",
    "stop": "",
    "continue": "",
}


def replace_args(use: ToolUse, args: dict[str, Any]) -> None:
    """Replace the arguments of a call. Invalid arguments are refused when the call is sealed."""
    use.args = args
    with suppress(InvalidArgs):
        use.validate()


def _replace_field(op: Operation[Any], name: str, value: Any) -> None:
    """Replace a field of an operation, as `_CHANGES` permits it at this point."""
    if name == "args":
        assert isinstance(op, ToolUse)
        replace_args(op, value)
    elif name == "system":
        assert isinstance(op, Run | ModelCall)
        op.system = value
    elif name == "input":  # one text in place of all user messages
        assert isinstance(op, Run)
        op.input = [*(message for message in op.input if message.role != "user"), user(value)]
    elif isinstance(op, ToolUse):
        op.result = parse_tool_result(value)
    elif isinstance(value, str):
        op.result = op.result_rules.coerce(value)
    else:
        raise InvalidAnswer("answered with a JSON object in 'result', which is a text here")


def parse_tool_result(given: str | dict[str, Any]) -> ToolResult:
    """Parse a tool result from a text or from {"output"?, "error"?, "data"?}."""
    if isinstance(given, str):
        return ToolResult(given)
    check_fields(given, {"output": str, "error": str, "data": (dict, list, str, int, float, bool)}, "a result")
    return ToolResult(given.get("output") or "", given.get("error") or "", given.get("data"))
