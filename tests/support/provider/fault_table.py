"""The table: every kind of fault that a client must survive, by name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any, Literal

from provider.faults import (
    HTML,
    Fault,
    args,
    at,
    before,
    blank_lines,
    bomb,
    calling,
    calls_again,
    comments,
    corrupt,
    cr,
    crlf,
    cut,
    delay,
    drop,
    each_call,
    edit,
    end,
    endless,
    error_before,
    events,
    fields,
    forget,
    framed,
    headers,
    insert,
    instead,
    last,
    no_last_line,
    no_names,
    no_space,
    raw,
    reset,
    says,
    setting,
    split_data,
    stall,
    status,
    trickle,
    twice,
    with_values,
    zipped,
)
from provider.flow import CLOSE, RESET, STALL, Head, pause
from provider.script import Call, Event, Tokens

Means = Literal["read", "told", "fail", "any"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault and its expected outcome.

    read: nothing is lost. told: the model gets an error for its call, and the run continues. fail: the run fails.
    any: it may be read or not, but there is one outcome, and no tool is used with arguments that were not sent.
    """

    fault: Fault
    means: Means
    status: int | None = None
    retryable: bool | None = None
    retry_after: float | None = None
    limits: dict[str, float] = field(default_factory=dict)  # seconds the client may wait
    differs: dict[str, Means] = field(default_factory=dict)  # its outcome in one vendor's format

    def meaning(self, wire: str) -> Means:
        return self.differs.get(wire, self.means)


def _refuses(code: int, retryable: bool, fault: Fault | None = None, **more: Any) -> Kind:
    return Kind(fault or status(code), "fail", code, retryable, **more)


def _grown(data: Any) -> Any:
    """The pieces of text in an event, made long."""
    keys = ("reasoning_content", "arguments", "delta", "thinking", "partial_json", "text", "input")
    if isinstance(data, dict):
        return {k: "x" * 40_000 if k in keys and isinstance(v, str) else _grown(v) for k, v in data.items()}
    return [_grown(item) for item in data] if isinstance(data, list) else data


def _renumbered(data: Any) -> Any:
    """The same event, as one of the first call."""
    if "choices" in data:
        return with_values(data, {"tool_calls": [with_values(call, {"index": 0}) for call in _tool_calls(data)]})
    first = data.get("index", data.get("output_index", 0))
    return {**data, **{key: min(first, 2) for key in ("index", "output_index") if key in data}}


def _old(data: Any, both: bool = False) -> Any:
    """A call in the form that Chat Completions had before `tool_calls`, in its place or beside it."""
    if "choices" not in data:
        return data
    call = _tool_calls(data)[0]
    delta = {"function_call": call["function"], **({"tool_calls": [call]} if both else {})}
    return {**data, "choices": [{**data["choices"][0], "delta": delta}]}


def _tool_calls(data: Any) -> list[Any]:
    return list(data["choices"][0]["delta"]["tool_calls"])


def _but_one(all: list[Event], tag: str) -> list[Event]:
    found = [event for event in all if event.tag == tag]
    return [event for event in all if not found or event is not found[len(found) // 2]]


def _reversed(all: list[Event], tag: str) -> list[Event]:
    found = [event for event in all if event.tag == tag]
    return [found.pop() if event.tag == tag else event for event in all]


_MB = 1_000_000
_LATE = {"first_byte": 1.5, "between_chunks": 1.5}  # the replies after that must come within it, also on a busy machine
_LONG = {"total": 2.0}
_LINE = b"data: " + b"x" * _MB
_DEEP = '{"a": ' + "[" * 50_000 + "]" * 50_000 + ', "b": 3}'
_CALLS = tuple(Call(f"call_{number}", "add", '{"a": 1, "b": 1}') for number in range(200))

# Arguments are a part of an event's JSON in these formats, so the event cannot be read.
_IN_EVENT: dict[str, Means] = {"gemini": "fail"}

_WORDS = dict.fromkeys(
    ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens", "promptTokenCount"), "many"
)

FAULTS: dict[str, Kind] = {
    # the connection
    "closed before the answer": Kind(instead(CLOSE, stage="wire"), "fail", retryable=True),
    "reset before the answer": Kind(instead(RESET, stage="wire"), "fail", retryable=True),
    "closed in the status line": Kind(cut(9, "wire"), "fail", retryable=True),
    "closed in the headers": Kind(cut(40, "wire"), "fail", retryable=True),
    "closed after the headers": Kind(cut(0), "fail", retryable=True),
    "closed in the middle": Kind(cut(0.5), "fail", retryable=True),
    "reset in the middle": Kind(reset(0.5), "fail", retryable=True),
    "closed before the finish": Kind(before("finish", CLOSE), "fail", retryable=True),
    "closed before the end": Kind(before("end", CLOSE), "any"),
    "reset before the end": Kind(before("end", RESET), "any"),
    "ends in the middle": Kind(end(0.5), "fail", retryable=True),
    "ends in the middle, by closing": Kind(framed("close") | end(0.5), "fail", retryable=True),
    "ends between two events": Kind(events(lambda all: all[: len(all) // 2]), "fail", retryable=True),
    "not kept alive": Kind(at("wire", lambda flow: chain(flow, [CLOSE])), "any"),
    # time
    "slow headers": Kind(delay(0, 0.1, "wire"), "read"),
    "slow in the middle": Kind(delay(0.5, 0.1), "read"),
    "no headers": Kind(stall(0, "wire"), "fail", retryable=True, limits=_LATE),
    "no body": Kind(stall(0), "fail", retryable=True, limits=_LATE),
    "silence in the middle": Kind(stall(0.5), "fail", retryable=True, limits=_LATE),
    "silence before the end": Kind(before("end", STALL), "any", limits=_LATE),
    "an error's body never comes": Kind(
        Fault((("head", lambda head, wire: Head(500, {"Content-Length": "50"}, "none")),)) | instead(STALL),
        "fail",
        500,
        limits=_LATE,
    ),
    "comments for ever": Kind(
        at("body", lambda flow: chain.from_iterable(repeat((b": still there\n\n", pause(0.02))))), "fail", limits=_LONG
    ),
    "events of nothing for ever": Kind(endless("start"), "fail", limits=_LONG),
    "one byte at a time": Kind(trickle(1), "read"),
    "three bytes at a time": Kind(trickle(3), "read"),
    # HTTP
    "400": _refuses(400, False),
    "401": _refuses(401, False),
    "403": _refuses(403, False),
    "404": _refuses(404, False),
    "404 of another server": _refuses(404, False, status(404, b"404 page not found", "text/plain")),
    "408": _refuses(408, True),
    "409": _refuses(409, True),
    "413": _refuses(413, False, status(413, b"<html>Request Entity Too Large</html>", "text/html")),
    "422": _refuses(422, False, status(422, b'{"detail":[{"loc":["body","model"],"msg":"field required"}]}')),
    "429": _refuses(429, True),
    "429 with seconds": _refuses(429, True, status(429, retry_after="7"), retry_after=7.0),
    "429 with milliseconds": _refuses(429, True, status(429, retry_after_ms="1500"), retry_after=1.5),
    "429 with a past date": _refuses(
        429, True, status(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), retry_after=0.0
    ),
    "429 with nonsense": _refuses(429, True, status(429, retry_after="soon")),
    "500": _refuses(500, True),
    "500 with an empty body": _refuses(500, True, status(500, b"")),
    "500 with half a body": _refuses(500, True, status(500, b'{"error": {"mess') | framed("length", lie=500)),
    "502 with HTML": _refuses(502, True, status(502, HTML, "text/html")),
    "503 with an empty body": _refuses(503, True, status(503, b"", "text/plain")),
    "504": _refuses(504, True, status(504, b"upstream request timeout", "text/plain")),
    "529": _refuses(529, True),
    "a huge error": _refuses(500, True, status(500, b"x" * 5 * _MB, "text/plain")),
    "a redirect": _refuses(307, False, status(307, b"", Location="http://127.0.0.1:1/elsewhere")),
    "a redirect without a place": _refuses(302, False, status(302, b"")),
    "204": _refuses(204, False, status(204, b"")),
    "200 with an error": Kind(status(200), "fail"),
    "200 with HTML": Kind(status(200, HTML, "text/html"), "fail"),
    "200 with nothing": Kind(status(200, b"", "text/event-stream"), "fail"),
    "not HTTP": Kind(instead(b"SSH-2.0-OpenSSH_9.6\r\n", CLOSE, stage="wire"), "fail", retryable=True),
    "a wrong content type": Kind(headers(Content_Type="text/plain"), "any"),
    "HTTP/1.0": Kind(framed("close", version="HTTP/1.0"), "read"),
    "closed instead of a length": Kind(framed("close"), "read"),
    "a content length": Kind(framed("length"), "read"),
    "a content length too long": Kind(framed("length", lie=100), "any"),
    "a content length too short": Kind(framed("length", lie=-600), "fail"),
    "early hints": Kind(
        at("wire", lambda flow: chain([b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"], flow)), "read"
    ),
    "huge headers": Kind(headers(X_Padding="x" * 200_000), "fail"),
    "half a chunk": Kind(
        at("wire", lambda flow: (next(iter(flow)), b"ff\r\ndata: {}\n\n", CLOSE)), "fail", retryable=True
    ),
    "a chunk of no size": Kind(at("wire", lambda flow: (next(iter(flow)), b"zz\r\ndata: {}\n\n\r\n", CLOSE)), "fail"),
    "more after the last chunk": Kind(at("wire", lambda flow: chain(flow, [b"5\r\nhello\r\n0\r\n\r\n"])), "any"),
    "gzip": Kind(zipped | headers(Content_Encoding="gzip"), "read"),
    "invalid gzip": Kind(headers(Content_Encoding="gzip"), "fail"),
    "gzip cut short": Kind(zipped | headers(Content_Encoding="gzip") | end(0.5), "fail"),
    # server-sent events
    "CRLF": Kind(crlf, "read"),
    "CRLF, one byte at a time": Kind(crlf | trickle(1), "read"),
    "CR alone": Kind(cr, "read"),
    "CR alone, one byte at a time": Kind(cr | trickle(1), "read"),
    "comments": Kind(comments, "read"),
    "other fields": Kind(fields, "read"),
    "blank lines": Kind(blank_lines, "read"),
    "no space after the colon": Kind(no_space, "read"),
    "no names of events": Kind(no_names, "read"),
    "no last empty line": Kind(no_last_line, "read"),
    "data in several lines": Kind(split_data, "read"),
    "a byte order mark": Kind(insert(0, b"\xef\xbb\xbf"), "read"),
    "a byte order mark, one byte at a time": Kind(insert(0, b"\xef\xbb\xbf") | crlf | trickle(1), "read"),
    "no end": Kind(drop("end"), "any", differs={"chat": "read"}),
    "no finish": Kind(drop("finish"), "any", differs={"responses": "fail"}),
    "neither finish nor end": Kind(drop("finish") | drop("end"), "fail", retryable=True),
    "more after the end": Kind(insert(1.0, b"data: {oops\n\ndata: more\n\n"), "any"),
    "a wrong byte": Kind(corrupt(0.5), "any"),
    "a control character": Kind(before("finish", raw(b'{"x":"\x01"}')), "fail"),
    "invalid UTF-8": Kind(before("finish", raw(b'{"x":"\xc3\x28\xa0\xa1"}')), "fail"),
    "half an event": Kind(before("finish", raw('{"choices":[{"del')), "fail"),
    "half a character": Kind(before("finish", raw('{"type":"x","text":"\\ud83d"}')), "any"),
    "an event that is null": Kind(before("finish", raw("null")), "any"),
    "an event that is a list": Kind(before("finish", raw("[1, 2]")), "any"),
    "an event that is a number": Kind(before("finish", raw("3")), "any"),
    "an event that is a text": Kind(before("finish", raw('"hello"')), "any"),
    "an event that is empty": Kind(before("finish", raw("{}")), "any"),
    "an event of nulls": Kind(
        before("finish", raw('{"type":null,"choices":null,"delta":null,"item":null,"usage":null,"error":null}')), "any"
    ),
    "an unknown event": Kind(before("text", Event("x", {"type": "surprise", "choices": []}, "surprise")), "read"),
    "a deep event": Kind(before("finish", raw("[" * 50_000 + "]" * 50_000)), "any"),
    "an error at once": Kind(error_before("start"), "fail", retryable=True),
    "an error in the middle": Kind(error_before("args"), "fail", retryable=True),
    "an error before the finish": Kind(error_before("finish"), "fail", retryable=True),
    "an error in one word": Kind(
        before("finish", raw('{"type":"error","error":"overloaded"}')), "fail", differs={"converse": "read"}
    ),
    # size
    "a line of 20 MB": Kind(instead(*[_LINE[:_MB]] * 20, b"\n\n"), "fail"),
    "a comment of 20 MB": Kind(instead(b":", *[b"x" * _MB] * 20, b"\n\n"), "fail"),
    "a line without end": Kind(at("body", lambda flow: chain([b"data: "], repeat(b"x" * 100_000))), "fail"),
    "text without end": Kind(says(piece=40_000, text="x" * 40_000) | endless("text"), "fail"),
    "reasoning without end": Kind(edit("reasoning", lambda data: _grown(data)) | endless("reasoning"), "fail"),
    "arguments without end": Kind(
        edit("args", lambda data: _grown(data)) | endless("args"), "fail", differs={"gemini": "read"}
    ),
    "data lines without end": Kind(at("body", lambda flow: repeat(b"data: " + b"x" * 50_000 + b"\n")), "fail"),
    "a bomb": Kind(bomb(150 * _MB), "fail"),
    # tool calls
    "half the arguments": Kind(args('{"a": 2, "b"'), "told", differs=_IN_EVENT),
    "arguments with NaN": Kind(args('{"a": NaN, "b": 3}'), "told", differs=_IN_EVENT),
    "arguments with a key twice": Kind(args('{"a": 2, "b": 3, "a": 4}'), "told", differs=_IN_EVENT),
    "arguments in a list": Kind(args("[2, 3]"), "told"),
    "arguments in a text": Kind(args('"2 and 3"'), "told"),
    "arguments that are null": Kind(args("null"), "told"),
    "arguments twice": Kind(args('{"a": 2, "b": 3}{"a": 2, "b": 3}'), "told", differs=_IN_EVENT),
    "arguments with more behind": Kind(args('{"a": 2, "b": 3} thanks'), "told", differs=_IN_EVENT),
    "arguments in a fence": Kind(args('```json\n{"a": 2, "b": 3}\n```'), "told", differs=_IN_EVENT),
    "no arguments": Kind(args(""), "told"),
    "arguments of other types": Kind(args('{"a": "two", "b": [3]}'), "told"),
    "an argument missing": Kind(args('{"a": 2}'), "told"),
    "an argument too many": Kind(args('{"a": 2, "b": 3, "c": 4}'), "told"),
    "a huge number": Kind(args('{"a": 1e999, "b": 3}'), "told"),
    "deep arguments": Kind(args(_DEEP) | says(piece=10_000), "told", differs=_IN_EVENT),
    "arguments of 5 MB": Kind(args('{"a": 2, "b": "' + "x" * 5 * _MB + '"}') | says(piece=100_000), "told"),
    "arguments cut at the length": Kind(args('{"a": 2, "b"') | says(finish="length"), "told", differs=_IN_EVENT),
    "arguments with half a character": Kind(args('{"a": 2, "b": "\\ud83d"}'), "told", differs=_IN_EVENT),
    "no arguments at the length": Kind(args("") | says(finish="length"), "told"),
    "a tool that is not there": Kind(calling(name="rm"), "told"),
    "a tool with an odd name": Kind(calling(name="add; rm -rf /"), "told"),
    "a tool without a name": Kind(
        forget("call", "name") | forget("args done", "name") | forget("call done", "name"), "any"
    ),
    "a call without an id": Kind(forget("call", "id", "call_id", "item_id"), "any"),
    "a call without a number": Kind(
        each_call(lambda calls: calls[:1]) | forget("call", "index", "output_index"), "any"
    ),
    "pieces without a number": Kind(
        each_call(lambda calls: calls[:1]) | forget("args", "index", "output_index"), "any"
    ),
    "an invalid number": Kind(setting("call", index="x", output_index="x"), "any"),
    "a negative number": Kind(
        setting("call", index=-1, output_index=-1) | setting("args", index=-1, output_index=-1), "any"
    ),
    "an id twice": Kind(calls_again(), "fail"),
    "two calls under one number": Kind(
        calls_again(id="call_other", args='{"a": 1, "b": 1}')
        | events(lambda all: [replace(e, data=_renumbered(e.data)) if e.tag in ("call", "args") else e for e in all]),
        "any",
    ),
    "a call begins twice": Kind(twice("call"), "any"),
    "a call never begins": Kind(drop("call"), "any"),
    "a call begins late": Kind(last("call"), "any"),
    "a piece is missing": Kind(events(lambda all: _but_one(all, "args")), "any"),
    "a piece comes twice": Kind(twice("args"), "any"),
    "pieces come in reverse": Kind(events(lambda all: _reversed(all, "args")), "any"),
    "a piece after the finish": Kind(last("args"), "any"),
    "calls in the old form": Kind(
        each_call(lambda calls: calls[:1])
        | edit("call", lambda data: _old(data))
        | edit("args", lambda data: _old(data)),
        "any",
    ),
    "calls in both forms": Kind(
        each_call(lambda calls: calls[:1])
        | edit("call", lambda data: _old(data, both=True))
        | edit("args", lambda data: _old(data, both=True)),
        "any",
    ),
    "two hundred calls": Kind(says(calls=_CALLS, order=()), "fail"),
    "calls, but finished by stop": Kind(says(finish="stop"), "any"),
    # the rest
    "no usage": Kind(says(tokens=None), "read"),
    "negative usage": Kind(says(tokens=Tokens(-5, -7, -1, -1)), "read"),
    "huge usage": Kind(says(tokens=Tokens(2**63, 2**63, 0, 0)), "any"),
    "usage beyond JSON's numbers": Kind(says(tokens=Tokens(10**30, 10**30, 0, 0)), "any"),
    "usage in words": Kind(
        says(tokens=Tokens(1, 1))
        | edit("usage", lambda data: with_values(data, _WORDS))
        | edit("finish", lambda data: with_values(data, _WORDS)),
        "any",
    ),
    "no beginning": Kind(drop("start"), "any"),
    "two beginnings": Kind(twice("start"), "any"),
    "two finishes": Kind(twice("finish"), "any"),
    "two ends": Kind(twice("end"), "read"),
    "the end first": Kind(events(lambda all: [*all[-1:], *all[:-1]]), "any"),
    "everything in reverse": Kind(events(lambda all: all[::-1]), "any"),
    "everything twice": Kind(events(lambda all: [each for event in all for each in (event, event)]), "any"),
    "all at once, and again": Kind(events(lambda all: [*all, *all]), "any"),
    "an unknown finish": Kind(setting("finish", finish_reason="tired", stop_reason="tired"), "any"),
    "a finish that is a number": Kind(setting("finish", finish_reason=7, stop_reason=7, status=7), "any"),
    "text that is a list": Kind(setting("text", content=["a"], text=["a"]) | setting("text", delta=["a"]), "any"),
    "text that is a number": Kind(setting("text", content=5, text=5), "any"),
    "no delta": Kind(forget("text", "delta"), "any"),
}
