"""The format of cassettes: any text and any deltas survive a file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wick.errors import ConfigError
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, TextDelta, Usage
from wick.testing.cassette_format import decode_events, dump_yaml, encode_deltas, load_yaml

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
