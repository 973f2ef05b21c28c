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

from collections.abc import Callable, Sequence
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
    told = {
        "event": point,
        "run": run.id,
        "thread": run.thread.id,
        "agent": run.agent,
        "user": run.user,
        "cwd": cwd,
        "invoked_by": "main" if run.parent is None else "subagent",
        **({"phase": phase} if phase else {}),
        **_ABOUT[type(op)](op),
    }
    if op.error is not None:
        told["error"] = str(op.error) or type(op.error).__name__
    elif op.result is not None:
        told["result"] = _RESULT[type(op)](op.result)
    return told


def format_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as role and content."""
    return [{"role": message.role, "content": message.text} for message in messages]


def _describe_run(run: Run) -> dict[str, Any]:
    return {"input": format_messages(run.input), "system": run.system}


def _describe_step(step: Step) -> dict[str, Any]:
    return {"number": step.number, "pending": [_format_call(call.id, call.name, call.args) for call in step.pending]}


def _describe_model_call(call: ModelCall) -> dict[str, Any]:
    return {
        "model": call.model.name,
        "purpose": call.purpose,
        "system": call.system,
        "messages": format_messages(call.messages),
        "tools": [tool.name for tool in call.tools],
    }


def _describe_tool_use(use: ToolUse) -> dict[str, Any]:
    name = use.tool.name if use.tool is not None else use.call.name
    told = {"tool": name, "names": sorted(use.names), "kind": use.kind}
    return {**told, "call_id": use.call.id, "args": thaw(use.args)}


def _format_call(id: str, name: str, args: Any) -> dict[str, Any]:
    return {"call_id": id, "tool": name, "args": thaw(args)}


_ABOUT: dict[type, Callable[[Any], dict[str, Any]]] = {
    Run: _describe_run,
    Step: _describe_step,
    ModelCall: _describe_model_call,
    ToolUse: _describe_tool_use,
}


def _format_run_result(result: Result) -> dict[str, Any]:
    return {"text": result.text, "outcome": result.outcome, "reason": result.reason}


def _format_step_result(result: Stop | Continue) -> dict[str, Any]:
    if isinstance(result, Stop):
        return {"decision": "stop", "reason": result.reason}
    return {"decision": "continue", "message": result.message}


def _format_reply(reply: Message) -> dict[str, Any]:
    return {
        "text": reply.text,
        "tool_calls": [_format_call(call.id, call.name, call.args) for call in reply.tool_calls],
    }


def _format_tool_result(result: ToolResult) -> dict[str, Any]:
    return {"output": result.output, "error": result.error, "data": thaw(result.data)}


_RESULT: dict[type, Callable[[Any], dict[str, Any]]] = {
    Run: _format_run_result,
    Step: _format_step_result,
    ModelCall: _format_reply,
    ToolUse: _format_tool_result,
}


# -- answers -------------------------------------------------------------------------------------------------------


def apply_answer(answer: dict[str, Any], point: str, op: Operation[Any]) -> Decision | None:
    """Apply the changes of an answer and return its decision; raise `InvalidAnswer` if this point forbids it."""
    check_fields(answer, _FIELDS, point)
    given = {name: value for name, value in answer.items() if value is not None}
    decision = _parse_decision(given, point)
    for name in ("args", "result", "input", "system"):
        if name in given and name not in _CHANGES.get(point, ()):
            raise InvalidAnswer(f"answered with the field {name!r}, which cannot be changed at {point}")
    if isinstance(decision, Block | Stop):
        return decision
    for name in _CHANGES.get(point, ()):
        if name in given:
            _CHANGE[name](op, given[name])
    return decision


def _parse_decision(given: dict[str, Any], point: str) -> Decision | None:
    word = given.get("decision", "")
    if word in ("", "allow", "pass"):
        return None
    if word not in _DECISIONS:
        raise InvalidAnswer(f"answered with the decision {word[:40]!r}; the decisions are {', '.join(_DECISIONS)}")
    kind, text = _DECISIONS[word]
    position, _, operation = point.partition("_")
    if kind not in allowed_decisions(position, operation):  # type: ignore[arg-type]
        raise InvalidAnswer(f"answered with the decision {word!r}, which is not possible at {point}")
    said = given.get(text) or given.get("reason") or ""
    return kind(said or _UNSAID[word])  # type: ignore[no-any-return]


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


def _replace_result(op: Operation[Any], result: Any) -> None:
    if isinstance(op, ToolUse):
        op.result = parse_tool_result(result)
    elif isinstance(result, str):
        op.result = op.coerce_result(result)
    else:
        raise InvalidAnswer("answered with a JSON object in 'result', which is a text here")


def parse_tool_result(given: str | dict[str, Any]) -> ToolResult:
    """Parse a tool result from a text or from {"output"?, "error"?, "data"?}."""
    if isinstance(given, str):
        return ToolResult(given)
    check_fields(given, {"output": str, "error": str, "data": (dict, list, str, int, float, bool)}, "a result")
    return ToolResult(given.get("output") or "", given.get("error") or "", given.get("data"))


def _replace_input(op: Operation[Any], text: str) -> None:
    """Replace all user messages of the input by one text."""
    assert isinstance(op, Run)
    others = [message for message in op.input if message.role != "user"]
    op.input = [*others, user(text)]


def _replace_system(op: Operation[Any], text: str) -> None:
    assert isinstance(op, Run | ModelCall)
    op.system = text


_CHANGE: dict[str, Callable[[Any, Any], None]] = {
    "args": replace_args,
    "result": _replace_result,
    "input": _replace_input,
    "system": _replace_system,
}
