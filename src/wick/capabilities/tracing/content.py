"""Messages, tool arguments and results as attributes of spans, in the JSON that the GenAI conventions define."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wick._internal.frozen import canonical_json, thaw
from wick.capabilities.tracing.conventions import Attributes
from wick.messages import Message, Part, TextPart, ToolResult
from wick.operations import ModelCall, ToolUse

TextRedactor = Callable[[str], str]
Json = dict[str, Any]


def encode_request(call: ModelCall, reply: Message, redact: TextRedactor) -> Attributes:
    """Return the system prompt and the messages as they were sent, and the reply."""
    system = redact(call.last_sealed("system"))
    sent = [encode_message(message, redact) for message in call.last_sealed("messages")]
    written = encode_message(reply, redact) | {"finish_reason": call.finish or "stop"}
    content = {
        "gen_ai.system_instructions": [{"type": "text", "content": system}] if system else [],
        "gen_ai.input.messages": sent,
        "gen_ai.output.messages": [written],
    }
    return {name: _to_json(value) for name, value in content.items() if value}


def encode_tool_use(use: ToolUse, result: ToolResult, redact: TextRedactor) -> Attributes:
    """Return the arguments and the result of a tool."""
    arguments = _redact_values(thaw(use.last_sealed("args")), redact)
    return {"gen_ai.tool.call.arguments": _to_json(arguments), "gen_ai.tool.call.result": redact(result.text)}


def encode_message(message: Message, redact: TextRedactor) -> Json:
    """Return a message with its parts: reasoning, text, media, tool calls, or the response of a tool."""
    if message.role == "tool":
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": redact(message.text)}
        return {"role": "tool", "parts": [part]}
    thoughts = [{"type": "reasoning", "content": redact(thought.text)} for thought in message.reasoning if thought.text]
    calls = [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _redact_values(thaw(call.args), redact)}
        for call in message.tool_calls
    ]
    parts: Iterable[Part] = [TextPart(message.content)] if isinstance(message.content, str) else message.content
    content = [encode_part(part, redact) for part in parts if not isinstance(part, TextPart) or part.text]
    return {"role": message.role, "parts": [*thoughts, *content, *calls]}


def encode_part(part: Part, redact: TextRedactor) -> Json:
    """Return a part of a message. Bytes are left out."""
    if isinstance(part, TextPart):
        return {"type": "text", "content": redact(part.text)}
    kind = {"modality": part.type, "mime_type": part.media_type}
    if part.url and not part.url.startswith("data:"):
        return {"type": "uri", **kind, "uri": redact(part.url)}
    return {"type": "media", **kind, "base64_length": len(part.data or part.url)}


def _redact_values(value: Any, redact: TextRedactor) -> Any:
    """Return JSON data with each text redacted. Keys stay."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redact_values(item, redact) for key, item in value.items()}
    return [_redact_values(item, redact) for item in value] if isinstance(value, list) else value


def _to_json(value: Any) -> str:
    return canonical_json(value).decode()
