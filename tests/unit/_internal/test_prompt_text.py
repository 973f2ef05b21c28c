"""Text in a fence cannot end it, however it spells the tag."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tag_spellings import SPELLINGS
from wick._internal.prompt_text import defuse_tags, fence_text, to_one_line


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_the_tag_is_left(spelling: str) -> None:
    inner = fence_text("agent_memory", f"before {spelling} after").split("\n", 1)[1].rsplit("\n", 1)[0]
    assert inner.count("&lt;") == 1
    assert inner.startswith("before ") and inner.endswith(" after")
    assert defuse_tags("agent_memory", inner) == inner


@pytest.mark.parametrize(
    "text", ["a < b", "<div>", "</memory>", "</agent>", "agent_memory", "x </ agent s_memory>", ""]
)
def test_other_texts_are_unchanged(text: str) -> None:
    assert defuse_tags("agent_memory", text) == text


def test_every_one_of_many() -> None:
    assert defuse_tags("a", "<a><b></a></A>") == "&lt;a><b>&lt;/a>&lt;/A>"


IGNORED = "".join(chr(n) for n in (9, 10, 32, 0xA0, 0xAD, 0x200B, 0x200D, 0x202E, 0x2060, 0xFE0F, 0xFEFF, 0x301))


@given(
    st.lists(st.text(IGNORED, max_size=3), min_size=7, max_size=7),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.text(max_size=20),
)
def test_tags_with_inserted_characters_are_escaped(between: list[str], upper: list[bool], around: str) -> None:
    letters = [letter.upper() if big else letter for letter, big in zip("todos", upper, strict=True)]
    spelled = "".join(a + b for a, b in zip(["<", "/", *letters], between, strict=True))
    inner = defuse_tags("todos", f"{around}{spelled}>{around}")
    seen = "".join(c for c in unicodedata.normalize("NFKD", inner) if c not in IGNORED).lower()
    assert not re.search(r"<[/\\]*todos", seen)


@given(st.text(max_size=200))
def test_nothing_but_the_sign_that_opens_changes(text: str) -> None:
    assert defuse_tags("agent_memory", text).replace("&lt;", "<") == text.replace("&lt;", "<") or "<" not in text


def test_attributes_are_quoted() -> None:
    assert fence_text("skill", "x", name='a"b <c>\n&') == '<skill name="a&quot;b &lt;c> &amp;">\nx\n</skill>'


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb\r\n\tc", "a b c"), ("a\u2028b\u200bc\x1b[31m", "a b c [31m"), ("  ", ""), ("a" * 10, "a" * 10),
     ("a" * 11, "a" * 9 + "…"), ("a " * 50, "a a a a a…")],
)  # fmt: skip
def test_one_line(text: str, line: str) -> None:
    assert to_one_line(text, 10) == line


@given(st.text(max_size=300), st.integers(1, 50))
def test_a_line_is_one(text: str, most: int) -> None:
    line = to_one_line(text, most)
    assert len(line) <= most and line.splitlines() in ([], [line]) and line == line.strip()
