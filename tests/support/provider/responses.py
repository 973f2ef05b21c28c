"""OpenAI Responses: https://platform.openai.com/docs/api-reference/responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provider.chat import check_bearer, check_format_schema, check_image
from provider.checks import (
    check_distinct,
    check_keys,
    check_list,
    check_name,
    check_number,
    check_schema,
    check_strict_schema,
    need,
    read_arguments,
)
from provider.script import Call, Event, Reply, Thought, Tokens

KEYS = set(
    "model input instructions background conversation include max_output_tokens max_tool_calls metadata "
    "parallel_tool_calls previous_response_id prompt prompt_cache_key reasoning safety_identifier service_tier store "
    "stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user".split()
)
PARTS = {
    "system": {"input_text"},
    "developer": {"input_text"},
    "user": {"input_text", "input_image", "input_file"},
    "assistant": {"output_text", "refusal"},
}
ITEMS = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
}
PREFIXES = {"message": "msg_", "function_call": "fc", "function_call_output": "fc", "reasoning": "rs_"}
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Responses:
    """The wire format of /responses."""

    name = "responses"
    path = "/responses"

    def streams(self, asked: Mapping[str, Any]) -> bool:
        return bool(asked.get("stream"))

    def encode(self, event: Event) -> bytes:
        return event.encode()

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[Event]:
        for sequence, (tag, kind, data, number) in enumerate(_events(reply, asked)):
            yield Event(tag, {"type": kind, "sequence_number": sequence, **data}, kind, number)

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> dict[str, Any]:
        return _response(reply, asked, _items(reply, asked))

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def error_event(self, message: str) -> Event:
        data = {"type": "error", "sequence_number": 1, "code": "server_error", "message": message, "param": None}
        return Event("error", data, "error")

    def check(self, asked: Mapping[str, Any], headers: Mapping[str, str], issued: Mapping[str, str]) -> None:
        check_bearer(headers)
        check_keys(asked, KEYS, "Unknown parameter: '{}'.")
        need(isinstance(asked.get("model"), str) and asked["model"], "Missing required parameter: 'model'.")
        need(isinstance(asked.get("instructions") or "", str), "Invalid type for 'instructions'.")
        need(isinstance(asked.get("input"), str | list) and asked["input"], "Missing required parameter: 'input'.")
        if isinstance(asked["input"], list):
            check_list(asked["input"], "input", _check_item)
            _check_answers(asked["input"])
            _check_thoughts(asked["input"], asked.get("store", True), issued)
        _check_tools(asked)
        _check_settings(asked)


_Step = tuple[str, str, dict[str, Any], int]


def _events(reply: Reply, asked: Mapping[str, Any]) -> Iterator[_Step]:
    yield "start", "response.created", {"response": _response(reply, asked, None)}, 0
    yield "part", "response.in_progress", {"response": _response(reply, asked, None)}, 0
    items = _items(reply, asked)
    calls = len(items) - len(reply.calls)
    for index, item in enumerate(items[:calls]):
        yield from (_think if item["type"] == "reasoning" else _talk)(reply, item, index)
    yield from _call(reply, items[calls:], calls)
    kind = "response.incomplete" if reply.reason in INCOMPLETE else "response.completed"
    yield "finish", kind, {"response": _response(reply, asked, items)}, 0


def _think(reply: Reply, item: dict[str, Any], index: int) -> Iterator[_Step]:
    where, text = {"item_id": item["id"], "output_index": index}, item["summary"][0]["text"]
    part, kind = {"type": "summary_text", "text": text}, "response.reasoning_summary"
    where |= {"summary_index": 0}
    opened = {key: value for key, value in item.items() if key != "encrypted_content"} | {"summary": []}
    yield "part", "response.output_item.added", {"output_index": index, "item": opened}, 0
    yield "part", f"{kind}_part.added", where | {"part": part | {"text": ""}}, 0
    for piece in reply.pieces(text):
        yield "reasoning", f"{kind}_text.delta", where | {"delta": piece}, 0
    yield "part", f"{kind}_text.done", where | {"text": text}, 0
    yield "part", f"{kind}_part.done", where | {"part": part}, 0
    yield "signature", "response.output_item.done", {"output_index": index, "item": item}, 0


def _talk(reply: Reply, item: dict[str, Any], index: int) -> Iterator[_Step]:
    where, part = {"item_id": item["id"], "output_index": index, "content_index": 0}, item["content"][0]
    opened = item | {"status": "in_progress", "content": []}
    yield "part", "response.output_item.added", {"output_index": index, "item": opened}, 0
    yield "part", "response.content_part.added", where | {"part": part | {"text": ""}}, 0
    for piece in reply.pieces(reply.text):
        yield "text", "response.output_text.delta", where | {"delta": piece, "logprobs": []}, 0
    yield "part", "response.output_text.done", where | {"text": reply.text, "logprobs": []}, 0
    yield "part", "response.content_part.done", where | {"part": part}, 0
    yield "part", "response.output_item.done", {"output_index": index, "item": item}, 0


def _call(reply: Reply, items: list[dict[str, Any]], first: int) -> Iterator[_Step]:
    for number, text in reply.call_pieces():
        item, index = items[number], first + number
        if text is None:
            opened = item | {"status": "in_progress", "arguments": ""}
            yield "call", "response.output_item.added", {"output_index": index, "item": opened}, number
        else:
            data = {"item_id": item["id"], "output_index": index, "delta": text}
            yield "args", "response.function_call_arguments.delta", data, number
    for number, item in enumerate(items):
        data = {"item_id": item["id"], "output_index": first + number, "arguments": item["arguments"]}
        yield "args done", "response.function_call_arguments.done", data | {"name": item["name"]}, number
        yield "call done", "response.output_item.done", {"output_index": first + number, "item": item}, number


def _items(reply: Reply, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all items of the reply. Encrypted reasoning is included on request only."""
    encrypted = "reasoning.encrypted_content" in (asked.get("include") or ())
    thoughts = [_thought(number, thought, encrypted) for number, thought in enumerate(reply.thoughts)]
    calls = [_function_call(number, call) for number, call in enumerate(reply.calls)]
    return [*thoughts, *([_message(reply.text)] if reply.text or not calls else []), *calls]


def _thought(number: int, thought: Thought, encrypted: bool) -> dict[str, Any]:
    item = {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": thought.text}]}
    return item | ({"encrypted_content": thought.signature} if encrypted and thought.signature else {})


def _message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}


def _function_call(number: int, call: Call) -> dict[str, Any]:
    item = {"type": "function_call", "id": f"fc_{number}", "status": "completed", "arguments": call.args}
    return item | {"call_id": call.id, "name": call.name}


def _response(reply: Reply, asked: Mapping[str, Any], items: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return the response that has started, or with its items the finished one."""
    cut = INCOMPLETE.get(reply.reason)
    status = "in_progress" if items is None else "incomplete" if cut else "completed"
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_750_000_000,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": cut} if items is not None and cut else None,
        "instructions": None,
        "model": asked["model"],
        "output": items or [],
        "parallel_tool_calls": asked.get("parallel_tool_calls", True),
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(reply.tokens) if items is not None and reply.tokens is not None else None,
    }


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def _check_item(item: dict[str, Any], where: str) -> None:
    kind = item.get("type", "message" if "role" in item else None)
    need(kind in ITEMS, f"Invalid value: {kind!r} at '{where}.type'.")
    assert isinstance(kind, str)
    check_keys(item, ITEMS[kind], f"Unknown parameter: '{where}.{{}}'.")
    if item.get("id") is not None:
        need(
            str(item["id"]).startswith(PREFIXES[kind]),
            f"Invalid '{where}.id': {item['id']!r}. Expected an ID that begins with '{PREFIXES[kind]}'.",
        )
    if kind == "message":
        _check_message(item, where)
    elif kind == "reasoning":
        need(isinstance(item.get("summary"), list), f"Missing required parameter: '{where}.summary'.")
        need(
            all(part.get("type") == "summary_text" and isinstance(part.get("text"), str) for part in item["summary"]),
            f"Invalid '{where}.summary'.",
        )
    else:
        call_id = item.get("call_id")
        need(isinstance(call_id, str) and 0 < len(call_id) <= 64, f"Invalid '{where}.call_id': {call_id!r}.")
    if kind == "function_call":
        check_name(item.get("name"), f"{where}.name")
        read_arguments(item.get("arguments"), f"{where}.arguments")
    if kind == "function_call_output":
        _check_content(item.get("output"), f"{where}.output", PARTS["user"])


def _check_message(item: dict[str, Any], where: str) -> None:
    need(item.get("role") in PARTS, f"Invalid value: {item.get('role')!r} at '{where}.role'.")
    _check_content(item.get("content"), f"{where}.content", PARTS[item["role"]])


def _check_content(content: Any, where: str, parts: set[str]) -> None:
    need(isinstance(content, str | list), f"Invalid type for '{where}': expected a string or an array.")
    if isinstance(content, list):
        check_list(content, where, lambda part, place: _check_part(part, place, parts))


def _check_part(part: dict[str, Any], where: str, parts: set[str]) -> None:
    kind = part.get("type")
    need(kind in parts, f"Invalid value: {kind!r} at '{where}.type'. Supported values are: {', '.join(sorted(parts))}.")
    if kind in ("input_text", "output_text"):
        need(isinstance(part.get("text"), str), f"Missing required parameter: '{where}.text'.")
    elif kind == "input_image":
        need("file_id" in part or part.get("image_url"), f"Missing required parameter: '{where}.image_url'.")
        check_image(part.get("image_url"), f"{where}.image_url")
    elif kind == "input_file":
        need({"file_id", "file_url"} & {*part} or {"file_data", "filename"} <= {*part}, f"Invalid '{where}'.")


def _check_answers(items: list[dict[str, Any]]) -> None:
    called = [item["call_id"] for item in items if item.get("type") == "function_call"]
    check_distinct(called, "Two function calls have the same call_id.")
    waiting: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            waiting.add(item["call_id"])
        elif item.get("type") == "function_call_output":
            need(
                item["call_id"] in waiting,
                f"No tool call found for function call output with call_id {item['call_id']}.",
            )
            waiting.remove(item["call_id"])
        elif item.get("role") == "user":
            need(not waiting, f"No tool output found for function call {', '.join(sorted(waiting))}.")
    need(not waiting, f"No tool output found for function call {', '.join(sorted(waiting))}.")


def _check_thoughts(items: list[dict[str, Any]], stored: bool, issued: Mapping[str, str]) -> None:
    """Reasoning is replayed unchanged, before its result."""
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") != "reasoning":
            continue
        name = item.get("id")
        spoken = following.get("role") == "assistant" or following.get("type") in ("function_call", "reasoning")
        need(spoken, f"Item {name!r} of type 'reasoning' was provided without its required following item.")
        if (sealed := item.get("encrypted_content")) is not None:
            need(sealed in issued, f"The encrypted content of item {name!r} could not be verified.")
        else:
            need(stored, f"Item with id {name!r} not found. Items are not persisted when `store` is set to false.", 404)


def _check_tools(asked: Mapping[str, Any]) -> None:
    tools = asked.get("tools") or []
    if tools:
        check_list(tools, "tools", _check_tool)
    names = [tool["name"] for tool in tools]
    check_distinct(names, "Invalid 'tools': two functions have the same name.")
    choice = asked.get("tool_choice", "auto")
    if isinstance(choice, dict):
        need(
            choice.get("type") == "function" and choice.get("name") in names,
            f"Tool choice {choice!r} not found in 'tools' parameter.",
        )
    else:
        need(choice in ("auto", "none", "required"), f"Invalid value for 'tool_choice': {choice!r}.")
        need(choice != "required" or tools, "Tool choice 'required' must be specified with 'tools' parameter.")


def _check_tool(tool: dict[str, Any], where: str) -> None:
    check_keys(tool, {"type", "name", "description", "parameters", "strict"}, f"Unknown parameter: '{where}.{{}}'.")
    need(tool.get("type") == "function", f"Invalid value at '{where}.type'.")
    check_name(tool.get("name"), f"{where}.name")
    check_schema(tool.get("parameters"), f"Invalid schema for function '{tool['name']}'")
    if tool.get("strict", True):  # a function is strict by default
        check_strict_schema(tool["parameters"], f"Invalid schema for function '{tool['name']}'")


def _check_settings(asked: Mapping[str, Any]) -> None:
    check_number(asked, "temperature", 0, 2)
    check_number(asked, "top_p", 0, 1)
    check_number(asked, "max_output_tokens", 16, kind=int)
    need(isinstance(asked.get("stream", False), bool), "Invalid type for 'stream'.")
    need(isinstance(asked.get("store", True), bool), "Invalid type for 'store'.")
    form = (asked.get("text") or {}).get("format") or {"type": "text"}
    need(form.get("type") in ("text", "json_object", "json_schema"), f"Invalid value for 'text.format': {form!r}.")
    if form["type"] == "json_object":
        need(
            "json" in str(asked["input"]).lower(),
            "Response input messages must contain the word 'json' to use 'text.format' of type 'json_object'.",
        )
    if form["type"] == "json_schema":
        check_format_schema(form, "text.format")
