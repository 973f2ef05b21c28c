"""Names and attributes of the spans that `Recorder` stores. `wick.capabilities.tracing.conventions` has those of
OpenTelemetry.

run                 invoke_agent
└─ step
   ├─ llm.call      chat
   └─ tool.call     execute_tool
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wick._internal.frozen import canonical_json
from wick.constants import PREVIEW_CHARS
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse
from wick.protocols import Usage
from wick.run_log import label_result

_NAMES = {
    "run": ("run", "invoke_agent"),
    "step": ("step", ""),
    "model_call": ("llm.call", "chat"),
    "tool_use": ("tool.call", "execute_tool"),
}

Attributes = dict[str, Any]


def describe_start(op: Operation[Any]) -> tuple[str, Attributes]:
    """Return the span name and the attributes known at the start of an operation."""
    name, operation = _NAMES[op.operation_name]
    known = {"gen_ai.conversation.id": op.run.thread.id, "run_id": op.run.id}
    known |= {"gen_ai.operation.name": operation} if operation else {}
    if isinstance(op, Run):
        return name, known | {"gen_ai.agent.name": op.agent}
    if isinstance(op, ToolUse):
        return name, known | {"tool_name": op.call.name, "tool_call_id": op.call.id}
    return name, known | ({"step": op.number} if isinstance(op, Step) else {})


def describe_attempts(op: Operation[Any]) -> Attributes:
    """Return the attributes known at the end of an operation, with or without a result."""
    if not isinstance(op, ModelCall):
        return {}
    model, messages = op.last_sealed("model"), op.last_sealed("messages")
    spent = sum((charge.usage for charge in op.charges), Usage())  # of all attempts
    asked = {"gen_ai.request.model": model.name, "message_count": len(messages), "purpose": op.purpose}
    return asked | _describe_usage(spent)


def describe_result(op: Operation[Any], result: Any) -> Attributes:
    """Return the attributes of the result."""
    if isinstance(result, Result):
        return {"outcome": result.outcome, "reason": result.reason, **_describe_usage(result.usage)}
    if isinstance(op, ModelCall):
        attributes = {
            "content_length": len(result.text),
            "content_preview": result.text[:PREVIEW_CHARS],
            "tool_calls_count": len(result.tool_calls),
            "tool_calls": [call.name for call in result.tool_calls],
        }
        return attributes | ({"gen_ai.response.finish_reasons": [op.finish]} if op.finish else {})
    if isinstance(op, ToolUse):
        name, id = op.call.name, op.call.id
        attributes = {
            "tool_args": canonical_json(op.last_sealed("args")).decode()[:PREVIEW_CHARS],
            "tool_name": name,
            "tool_call_id": id,
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": id,
            "output_length": len(result.output),
            "output_preview": result.output[:PREVIEW_CHARS],
        }
        if label := label_result(op):
            attributes |= {"wick.trusted": label["trusted"], "wick.private": [*label["private"]]}
        return attributes | ({"error": result.error[:PREVIEW_CHARS]} if result.error else {})
    return {"verdict": type(result).__name__.lower()}


def list_record_events(run: Run) -> Iterator[tuple[str, Attributes]]:
    """Yield the records of `run.record` as span events."""
    for name, data in run.progress.extensions.records:
        yield name, {key: to_attribute(value) for key, value in data.items()}


def to_attribute(value: Any) -> str | bool | int | float:
    """Return the value as an attribute; types without an equivalent become a short repr."""
    return value if isinstance(value, str | bool | int | float) else repr(value)[:PREVIEW_CHARS]


def _describe_usage(usage: Usage) -> Attributes:
    tokens = {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
    return tokens | ({"gen_ai.usage.cache_read.input_tokens": usage.cached_tokens} if usage.cached_tokens else {})
