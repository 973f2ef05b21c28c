"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from wick._internal.visible_text import format_count


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (2_000, "run", "2,000 runs"),
        (2, "reply", "2 replies"),
        (1, "reply", "1 reply"),
        (2, "key", "2 keys"),
    ],
)
def test_a_count_has_the_number_of_its_noun(number: int, noun: str, text: str) -> None:
    assert format_count(number, noun) == text
