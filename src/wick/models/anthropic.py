"""Claude, through Anthropic's Messages API: text, thinking, tools, pictures and PDFs, with the prompt cached.

A message is encoded once. `message.cache` stores the bytes of the turn that it begins, up to the closing brace of the
last block, so that a cache breakpoint or another message can be appended. A request body is a join of such bytes.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from wick._internal.fast_json import encode_json
from wick.errors import ConfigError, ModelError
from wick.messages import FilePart, ImagePart, MediaPart, Message, Part, TextPart, ToolCall
from wick.models import _http, openai_common
from wick.models._http import ModelServer, TimeLimits
from wick.models._network import NetworkSettings, PathText, check_address
from wick.models.block_replies import BlockReply
from wick.models.openai_common import require_text
from wick.protocols import CallArgs, CallStart, Delta, HoldsSchema, Request, Usage

BASE_URL = "https://api.anthropic.com"
KEY = "ANTHROPIC_API_KEY"
MAX_TOKENS = 8_192  # required by the API; the thinking budget is added


class Anthropic:
    """A Claude model.

    `thinking` is a token budget, or the API's own setting such as `{"type": "adaptive"}`. `cache` sets cache
    breakpoints after the system prompt, the tools and the last two user turns. Without an `api_key`,
    ANTHROPIC_API_KEY is used for Anthropic's own address, and no key for any other.
    """

    holds_schema: HoldsSchema = "always"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = BASE_URL,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        thinking: int | Mapping[str, Any] | None = None,
        cache: bool = True,
        version: str = "2023-06-01",
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        if not model:
            raise ConfigError("name the model of anthropic, as in 'anthropic:claude-sonnet-4-5'")
        self.model, self.cache = model, cache
        if thinking is not None and not isinstance(thinking, Mapping):
            if type(thinking) is not int or thinking < 1:
                raise ConfigError(
                    f"thinking is a number of tokens, or the API's own setting as an object, not {thinking!r}"
                )
            thinking = {"type": "enabled", "budget_tokens": thinking}
        self.thinking: Mapping[str, Any] = thinking or {}
        address = check_address(base_url, "Anthropic").removesuffix("/v1")
        is_default_endpoint = address == BASE_URL
        key = openai_common.read_variable(KEY) if is_default_endpoint and api_key is None else api_key or ""
        missing = f"Anthropic needs a key: set {KEY}, for instance with `export {KEY}=…`, or give api_key=…"
        self.server = ModelServer(
            "anthropic",
            f"{address}/v1/messages",
            {"anthropic-version": version}
            | openai_common.build_headers("x-api-key", key, headers, missing if is_default_endpoint else ""),
            limits,
            unreachable="check the network, or the address in ANTHROPIC_BASE_URL",
            unauthorized=f"check the key in {KEY}",
            network=NetworkSettings(verify, cert, trust_env),
        )

    @property
    def name(self) -> str:
        return f"{self.server.name}:{self.model}"

    def __repr__(self) -> str:
        return f"<Anthropic {self.name}>"

    def unsupported_reason(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty string."""
        return "" if isinstance(part, TextPart) else _find_flaw(openai_common.inline_media(part))

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return _http.stream(self.server, self.body(request), _Reply(self.server))

    def body(self, request: Request) -> bytes:
        """Return the request body: the options, and the cached bytes of tools and messages."""
        openai_common.check_newest_message(request.messages, self.unsupported_reason)
        prefix, rest = openai_common.cached_prefix("anthropic:prefix", request.messages, _encode_beginning)
        turns = _append_turns(rest, *prefix)
        text = "\n\n".join([text for text in (request.system, *turns.system) if text.strip()])
        end = _MARK + b"}]" if self.cache else b"}]"
        pieces = [openai_common.with_extra(self.server, self._options(request), request, *_OURS)]
        if request.tools:
            tools = openai_common.encode_tools(
                "anthropic",
                request.tools,
                lambda tool: {key: value for key, name in _TOOL_FIELDS.items() if (value := getattr(tool, name))},
            )
            pieces += b',"tools":[', b",".join(tools)[:-1], end
        if text:
            pieces += b',"system":[', encode_json({"type": "text", "text": text})[:-1], end
        return b"".join((*pieces, b',"messages":[', *_close_turns(turns, self.cache), b"]}"))

    def _options(self, request: Request) -> dict[str, Any]:
        """Return the request without the conversation."""
        max_tokens = MAX_TOKENS + self.thinking.get("budget_tokens", 0)
        options: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "stream": True}
        options |= {"thinking": self.thinking} if self.thinking else {}
        if not (settings := openai_common.build_settings(self.server, request)):
            return options
        options |= {name: settings[name] for name in ("max_tokens", "temperature", "top_p") if name in settings}
        if "stop" in settings:
            stop = settings["stop"]
            options["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        tool, parallel = settings.get("tool_choice", ""), settings.get("parallel_tool_calls", True)
        if tool or not parallel:
            kind = _CHOICES.get(tool or "auto", "tool")
            options["tool_choice"] = {"type": kind, "name": tool} if kind == "tool" else {"type": kind}
            if not parallel and kind != "none":
                options["tool_choice"]["disable_parallel_tool_use"] = True
        form = settings.get("response_format", {})
        if form.get("type") == "json_object":
            raise ModelError(
                "Anthropic has no response_format json_object; give the JSON Schema of what you want instead"
            )
        schema = form["json_schema"]["schema"] if form.get("type") == "json_schema" else form
        if schema and form.get("type") != "text":
            options["output_config"] = {"format": {"type": "json_schema", "schema": _close_objects(schema)}}
        return options


# -- settings -------------------------------------------------------------------------------------------------------

_OURS = ("messages", "system", "tools", "stream")  # fields that `extra` cannot set
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def _close_objects(schema: Any) -> Any:
    """Return a JSON Schema without additional properties, as the API requires."""
    if isinstance(schema, list):
        return [_close_objects(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _close_objects(value) for name, value in schema.items()}
    return {"additionalProperties": False, **closed} if schema.get("type") == "object" else closed


# -- writing --------------------------------------------------------------------------------------------------------

_JOINT = b"}]},"  # ends a turn
_USER, _ASSISTANT = _JOINT + b'{"role":"user","content":[', _JOINT + b'{"role":"assistant","content":['
_TURN = {"user": _USER, "tool": _USER, "assistant": _ASSISTANT}
_MARK = b',"cache_control":{"type":"ephemeral"}'


_TOOL_FIELDS = {"name": "name", "description": "description", "input_schema": "parameters"}  # name of the API: ours


class _Turns(NamedTuple):
    """A conversation in the form of the API: alternating turns, and a separate system prompt."""

    pieces: list[bytes]
    system: list[str]
    last: bytes  # the opening bytes of the last turn


_NOTHING = _Turns([], [], b"")


def _append_turns(messages: Iterable[Message], prefix: _Turns = _NOTHING) -> _Turns:
    """Return the turns with more messages appended.

    The tool results of a step are joined in one turn, before other user content. System messages are moved to the
    front, as older models accept them nowhere else.
    """
    pieces, system, turn = [*prefix.pieces], [*prefix.system], prefix.last
    user_start = -1  # position in this turn where user content begins
    for message in messages:
        role, encoded = message.role, message.cache.get("anthropic") or _encode_turn(message)
        if not encoded:
            if role == "system":
                system.append(message.text)
        elif _TURN[role] is not turn:
            turn, user_start = _TURN[role], len(pieces) if role == "user" else -1
            pieces.append(encoded)
        elif role == "tool" and user_start >= 0:
            if pieces[user_start].startswith(_USER):  # the result opens the turn instead of the user content
                pieces[user_start] = _continue_turn(pieces[user_start])
            else:
                encoded = _continue_turn(encoded)
            pieces.insert(user_start, encoded)
            user_start += 1
        else:
            user_start = len(pieces) if role == "user" and user_start < 0 else user_start
            pieces.append(_continue_turn(encoded))
    return _Turns(pieces, system, turn)


def _encode_beginning(messages: Iterable[Message]) -> _Turns:
    """Return the turns of the beginning of a conversation, joined."""
    turns = _append_turns(messages)
    joined = b"".join(turns.pieces).removeprefix(_JOINT)
    return turns._replace(pieces=[joined] if joined else [])


def _continue_turn(encoded: bytes) -> bytes:
    """Convert the opening of a turn to the continuation of one."""
    return b"}," + encoded[encoded.index(b"[") + 1 :]


def _close_turns(turns: _Turns, cache: bool) -> list[bytes]:
    """Return the pieces of a complete conversation, with cache breakpoints after the last two user turns."""
    pieces = turns.pieces
    if not pieces:
        return pieces
    ends = [index for index in range(1, len(pieces)) if pieces[index].startswith(_ASSISTANT)]
    ends += [len(pieces)] if turns.last is _USER else []
    pieces.append(b"}]}")
    for index in ends[-2:] if cache else ():
        pieces[index] = _MARK + pieces[index]
    pieces[0] = pieces[0].removeprefix(_JOINT)
    return pieces


def _encode_turn(message: Message) -> bytes:
    """Encode and cache a turn that begins with this message, up to the closing brace of its last block."""
    blocks: list[dict[str, Any]] = []
    if message.role == "assistant":
        blocks += _assistant_content(message)
    elif message.role != "system":
        parts = (TextPart(message.content),) if isinstance(message.content, str) else message.content
        sendable = (part for part in parts if not isinstance(part, TextPart) or part.text.strip())
        blocks += map(_encode_part, sendable)  # the API refuses empty text
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": _sanitize_id(message.tool_call_id)}
        blocks = [{**result, "content": blocks} if blocks else result]
    data = message.cache["anthropic"] = _TURN[message.role] + encode_json(blocks)[1:-2] if blocks else b""
    return data


def _assistant_content(message: Message) -> Iterator[dict[str, Any]]:
    """Return the content of a reply, with signed thinking at its place: the API refuses moved blocks."""
    text, calls, spoken, called = message.text, message.tool_calls, 0, 0
    for thought in message.reasoning:
        match = _THOUGHT.fullmatch(thought.provider)
        if match is None or not thought.signature:
            continue
        kind, chars, count = match[1], int(match[2] or 0), int(match[3] or 0)
        yield from _text_and_calls(text[spoken:chars], calls[called:count])
        spoken, called = max(spoken, chars), max(called, count)
        if kind == "anthropic":
            yield {"type": "thinking", "thinking": thought.text, "signature": thought.signature}
        else:
            yield {"type": "redacted_thinking", "data": thought.signature}
    yield from _text_and_calls(text[spoken:], calls[called:])


def _text_and_calls(text: str, calls: Sequence[ToolCall]) -> Iterator[dict[str, Any]]:
    if text.strip():  # the API refuses empty text
        yield {"type": "text", "text": text}
    for call in calls:
        yield {"type": "tool_use", "id": _sanitize_id(call.id), "name": _sanitize_id(call.name), "input": call.args}


_THOUGHT = re.compile(r"(anthropic|anthropic-redacted)(?:@(\d+)\+(\d+))?")  # a kind, and the place in the reply


def _sanitize_id(name: str) -> str:
    """Return an id or a name in the characters that the API allows. It may be from another model."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


# -- pictures and files ---------------------------------------------------------------------------------------------


def _encode_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    part = openai_common.inline_media(part)
    if _find_flaw(part):
        return {"type": "text", "text": openai_common.media_note(part)}
    kind = openai_common.media_type(part)
    if isinstance(part, ImagePart) or kind.startswith("image/"):
        return {"type": "image", "source": _media_source(part, kind)}
    title = {"title": part.name} if isinstance(part, FilePart) and part.name else {}
    if kind == "application/pdf" or part.url.lower().endswith(".pdf"):
        return {"type": "document", "source": _media_source(part, kind), **title}
    text = b64decode(part.data).decode(errors="replace")
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}


def _find_flaw(part: MediaPart) -> str:
    """Return why the API cannot read a part, or an empty string."""
    kind = openai_common.media_type(part)
    if isinstance(part, ImagePart) or kind.startswith("image/"):
        known = part.url or kind in _PICTURES
    else:
        known = kind == "application/pdf" or part.url.lower().endswith(".pdf")
        known = known or (kind.startswith("text/") and bool(part.data))
    if not known:
        what = openai_common.describe_media(part).removeprefix("the file ")
        return f"Anthropic reads pictures, PDFs and text files, not {what}; give its media_type, or its text"
    return openai_common.find_media_flaw(part)


_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def _media_source(part: MediaPart, kind: str) -> dict[str, str]:
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": kind, "data": part.data}


# -- reading --------------------------------------------------------------------------------------------------------

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class _Reply(BlockReply):
    """A parser for the events of a reply."""

    __slots__ = ("_usage",)

    def __init__(self, server: ModelServer) -> None:
        super().__init__(server)
        self._usage: dict[str, Any] = {}

    def _read_event(self, event: dict[str, Any]) -> Sequence[Delta]:
        kind = event["type"]
        if kind == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                return self._read_text(delta["text"])
            if delta["type"] == "input_json_delta":
                index, text = event["index"], require_text(delta["partial_json"])
                return (CallArgs(index, text),) if text and index in self._calls else ()
            if delta["type"] == "thinking_delta":
                return self._read_thought("anthropic", delta["thinking"], "")
            if delta["type"] == "signature_delta":
                return self._read_thought("anthropic", "", delta["signature"])
            return ()
        if kind == "content_block_start":
            return self._start(event)
        if kind == "message_start":
            self._message = event["message"]
            return self._count(self._message.get("usage") or {})
        if kind == "message_delta":
            if reason := event["delta"].get("stop_reason"):
                self.finish = _REASONS.get(reason, require_text(reason))
            return self._count(event.get("usage") or {})
        if kind == "message_stop":
            self.done, self.finish = True, self.finish or "stop"
        elif kind == "error":
            error, message = event["error"].get("type"), event["error"].get("message")
            reason = str(message or error or "no reason was given")
            raise openai_common.broken_off_error(self._server, reason, _STATUS.get(error))
        return ()  # others, such as ping, are ignored

    def _start(self, event: dict[str, Any]) -> Sequence[Delta]:
        block = event["content_block"]
        kind = block["type"]
        if kind == "text":
            return self._read_text(block["text"])
        if kind == "tool_use":
            index, args = int(event["index"]), block.get("input")
            start = CallStart(index, require_text(block["id"]), require_text(block["name"]))
            self._calls.add(index)
            return (start, CallArgs(index, encode_json(args).decode())) if args else (start,)
        if kind == "thinking":
            return self._read_thought("anthropic", block["thinking"], block.get("signature") or "")
        if kind == "redacted_thinking":
            return self._read_thought("anthropic-redacted", "", block["data"])
        return ()

    def _count(self, usage: dict[str, Any]) -> Sequence[Delta]:
        """Update the usage with the latest counts. The API counts cached tokens apart from the input."""
        self._usage |= {name: value for name, value in usage.items() if value is not None}
        count, used = openai_common.count_tokens, self._usage
        read, written = count(used, "cache_read_input_tokens"), count(used, "cache_creation_input_tokens")
        sent = count(used, "input_tokens") + written + read
        thought = count(used, "output_tokens_details", "thinking_tokens")
        return (Usage(sent, count(used, "output_tokens"), read, thought, written),)
