"""OpenAI's Responses API, asked without leaving anything behind there: wick keeps the conversation.

A reasoning model's thoughts come encrypted. They are kept as the signature of the message's reasoning, together with
their place among the reply's items, and sent back as they came.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import orjson

from wick.errors import ConfigError, ModelError
from wick.messages import ImagePart, Message, Part, Reasoning, TextPart, ToolCall
from wick.models import _http, openai_common
from wick.models._http import Server, TimeLimits
from wick.protocols import CallArgs, CallStart, Delta, Finish, HoldsSchema, ReasoningDelta, Request, TextDelta, Usage
from wick.tools import Tool

_WIRE = "openai-responses"
_THOUGHTLESS = re.compile(r"(ft:)?(gpt-[34]|chatgpt|.*-chat)")  # they refuse to be asked for thoughts
_KEPT = re.compile(r"(\d{1,9}) (\S*) (\S+)")  # a thought's signature: its place, its id and its encrypted content


class OpenAIResponses:
    """A model behind OpenAI's Responses API.

        OpenAIResponses("gpt-5")

    Summaries of what it thought are shown when asked for: `settings={"extra": {"reasoning": {"summary": "auto"}}}`.
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
    ) -> None:
        if not model:
            raise ConfigError(f"name the model of {name}, as in '{name}:gpt-5'")
        self.model = model
        self.server = openai_common.server(name, base_url, "/responses", api_key, headers, limits)

    @property
    def name(self) -> str:
        return f"{self.server.name}:{self.model}"

    def __repr__(self) -> str:
        return f"<OpenAIResponses {self.name}>"

    def refuses(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty text."""
        return "" if isinstance(part, TextPart) else openai_common.media_flaw(openai_common.inline(part))

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return _http.stream(self.server, self.body(request), _Response(self.server))

    # -- what is sent -----------------------------------------------------------------------------------------------

    def body(self, request: Request) -> bytes:
        """The request as bytes: each message is encoded once, in its life, and each tool."""
        openai_common.check_newest(request.messages, self.refuses)
        head = openai_common.with_extra(self.server, self._head(request), request, "input", "tools")
        begun, rest = openai_common.beginning(f"{_WIRE}:begun", request.messages, self._joined)
        items = [*begun, *self._said(rest)]
        tools = b",".join(openai_common.tools(_WIRE, request.tools, _tool))
        tail = b'],"tools":[' + tools + b"]}" if tools else b"]}"
        return openai_common.listed(head + b',"input":[', items, tail)

    def _head(self, request: Request) -> dict[str, Any]:
        head = {"model": self.model, "stream": True, "store": False, **openai_common.settings(self.server, request)}
        if "stop" in head:
            raise ModelError(f"{self.server.name} has no setting 'stop'; leave it out, or use 'openai:{self.model}'")
        head |= {"instructions": request.system} if request.system else {}
        if not _THOUGHTLESS.match(self.model):
            head["include"] = ["reasoning.encrypted_content"]
        if "max_tokens" in head:
            head["max_output_tokens"] = head.pop("max_tokens")
        if tool := openai_common.named(head.get("tool_choice", "auto")):
            head["tool_choice"] = {"type": "function", "name": tool}
        if form := head.pop("response_format", None):
            head["text"] = {"format": openai_common.json_format(form)}
        return head

    def _joined(self, messages: tuple[Message, ...]) -> bytes:
        return b",".join(self._said(messages))

    def _said(self, messages: tuple[Message, ...]) -> list[bytes]:
        return [message.cache.get(_WIRE) or self._encode(message) for message in messages]

    def _encode(self, message: Message) -> bytes:
        """A message as the items it comes to, with commas between them."""
        encoded = message.cache[_WIRE] = b",".join(map(openai_common.dumps, self._items(message)))
        return encoded

    def _items(self, message: Message) -> list[dict[str, Any]]:
        if message.role == "tool":
            return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": self._content(message)}]
        if message.role == "assistant":
            text = [{"role": "assistant", "content": message.text}] if message.text or not message.tool_calls else []
            return _with_thoughts([*text, *map(_call, message.tool_calls)], message.reasoning)
        return [{"role": message.role, "content": self._content(message)}]

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        return message.content if isinstance(message.content, str) else [_part(part) for part in message.content]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    part = openai_common.inline(part)
    if openai_common.media_flaw(part):
        return {"type": "input_text", "text": openai_common.media_note(part)}
    if isinstance(part, ImagePart) or openai_common.media_type(part).startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": openai_common.media_url(part)}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name or "file", "file_data": openai_common.media_url(part)}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call.id, **openai_common.called(call)}


def _with_thoughts(items: list[dict[str, Any]], thoughts: tuple[Reasoning, ...]) -> list[dict[str, Any]]:
    """Each thought goes back to its place, and never to the end: one that leads to nothing is refused."""
    for thought in thoughts:
        if thought.provider == _WIRE and (kept := _KEPT.fullmatch(thought.signature)):
            place, id, encrypted = kept.groups()
            summary = [{"type": "summary_text", "text": thought.text}] if thought.text else []
            item = {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}
            items.insert(min(int(place), len(items) - 1), item)
    return items


def _tool(
    tool: Tool,
) -> dict[str, Any]:  # this API is strict unless told otherwise, and then refuses optional arguments
    return {"type": "function", **tool.schema, "strict": False}


# -- what comes back ------------------------------------------------------------------------------------------------


class _Response:
    """A response that is still arriving."""

    __slots__ = ("argued", "begun", "done", "finish", "refused", "said", "server")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.begun: set[int] = set()  # the places of the calls
        self.argued: set[int] = set()  # of those, whose arguments came in pieces
        self.said = self.done = self.refused = False
        self.finish = ""

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        for data in events:
            if self.done or data.startswith(b"[DONE]"):  # proxies add it; only a terminal event ends a response
                continue
            try:
                yield from self._event(orjson.loads(data))
            except (AttributeError, TypeError, ValueError, LookupError):
                raise openai_common.unreadable(self.server, data) from None

    def _event(self, event: dict[str, Any]) -> Iterator[Delta]:
        kind = event.get("type")
        if kind == "response.output_text.delta" or kind == "response.refusal.delta":
            self.refused = self.refused or kind == "response.refusal.delta"
            yield self._text(event["delta"])
        elif kind == "response.reasoning_summary_text.delta" or kind == "response.reasoning_text.delta":
            yield ReasoningDelta(_str(event["delta"]), provider=_WIRE)
        elif kind == "response.function_call_arguments.delta":
            self.argued.add(_place(event))
            yield CallArgs(_place(event), _str(event["delta"]))
        elif kind == "response.function_call_arguments.done":
            yield from self._arguments(_place(event), event["arguments"])
        elif kind == "response.output_item.added":
            yield from self._added(_place(event), event["item"])
        elif kind == "response.output_item.done":
            yield from self._finished(_place(event), event["item"])
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield ReasoningDelta("\n\n", provider=_WIRE)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            yield from self._end(event["response"])
        elif event.get("object") == "response":  # some servers do not stream although they are asked to
            yield from self._whole(event)
        elif kind == "error" or event.get("error"):
            raise openai_common.refused(self.server, event.get("error") or event)

    def _text(self, text: str) -> TextDelta:
        self.said = True
        return TextDelta(_str(text))

    def _added(self, place: int, item: dict[str, Any]) -> Iterator[Delta]:
        if item["type"] == "message" and self.said:
            yield TextDelta("\n\n")
        elif item["type"] == "function_call" and place not in self.begun:
            self.begun.add(place)
            yield CallStart(place, _str(item["call_id"]), _str(item["name"]))

    def _arguments(self, place: int, text: str) -> Iterator[Delta]:
        """Arguments as a whole, unless they came in pieces."""
        if place not in self.argued:
            self.argued.add(place)
            yield CallArgs(place, _str(text))

    def _finished(self, place: int, item: dict[str, Any]) -> Iterator[Delta]:
        """What an item holds that did not come in pieces."""
        if item["type"] == "function_call":
            yield from self._added(place, item)
            yield from self._arguments(place, item.get("arguments") or "")
        elif item["type"] == "reasoning" and (encrypted := item.get("encrypted_content")):
            yield ReasoningDelta("", f"{place} {item.get('id') or ''} {encrypted}", _WIRE)

    def _end(self, response: dict[str, Any]) -> Iterator[Delta]:
        if usage := response.get("usage"):
            cached = openai_common.count(usage, "input_tokens_details", "cached_tokens")
            thought = openai_common.count(usage, "output_tokens_details", "reasoning_tokens")
            yield Usage(
                openai_common.count(usage, "input_tokens"), openai_common.count(usage, "output_tokens"), cached, thought
            )
        if response.get("error") or response.get("status") == "failed":
            raise openai_common.refused(self.server, response.get("error"))
        cut = (response.get("incomplete_details") or {}).get("reason")
        reason = "length" if cut == "max_output_tokens" else str(cut or "")
        if not reason and (status := response.get("status") or "completed") != "completed":
            reason = str(status)
        if not reason and self.refused and self.begun:  # what a reply asks for that was refused is not done
            reason = "content_filter"
        self.finish = reason or ("tool_calls" if self.begun else "stop")
        self.done = True

    def end(self) -> Finish:
        if not self.done:
            raise openai_common.cut(self.server)
        return Finish(self.finish)

    def _whole(self, response: dict[str, Any]) -> Iterator[Delta]:
        for place, item in enumerate(response.get("output") or ()):
            yield from self._added(place, item)
            for part in item.get("summary") or ():
                yield ReasoningDelta(_str(part["text"]), provider=_WIRE)
            if item["type"] == "message":
                self.refused = self.refused or any(part.get("refusal") for part in item["content"])
                yield self._text("".join(part.get("text") or part.get("refusal") or "" for part in item["content"]))
            yield from self._finished(place, item)
        yield from self._end(response)


def _str(value: Any) -> str:
    if type(value) is str:
        return value
    raise TypeError(f"{value!r} is not text")


def _place(event: dict[str, Any]) -> int:
    if type(place := event["output_index"]) is int:
        return place
    raise TypeError(f"{place!r} is not a place")
