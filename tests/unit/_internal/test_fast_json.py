"""JSON of every value that a log may contain: orjson refuses some, which the standard library encodes."""

from __future__ import annotations

import json

import pytest

from wick._internal.fast_json import encode_json


@pytest.mark.parametrize("value", [{"a": [1, None, "é"]}, {"large": 2**70}, {"cut": "\ud800"}, [2**64, "\udfff", 0.5]])
def test_a_value_is_encoded_without_loss(value: object) -> None:
    encoded = encode_json(value)
    assert json.loads(encoded) == value
    assert b" " not in encoded


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        encode_json({"a": {1}})
