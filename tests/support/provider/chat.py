"""OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provider.checks import (
    Refused,
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
from provider.script import Event, Reply, Tokens

KEYS = set(
    "model messages audio frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata modalities n "
    "parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort response_format "
    "safety_identifier service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p "
    "user verbosity".split()
)
PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}
REASONS = {"stop", "tool_calls", "length", "content_filter"}
THINKERS = re.compile(r"o\d|gpt-5")  # take max_completion_tokens, and no temperature


class Chat:
    """The wire format of /chat/completions."""

    name = "chat"
    path = "/chat/completions"

    def streams(self, asked: Mapping[str, Any]) -> bool:
        return bool(asked.get("stream"))

    def encode(self, event: Event) -> bytes:
        return event.encode()

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[Event]:
        usage = (asked.get("stream_options") or {}).get("include_usage")

        def chunk(tag: str, delta: dict[str, Any], finish: str | None = None, number: int = 0) -> Event:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            data = _head("chat.completion.chunk", asked) | {"choices": [choice]}
            return Event(tag, data | ({"usage": None} if usage else {}), number=number)

        yield chunk("start", {"role": "assistant", "content": None if reply.calls else "", "refusal": None})
        for thought in reply.thoughts:
            yield from (chunk("reasoning", {"reasoning_content": text}) for text in reply.pieces(thought.text))
        yield from (chunk("text", {"content": text}) for text in reply.pieces(reply.text))
        for number, text in reply.call_pieces():
            call = {"index": number, "function": {"arguments": text or ""}}
            if text is None:
                call = _call(reply, number) | {
                    "index": number,
                    "function": {"name": reply.calls[number].name, "arguments": ""},
                }
            yield chunk("call" if text is None else "args", {"tool_calls": [call]}, number=number)
        yield chunk("finish", {}, reply.reason)
        if usage and reply.tokens is not None:
            yield Event("usage", _head("chat.completion.chunk", asked) | {"choices": [], "usage": _usage(reply.tokens)})
        yield Event("end", "[DONE]")

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> dict[str, Any]:
        calls = [
            _call(reply, n) | {"function": {"name": c.name, "arguments": c.args}} for n, c in enumerate(reply.calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.reason}
        usage = _usage(reply.tokens) if reply.tokens is not None else None
        return _head("chat.completion", asked) | {"choices": [choice], "usage": usage}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": _error_type(status), "param": None, "code": None}}

    def error_event(self, message: str) -> Event:
        return Event("error", {"error": {"message": message, "type": "server_error", "param": None, "code": None}})

    def check(self, asked: Mapping[str, Any], headers: Mapping[str, str], issued: Mapping[str, str]) -> None:
        check_bearer(headers)
        check_keys(asked, KEYS, "Unrecognized request argument supplied: {}")
        need(isinstance(asked.get("model"), str) and asked["model"], "you must provide a model parameter")
        check_list(asked.get("messages"), "messages", _check_message)
        _check_answers(asked["messages"])
        _check_tools(asked)
        _check_settings(asked)


def _head(kind: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_750_000_000, "model": asked["model"]}


def _call(reply: Reply, number: int) -> dict[str, Any]:
    return {"id": reply.calls[number].id, "type": "function"}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning, "audio_tokens": 0},
    }


def _error_type(status: int) -> str:
    return {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )


def check_bearer(headers: Mapping[str, str]) -> None:
    kind, _, key = headers.get("authorization", "").partition(" ")
    need(kind == "Bearer" and key.strip(), "You didn't provide an API key.", 401)
    need(headers.get("content-type", "").startswith("application/json"), "Unsupported content type.", 415)


def _check_message(message: dict[str, Any], where: str) -> None:
    role = message.get("role")
    need(role in PARTS, f"Invalid value: {role!r} at '{where}.role'.")
    assert isinstance(role, str)
    known = {"role", "content", "name"}
    known |= {"assistant": {"tool_calls", "refusal", "audio", "reasoning_content"}, "tool": {"tool_call_id"}}.get(
        role, set()
    )
    check_keys(message, known, f"Unrecognized key '{{}}' at '{where}'.")
    if "name" in message:
        need(re.fullmatch(r"[^\s<|\\/>]{1,64}", str(message["name"])), f"Invalid '{where}.name'.")
    calls = message.get("tool_calls")
    if calls is not None:
        check_list(calls, f"{where}.tool_calls", _check_call)
        check_distinct([call["id"] for call in calls], f"Duplicate ids in '{where}.tool_calls'.")
    if role == "tool":
        need(isinstance(message.get("tool_call_id"), str), f"Missing parameter '{where}.tool_call_id'.")
    if role != "assistant" or not calls:
        need(
            isinstance(message.get("content"), str | list),
            f"Invalid type for '{where}.content': expected a string or an array.",
        )
    if isinstance(message.get("content"), list):
        check_list(message["content"], f"{where}.content", lambda part, place: _check_part(part, place, role))


def _check_call(call: dict[str, Any], where: str) -> None:
    check_keys(call, {"id", "type", "function"}, f"Unknown parameter: '{where}.{{}}'.")
    need(call.get("type") == "function", f"Invalid value at '{where}.type'.")
    need(isinstance(call.get("id"), str) and call["id"], f"Missing required parameter: '{where}.id'.")
    need(isinstance(call.get("function"), dict), f"Missing required parameter: '{where}.function'.")
    check_name(call["function"].get("name"), f"{where}.function.name")
    read_arguments(call["function"].get("arguments"), f"{where}.function.arguments")


def _check_part(part: dict[str, Any], where: str, role: str) -> None:
    kind = part.get("type")
    need(kind in PARTS[role], f"Invalid value: {kind!r} at '{where}.type' of a {role} message.")
    if kind == "text":
        need(isinstance(part.get("text"), str), f"Missing required parameter: '{where}.text'.")
    elif kind == "image_url":
        image = part.get("image_url")
        need(isinstance(image, dict), f"Invalid type for '{where}.image_url': expected an object.")
        check_image(image.get("url") if isinstance(image, dict) else None, f"{where}.image_url.url")
    elif kind == "file":
        file = part.get("file")
        need(
            isinstance(file, dict) and ("file_id" in file or {"file_data", "filename"} <= {*file}),
            f"Invalid '{where}.file'.",
        )


def check_image(url: Any, where: str) -> None:
    need(
        isinstance(url, str) and re.match(r"https?://|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*$", url),
        f"Invalid '{where}': expected a URL or a data URL of an image.",
    )


def _check_answers(messages: list[dict[str, Any]]) -> None:
    """Every tool call is answered once, right after the message that made it."""
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            need(
                message["tool_call_id"] in waiting,
                f"Invalid parameter: messages[{number}]: messages with role 'tool' must be a response to a preceeding "
                "message with 'tool_calls'.",
            )
            waiting.remove(message["tool_call_id"])
            continue
        _check_waiting(waiting)
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    _check_waiting(waiting)


def _check_waiting(waiting: set[str]) -> None:
    need(
        not waiting,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(sorted(waiting))}",
    )


def _check_tools(asked: Mapping[str, Any]) -> None:
    if "tools" not in asked:
        for key in ("tool_choice", "parallel_tool_calls"):
            need(key not in asked, f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.")
        return
    check_list(asked["tools"], "tools", _check_tool)
    names = [tool["function"]["name"] for tool in asked["tools"]]
    check_distinct(names, "Invalid 'tools': two functions have the same name.")
    choice = asked.get("tool_choice", "auto")
    if isinstance(choice, dict):
        chosen = (choice.get("function") or {}).get("name")
        need(choice.get("type") == "function" and chosen in names, f"Invalid value for 'tool_choice': {choice!r}.")
    else:
        need(choice in ("auto", "none", "required"), f"Invalid value for 'tool_choice': {choice!r}.")
    need(isinstance(asked.get("parallel_tool_calls", True), bool), "Invalid type for 'parallel_tool_calls'.")


def _check_tool(tool: dict[str, Any], where: str) -> None:
    check_keys(tool, {"type", "function"}, f"Unknown parameter: '{where}.{{}}'.")
    need(tool.get("type") == "function", f"Invalid value at '{where}.type'.")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise Refused(f"Missing required parameter: '{where}.function'.")
    check_keys(
        function, {"name", "description", "parameters", "strict"}, f"Unknown parameter: '{where}.function.{{}}'."
    )
    check_name(function.get("name"), f"{where}.function.name")
    if "parameters" in function:
        check_schema(function["parameters"], f"Invalid schema for function '{function['name']}'")
    if function.get("strict"):
        check_strict_schema(function["parameters"], f"Invalid schema for function '{function['name']}'")


def _check_settings(asked: Mapping[str, Any]) -> None:
    thinker = THINKERS.match(asked["model"])
    check_number(asked, "temperature", 0, 2)
    check_number(asked, "top_p", 0, 1)
    check_number(asked, "max_tokens", 1, kind=int)
    check_number(asked, "max_completion_tokens", 1, kind=int)
    need(
        not {"max_tokens", "max_completion_tokens"} <= {*asked},
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
    )
    need(
        not (thinker and "max_tokens" in asked),
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    )
    need(
        not (thinker and asked.get("temperature", 1) != 1),
        "Unsupported value: 'temperature' does not support this value with this model.",
    )
    stop = asked.get("stop")
    need(
        stop is None
        or isinstance(stop, str)
        or (isinstance(stop, list) and 1 <= len(stop) <= 4 and all(isinstance(s, str) and s for s in stop)),
        "Invalid 'stop'.",
    )
    need(isinstance(asked.get("stream", False), bool), "Invalid type for 'stream'.")
    need(
        "stream_options" not in asked or asked.get("stream"),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    )
    if "response_format" in asked:
        _check_format(asked["response_format"], asked["messages"])


def _check_format(wanted: Any, messages: list[dict[str, Any]]) -> None:
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    need(kind in ("text", "json_object", "json_schema"), f"Invalid value for 'response_format': {wanted!r}.")
    if kind == "json_object":
        need(
            "json" in str(messages).lower(),
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        )
    if kind == "json_schema":
        check_format_schema(wanted.get("json_schema"), "response_format.json_schema")


def check_format_schema(form: Any, where: str) -> None:
    need(isinstance(form, dict), f"Missing required parameter: '{where}'.")
    check_name(form.get("name"), f"{where}.name")
    check_schema(form.get("schema"), f"Invalid schema for '{where}'")
    if form.get("strict"):
        check_strict_schema(form["schema"], f"Invalid schema for '{where}'")
