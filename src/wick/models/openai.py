"""A client for Chat Completions, the API of OpenAI, Ollama, vLLM, llama.cpp, LiteLLM and many others.

Servers omit different fields, so the parser relies on what they have in common. Missing data is not guessed: a stream
that ends without a finish reason or an end marker is an error.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal

import orjson

from wick._internal.fast_json import encode_json
from wick.errors import ConfigError
from wick.messages import ImagePart, MediaPart, Message, Part, TextPart
from wick.models import _http, openai_common
from wick.models._http import ModelServer, TimeLimits
from wick.models._network import NetworkSettings, PathText
from wick.models.openai_calls import ToolCallAssembler
from wick.protocols import Delta, Finish, HoldsSchema, ReasoningDelta, Request, TextDelta, Usage

_NEWER = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d))")  # OpenAI's models that refuse `max_tokens`, on any server


class OpenAI:
    """A model behind a server with OpenAI's Chat Completions API.

        OpenAI("gpt-4o")
        OpenAI("llama3.1:8b", base_url="http://localhost:11434/v1", name="ollama")

    `stream_usage=False` is for servers that refuse `stream_options`. `replay_reasoning=True` sends the reasoning back
    with the conversation, as models of DeepSeek and Kimi need it for tool use.
    """

    home: ClassVar[openai_common.ProviderHome] = openai_common.OPENAI_HOME
    example: ClassVar[str] = "gpt-4o"
    limit_field: ClassVar[str] = ""  # the name of `max_tokens` in requests; empty if it depends on the model
    own_encoding: ClassVar[bool] = False  # messages are encoded in another way than for OpenAI

    def __init__(
        self,
        model: str,
        *,
        base_url: str = openai_common.OPENAI_URL,
        api_key: str | None = None,
        name: str = "openai",
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        stream_usage: bool = True,
        replay_reasoning: bool = False,
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        if not model:
            known = "llama3.1:8b" if name == "ollama" else self.example
            raise ConfigError(f"name the model of {name}, as in '{name}:{known}'")
        self.model = model
        network = NetworkSettings(verify, cert, trust_env)
        self.server = openai_common.build_server(
            name, base_url, "/chat/completions", api_key, headers, limits, network, self.home
        )
        self._at_openai = self.server.url.startswith(openai_common.OPENAI_URL)
        self.stream_usage = stream_usage
        self.replay_reasoning = replay_reasoning
        is_own = replay_reasoning or self.own_encoding
        self._cache_key = f"openai+{self.server.name}" if is_own else "openai"  # key in message.cache

    @property
    def name(self) -> str:
        return f"{self.server.name}:{self.model}"

    @property
    def holds_schema(self) -> HoldsSchema | Literal[""]:
        """Return "alone" for servers that enforce a schema by a grammar, which excludes tool calls."""
        return "always" if self._at_openai else "alone"

    def __repr__(self) -> str:
        return f"<OpenAI {self.name}>"

    def unsupported_reason(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty string."""
        if isinstance(part, TextPart):
            return ""
        part = openai_common.inline_media(part)
        if part.url and not _is_picture(part):
            what = "recordings as data" if openai_common.is_audio(part) else "files as data"
            return f"{self.server.name} takes {what}, not by their address; read {part.url} first"
        return self._audio_flaw(part) or openai_common.find_media_flaw(part)

    def _audio_flaw(self, part: MediaPart) -> str:
        """Return why a recording cannot be sent, or an empty string. Other servers than OpenAI's decide themselves."""
        if not openai_common.is_audio(part) or (
            openai_common.media_type(part).startswith("audio/") and not self._at_openai
        ):
            return ""
        known = openai_common.audio_format(part) in ("wav", "mp3")
        what = openai_common.describe_media(part)
        return (
            ""
            if known
            else f"{self.server.name} reads audio in wav or mp3, not {what}; convert it, or give its media_type"
        )

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return _http.stream(self.server, self.body(request), ChatReplyParser(self.server))

    # -- requests ---------------------------------------------------------------------------------------------------

    def body(self, request: Request) -> bytes:
        """Return the request body as bytes. Each message and each tool is encoded only once."""
        openai_common.check_newest_message(request.messages, self.unsupported_reason)
        if request.settings:
            head = openai_common.with_extra(self.server, self._head(request), request, "messages", "tools")
        else:
            head = _plain_head(self.model, self.stream_usage)
        system = [encode_json({"role": "system", "content": request.system})] if request.system else []
        prefix, rest = openai_common.cached_prefix(
            f"{self._cache_key}:prefix", request.messages, lambda messages: b",".join(self._encode_messages(messages))
        )
        messages = [*system, *prefix, *self._encode_messages(rest)]
        functions = openai_common.encode_tools(
            "openai", request.tools, lambda tool: {"type": "function", "function": tool.schema}
        )
        tail = b'],"tools":[' + b",".join(functions) + b"]}" if functions else b"]}"
        return openai_common.join_items(head + b',"messages":[', messages, tail)

    def _head(self, request: Request) -> dict[str, Any]:
        head = _request_options(self.model, self.stream_usage) | openai_common.build_settings(self.server, request)
        if "max_tokens" in head:
            newer = self._at_openai or _NEWER.match(self.model)
            field = self.limit_field or ("max_completion_tokens" if newer else "max_tokens")
            head[field] = head.pop("max_tokens")
        if tool := openai_common.named_tool(head.get("tool_choice", "auto")):
            head["tool_choice"] = {"type": "function", "function": {"name": tool}}
        if form := head.get("response_format"):
            format = openai_common.build_json_format(form)
            kind = format.pop("type")
            head["response_format"] = {"type": kind, kind: format} if format else {"type": kind}
        return head

    def _encode_messages(self, messages: tuple[Message, ...]) -> list[bytes]:
        """Return the messages as bytes. Each is encoded once; the place of tool parts depends on later messages."""
        key = self._cache_key
        for message in messages:
            if key not in message.cache and not (message.role == "tool" and type(message.content) is tuple):
                message.cache[key] = encode_json(self._message_data(message))
        encoded = [message.cache.get(key, b"") for message in messages]
        return encoded if all(encoded) else [*self._with_media(messages)]

    def _message_data(self, message: Message) -> dict[str, Any]:
        data: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.role == "user" and type(message.content) is tuple:
            data["content"] = [
                {"type": "text", "text": part.text} if isinstance(part, TextPart) else self._encode_media(part)
                for part in message.content
            ]
        elif message.role == "tool":
            data["tool_call_id"] = message.tool_call_id
        elif message.tool_calls:
            data["content"] = message.text or None
            data["tool_calls"] = [
                {"id": call.id, "type": "function", "function": openai_common.call_fields(call)}
                for call in message.tool_calls
            ]
        if self.replay_reasoning and message.reasoning:
            own = [thought.text for thought in message.reasoning if thought.provider == self.server.name]
            data |= {"reasoning_content": "".join(own)} if own else {}
        return data

    def _with_media(self, messages: Iterable[Message]) -> Iterator[bytes]:
        """Move the media of tool messages to a user message after the results, as tool messages hold text only."""
        shown: list[bytes] = []
        for message in messages:
            if shown and message.role != "tool":
                yield self._media_message(shown)
                shown = []
            encoded = message.cache.get(self._cache_key)
            if encoded is None:
                key = f"{self._cache_key}:media"
                if key not in message.cache:
                    media = [part for part in message.content if not isinstance(part, str | TextPart)]
                    line = {"type": "text", "text": f"What {message.name} returned for {message.tool_call_id}:"}
                    parts = [encode_json(part) for part in (line, *map(self._encode_media, media))] if media else []
                    message.cache[key] = encode_json(self._message_data(message)), parts
                encoded, parts = message.cache[key]
                shown += parts
            yield encoded
        if shown:
            yield self._media_message(shown)

    def _encode_media(self, part: MediaPart) -> dict[str, Any]:
        part = openai_common.inline_media(part)
        if openai_common.find_media_flaw(part) or self._audio_flaw(part):
            return {"type": "text", "text": openai_common.media_note(part)}
        if _is_picture(part):
            return {"type": "image_url", "image_url": {"url": openai_common.media_url(part)}}
        if part.url:  # the model gets at least the address of a file from a tool
            return {"type": "text", "text": part.url}
        if openai_common.is_audio(part):
            return {"type": "input_audio", "input_audio": self._audio_data(part)}
        return {
            "type": "file",
            "file": {"filename": getattr(part, "name", "") or "file", "file_data": openai_common.media_url(part)},
        }

    def _audio_data(self, part: MediaPart) -> Any:
        return {"data": part.data, "format": openai_common.audio_format(part)}

    def _media_message(self, parts: Iterable[bytes]) -> bytes:
        return b'{"role":"user","content":[' + b",".join(parts) + b"]}"


def _request_options(model: str, usage: bool) -> dict[str, Any]:
    options = {"model": model, "stream": True}
    return options | {"stream_options": {"include_usage": True}} if usage else options


@lru_cache(256)
def _plain_head(model: str, usage: bool) -> bytes:
    """Return the head of a request without settings, without its closing brace."""
    return encode_json(_request_options(model, usage))[:-1]


def _is_picture(part: MediaPart) -> bool:
    return isinstance(part, ImagePart) or openai_common.media_type(part).startswith("image/")


# -- replies --------------------------------------------------------------------------------------------------------


class ChatReplyParser:
    """A parser for the chunks of a completion."""

    __slots__ = ("calls", "details", "done", "finish", "first", "form", "refused", "server")

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.form = ""  # of tool calls: `tool_calls`, or the older `function_call`
        self.refused = False  # the model refused
        self.calls = ToolCallAssembler()
        self.details: dict[tuple[Any, Any], dict[str, Any]] = {}  # signed reasoning of OpenRouter, by type and index
        self.first: dict[str, Any] | None = None  # the first chunk, with the id of the reply
        self.finish = ""  # the finish reason
        self.done = False  # the server sent its end marker

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        for data in events:
            if data.startswith(b"[DONE]"):
                self.done = True
                return
            try:
                chunk = orjson.loads(data)
                self.first = self.first or chunk
                for choice in chunk.get("choices") or ():
                    if not choice.get("index"):  # only one choice was requested
                        yield from self._read_choice(choice)
                if chunk.get("usage") or chunk.get("error") or "choices" not in chunk:
                    yield from self._read_extras(chunk)
            except (AttributeError, TypeError, ValueError, LookupError):
                raise openai_common.unreadable_error(self.server, data) from None

    def _read_choice(self, choice: dict[str, Any]) -> list[Delta]:
        """Return the deltas of a choice; note its finish reason."""
        delta = choice.get("delta")
        deltas: list[Delta] = []
        if delta is None:  # some servers do not stream
            delta, self.done = choice.get("message") or {}, "message" in choice
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            deltas.append(ReasoningDelta(_join_text(thought), provider=self.server.name))
        if text := delta.get("content") or delta.get("refusal"):
            if type(text) is not str:  # a list of parts, some of which may be reasoning
                thoughts = [_join_text(part["thinking"]) for part in text if "thinking" in part]
                deltas += [ReasoningDelta(thought, provider=self.server.name) for thought in thoughts if thought]
            if said := text if type(text) is str else _join_text(text):
                deltas.append(TextDelta(said))
        self.refused = self.refused or bool(delta.get("refusal"))
        function = delta.get("function_call")
        older = [{"index": 0, "function": function}] if function else []
        for form, pieces in (("tool_calls", delta.get("tool_calls")), ("function_call", older)):
            if pieces and (self.form or form) == form:  # a call in both forms is one call
                self.form = form
                for piece in pieces:
                    deltas += self.calls.deltas(piece)
        for piece in delta.get("reasoning_details") or ():
            self._add_detail(piece)
        if reason := choice.get("finish_reason"):
            self.finish = str(reason)
            if self.details and self.server.name == "openrouter":
                details = encode_json([*self.details.values()]).decode()
                deltas.append(ReasoningDelta("", details, "openrouter-details"))
                self.details = {}
        return deltas

    def _add_detail(self, piece: dict[str, Any]) -> None:
        """Join the pieces of reasoning that are one block."""
        block = self.details.setdefault((piece.get("type"), piece.get("index")), {})
        for key, value in piece.items():
            joins = key in ("text", "summary", "data") and isinstance(value, str)
            if value is not None:
                block[key] = block.get(key, "") + value if joins else value

    def _read_extras(self, chunk: dict[str, Any]) -> list[Delta]:
        """Read the usage or an error from a chunk."""
        if error := chunk.get("error") or (chunk.get("object") == "error" and chunk):
            self.finish, self.done = "", False
            raise openai_common.refusal_error(self.server, error)
        if not (usage := chunk.get("usage")):
            return []
        count = openai_common.count_tokens
        cached = count(usage, "prompt_tokens_details", "cached_tokens") or count(usage, "prompt_cache_hit_tokens")
        thought = count(usage, "completion_tokens_details", "reasoning_tokens")
        return [Usage(count(usage, "prompt_tokens"), count(usage, "completion_tokens"), cached, thought)]

    def end(self) -> Finish:
        if not (self.finish or self.done):
            raise openai_common.truncated_error(self.server)
        natural = self.finish in ("", "stop", "function_call")
        reason = ("tool_calls" if self.calls.started else "stop") if natural else self.finish
        if self.refused and self.calls.started:  # the tool calls of a refused reply are not run
            reason = "content_filter"
        return openai_common.build_finish(reason, self.first or {})


def _join_text(content: Any) -> str:
    """Return the text of a string or of a list of parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content if "text" in part)
