"""kodelet's five events: what a program is told of each, and what its answers mean.

    before_tool_call    {"blocked": bool, "reason"?, "input"?}
    after_tool_call     {"output"?}
    user_message_send   {"blocked": bool, "reason"?}
    agent_stop          {"follow_up_messages"?: [text]}
    turn_end            {}

A field that is not in this table is ignored, as kodelet does; one of another type is the program's failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from wick._internal.aliases import POINTS
from wick._internal.frozen import thaw
from wick.decisions import Block, Continue, Decision, Stop
from wick.hook_programs.answers import Unfit, only
from wick.hook_programs.tool_fields import KODELET, KODELET_VALUES, convert, restore, translate
from wick.hook_programs.wick_protocol import spoken, take_args
from wick.messages import Message, ToolResult
from wick.operations import Operation, Run, Step, ToolUse

Json = dict[str, Any]

EVENTS = ("before_tool_call", "after_tool_call", "user_message_send", "agent_stop", "turn_end")
RECIPE = "recipe"  # where a run says which recipe it was started with: run.scratch[RECIPE]

TOOLS = {
    "execute": "bash",
    "read_file": "file_read",
    "write_file": "file_write",
    "edit_file": "file_edit",
    "grep": "grep_tool",
    "glob": "glob_tool",
    "task": "subagent",
    "write_todos": "todo_write",
}
_UNSAID = "a hook program refused it and gave no reason"


class Event:
    """One of kodelet's events."""

    def __init__(self, event: str) -> None:
        self.event, self.point = event, POINTS[event]

    def concerns(self, op: Operation[Any]) -> bool:
        return _CONCERNS[self.event](op)

    def tell(self, op: Operation[Any], cwd: str, phase: str = "") -> Json:
        return {**self._common(op.run, cwd), **_TELL[self.event](op)}

    def tell_message(self, run: Run, message: Message, cwd: str) -> Json:
        return {**self._common(run, cwd), "message": message.text}

    def _common(self, run: Run, cwd: str) -> Json:
        recipe = run.root.scratch.get(RECIPE)
        by = "main" if run.parent is None else "subagent"
        told = {"event": self.event, "conv_id": run.thread.id, "cwd": cwd, "invoked_by": by}
        return {**told, "recipe_name": str(recipe)} if recipe else told

    def hear(self, answer: Json, op: Operation[Any]) -> Decision | None:
        fields = _FIELDS[self.event]
        known = {name: value for name, value in answer.items() if name in fields and value is not None}
        only(known, fields, self.event)
        return _HEAR[self.event](known, op)


# -- which operations are events ------------------------------------------------------------------------------------


def _is_prompt(run: Run) -> bool:
    return any(map(_by_user, run.input))


def _by_user(message: Message) -> bool:
    return message.role == "user"


def _answered(step: Step) -> Message | None:
    """The assistant's text, if the step has ended with one and without tool calls."""
    thread = step.run.thread
    if step.error is not None or not thread.messages or thread.steps < step.number:
        return None
    last = thread.messages[-1]
    return last if last.role == "assistant" and last.text and not last.tool_calls else None


def _stops(step: Step) -> bool:
    """The agent stops, though a program before this one may have sent it back already."""
    return step.error is None and (isinstance(step.result, Stop) or _answered(step) is not None)


_CONCERNS: dict[str, Callable[[Any], bool]] = {
    "before_tool_call": lambda use: True,
    "after_tool_call": lambda use: True,
    "user_message_send": _is_prompt,
    "agent_stop": _stops,
    "turn_end": lambda step: _answered(step) is not None,
}


# -- what a program is told -----------------------------------------------------------------------------------------


def _about_call(use: ToolUse) -> Json:
    known = _known(use)
    name = TOOLS.get(known, use.tool.name if use.tool else use.call.name)
    return {"tool_name": name, "tool_input": _spelled(use, known), "tool_user_id": use.call.id}


def _known(use: ToolUse) -> str:
    """wick's own name of the tool, where kodelet has one for it, whatever it was renamed to."""
    return next((name for name in TOOLS if name in use.names), "")


def _spelled(use: ToolUse, known: str) -> Json:
    """Return the arguments by kodelet's names."""
    return translate(known, convert(known, thaw(use.args), KODELET_VALUES), KODELET, _properties(use))


def _properties(use: ToolUse) -> Mapping[str, Any]:
    """Return the properties of the schema of the tool, which may be another one of the same name."""
    properties: Mapping[str, Any] = use.tool.parameters.get("properties", {}) if use.tool else {}
    return properties


def _about_result(use: ToolUse) -> Json:
    told = _about_call(use)
    result = _outcome(use)
    output: Json = {"toolName": told["tool_name"], "success": not result.error}
    if result.error:
        output["error"] = result.error
    output["metadata"] = {"output": result.output}
    return {**told, "tool_output": {**output, "timestamp": datetime.now(UTC).isoformat()}}


def _outcome(use: ToolUse) -> ToolResult:
    """What a tool came to; an error is a result here, too."""
    return use.result if use.error is None else ToolResult(error=str(use.error) or type(use.error).__name__)


def _about_prompt(run: Run) -> Json:
    return {"message": "\n\n".join(message.text for message in run.input if _by_user(message))}


def _about_stop(step: Step) -> Json:
    said = [message for message in step.run.thread.messages if message.role in ("user", "assistant") and message.text]
    return {"messages": spoken(said)}


def _about_turn(step: Step) -> Json:
    messages = step.run.thread.messages
    answers = [m for m in messages if m.role == "assistant" and m.text and not m.tool_calls]
    return {"response": answers[-1].text, "turn_number": len(answers)}


_TELL: dict[str, Callable[[Any], Json]] = {
    "before_tool_call": _about_call,
    "after_tool_call": _about_result,
    "user_message_send": _about_prompt,
    "agent_stop": _about_stop,
    "turn_end": _about_turn,
}


# -- what it answers ------------------------------------------------------------------------------------------------

_FIELDS: dict[str, Mapping[str, Any]] = {
    "before_tool_call": {"blocked": bool, "reason": str, "input": dict},
    "after_tool_call": {"output": dict},
    "user_message_send": {"blocked": bool, "reason": str},
    "agent_stop": {"follow_up_messages": list},
    "turn_end": {},
}
_OUTPUT = {"toolName": str, "success": bool, "error": str, "metadata": dict, "metadataType": str, "timestamp": str}


def _hear_call(answer: Json, use: ToolUse) -> Decision | None:
    if answer.get("blocked"):
        return Block(answer.get("reason") or _UNSAID)
    if "input" in answer:
        take_args(use, _renamed(use, answer["input"]))
    return None


def _renamed(use: ToolUse, given: Json) -> Json:
    """Return the arguments by wick's names."""
    known = _known(use)
    return convert(known, restore(known, given, KODELET, _properties(use)), KODELET_VALUES, back=True)


def _hear_result(answer: Json, use: ToolUse) -> None:
    if "output" not in answer:
        return
    only(answer["output"], _OUTPUT, "a tool's output")
    given = {name: value for name, value in answer["output"].items() if value is not None}
    before = _outcome(use)
    text = given.get("metadata", {}).get("output", before.output)
    if not isinstance(text, str):
        raise Unfit("answered with an 'output' in the metadata that is no text")
    failed = not given.get("success", not given.get("error"))
    error = (given.get("error") or before.error or "the tool failed") if failed else ""
    if (text, error) != (before.output, before.error):
        use.result = ToolResult(text, error)


def _hear_prompt(answer: Json, run: Run) -> Decision | None:
    return Block(answer.get("reason") or _UNSAID) if answer.get("blocked") else None


def _hear_stop(answer: Json, step: Step) -> Decision | None:
    messages = answer.get("follow_up_messages", [])
    if not all(isinstance(message, str) for message in messages):
        raise Unfit("answered with 'follow_up_messages' that are not all texts")
    said = [message for message in messages if message.strip()]
    return Continue("\n\n".join(said)) if said else None


_HEAR: dict[str, Callable[[Json, Any], Decision | None]] = {
    "before_tool_call": _hear_call,
    "after_tool_call": _hear_result,
    "user_message_send": _hear_prompt,
    "agent_stop": _hear_stop,
    "turn_end": lambda answer, step: None,
}
