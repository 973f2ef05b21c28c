"""A stateless client for OpenAI's Responses API: wick stores the conversation, the server does not.

Reasoning items are encrypted. They are stored as the signature of the message's reasoning, with their position among
the items of the reply, and sent back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import orjson

from wick._internal.fast_json import encode_json
from wick.errors import ConfigError, ModelError
from wick.messages import ImagePart, MediaPart, Message, Part, TextPart
from wick.models import _http, openai_common
from wick.models._http import ModelServer, TimeLimits
from wick.models._network import NetworkSettings, PathText
from wick.protocols import CallArgs, CallStart, Delta, Finish, HoldsSchema, ReasoningDelta, Request, TextDelta, Usage

_WIRE = "openai-responses"
_THOUGHTLESS = re.compile(r"(ft:)?(gpt-[34]|chatgpt|.*-chat)")  # models without reasoning items
_SIGNATURE = re.compile(r"(\d{1,9}) (\S*) (\S+)")  # a signature: position, id and encrypted content


class OpenAIResponses:
    """A model behind OpenAI's Responses API.

        OpenAIResponses("gpt-5")

    Reasoning summaries are optional: `settings={"extra": {"reasoning": {"summary": "auto"}}}`.
    """

    holds_schema: HoldsSchema = "always"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = openai_common.OPENAI_URL,
        api_key: str | None = None,
        name: str = _WIRE,
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        if not model:
            raise ConfigError(f"name the model of {name}, as in '{name}:gpt-5'")
        self.model = model
        network = NetworkSettings(verify, cert, trust_env)
        self.server = openai_common.build_server(name, base_url, "/responses", api_key, headers, limits, network)

    @property
    def name(self) -> str:
        return f"{self.server.name}:{self.model}"

    def __repr__(self) -> str:
        return f"<OpenAIResponses {self.name}>"

    def unsupported_reason(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty string."""
        return "" if isinstance(part, TextPart) else _find_flaw(openai_common.inline_media(part))

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return _http.stream(self.server, self.body(request), _Response(self.server))

    # -- requests ---------------------------------------------------------------------------------------------------

    def body(self, request: Request) -> bytes:
        """Return the request body as bytes. Each message and each tool is encoded only once."""
        openai_common.check_newest_message(request.messages, self.unsupported_reason)
        head = openai_common.with_extra(self.server, self._head(request), request, "input", "tools")
        prefix, rest = openai_common.cached_prefix(
            f"{_WIRE}:prefix", request.messages, lambda messages: b",".join(self._encode_messages(messages))
        )
        items = [*prefix, *self._encode_messages(rest)]
        functions = openai_common.encode_tools(  # the default is strict, which refuses optional arguments
            _WIRE, request.tools, lambda tool: {"type": "function", **tool.schema, "strict": False}
        )
        tail = b'],"tools":[' + b",".join(functions) + b"]}" if functions else b"]}"
        return openai_common.join_items(head + b',"input":[', items, tail)

    def _head(self, request: Request) -> dict[str, Any]:
        head = {
            "model": self.model,
            "stream": True,
            "store": False,
            **openai_common.build_settings(self.server, request),
        }
        if "stop" in head:
            raise ModelError(f"{self.server.name} has no setting 'stop'; leave it out, or use 'openai:{self.model}'")
        head |= {"instructions": request.system} if request.system else {}
        if not _THOUGHTLESS.match(self.model):
            head["include"] = ["reasoning.encrypted_content"]
        if "max_tokens" in head:
            head["max_output_tokens"] = head.pop("max_tokens")
        if tool := openai_common.named_tool(head.get("tool_choice", "auto")):
            head["tool_choice"] = {"type": "function", "name": tool}
        if form := head.pop("response_format", None):
            head["text"] = {"format": openai_common.build_json_format(form)}
        return head

    def _encode_messages(self, messages: tuple[Message, ...]) -> list[bytes]:
        return [message.cache.get(_WIRE) or self._encode(message) for message in messages]

    def _encode(self, message: Message) -> bytes:
        """Encode and cache the items of a message, separated by commas."""
        if message.role == "assistant":
            text = [{"role": "assistant", "content": message.text}] if message.text or not message.tool_calls else []
            calls = [
                {"type": "function_call", "call_id": call.id, **openai_common.call_fields(call)}
                for call in message.tool_calls
            ]
            items: list[dict[str, Any]] = [*text, *calls]
            for thought in message.reasoning:
                if thought.provider == _WIRE and (match := _SIGNATURE.fullmatch(thought.signature)):
                    index, id, encrypted = match.groups()
                    summary = [{"type": "summary_text", "text": thought.text}] if thought.text else []
                    item = {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}
                    items.insert(min(int(index), len(items) - 1), item)  # never last: the API refuses that
        else:
            content: Any = message.content
            if not isinstance(content, str):
                content = [_encode_part(part) for part in content]
            if message.role == "tool":
                items = [{"type": "function_call_output", "call_id": message.tool_call_id, "output": content}]
            else:
                items = [{"role": message.role, "content": content}]
        encoded = message.cache[_WIRE] = b",".join(map(encode_json, items))
        return encoded


def _encode_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    part = openai_common.inline_media(part)
    if _find_flaw(part):
        return {"type": "input_text", "text": openai_common.media_note(part)}
    if isinstance(part, ImagePart) or openai_common.media_type(part).startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": openai_common.media_url(part)}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {
        "type": "input_file",
        "filename": getattr(part, "name", "") or "file",
        "file_data": openai_common.media_url(part),
    }


def _find_flaw(part: MediaPart) -> str:
    """Return why the API cannot read a part, or an empty string."""
    if openai_common.is_audio(part):
        what = openai_common.describe_media(part)
        return f"the Responses API has no audio input, so {what} cannot be sent; use openai:MODEL with an audio model"
    return openai_common.find_media_flaw(part)


# -- replies --------------------------------------------------------------------------------------------------------


class _Response:
    """A parser for the events of a response."""

    __slots__ = ("calls", "done", "finish", "has_text", "refused", "response", "server", "with_arguments")

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.calls: set[int] = set()  # positions of the calls
        self.with_arguments: set[int] = set()  # positions of calls whose arguments were streamed
        self.has_text = self.done = self.refused = False
        self.finish = ""
        self.response: dict[str, Any] = {}  # the whole response, with its id

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        for data in events:
            if self.done or data.startswith(b"[DONE]"):  # proxies add [DONE]; only a terminal event ends a response
                continue
            try:
                yield from self._read_event(orjson.loads(data))
            except (AttributeError, TypeError, ValueError, LookupError):
                raise openai_common.unreadable_error(self.server, data) from None

    def _read_event(self, event: dict[str, Any]) -> Iterator[Delta]:
        kind = event.get("type")
        if kind == "response.output_text.delta" or kind == "response.refusal.delta":
            self.refused = self.refused or kind == "response.refusal.delta"
            yield self._add_text(event["delta"])
        elif kind == "response.reasoning_summary_text.delta" or kind == "response.reasoning_text.delta":
            yield ReasoningDelta(_str(event["delta"]), provider=_WIRE)
        elif kind == "response.function_call_arguments.delta":
            self.with_arguments.add(_event_index(event))
            yield CallArgs(_event_index(event), _str(event["delta"]))
        elif kind == "response.function_call_arguments.done":
            yield from self._add_arguments(_event_index(event), event["arguments"])
        elif kind == "response.output_item.added":
            yield from self._add_item(_event_index(event), event["item"])
        elif kind == "response.output_item.done":
            yield from self._finish_item(_event_index(event), event["item"])
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield ReasoningDelta("\n\n", provider=_WIRE)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            yield from self._finish(event["response"])
        elif event.get("object") == "response":  # some servers do not stream
            yield from self._read_whole(event)
        elif kind == "error" or event.get("error"):
            raise openai_common.refusal_error(self.server, event.get("error") or event)

    def _add_text(self, text: str) -> TextDelta:
        self.has_text = True
        return TextDelta(_str(text))

    def _add_item(self, index: int, item: dict[str, Any]) -> Iterator[Delta]:
        if item["type"] == "message" and self.has_text:
            yield TextDelta("\n\n")
        elif item["type"] == "function_call" and index not in self.calls:
            self.calls.add(index)
            yield CallStart(index, _str(item["call_id"]), _str(item["name"]))

    def _add_arguments(self, index: int, text: str) -> Iterator[Delta]:
        """Yield complete arguments, unless they were streamed."""
        if index not in self.with_arguments:
            self.with_arguments.add(index)
            yield CallArgs(index, _str(text))

    def _finish_item(self, index: int, item: dict[str, Any]) -> Iterator[Delta]:
        """Yield the parts of an item that were not streamed."""
        if item["type"] == "function_call":
            yield from self._add_item(index, item)
            yield from self._add_arguments(index, item.get("arguments") or "")
        elif item["type"] == "reasoning" and (encrypted := item.get("encrypted_content")):
            yield ReasoningDelta("", f"{index} {item.get('id') or ''} {encrypted}", _WIRE)

    def _finish(self, response: dict[str, Any]) -> Iterator[Delta]:
        if usage := response.get("usage"):
            cached = openai_common.count_tokens(usage, "input_tokens_details", "cached_tokens")
            thought = openai_common.count_tokens(usage, "output_tokens_details", "reasoning_tokens")
            yield Usage(
                openai_common.count_tokens(usage, "input_tokens"),
                openai_common.count_tokens(usage, "output_tokens"),
                cached,
                thought,
            )
        if response.get("error") or response.get("status") == "failed":
            raise openai_common.refusal_error(self.server, response.get("error"))
        cut = (response.get("incomplete_details") or {}).get("reason")
        reason = "length" if cut == "max_output_tokens" else str(cut or "")
        if not reason and (status := response.get("status") or "completed") != "completed":
            reason = str(status)
        if not reason and self.refused and self.calls:  # the tool calls of a refused reply are not run
            reason = "content_filter"
        self.finish = reason or ("tool_calls" if self.calls else "stop")
        self.response, self.done = response, True

    def end(self) -> Finish:
        if not self.done:
            raise openai_common.truncated_error(self.server)
        return openai_common.build_finish(self.finish, self.response)

    def _read_whole(self, response: dict[str, Any]) -> Iterator[Delta]:
        for index, item in enumerate(response.get("output") or ()):
            yield from self._add_item(index, item)
            for part in item.get("summary") or ():
                yield ReasoningDelta(_str(part["text"]), provider=_WIRE)
            if item["type"] == "message":
                self.refused = self.refused or any(part.get("refusal") for part in item["content"])
                yield self._add_text("".join(part.get("text") or part.get("refusal") or "" for part in item["content"]))
            yield from self._finish_item(index, item)
        yield from self._finish(response)


def _str(value: Any) -> str:
    if type(value) is str:
        return value
    raise TypeError(f"{value!r} is not text")


def _event_index(event: dict[str, Any]) -> int:
    if type(index := event["output_index"]) is int:
        return index
    raise TypeError(f"{index!r} is not a place")
