"""Anthropic Messages: https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from provider.checks import NAME, check_distinct, check_number, check_schema, need
from provider.script import Event, Reply, Tokens

KEYS = set(
    "model messages max_tokens cache_control container inference_geo metadata output_config service_tier "
    "stop_sequences stream system temperature thinking tool_choice tools top_k top_p".split()
)
VERSIONS: dict[str, set[str]] = {
    "2023-06-01": set(),
    "2026-10-21": {"temperature", "top_p", "top_k"},  # removed fields
}
BLOCKS = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
}
BLOCK_KEYS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "tool_use": {"id", "name", "input"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Messages:
    """The wire format of /v1/messages."""

    name = "messages"
    path = "/messages"

    def streams(self, asked: Mapping[str, Any]) -> bool:
        return bool(asked.get("stream"))

    def encode(self, event: Event) -> bytes:
        return event.encode()

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[Event]:
        for tag, data, number in _events(reply, asked):
            yield Event(tag, data, data["type"], number)

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> dict[str, Any]:
        thoughts = [{"type": "thinking", "thinking": t.text, "signature": t.signature} for t in reply.thoughts]
        text = [{"type": "text", "text": reply.text}] if reply.text else []
        calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": json.loads(c.args)} for c in reply.calls]
        message = _message(reply, asked, _usage(reply.tokens or Tokens()))
        return message | {"content": [*thoughts, *text, *calls], "stop_reason": REASONS[reply.reason]}

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}

    def error_event(self, message: str) -> Event:
        return Event("error", {"type": "error", "error": {"type": "overloaded_error", "message": message}}, "error")

    def check(self, asked: Mapping[str, Any], headers: Mapping[str, str], issued: Mapping[str, str]) -> None:
        _check_headers(headers)
        for key in asked:
            need(key in KEYS - VERSIONS[headers["anthropic-version"]], f"{key}: Extra inputs are not permitted")
        need(isinstance(asked.get("model"), str) and asked["model"], "model: Field required")
        need("max_tokens" in asked, "max_tokens: Field required")
        check_number(asked, "max_tokens", 1, kind=int)
        _check_messages(asked.get("messages"), issued)
        _check_answers(asked["messages"])
        _check_system(asked)
        _check_tools(asked)
        _check_settings(asked)
        _check_breakpoints(asked)


_Step = tuple[str, dict[str, Any], int]


def _events(reply: Reply, asked: Mapping[str, Any]) -> Iterator[_Step]:
    tokens = reply.tokens
    begun = _message(reply, asked, _usage(tokens, 1) if tokens is not None else {})
    yield "start", {"type": "message_start", "message": begun | {"content": []}}, 0
    index = 0
    for thought in reply.thoughts:
        deltas = [("reasoning", {"type": "thinking_delta", "thinking": text}) for text in reply.pieces(thought.text)]
        deltas += [("signature", {"type": "signature_delta", "signature": thought.signature})]
        yield from _block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        index += 1
    yield "part", {"type": "ping"}, 0
    if reply.text:
        deltas = [("text", {"type": "text_delta", "text": text}) for text in reply.pieces(reply.text)]
        yield from _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    yield from _calls(reply, index)
    usage = (
        {"output_tokens": tokens.output, "output_tokens_details": {"thinking_tokens": tokens.reasoning}}
        if tokens
        else {}
    )
    delta = {"stop_reason": REASONS[reply.reason], "stop_sequence": None}
    yield "finish", {"type": "message_delta", "delta": delta, "usage": usage}, 0
    yield "end", {"type": "message_stop"}, 0


def _block(index: int, block: dict[str, Any], deltas: list[tuple[str, dict[str, Any]]]) -> Iterator[_Step]:
    yield "part", {"type": "content_block_start", "index": index, "content_block": block}, 0
    for tag, delta in deltas:
        yield tag, {"type": "content_block_delta", "index": index, "delta": delta}, 0
    yield "part", {"type": "content_block_stop", "index": index}, 0


def _calls(reply: Reply, first: int) -> Iterator[_Step]:
    for number, text in reply.call_pieces():
        if text is None:
            call = reply.calls[number]
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            yield "call", {"type": "content_block_start", "index": first + number, "content_block": block}, number
        else:
            delta = {"type": "input_json_delta", "partial_json": text}
            yield "args", {"type": "content_block_delta", "index": first + number, "delta": delta}, number
    for number in range(len(reply.calls)):
        yield "call done", {"type": "content_block_stop", "index": first + number}, number


def _message(reply: Reply, asked: Mapping[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"]}
    return message | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


def _usage(tokens: Tokens, output: int | None = None) -> dict[str, Any]:
    """Cached tokens are counted beside the input, not in it."""
    cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": tokens.cached}
    return {
        "input_tokens": tokens.input - tokens.cached,
        **cache,
        "output_tokens": tokens.output if output is None else output,
    }


def _check_headers(headers: Mapping[str, str]) -> None:
    need(headers.get("x-api-key") or headers.get("authorization"), "x-api-key header is required", 401)
    need(headers.get("anthropic-version") in VERSIONS, "anthropic-version: header is required")
    need(headers.get("content-type", "").startswith("application/json"), "Unsupported content type.", 415)


def _check_messages(messages: Any, issued: Mapping[str, str]) -> None:
    need(isinstance(messages, list) and messages, "messages: at least one message is required")
    before = "assistant"
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        need(isinstance(message, dict), f"{where}: Input should be an object")
        need({*message} == {"role", "content"}, f"{where}: Extra inputs are not permitted, or a field is missing")
        role = message["role"]
        need(role in BLOCKS, f"{where}.role: Input should be 'user' or 'assistant'")
        need(number or role == "user", 'messages: first message must use the "user" role')
        need(
            role != before,
            f'roles must alternate between "user" and "assistant", but found multiple "{role}" roles in a row',
        )
        before = role
        need(message["content"], f"{where}: all messages must have non-empty content")
        for place, block in enumerate(blocks(message["content"])):
            _check_block(block, f"{where}.content.{place}", role, issued)
    need(
        before == "user",
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    )


def blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    need(
        isinstance(content, list) and all(isinstance(block, dict) for block in content),
        "content: Input should be a valid list",
    )
    return list(content)


def _check_block(block: dict[str, Any], where: str, role: str, issued: Mapping[str, str]) -> None:
    kind = block.get("type")
    need(
        kind in BLOCKS[role],
        f"{where}: Input tag {kind!r} found using 'type' does not match any of the expected tags of the role {role}",
    )
    assert isinstance(kind, str)
    for key in block:
        need(
            key in BLOCK_KEYS[kind] | {"type", "cache_control"}, f"{where}.{kind}.{key}: Extra inputs are not permitted"
        )
    if kind == "text":
        need(isinstance(block.get("text"), str) and block["text"], f"{where}: text content blocks must be non-empty")
        need(block["text"].strip(), f"{where}: text content blocks must contain non-whitespace text")
    elif kind in ("image", "document"):
        _check_source(block.get("source"), f"{where}.{kind}.source", kind)
    elif kind == "tool_use":
        need(
            re.fullmatch(r"[a-zA-Z0-9_-]+", str(block.get("id", ""))),
            f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        )
        need(
            NAME.fullmatch(str(block.get("name", ""))),
            f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'",
        )
        need(isinstance(block.get("input"), dict), f"{where}.tool_use.input: Input should be a valid dictionary")
    elif kind == "tool_result":
        _check_result(block, f"{where}.tool_result", issued)
    elif kind == "thinking":
        need({"thinking", "signature"} <= {*block}, f"{where}.thinking.signature: Field required")
        need(issued.get(block["signature"]) == block["thinking"], f"{where}: Invalid `signature` in `thinking` block")
        need("cache_control" not in block, f"{where}.thinking.cache_control: Extra inputs are not permitted")


def _check_source(source: Any, where: str, kind: str) -> None:
    need(isinstance(source, dict), f"{where}: Field required")
    types = {"image/png", "image/jpeg", "image/gif", "image/webp"} if kind == "image" else {"application/pdf"}
    if source.get("type") == "base64":
        need(
            source.get("media_type") in types,
            f"{where}.base64.media_type: Input should be one of {', '.join(sorted(types))}",
        )
        need(
            re.fullmatch(r"[A-Za-z0-9+/]+=*", str(source.get("data", ""))), f"{where}.base64.data: invalid base64 data"
        )
    elif source.get("type") == "url":
        need(re.match(r"https?://", str(source.get("url", ""))), f"{where}.url.url: Only HTTPS URLs are supported.")
    else:
        need(
            kind == "document"
            and source.get("type") == "text"
            and source.get("media_type") == "text/plain"
            and source.get("data"),
            f"{where}: Input tag {source.get('type')!r} found using 'type' does not match any of the expected tags",
        )


def _check_result(block: dict[str, Any], where: str, issued: Mapping[str, str]) -> None:
    need(isinstance(block.get("tool_use_id"), str), f"{where}.tool_use_id: Field required")
    need(isinstance(block.get("is_error", False), bool), f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    need(content or not block.get("is_error"), f"{where}: content cannot be empty if `is_error` is true")
    if isinstance(content, list):
        for place, part in enumerate(blocks(content)):
            need(
                part.get("type") in ("text", "image", "document"),
                f"{where}.content.{place}: unexpected type {part.get('type')!r}",
            )
            _check_block(part, f"{where}.content.{place}", "user", issued)


def _check_answers(messages: list[dict[str, Any]]) -> None:
    """The results of a turn's calls are the first things in the message after it."""
    waiting: list[str] = []
    for number, message in enumerate(messages):
        parts = blocks(message["content"])
        results = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
        check_distinct(
            results,
            f"messages.{number}: each tool_use must have a single result",
        )
        for id in results:
            need(
                id in waiting,
                f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {id}.",
            )
        missing = ", ".join(sorted({*waiting} - {*results}))
        where = f"messages.{number - 1}"
        need(
            not missing, f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
        )
        need(
            all(part["type"] == "tool_result" for part in parts[: len(results)]),
            f"messages.{number}: `tool_result` blocks must come first",
        )
        waiting = [part["id"] for part in parts if part["type"] == "tool_use"]
        check_distinct(waiting, f"messages.{number}: `tool_use` ids must be unique")
        thoughts = [place for place, part in enumerate(parts) if part["type"] == "thinking"]
        need(
            not thoughts or parts[0]["type"] == "thinking",
            f"messages.{number}: Expected `thinking` first, but found {parts[0]['type']!r}",
        )


def _check_system(asked: Mapping[str, Any]) -> None:
    if "system" not in asked:
        return
    need(asked["system"], "system: text content blocks must be non-empty")
    for place, block in enumerate(blocks(asked["system"])):
        need(block.get("type") == "text", f"system.{place}.type: Input should be 'text'")
        _check_block(block, f"system.{place}", "user", {})


def _check_tools(asked: Mapping[str, Any]) -> None:
    tools = asked.get("tools") or []
    names = []
    for number, tool in enumerate(tools):
        for key in tool:
            need(
                key in {"type", "name", "description", "input_schema", "cache_control", "strict"},
                f"tools.{number}.{key}: Extra inputs are not permitted",
            )
        need(
            NAME.fullmatch(str(tool.get("name", ""))),
            f"tools.{number}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'",
        )
        need("input_schema" in tool, f"tools.{number}.custom.input_schema: Field required")
        check_schema(tool["input_schema"], f"tools.{number}.custom.input_schema")
        names.append(tool["name"])
    check_distinct(names, "tools: Tool names must be unique.")
    choice = asked.get("tool_choice")
    if choice is None:
        return
    need(
        isinstance(choice, dict) and choice.get("type") in ("auto", "any", "tool", "none"),
        "tool_choice: Input should be an object",
    )
    need(tools, "tool_choice: may only be specified while providing tools")
    need(choice["type"] != "tool" or choice.get("name") in names, "tool_choice: Tool not found in provided tools")
    known = {"type", "disable_parallel_tool_use", "name"} - ({"name"} if choice["type"] != "tool" else set())
    need(
        {*choice} <= known - ({"disable_parallel_tool_use"} if choice["type"] == "none" else set()),
        "tool_choice: Extra inputs are not permitted",
    )


def _check_settings(asked: Mapping[str, Any]) -> None:
    check_number(asked, "temperature", 0, 1)
    check_number(asked, "top_p", 0, 1)
    check_number(asked, "top_k", 0, kind=int)
    stops = asked.get("stop_sequences", [])
    need(
        isinstance(stops, list) and all(isinstance(stop, str) and stop.strip() for stop in stops),
        "stop_sequences: each stop sequence must contain non-whitespace",
    )
    need(isinstance(asked.get("stream", False), bool), "stream: Input should be a valid boolean")
    form = (asked.get("output_config") or {}).get("format")
    if form is not None:
        need(form.get("type") == "json_schema", "output_config.format.type: Input should be 'json_schema'")
        check_schema(form.get("schema"), "output_config.format.schema")
    _check_thinking(asked)


def _check_thinking(asked: Mapping[str, Any]) -> None:
    thinking = asked.get("thinking") or {"type": "disabled"}
    need(thinking.get("type") in ("enabled", "disabled", "adaptive"), "thinking: Input tag does not match")
    if thinking["type"] != "enabled":
        return
    need(isinstance(thinking.get("budget_tokens"), int), "thinking.enabled.budget_tokens: Field required")
    need(
        thinking["budget_tokens"] >= 1024,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    )
    need(thinking["budget_tokens"] < asked["max_tokens"], "`max_tokens` must be greater than `thinking.budget_tokens`")
    need(asked.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled")
    need(
        (asked.get("tool_choice") or {}).get("type") not in ("any", "tool"),
        "Thinking may not be enabled when tool_choice forces tool use.",
    )


def _check_breakpoints(asked: Mapping[str, Any]) -> None:
    found = [*_breakpoints(asked)]
    need(len(found) <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {len(found)}.")
    need(all(point.get("type") == "ephemeral" for point in found), "cache_control.type: Input should be 'ephemeral'")


def _breakpoints(data: Any) -> Iterator[dict[str, Any]]:
    """Return all cache_control marks, except in user and model text."""
    if isinstance(data, list):
        for item in data:
            yield from _breakpoints(item)
    elif isinstance(data, dict | Mapping):
        if isinstance(data.get("cache_control"), dict):
            yield data["cache_control"]
        for key in ("system", "tools", "messages", "content"):
            yield from _breakpoints(data.get(key))
