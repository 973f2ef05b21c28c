"""kodelet's five events: their payloads and their answers.

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
from wick.hook_programs.answers import InvalidAnswer, check_fields
from wick.hook_programs.tool_fields import KODELET, KODELET_VALUES, convert, restore, translate
from wick.hook_programs.wick_protocol import format_messages, replace_args
from wick.messages import Message, ToolResult
from wick.operations import Operation, Run, Step, ToolUse

Json = dict[str, Any]

EVENTS = ("before_tool_call", "after_tool_call", "user_message_send", "agent_stop", "turn_end")
RECIPE = "recipe"  # key of run.scratch for the name of the recipe

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


class KodeletEvent:
    """One of kodelet's events."""

    def __init__(self, event: str) -> None:
        self.event, self.point = event, POINTS[event]

    def matches(self, op: Operation[Any]) -> bool:
        return _MATCHES[self.event](op)

    def build_payload(self, op: Any, cwd: str, phase: str = "") -> Json:
        fields = self._common_fields(op.run, cwd)
        messages = op.run.thread.messages
        if self.event == "user_message_send":
            fields["message"] = "\n\n".join(message.text for message in op.input if _is_user_message(message))
        elif self.event == "agent_stop":
            texts = [message for message in messages if message.role in ("user", "assistant") and message.text]
            fields["messages"] = format_messages(texts)
        elif self.event == "turn_end":
            answers = [m for m in messages if m.role == "assistant" and m.text and not m.tool_calls]
            fields |= {"response": answers[-1].text, "turn_number": len(answers)}
        else:
            known = _known_tool(op)
            name = TOOLS.get(known, op.tool.name if op.tool else op.call.name)
            args = translate(known, convert(known, thaw(op.args), KODELET_VALUES), KODELET, _schema_properties(op))
            fields |= {"tool_name": name, "tool_input": args, "tool_user_id": op.call.id}
        if self.event == "after_tool_call":
            result = _tool_output(op)
            output = {"toolName": fields["tool_name"], "success": not result.error}
            output |= {"error": result.error} if result.error else {}
            output |= {"metadata": {"output": result.output}, "timestamp": datetime.now(UTC).isoformat()}
            fields["tool_output"] = output
        return fields

    def build_message_payload(self, run: Run, message: Message, cwd: str) -> Json:
        return {**self._common_fields(run, cwd), "message": message.text}

    def _common_fields(self, run: Run, cwd: str) -> Json:
        recipe = run.root.scratch.get(RECIPE)
        by = "main" if run.parent is None else "subagent"
        fields = {"event": self.event, "conv_id": run.thread.id, "cwd": cwd, "invoked_by": by}
        return {**fields, "recipe_name": str(recipe)} if recipe else fields

    def apply_answer(self, answer: Json, op: Any) -> Decision | None:
        fields = _FIELDS[self.event]
        known = {name: value for name, value in answer.items() if name in fields and value is not None}
        check_fields(known, fields, self.event)
        if known.get("blocked"):
            return Block(known.get("reason") or _UNSAID)
        if "input" in known:
            tool = _known_tool(op)
            args = restore(tool, known["input"], KODELET, _schema_properties(op))
            replace_args(op, convert(tool, args, KODELET_VALUES, back=True))
        if "output" in known:
            _replace_output(op, known["output"])
        messages = known.get("follow_up_messages", [])
        if not all(isinstance(message, str) for message in messages):
            raise InvalidAnswer("answered with 'follow_up_messages' that are not all texts")
        texts = [message for message in messages if message.strip()]
        return Continue("\n\n".join(texts)) if texts else None


# -- which operations are events ------------------------------------------------------------------------------------


def _is_user_message(message: Message) -> bool:
    return message.role == "user"


def _final_text(step: Step) -> Message | None:
    """Return the assistant's message if the step ended with text and without tool calls."""
    thread = step.run.thread
    if step.error is not None or not thread.messages or thread.steps < step.number:
        return None
    last = thread.messages[-1]
    return last if last.role == "assistant" and last.text and not last.tool_calls else None


_MATCHES: dict[str, Callable[[Any], bool]] = {
    "before_tool_call": lambda use: True,
    "after_tool_call": lambda use: True,
    "user_message_send": lambda run: any(map(_is_user_message, run.input)),
    # also if an earlier program has already continued the agent
    "agent_stop": lambda step: step.error is None and (isinstance(step.result, Stop) or _final_text(step) is not None),
    "turn_end": lambda step: _final_text(step) is not None,
}


# -- payloads -------------------------------------------------------------------------------------------------------


def _known_tool(use: ToolUse) -> str:
    """Return wick's original name of a tool that kodelet has, too; else an empty text."""
    return next((name for name in TOOLS if name in use.names), "")


def _schema_properties(use: ToolUse) -> Mapping[str, Any]:
    """Return the properties of the schema of the tool, which may be another one of the same name."""
    properties: Mapping[str, Any] = use.tool.parameters.get("properties", {}) if use.tool else {}
    return properties


def _tool_output(use: ToolUse) -> ToolResult:
    """Return the result of a tool; an exception becomes an error result."""
    return use.result if use.error is None else ToolResult(error=str(use.error) or type(use.error).__name__)


# -- answers --------------------------------------------------------------------------------------------------------

_FIELDS: dict[str, Mapping[str, Any]] = {
    "before_tool_call": {"blocked": bool, "reason": str, "input": dict},
    "after_tool_call": {"output": dict},
    "user_message_send": {"blocked": bool, "reason": str},
    "agent_stop": {"follow_up_messages": list},
    "turn_end": {},
}
_OUTPUT = {"toolName": str, "success": bool, "error": str, "metadata": dict, "metadataType": str, "timestamp": str}


def _replace_output(use: ToolUse, output: Json) -> None:
    check_fields(output, _OUTPUT, "a tool's output")
    given = {name: value for name, value in output.items() if value is not None}
    before = _tool_output(use)
    text = given.get("metadata", {}).get("output", before.output)
    if not isinstance(text, str):
        raise InvalidAnswer("answered with an 'output' in the metadata that is not a text")
    failed = not given.get("success", not given.get("error"))
    error = (given.get("error") or before.error or "the tool failed") if failed else ""
    if (text, error) != (before.output, before.error):
        use.result = ToolResult(text, error)
