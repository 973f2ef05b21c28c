"""The format of recorded replies: requests in short, the deltas of replies with joined texts, and both as YAML.

Cassettes and the recordings of evals have this format. A cassette has the list `replies`. The recordings of a suite
have the list `recordings`, with the `replies` of each case.
"""

from __future__ import annotations

import builtins
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from wick import errors
from wick._internal import safe_yaml
from wick._internal.frozen import canonical_json, digest, thaw
from wick.errors import ConfigError, ModelError
from wick.messages import FilePart, Message, Part, TextPart
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, Request, TextDelta, Usage
from wick.testing.redaction import matches_redacted
from wick.tools import Tool

Json = dict[str, Any]
_DIGEST_CHARS = 8  # of a tool's definition or of a file
_CHANGE_CHARS = 60  # of a text that changed
_TOOL_DIGEST = re.compile(r"\) [0-9a-f]{8}")


@dataclass(slots=True)
class RecordedReply:
    """A request in short, and the events of its reply. `number` identifies it in its cassette."""

    number: int
    request: Json
    events: list[Json]
    key: bytes = field(init=False, repr=False)  # equal for equal requests

    def __post_init__(self) -> None:
        self.key = canonical_json(self.request)

    @property
    def has_error(self) -> bool:
        """Return True if the model failed."""
        return any("error" in event for event in self.events)


# -- requests -------------------------------------------------------------------------------------------------------


def summarize_request(request: Request) -> Json:
    """Return a request in short: system prompt, tools, settings and messages, without ids and reasoning."""
    summary = {
        "system": request.system,
        "tools": {tool.name: _summarize_tool(tool) for tool in request.tools},
        "settings": _to_json(request.settings),
    }
    return {
        **{key: value for key, value in summary.items() if value},
        "messages": [summarize_message(message) for message in request.messages],
    }


def _summarize_tool(tool: Tool) -> str:
    """Return the parameters of a tool, the digest of its whole definition, and its descriptions.

    Earlier versions wrote the text up to the digest. So a summary that begins with an earlier one is equal to it.
    """
    properties = tool.parameters.get("properties", {})
    types = [f"{name}: {part.get('type', 'any')}" for name, part in properties.items()]
    details = [f"- {name}: {text}" for name, part in properties.items() if (text := _describe_parameter(part))]
    head = f"({', '.join(types)}) {digest(canonical_json(tool.schema))[:_DIGEST_CHARS]} {tool.description.strip()}"
    return "\n".join([head.strip(), *details])


def _describe_parameter(schema: Json) -> str:
    """Return the description of a parameter, and the rest of its schema."""
    rest = {key: thaw(value) for key, value in schema.items() if key not in ("type", "title", "description")}
    shown = json.dumps(rest, ensure_ascii=False, sort_keys=True, default=str) if rest else ""
    return " ".join(filter(None, (str(schema.get("description", "")).strip(), shown)))


def is_same_tool(recorded: str | None, sent: str | None) -> bool:
    """Return True if the summary of a tool is as recorded, also by an earlier version."""
    if recorded is None or sent is None:
        return recorded is sent
    return (
        sent.startswith(f"{recorded} ") or f"{sent}\n".startswith(f"{recorded}\n") or matches_redacted(recorded, sent)
    )


def matches_request(recorded: Json, sent: Json) -> bool:
    """Return True if a request in short is as recorded. A recorded `[secret]` matches any word."""
    tools, others = recorded.get("tools", {}), sent.get("tools", {})
    if tools.keys() != others.keys() or not all(is_same_tool(tools[name], others[name]) for name in tools):
        return False
    return matches_redacted({**recorded, "tools": {}}, {**sent, "tools": {}})


def describe_text_change(recorded: str, sent: str) -> str:
    """Return the words between the first and the last difference of two texts."""
    pairs = [*zip(recorded, sent, strict=False)]
    start = next((at for at, (old, new) in enumerate(pairs) if old != new), len(pairs))
    backward = zip(reversed(recorded[start:]), reversed(sent[start:]), strict=False)
    end = next((at for at, (old, new) in enumerate(backward) if old != new), len(pairs) - start)
    start = max(recorded.rfind(" ", 0, start), recorded.rfind("\n", 0, start), start - _CHANGE_CHARS) + 1
    rest = re.match(r"\S*", recorded[len(recorded) - end :])  # up to the end of the word
    end -= len(rest[0]) if rest else 0
    parts = (text[start : len(text) - end] for text in (recorded, sent))
    old, new = (part if len(part) <= _CHANGE_CHARS else f"{part[:_CHANGE_CHARS]}…" for part in parts)
    return f"{old!r} is now {new!r}"


def describe_tool_change(recorded: str | None, sent: str | None) -> str:
    """Return a short description of the change of a tool."""
    if recorded is None or sent is None:
        return "new" if recorded is None else "removed"
    old, new = (_TOOL_DIGEST.sub(")", text, count=1) for text in (recorded, sent))
    if old == new:
        return "its schema"
    return "its definition" if new.startswith(old) else describe_text_change(old, new)


def describe_message_change(recorded: Json, sent: Json) -> str:
    """Return a short description of the change of a message: for a result of a tool, with the name of the tool."""
    is_result = "tool" in recorded and recorded["tool"] == sent.get("tool")
    old, new = (row.get("result") if is_result else next(iter(row.values())) for row in (recorded, sent))
    if not isinstance(old, str) or not isinstance(new, str) or old == new:
        return ""
    return f"{recorded['tool']}: {describe_text_change(old, new)}" if is_result else describe_text_change(old, new)


def list_unseen_changes(recorded: Json, sent: Json) -> list[str]:
    """Return a sentence for each tool of two requests whose change only its digest shows."""
    tools, others = recorded.get("tools", {}), sent.get("tools", {})
    both = [(name, tools[name], others[name]) for name in tools if name in others]
    reason = "the digest of the tool {} shows a change that its summary does not, as in a nested type or an option"
    return [
        reason.format(name)
        for name, old, new in both
        if not is_same_tool(old, new) and describe_tool_change(old, new).startswith("its ")
    ]


def summarize_message(message: Message) -> Json:
    """Return a message in short. Ids of tool calls are left out, as they may be random."""
    content: Any = message.content
    if not isinstance(content, str):
        content = [_summarize_part(part) for part in content]
    if message.role == "tool":
        failed = {"failed": True} if message.failed else {}
        return {"tool": message.name, "result": content, **failed}
    calls = {"calls": [{call.name: thaw(call.args)} for call in message.tool_calls]} if message.tool_calls else {}
    return {message.role: content, **calls, **({"from": message.name} if message.name else {})}


def _summarize_part(part: Part) -> str | Json:
    if isinstance(part, TextPart):
        return part.text
    shown = part.url or f"{part.media_type or 'data'} {digest(part.data.encode())[:_DIGEST_CHARS]}"
    name = part.name if isinstance(part, FilePart) else ""
    return {part.type: f"{name}: {shown}" if name else shown}


def _to_json(value: Any) -> Any:
    """Return settings as JSON data; another object is represented by its type."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(inner) for inner in value]
    return value if isinstance(value, str | bool | int | float | None) else type(value).__name__


# -- replies --------------------------------------------------------------------------------------------------------


def encode_deltas(deltas: Iterable[Delta]) -> list[Json]:
    """Return the events of a reply. Successive pieces of a text are joined, and `chunks` has their lengths."""
    events: list[Json] = []
    started = 0
    for _, group in groupby(_mark_groups(deltas), key=lambda marked: marked[0]):
        pieces = [delta for _, delta in group]
        match pieces[0]:
            case TextDelta():
                events.append(_join_pieces("text", pieces))
            case ReasoningDelta(provider=provider):
                signature = pieces[-1].signature
                rest = {"signature": signature, "provider": provider}
                events.append(_join_pieces("reasoning", pieces) | {key: text for key, text in rest.items() if text})
            case CallStart(index, id, name):
                place = {} if index == started else {"index": index}
                events.append({"call": name, **({"id": id} if id else {}), **place})
                started += 1
            case CallArgs(index):
                follows = events and "call" in events[-1] and events[-1].get("index", started - 1) == index
                joined = _join_pieces("args", pieces)
                if follows:
                    events[-1] |= joined
                else:
                    events.append(joined | {"index": index})
            case Usage() as usage:
                events.append({"usage": {key: count for key, count in usage.to_json().items() if count}})
            case Finish(reason):
                events.append({"finish": reason})
    return events


def _mark_groups(deltas: Iterable[Delta]) -> Iterator[tuple[tuple[object, ...], Any]]:
    """Yield each delta with a mark that is equal for the successive pieces of one text."""
    blocks = 0
    for number, delta in enumerate(deltas):
        match delta:
            case TextDelta():
                yield ("text",), delta
            case ReasoningDelta():
                yield ("reasoning", delta.provider, blocks), delta
                blocks += bool(delta.signature)  # a signature ends its block
            case CallArgs(index):
                yield ("args", index), delta
            case _:
                yield (number,), delta


def _join_pieces(key: str, pieces: list[Any]) -> Json:
    lengths = [(length, len([*same])) for length, same in groupby(len(piece.text) for piece in pieces)]
    chunks = " ".join(f"{length}*{count}" if count > 1 else str(length) for length, count in lengths)
    return {key: "".join(piece.text for piece in pieces), "chunks": chunks}


def encode_error(error: Exception) -> Json:
    """Return the event of an error: its class, its message and its attributes."""
    kind = type(error)
    is_known = getattr(errors, kind.__name__, getattr(builtins, kind.__name__, None)) is kind
    name = kind.__name__ if is_known else f"{kind.__module__}:{kind.__qualname__}"
    plain = {key: value for key, value in vars(error).items() if isinstance(value, str | bool | int | float)}
    return {"error": name, "message": str(error), **plain}


def decode_events(events: Iterable[Json]) -> Iterator[Delta]:
    """Yield the deltas of a recorded reply; raise its error, if it has one."""
    started = 0
    for event in events:
        match event:
            case {"text": text}:
                yield from map(TextDelta, _split_text(str(text), event, r"\s*\S+\s*$|\s*\S+|\s+"))
            case {"reasoning": text}:
                *first, last = _split_text(str(text), event) or [""]
                provider = event.get("provider", "")
                yield from (ReasoningDelta(piece, provider=provider) for piece in first)
                yield ReasoningDelta(last, event.get("signature", ""), provider)
            case {"call": name}:
                index = event.get("index", started)
                yield CallStart(index, str(event.get("id", "")), str(name))
                started += 1
                if "args" in event:
                    yield from (CallArgs(index, piece) for piece in _split_text(str(event["args"]), event))
            case {"args": text, "index": index}:
                yield from (CallArgs(index, piece) for piece in _split_text(str(text), event))
            case {"usage": counts}:
                yield Usage.from_json(counts or {})
            case {"finish": reason}:
                yield Finish(str(reason))
            case {"error": _}:
                raise _decode_error(event)
            case _:
                raise ConfigError(f"a cassette has no event {event!r}; see its other events for the form")


def _split_text(text: str, event: Json, words: str = "") -> list[str]:
    """Return the pieces of a text, as recorded. A text that was edited is split into words, or is one piece."""
    lengths = [
        int(length)
        for length, count in re.findall(r"(\d+)(?:\*(\d+))?", str(event.get("chunks", "")))
        for _ in range(int(count or 1))
    ]
    if not lengths or sum(lengths) != len(text):
        return re.findall(words, text) if words else [text]
    return [text[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]


def _decode_error(event: Json) -> Exception:
    """Return a recorded error. If its class is not loaded, return a ModelError with the same message.

    A cassette is data: no module is imported because a cassette names it.
    """
    name, message = str(event["error"]), str(event.get("message", ""))
    module, _, path = name.rpartition(":")
    kind: Any = getattr(errors, path, getattr(builtins, path, None))
    if module:
        kind = sys.modules.get(module)
        for part in path.split("."):
            kind = getattr(kind, part, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return ModelError(f"{name}: {message}")
    error = kind.__new__(kind)
    error.args = (message,)
    defaults = vars(ModelError("")) if issubclass(kind, ModelError) else {}
    vars(error).update(defaults | {key: event[key] for key in event if key not in ("error", "message")})
    return error


def assemble_message(events: Iterable[Json]) -> Json | None:
    """Return the assistant message of a recorded reply in short, or None if the reply failed."""
    reply = Reply()
    try:
        for delta in decode_events(events):
            reply.feed(delta)
        return summarize_message(reply.message())
    except Exception:  # the recorded error of any provider
        return None


# -- files ----------------------------------------------------------------------------------------------------------


VERSION = 1
_CONTEXT = ("system", "tools", "settings")


def list_rows(data: Any) -> list[Any] | None:
    """Return the replies of a file, in order; None if it is not a file of this version."""
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return None
    if isinstance(groups := data.get("recordings"), list):  # of the cases of a suite
        keys = ("replies", "requests", "judge")
        return [row for group in groups if isinstance(group, dict) for key in keys for row in group.get(key, [])]
    return data["replies"] if isinstance(data.get("replies"), list) else None


def read_reply(row: Any, earlier: dict[int, RecordedReply]) -> RecordedReply:
    """Return a reply of a file, and add it to the earlier ones; raise a ConfigError if it is not one."""
    try:
        number, request, events = row["number"], row["request"], row["reply"]
        reply = RecordedReply(number, expand_request(request, earlier), [dict(event) for event in events])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError("a reply has a number, a request and the list of events `reply`") from None
    if number in earlier:
        raise ConfigError(f"the number {number} is repeated")
    earlier[number] = reply
    return reply


def compress_request(reply: RecordedReply, earlier: Sequence[RecordedReply]) -> Json:
    """Return a request that refers to an earlier one for the parts they share: the inverse of expand_request."""
    request, messages = reply.request, reply.request["messages"]
    prefixes = [other for other in earlier if messages[: len(other.request["messages"])] == other.request["messages"]]
    if prefixes and messages:
        base = max(prefixes, key=lambda other: (len(other.request["messages"]), other.number))
        answer = assemble_message(base.events)
        rest = messages[len(base.request["messages"]) :]
        shown = [{"reply": base.number} if answer and message == answer else message for message in rest]
        return {"continues": base.number, **_find_changes(request, base.request), "messages": shown}
    like = next((other for other in earlier if not _find_changes(request, other.request)), None)
    if like is None or not any(request.get(key) for key in _CONTEXT):
        return request
    return {"like": like.number, "messages": messages}


def _find_changes(request: Json, other: Json) -> Json:
    """Return the system prompt, tools and settings of a request that differ from those of another one."""
    return {key: request.get(key) for key in _CONTEXT if request.get(key) != other.get(key)}


def expand_request(written: Json, earlier: Mapping[int, RecordedReply]) -> Json:
    """Return a complete request, with the parts of the earlier request that it refers to."""
    request = dict(written)
    messages = [_expand_message(message, earlier) for message in request.pop("messages", None) or []]
    if "like" in request:
        request = {**_find_earlier(request.pop("like"), earlier).request, **request}
    if "continues" in request:
        base = _find_earlier(request.pop("continues"), earlier).request
        request = {**base, **request}
        messages = [*base["messages"], *messages]
    kept = {key: request[key] for key in _CONTEXT if request.get(key)}
    return {**kept, "messages": messages}


def _expand_message(message: Json, earlier: Mapping[int, RecordedReply]) -> Json:
    if "reply" not in message:
        return message
    number = message["reply"]
    if (answer := assemble_message(_find_earlier(number, earlier).events)) is None:
        raise ConfigError(f"reply {number} has an error and is not a message")
    return answer


def _find_earlier(number: object, earlier: Mapping[int, RecordedReply]) -> RecordedReply:
    if isinstance(number, int) and number in earlier:
        return earlier[number]
    raise ConfigError(f"there is no reply {number} before the request that refers to it")


# Lines that YAML preserves in a block: without control characters, and without blanks at their ends.
_SIGN = r"[^\s\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]"
_ODD_BREAK = re.compile(r"[\r\x85\u2028\u2029]")  # YAML would read them as line feeds
_LINE = rf"{_SIGN}(?:(?:{_SIGN}| )*{_SIGN})?"
_BLOCK_TEXT = re.compile(rf"{_LINE}\n(?:(?: *{_LINE})?\n)*(?: *{_LINE})?")


def dump_yaml(data: Any) -> str:
    """Return data as YAML for readers: keys in order, blocks of lines, Unicode as it is."""
    return safe_yaml.dump_yaml(
        data,
        lambda text: '"' if _ODD_BREAK.search(text) else "|" if _BLOCK_TEXT.fullmatch(text) else None,
        width=110,
    )


def load_yaml(text: str, name: str) -> Any:
    """Return the data of a cassette; raise ConfigError if it is not YAML. `no`, `on` and dates are texts."""
    return safe_yaml.load_yaml(text, name, dialect=safe_yaml.RECORDING)[0]
