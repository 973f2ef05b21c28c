"""The format of cassettes: any text and any deltas survive a file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, create_model

from wick import tool, user
from wick.errors import ConfigError
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, Request, TextDelta, Usage
from wick.testing.cassette_format import (
    decode_events,
    describe_text_change,
    describe_tool_change,
    dump_yaml,
    encode_deltas,
    is_same_tool,
    list_unseen_changes,
    load_yaml,
    matches_request,
    summarize_request,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
LINES = st.lists(st.sampled_from(["", " ", "a", "  b ", "# c", "- d", "e: f", "…", "😀", "---", "\t"]), max_size=6)
COUNT = st.integers(0, 99)


@given(st.one_of(TEXT, LINES.map("\n".join), LINES.map(lambda lines: "\n".join([*lines, ""]))))
@example("\n\n a")
@example("a\n\n")
@example("2026-01-01")
@example("a\r\nb")
def test_texts_survive_yaml(text: str) -> None:
    data = {"text": text, "list": [text, {"inner": text}]}
    assert load_yaml(dump_yaml(data), "it.yaml") == data


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans() | st.none())
def test_numbers_survive_yaml(value: Any) -> None:
    assert load_yaml(dump_yaml([value]), "it.yaml") == [value]


@pytest.mark.parametrize(
    "text", ["no", "on", "1_000", "1:30", "010", "2026-01-01", "0x1f", "=", "<<", ".5", "1e5", "1.5e3", "08"]
)
def test_words_that_yaml_reads_otherwise_are_texts(text: str) -> None:
    assert load_yaml(f"text: {text}", "it.yaml") == {"text": text}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x [1]\nb: *x", "line 1: anchors"),
        ("a: !!python/name:os.system x", "line 1: tags"),
        ("[" * 200, "line 1: this is nested more than 120 levels deep"),
        ("a: 1\na: 2", "line 2: the key 'a' is repeated"),
        (f"a: {'9' * 5_000}", "line 1: this number cannot be read"),
    ],
)
def test_hostile_files_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"it.yaml, {problem}"):
        load_yaml(text, "it.yaml")


DELTAS: st.SearchStrategy[Delta] = st.one_of(
    st.builds(TextDelta, TEXT),
    st.builds(ReasoningDelta, TEXT, st.sampled_from(["", "", "s"]), st.sampled_from(["", "acme"])),
    st.builds(CallStart, st.integers(0, 3), st.sampled_from(["", "id"]), st.just("add")),
    st.builds(CallArgs, st.integers(0, 3), TEXT),
    st.builds(Usage, COUNT, COUNT, COUNT, COUNT, COUNT),
    st.builds(Finish, st.sampled_from(["stop", "length"])),
)


@given(st.lists(DELTAS, max_size=12))
def test_deltas_survive_a_file(deltas: list[Delta]) -> None:
    events = load_yaml(dump_yaml(encode_deltas(deltas)), "it.yaml")
    assert [*decode_events(events)] == deltas


def test_successive_pieces_are_joined() -> None:
    deltas = [TextDelta("a"), TextDelta("b"), TextDelta("cde"), Finish()]
    assert encode_deltas(deltas) == [{"text": "abcde", "chunks": "1*2 3"}, {"finish": "stop"}]


def summarize_nested(description: str) -> Any:
    """Return a request with a tool that has a nested type."""
    address = create_model("Address", street=(str, Field(description=description)))

    def deliver(to: Any) -> str:
        """Deliver."""
        return str(to)

    deliver.__annotations__["to"] = address
    return summarize_request(Request((user("Hi."),), tools=(tool(deliver),)))


def test_a_change_of_a_nested_type_is_a_change_of_the_digest() -> None:
    recorded, sent = summarize_nested("The street."), summarize_nested("The street and the number.")
    assert recorded["tools"] != sent["tools"] and not matches_request(recorded, sent)
    assert list_unseen_changes(recorded, sent) == [
        "the digest of the tool deliver shows a change that its summary does not, as in a nested type or an option"
    ]
    assert describe_tool_change(recorded["tools"]["deliver"], sent["tools"]["deliver"]) == "its schema"


def test_a_tool_of_an_earlier_version_is_the_same() -> None:
    sent = "(a: integer) 94806ee2 Add.\n- a: The number."
    for recorded in ("(a: integer) 94806ee2", "(a: integer) 94806ee2 Add.", sent):
        assert is_same_tool(recorded, sent)
    for recorded in ("(a: integer) 94806ee3", "(a: string) 94806ee2", None):
        assert not is_same_tool(recorded, sent)
    assert is_same_tool("(key: string) 94806ee2 Use [secret].", "(key: string) 94806ee2 Use abc.")


def test_changes_in_a_few_words() -> None:
    assert describe_text_change("You are kind.", "You are rude.") == "'kind.' is now 'rude.'"
    assert describe_text_change("a\nBe brief.", "a\nBe brief. Be kind.") == "'brief.' is now 'brief. Be kind.'"
    assert describe_text_change("The support of a shop.\n\nMore.", "The rude support of a shop.\n\nMore.") == (
        "'support' is now 'rude support'"
    )
    assert describe_text_change("a a", "a a a") == "'a' is now 'a a'"
    assert describe_text_change("", "New.") == "'' is now 'New.'"
    assert len(describe_text_change("x" * 999 + "a" * 200, "x" * 999 + "b" * 200)) < 150
    assert (describe_tool_change(None, "()"), describe_tool_change("()", None)) == ("new", "removed")
