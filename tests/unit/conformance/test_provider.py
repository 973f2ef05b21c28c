"""The scripted server is as strict as the vendors, and its fault language works."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from provider import CLOSE, FAULTS, WIRES, Call, Event, Fault, Reply, Thought, Tokens, stream_of
from provider.checks import Refused
from provider.faults import (
    args,
    before,
    comments,
    corrupt,
    crlf,
    cut,
    delay,
    drop,
    drop_at,
    end,
    endless,
    forget,
    insert,
    raw,
    setting,
    stall,
    swap_at,
    trickle,
    twice_at,
)
from provider.flow import STALL, Act, Head, frame

HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
HEADERS |= {"x-api-key": "k", "anthropic-version": "2023-06-01", "x-goog-api-key": "k"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ISSUED = {"sig": "hm"}

CHAT: dict[str, Any] = {
    "model": "gpt-4o",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}],
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-5",
    "stream": True,
    "store": False,
    "input": [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "sig"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ],
    "tools": [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}],
}
MESSAGES: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 2000,
    "stream": True,
    "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "1"}]},
    ],
    "tools": [{"name": "add", "input_schema": SCHEMA}],
}
GEMINI: dict[str, Any] = {
    "generationConfig": {"temperature": 1, "stopSequences": ["END"]},
    "systemInstruction": {"parts": [{"text": "be brief"}]},
    "contents": [
        {"role": "user", "parts": [{"text": "go"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "add", "args": {"a": 1}, "id": "c1"}, "thoughtSignature": "sig"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "add", "id": "c1", "response": {"output": "1"}}}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "add", "parametersJsonSchema": SCHEMA}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
}
CONVERSE: dict[str, Any] = {
    "inferenceConfig": {"maxTokens": 100, "stopSequences": ["END"]},
    "system": [{"text": "be brief"}],
    "messages": [
        {"role": "user", "content": [{"text": "go"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
                {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}},
            ],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "1"}]}}]},
    ],
    "toolConfig": {"tools": [{"toolSpec": {"name": "add", "inputSchema": {"json": SCHEMA}}}]},
}
BODIES = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES, "gemini": GEMINI, "converse": CONVERSE}


def check(wire: str, body: Any, headers: dict[str, str] = HEADERS) -> None:
    WIRES[wire].check(body, headers, ISSUED)


@pytest.mark.parametrize("wire", WIRES)
def test_right_requests_are_accepted(wire: str) -> None:
    check(wire, BODIES[wire])


Wrong = tuple[str, tuple[Any, ...], Any, str]  # owner, path, replacement, and the message
GONE = object()

WRONG: list[Wrong] = [
    ("chat", ("model",), GONE, "must provide a model"),
    ("chat", ("messages",), [], "non-empty array"),
    ("chat", ("colour",), 1, "Unrecognized request argument supplied: colour"),
    ("chat", ("temperature",), 3, "temperature"),
    ("chat", ("max_tokens",), 0, "max_tokens"),
    ("chat", ("stop",), ["a"] * 5, "stop"),
    ("chat", ("stream",), False, "stream_options"),
    ("chat", ("tools",), [], "non-empty array"),
    ("chat", ("tools", 0, "function", "name"), "no good", "function.name"),
    ("chat", ("tools", 0, "function", "parameters"), {"type": "array"}, "type 'object'"),
    ("chat", ("tools", 0, "function", "parameters", "properties", "a"), {"type": "int"}, "Invalid schema"),
    ("chat", ("tool_choice",), {"type": "function", "function": {"name": "sub"}}, "tool_choice"),
    ("chat", ("response_format",), {"type": "json_object"}, "the word 'json'"),
    ("chat", ("messages", 0, "role"), "robot", "robot"),
    ("chat", ("messages", 1, "content"), None, "expected a string or an array"),
    ("chat", ("messages", 1, "content", 0, "type"), "input_text", "input_text"),
    ("chat", ("messages", 2, "tool_calls"), [], "non-empty array"),
    ("chat", ("messages", 2, "tool_calls", 0, "function", "arguments"), {"a": 1}, "expected a string"),
    ("chat", ("messages", 2, "tool_calls", 0, "function", "arguments"), '{"a": ', "Invalid"),
    ("chat", ("messages", 2, "tool_calls", 0, "id"), "c2", "must be a response to a preceeding message"),
    ("chat", ("messages", 3), GONE, "did not have response messages: c1"),
    ("chat", ("messages", 3, "tool_call_id"), GONE, "tool_call_id"),
    ("responses", ("messages",), [], "Unknown parameter: 'messages'"),
    ("responses", ("stop",), ["x"], "Unknown parameter: 'stop'"),
    ("responses", ("input",), [], "Missing required parameter: 'input'"),
    ("responses", ("max_output_tokens",), 8, "max_output_tokens"),
    ("responses", ("tools", 0, "strict"), True, ""),
    ("responses", ("tools", 0, "function"), {}, "Unknown parameter"),
    ("responses", ("input", 0, "content"), [{"type": "text", "text": "go"}], "Invalid value: 'text'"),
    ("responses", ("input", 1, "id"), "abc", "Expected an ID that begins with 'rs_'"),
    ("responses", ("input", 1, "encrypted_content"), GONE, "Items are not persisted"),
    ("responses", ("input", 1, "encrypted_content"), "other", "could not be verified"),
    ("responses", ("input", 1, "summary"), GONE, "summary"),
    ("responses", ("input", 2), GONE, "No tool call found for function call output with call_id c1"),
    ("responses", ("input", 2), {"role": "user", "content": "so?"}, "No tool call found"),
    ("responses", ("input",), RESPONSES["input"][:2], "without its required following item"),
    ("responses", ("input", 2, "call_id"), "c2", "No tool call found for function call output with call_id c1"),
    ("responses", ("input", 3), GONE, "No tool output found for function call c1"),
    ("gemini", ("model",), "m", 'Unknown name "model"'),
    ("gemini", ("contents",), [], "non-empty array"),
    ("gemini", ("contents", 0, "role"), "assistant", "valid role"),
    ("gemini", ("contents", 0, "parts", 0, "text"), "", "initialized field"),
    ("gemini", ("contents", 0, "parts", 0), {"functionCall": {"name": "add"}}, "Invalid part"),
    ("gemini", ("contents", 1, "parts", 0, "thoughtSignature"), GONE, "missing a `thought_signature`"),
    ("gemini", ("contents", 1, "parts", 0, "thoughtSignature"), "forged", "signature is not valid"),
    ("gemini", ("contents", 1, "parts", 0, "functionCall", "name"), "a b", "Invalid function name"),
    ("gemini", ("contents", 1, "parts", 0, "functionCall", "args"), "{}", "Invalid value"),
    ("gemini", ("contents", 2), GONE, "followed by a function response turn"),
    ("gemini", ("contents", 2, "parts", 0), {"text": "so?"}, "number of function response parts"),
    ("gemini", ("contents", 2, "parts", 0, "functionResponse", "id"), "c2", "do not match the calls"),
    ("gemini", ("contents", 2, "parts", 0, "functionResponse", "response"), "1", "Invalid value"),
    ("gemini", ("generationConfig", "top_p"), 1, 'Unknown name "top_p"'),
    ("gemini", ("generationConfig", "temperature"), 3, "temperature"),
    ("gemini", ("generationConfig", "responseJsonSchema"), SCHEMA, "application/json"),
    (
        "gemini",
        ("tools", 0, "functionDeclarations", 0, "parametersJsonSchema", "default"),
        {},
        "default is not supported",
    ),
    ("gemini", ("toolConfig", "functionCallingConfig", "mode"), "auto", "Invalid mode"),
    ("converse", ("model",), "m", "unknown member model"),
    ("converse", ("messages",), [], "non-empty array"),
    ("converse", ("messages", 0), GONE, "must start with a user message"),
    ("converse", ("messages", 1, "role"), "user", "must alternate"),
    ("converse", ("messages", 0, "content", 0, "text"), " ", "is blank"),
    ("converse", ("messages", 0, "content", 0), {"audio": {}}, "invalid block"),
    ("converse", ("messages", 1, "content", 0, "reasoningContent", "reasoningText", "text"), "x", "`signature`"),
    ("converse", ("messages", 1, "content", 1, "toolUse", "toolUseId"), "call/1", "toolUseId does not match"),
    ("converse", ("messages", 1, "content", 1, "toolUse", "input"), "{}", "not an object"),
    ("converse", ("messages", 2), GONE, "must end with a user message"),
    ("converse", ("messages", 2, "content", 0), {"text": "so?"}, "Expected toolResult blocks"),
    ("converse", ("messages", 2, "content", 0, "toolResult", "status"), "bad", "invalid status"),
    ("converse", ("toolConfig",), GONE, "toolConfig field must be defined"),
    ("converse", ("toolConfig", "tools"), [], "must not be empty"),
    ("converse", ("toolConfig", "toolChoice"), {"none": {}}, "Invalid toolChoice"),
    ("converse", ("inferenceConfig", "max_tokens"), 5, "unknown member max_tokens"),
    ("converse", ("inferenceConfig", "temperature"), 2, "temperature"),
    ("messages", ("max_tokens",), GONE, "max_tokens: Field required"),
    ("messages", ("stop",), ["x"], "stop: Extra inputs are not permitted"),
    ("messages", ("temperature",), 1.5, "temperature"),
    ("messages", ("system",), "", "non-empty"),
    ("messages", ("system", 0, "text"), " ", "non-whitespace"),
    ("messages", ("messages",), [], "at least one message"),
    ("messages", ("messages", 0), GONE, "first message must use the"),
    ("messages", ("messages", 0, "role"), "system", "'user' or 'assistant'"),
    ("messages", ("messages", 0, "content"), "", "non-empty content"),
    ("messages", ("messages", 1, "role"), "user", "roles must alternate"),
    ("messages", ("messages", 1, "content", 0, "signature"), "forged", "Invalid `signature`"),
    ("messages", ("messages", 1, "content", 0, "thinking"), "hmm", "Invalid `signature`"),
    ("messages", ("messages", 1, "content", 1, "input"), "{}", "valid dictionary"),
    ("messages", ("messages", 1, "content", 1, "id"), "call/1", "should match pattern"),
    ("messages", ("messages", 2, "content", 0, "tool_use_id"), "c2", "unexpected `tool_use_id`"),
    ("messages", ("messages", 2, "content"), "thanks", "without `tool_result` blocks immediately after: c1"),
    ("messages", ("messages", 2), GONE, "must end with a user message"),
    ("messages", ("messages", 2, "content", 0, "is_error"), 1, "is_error"),
    ("messages", ("tools", 0, "input_schema"), GONE, "Field required"),
    ("messages", ("tool_choice",), {"type": "any", "name": "add"}, "Extra inputs"),
    ("messages", ("tool_choice",), "auto", "tool_choice"),
    ("messages", ("thinking",), {"type": "enabled", "budget_tokens": 100}, "1024"),
    ("messages", ("thinking",), {"type": "enabled", "budget_tokens": 2000}, "must be greater"),
]


@pytest.mark.parametrize(("wire", "where", "what", "said"), WRONG)
def test_wrong_requests_are_refused(wire: str, where: tuple[Any, ...], what: Any, said: str) -> None:
    body = deepcopy(BODIES[wire])
    place = body
    for key in where[:-1]:
        place = place[key]
    if what is GONE:
        del place[where[-1]]
    else:
        place[where[-1]] = what
    if not said:
        return check(wire, body)
    with pytest.raises(Refused) as refused:
        check(wire, body)
    assert said in refused.value.message


def test_too_many_breakpoints_are_refused() -> None:
    text = {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}
    with pytest.raises(Refused, match="maximum of 4 blocks with cache_control may be provided. Found 5"):
        check("messages", MESSAGES | {"messages": [{"role": "user", "content": [text] * 4}]})


def test_the_new_version_of_messages_has_no_temperature() -> None:
    check("messages", MESSAGES | {"temperature": 1})
    with pytest.raises(Refused, match="temperature: Extra inputs are not permitted"):
        check("messages", MESSAGES | {"temperature": 1}, HEADERS | {"anthropic-version": "2026-10-21"})


@pytest.mark.parametrize("wire", WIRES)
def test_a_key_is_needed(wire: str) -> None:
    with pytest.raises(Refused) as refused:
        check(wire, BODIES[wire], {"content-type": "application/json", "anthropic-version": "2023-06-01"})
    assert refused.value.status == 401


# -- faults ---------------------------------------------------------------------------------------------------------

PIECES = [b"abc", b"defgh", b"ij"]


def flow(fault: Fault, pieces: Any = PIECES) -> list[bytes | Act]:
    """Return sent bytes, with neighbours joined."""
    sent: list[bytes | Act] = []
    for piece in fault.apply("body", pieces, None):
        if isinstance(piece, bytes) and sent and isinstance(sent[-1], bytes):
            sent[-1] += piece
        elif piece != Act("pause", 0.0):
            sent.append(piece)
    return [piece for piece in sent if piece != b""]


@pytest.mark.parametrize(
    ("fault", "sent"),
    [
        (cut(4), [b"abcd", CLOSE]),
        (cut(0), [CLOSE]),
        (cut(0.5), [b"abcde", CLOSE]),
        (cut(99), [b"abcdefghij", CLOSE]),
        (stall(3), [b"abc", STALL]),
        (end(9), [b"abcdefghi"]),
        (delay(4, 0.5), [b"abcd", Act("pause", 0.5), b"efghij"]),
        (corrupt(4, 0x21), [b"abcd!fghij"]),
        (corrupt(9, 0x21), [b"abcdefghi!"]),
        (insert(4, b"--"), [b"abcd--efghij"]),
        (trickle(1), [b"abcdefghij"]),
        (trickle(1) | cut(2), [b"ab", CLOSE]),
    ],
)
def test_faults_of_bytes(fault: Fault, sent: list[bytes | Act]) -> None:
    assert flow(fault) == sent


def test_faults_of_lines() -> None:
    lines = [b"event: x\ndata: 1\n\n", b"data: 2\n\n"]
    assert flow(crlf, lines) == [b"event: x\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n"]
    assert b"".join(piece for piece in flow(comments, lines) if isinstance(piece, bytes)).count(b": keep-alive") == 2


EVENTS = [Event(tag, {"n": n, "deep": [{"id": tag}]}) for n, tag in enumerate(("start", "text", "text", "finish"))]


def tags(fault: Fault) -> list[str]:
    return [getattr(item, "tag", "act") for item in fault.apply("events", EVENTS, None)]


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        (drop("text"), ["start", "finish"]),
        (drop_at(0), ["text", "text", "finish"]),
        (twice_at(3), ["start", "text", "text", "finish", "finish"]),
        (swap_at(0), ["text", "start", "text", "finish"]),
        (before("finish", CLOSE), ["start", "text", "text", "act", "finish"]),
        (before("end", raw("x")), ["start", "text", "text", "finish", "raw"]),
        (endless("args"), ["start", "text", "text", "finish"]),
    ],
)
def test_faults_of_events(fault: Fault, left: list[str]) -> None:
    assert tags(fault) == left


def test_faults_of_data() -> None:
    changed = (forget("start", "id") | setting("finish", id="x")).apply("events", EVENTS, None)
    assert [event.data["deep"] for event in changed] == [[{}], [{"id": "text"}], [{"id": "text"}], [{"id": "x"}]]
    assert EVENTS[0].data["deep"] == [{"id": "start"}]
    reply: Reply = args("[]").apply("reply", Reply(calls=(Call("1", "f"), Call("2", "g"))), None)
    assert [call.args for call in reply.calls] == ["[]", "{}"]


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (
            Head(200, {}),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\ndefgh\r\n2\r\nij\r\n0\r\n\r\n",
        ),
        (Head(404, {}, "length"), b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\nabcdefghij"),
        (Head(529, {"A": "b"}, "close"), b"HTTP/1.1 529 Unknown\r\nA: b\r\nConnection: close\r\n\r\nabcdefghij"),
    ],
)
def test_framing(head: Head, sent: bytes) -> None:
    assert b"".join(piece for piece in frame(head, PIECES) if isinstance(piece, bytes)) == sent


def test_arguments_with_a_piece_lost_repeated_or_late_are_never_other_arguments() -> None:
    """The checks of the conformance suite about its tool rely on this."""
    reply = Reply(calls=(Call("c", "add", '{"a": 2, "b": 3}'),), piece=6)
    pieces = reply.pieces(reply.calls[0].args)
    others = [pieces[:n] + pieces[n + 1 :] for n in range(3)] + [pieces[: n + 1] + pieces[n:] for n in range(3)]
    others += [[pieces[1], pieces[0], pieces[2]], [pieces[0], pieces[2], pieces[1]]]
    assert _complete("".join(pieces))
    assert not any(_complete("".join(other)) for other in others)


def _complete(text: str) -> bool:
    """Return True if this is JSON with both arguments, each once."""
    try:
        names: list[str] = json.loads(text, object_pairs_hook=lambda pairs: sorted(name for name, _ in pairs))
    except ValueError:
        return False
    return names == ["a", "b"]


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "converse"])  # which is not made of lines
def test_every_stream_is_made_of_whole_events(wire: str) -> None:
    calls = (Call.of("c1", "add", a=1), Call.of("c2", "add", a=2))
    reply = Reply("héllo", (Thought("hm", "sig"),), calls, Tokens(1, 2), order=(0, 1, 0, 1))
    stream = stream_of(reply, WIRES[wire], BODIES[wire])
    assert stream.endswith(b"\n\n") and b"\r" not in stream
    for event in stream.decode().strip().split("\n\n"):
        data = event.splitlines()[-1].removeprefix("data: ")
        assert data == "[DONE]" or isinstance(json.loads(data), dict)


def test_the_table_is_long() -> None:
    assert len(FAULTS) >= 60
    assert {kind.means for kind in FAULTS.values()} == {"read", "told", "fail", "any"}
    assert all(kind.fault.steps for kind in FAULTS.values())
