"""The strict decoder refuses JSON that two readers could understand differently."""

from __future__ import annotations

import pytest

from wick._internal.strict_json import decode_strict


def test_json_is_decoded() -> None:
    assert decode_strict(' {"a": [1, 2.5, {"a": null}], "b": "c"} ') == {"a": [1, 2.5, {"a": None}], "b": "c"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' is there twice"),
        ('[{"deep": {"b": 1, "b": 1}}]', "'b' is there twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ('{"a": 1} {}', "Extra data"),
    ],
)
def test_json_with_two_meanings_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_strict(text)
