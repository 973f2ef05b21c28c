"""Deltas become a reply; a broken stream is an error, and arguments are never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.errors import ModelError, Sealed
from wick.messages import Message, Reasoning, ToolCall
from wick.models import reply as assemble
from wick.models.reply import Reply, parse_args
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, TextDelta, Usage


def assembled(*deltas: Delta) -> Message:
    reply = Reply()
    for delta in deltas:
        reply.feed(delta)
    return reply.message()


def call(*pieces: str, finish: str = "tool_calls", id: str = "c1", name: str = "add") -> ToolCall:
    """Return the call assembled from its pieces."""
    args = (CallArgs(0, piece) for piece in pieces)
    (made,) = assembled(CallStart(0, id, name), *args, Finish(finish)).tool_calls
    return made


# -- complete replies -------------------------------------------------------------------------------------------------


def test_text_is_joined() -> None:
    assert assembled(TextDelta("Hello"), TextDelta(""), TextDelta(" world"), Finish()) == Message(
        "assistant", "Hello world"
    )


def test_a_reply_may_be_empty() -> None:
    assert assembled(Finish()) == Message("assistant", "")


def test_arguments_are_joined_and_stored_verbatim() -> None:
    made = call('{"a"', ': 1,  "b"', ": [2]}")
    assert made == ToolCall("c1", "add", {"a": 1, "b": [2]})
    assert made.raw == '{"a": 1,  "b": [2]}'
    with pytest.raises(Sealed):
        made.args["b"].append(3)


@pytest.mark.parametrize("pieces", [(), ("",), ("  ", "\n")])
def test_a_call_without_arguments_has_none(pieces: tuple[str, ...]) -> None:
    made = call(*pieces)
    assert made.args == {} and not made.invalid


def test_the_last_usage_and_finish_count() -> None:
    reply = Reply()
    for delta in (Usage(1, 1), Finish("length"), Usage(5, 7, 2, 1), Finish("stop")):
        reply.feed(delta)
    assert (reply.usage, reply.finish) == (Usage(5, 7, 2, 1), "stop")


def test_a_finish_without_a_reason_is_a_stop() -> None:
    reply = Reply()
    reply.feed(Finish(""))
    assert reply.finish == "stop"


def test_calls_are_in_index_order() -> None:
    message = assembled(CallStart(2, "c", "z"), CallStart(0, "a", "x"), CallStart(1, "b", "y"), Finish("tool_calls"))
    assert [made.id for made in message.tool_calls] == ["a", "b", "c"]


def test_reasoning_is_joined_up_to_each_signature() -> None:
    message = assembled(
        ReasoningDelta("first "),
        ReasoningDelta("thought", provider="p"),
        ReasoningDelta("", signature="sig1", provider="p"),
        TextDelta("so: "),
        ReasoningDelta("second", "sig2", "p"),
        ReasoningDelta("open", provider="p"),
        TextDelta("yes"),
        Finish(),
    )
    assert message.reasoning == (
        Reasoning("first thought", "sig1", "p"),
        Reasoning("second", "sig2", "p"),
        Reasoning("open", "", "p"),
    )
    assert message.text == "so: yes"


def test_reasoning_may_be_nothing_but_a_signature() -> None:
    message = assembled(ReasoningDelta(signature="opaque", provider="p"), Finish())
    assert message.reasoning == (Reasoning("", "opaque", "p"),)


CALLS = st.lists(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=6), max_size=3), max_size=4)


def pieces_of(raw: str, cuts: Iterable[int], index: int) -> list[Delta]:
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    return [CallArgs(index, raw[start:end]) for start, end in pairwise(edges)]


@given(CALLS, st.lists(st.integers(0, 50), max_size=4), st.lists(st.text(max_size=5), max_size=3), st.data())
def test_parallel_call_pieces_are_separated_in_any_interleaving(
    calls: list[dict[str, Any]], cuts: list[int], texts: list[str], data: st.DataObject
) -> None:
    lines: list[list[Delta]] = [[TextDelta(text) for text in texts]]
    for index, args in enumerate(calls):
        lines.append([CallStart(index, f"c{index}", "tool"), *pieces_of(json.dumps(args), cuts, index)])
    stream: list[Delta] = []
    while lines := [line for line in lines if line]:
        stream.append(data.draw(st.sampled_from(lines)).pop(0))
    message = assembled(*stream, Finish("tool_calls"))
    assert message.text == "".join(texts)
    assert message.tool_calls == tuple(ToolCall(f"c{index}", "tool", args) for index, args in enumerate(calls))
    assert not any(made.invalid for made in message.tool_calls)


# -- broken replies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deltas",
    [
        (),
        (TextDelta("half a"),),
        (CallStart(0, "c", "add"), CallArgs(0, '{"a": 1}')),
        (CallStart(0, "c", "add"), CallArgs(0, '{"a": ')),
        (Usage(1, 1),),
    ],
)
def test_a_stream_that_breaks_off_is_an_error(deltas: tuple[Delta, ...]) -> None:
    with pytest.raises(ModelError, match=r'broke off before it had finished; .*`yield Finish\("stop"\)`'):
        assembled(*deltas)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ('{"path": "/etc', "not valid JSON"),
        ('{"a": 1', "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"a": 1}}', "not valid JSON"),
        ('{"a": 1} {"b": 2}', "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ('{"a": 1,}', "not valid JSON"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": [Infinity]}', "Infinity is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e999}', "inf is not JSON"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"x": {"a": 1, "a": 1}}', "'a' is there twice"),
        ('{"a": "\\ud800"}', "half of a surrogate pair"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": ' * 200 + "1" + "}" * 200, "nested"),
        ("[" * 200_000, "nested too deep"),
        ("[1, 2]", "must be a JSON object, not [1, 2]"),
        ('"text"', 'must be a JSON object, not "text"'),
        ("null", "must be a JSON object, not null"),
        ("7", "must be a JSON object, not 7"),
    ],
)
def test_unparsable_arguments_are_marked_and_never_guessed(raw: str, reason: str) -> None:
    args, invalid = parse_args(raw)
    assert args == {} and reason in invalid
    made = call(raw)
    assert (made.args, made.invalid, made.raw) == ({}, invalid, raw)


def test_arguments_that_are_too_long_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "ARGS_BYTES", 10)
    assert parse_args('{"a": "0123456789"}') == ({}, "the arguments are longer than 10 characters")


@given(st.text(max_size=30))
def test_any_arguments_are_an_object_or_invalid(raw: str) -> None:
    args, invalid = parse_args(raw)
    assert invalid or not raw.strip() or json.loads(raw) == args
    assert not (invalid and args)


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), min_size=1, max_size=3), st.data())
def test_half_of_the_arguments_never_pass_for_the_whole(args: dict[str, Any], data: st.DataObject) -> None:
    raw = json.dumps(args)
    half = raw[: data.draw(st.integers(1, len(raw) - 1))]
    assert call(half).invalid


@pytest.mark.parametrize("finish", ["length", "max_tokens"])
@pytest.mark.parametrize("pieces", [(), (" ",)])
def test_a_reply_cut_before_arguments_has_none(finish: str, pieces: tuple[str, ...]) -> None:
    made = call(*pieces, finish=finish)
    assert made.args == {} and "cut off" in made.invalid


@pytest.mark.parametrize("finish", ["content_filter", "refusal", "SAFETY"])
@pytest.mark.parametrize("args", [(), ('{"a": 1}',)])
def test_a_reply_that_was_taken_back_has_no_calls(finish: str, args: tuple[str, ...]) -> None:
    pieces = (CallArgs(0, piece) for piece in args)
    message = assembled(TextDelta("I cannot"), CallStart(0, "c1", "add"), *pieces, Finish(finish))
    assert message.text == "I cannot" and not message.tool_calls


def test_a_reply_cut_after_complete_arguments_keeps_them() -> None:
    assert not call('{"a": 1}', finish="length").invalid


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    deltas = (CallStart(0, "", "add"), CallStart(1, "", "add"), Finish("tool_calls"))
    one, two = assembled(*deltas).tool_calls
    assert one.id and two.id and one.id != two.id
    assert not one.invalid


def test_a_call_without_a_name_is_invalid() -> None:
    made = call('{"a": 1}', name="")
    assert made.name == "unnamed"
    assert made.invalid == "the call does not name a tool"


def test_two_calls_with_the_same_id_are_an_error() -> None:
    with pytest.raises(ModelError, match="two tool calls the same id"):
        assembled(CallStart(0, "c", "add"), CallStart(1, "c", "sub"), Finish("tool_calls"))


def test_a_call_that_starts_twice_is_an_error() -> None:
    with pytest.raises(ModelError, match="started its tool call number 0 twice"):
        assembled(CallStart(0, "c", "add"), CallStart(0, "d", "sub"))


def test_arguments_for_an_unstarted_call_are_an_error() -> None:
    with pytest.raises(ModelError, match="number 3, that it never started"):
        assembled(CallStart(0, "c", "add"), CallArgs(3, "{}"))


@pytest.mark.parametrize("thing", ["text", None, {"delta": "x"}, object(), Message("assistant", "hi")])
def test_an_invalid_delta_is_an_error(thing: Any) -> None:
    with pytest.raises(ModelError, match="which is not a delta"):
        assembled(thing)


@pytest.mark.parametrize(
    "delta", [TextDelta("x" * 10), ReasoningDelta("x" * 10), ReasoningDelta(signature="x" * 10), CallArgs(0, "x" * 10)]
)
def test_a_reply_that_does_not_end_is_an_error(delta: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "REPLY_CHARS", 100)
    with pytest.raises(ModelError, match="longer than 100 characters"):
        assembled(CallStart(0, "c", "add"), *[delta] * 11)


@pytest.mark.parametrize("delta", [TextDelta(""), ReasoningDelta(), CallArgs(0, "")])
def test_endless_empty_deltas_are_bounded(delta: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "REPLY_CHARS", 100)
    with pytest.raises(ModelError, match="longer than 100 characters"):
        assembled(CallStart(0, "c", "add"), *[delta] * 101)


def test_too_many_calls_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "REPLY_CALLS", 3)
    assembled(*(CallStart(index, str(index), "add") for index in range(3)), Finish())
    with pytest.raises(ModelError, match="more than 3 tools at once"):
        assembled(*(CallStart(index, str(index), "add") for index in range(4)))


DELTAS = st.one_of(
    st.builds(TextDelta, st.text(max_size=3)),
    st.builds(ReasoningDelta, st.text(max_size=3), st.text(max_size=2), st.just("p")),
    st.builds(CallStart, st.integers(0, 3), st.sampled_from(["", "a", "b"]), st.sampled_from(["", "add"])),
    st.builds(CallArgs, st.integers(0, 3), st.sampled_from(["{", "}", '"a"', ":", "1", " ", "{}"])),
    st.builds(Usage, st.integers(0, 9)),
    st.builds(Finish, st.sampled_from(["stop", "length", "tool_calls"])),
)


@given(st.lists(DELTAS, max_size=12))
def test_any_stream_is_a_reply_or_a_model_error(deltas: list[Delta]) -> None:
    try:
        message = assembled(*deltas)
    except ModelError:
        return
    assert any(isinstance(delta, Finish) for delta in deltas)
    assert len({made.id for made in message.tool_calls}) == len(message.tool_calls)
    for made in message.tool_calls:
        assert made.invalid or not made.raw.strip() or json.loads(made.raw) == made.args
