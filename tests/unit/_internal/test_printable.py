"""Text that cannot move a cursor, begin a line or turn the reading direction."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wick._internal.printable import escape_controls, indent_lines

CONTROLS = "\n\r\x0b\x0c\x1b\x7f\x85\x9b\u2028\u2029\u202e\u2066\u200b\ufeff\ud800\x00"


@given(st.text() | st.text(CONTROLS + "ab"))
def test_the_result_is_one_printable_line(text: str) -> None:
    line = escape_controls(text)
    assert line.replace("\t", " ").isprintable() and len(line.splitlines()) <= 1
    line.encode()  # half a character is escaped too


def test_escapes_are_readable_and_other_text_is_unchanged() -> None:
    assert escape_controls("a\nb\x1b[31m\u202e") == r"a\nb\x1b[31m\u202e"
    assert escape_controls("Grüße,\t世界 🙂") == "Grüße,\t世界 🙂"


@given(st.text(CONTROLS + "2x"))
def test_no_later_line_looks_like_a_record(text: str) -> None:
    first, *rest = indent_lines(text).split("\n")
    assert len(rest) == text.count("\n") and all(line.startswith("  ") for line in rest)
    assert all(line.isprintable() for line in (first, *rest))
