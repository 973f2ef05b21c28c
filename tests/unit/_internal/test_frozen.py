"""Data that cannot change, and its one spelling."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick._internal.frozen import FrozenDict, FrozenList, canonical_json, digest, freeze, thaw
from wick.constants import JSON_DEPTH
from wick.errors import Sealed

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


def frozen_all_through(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is FrozenDict and all(map(frozen_all_through, value.values()))
    return not isinstance(value, list) or (type(value) is FrozenList and all(map(frozen_all_through, value)))


def plain_all_through(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(plain_all_through, value.values()))
    return not isinstance(value, list) or (type(value) is list and all(map(plain_all_through, value)))


@given(JSON)
def test_freezing_and_thawing_change_nothing(value: Any) -> None:
    frozen = freeze(value)
    assert frozen == value and frozen_all_through(frozen)
    assert thaw(frozen) == value and plain_all_through(thaw(frozen))


@given(JSON)
def test_a_pickled_or_copied_value_is_equal(value: Any) -> None:
    frozen = freeze(value)
    assert pickle.loads(pickle.dumps(frozen)) == value and frozen_all_through(pickle.loads(pickle.dumps(frozen)))
    assert copy.copy(frozen) == value and frozen_all_through(copy.copy(frozen))
    assert copy.deepcopy(frozen) == value and plain_all_through(copy.deepcopy(frozen))


@given(JSON)
def test_the_canonical_spelling_reads_back(value: Any) -> None:
    spelled = canonical_json(value)
    assert json.loads(spelled) == value
    assert spelled == canonical_json(freeze(value)) == canonical_json(json.loads(spelled))
    assert spelled.isascii()


@given(st.dictionaries(TEXT, SCALAR))
def test_the_order_of_keys_is_not_spelled(value: dict[str, Any]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@given(JSON, JSON)
def test_different_data_is_spelled_differently(one: Any, other: Any) -> None:
    assert one == other or canonical_json(one) != canonical_json(other)


def test_one_and_true_are_spelled_differently() -> None:
    assert len({canonical_json(1), canonical_json(1.0), canonical_json(True), canonical_json("1")}) == 4


def test_the_canonical_spelling_is_this() -> None:
    assert canonical_json({"b": [1, None], "a": "é"}) == b'{"a":"\\u00e9","b":[1,null]}'
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_frozen_copy_does_not_follow_its_source() -> None:
    source = {"a": [1]}
    frozen = freeze(source)
    source["a"].append(2)
    assert frozen == {"a": [1]}


def test_a_thawed_copy_does_not_change_its_source() -> None:
    frozen = freeze({"a": [1]})
    thaw(frozen)["a"].append(2)
    copy.deepcopy(frozen)["a"].append(2)
    assert frozen == {"a": [1]}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.__setitem__("a", 2),
        lambda data: data.__delitem__("a"),
        lambda data: data.__ior__({"b": 2}),
        lambda data: data.clear(),
        lambda data: data.pop("a"),
        lambda data: data.popitem(),
        lambda data: data.setdefault("b", 2),
        lambda data: data.update(b=2),
    ],
)
def test_a_frozen_dict_refuses_to_change(change: Callable[[Any], Any]) -> None:
    frozen = freeze({"a": 1})
    with pytest.raises(Sealed, match=r"read-only.*copy"):
        change(frozen)
    assert frozen == {"a": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.__setitem__(0, 9),
        lambda data: data.__setitem__(slice(None), []),
        lambda data: data.__delitem__(0),
        lambda data: data.__iadd__([3]),
        lambda data: data.__imul__(2),
        lambda data: data.append(3),
        lambda data: data.clear(),
        lambda data: data.extend([3]),
        lambda data: data.insert(0, 3),
        lambda data: data.pop(),
        lambda data: data.remove(1),
        lambda data: data.reverse(),
        lambda data: data.sort(),
    ],
)
def test_a_frozen_list_refuses_to_change(change: Callable[[Any], Any]) -> None:
    frozen = freeze([2, 1])
    with pytest.raises(Sealed, match="read-only"):
        change(frozen)
    assert frozen == [2, 1]


def test_no_method_that_changes_a_dict_or_a_list_was_forgotten() -> None:
    harmless_dict = {"copy", "fromkeys", "get", "items", "keys", "values"}
    harmless_list = {"copy", "count", "index"}
    for frozen, plain, harmless in ((FrozenDict, dict, harmless_dict), (FrozenList, list, harmless_list)):
        public = {name for name in vars(plain) if not name.startswith("_")}
        assert public - harmless <= set(vars(frozen))


def test_thawed_data_is_plain() -> None:
    merged, copied, joined = freeze({"a": 1}) | {"b": 2}, freeze({"a": 1}).copy(), operator.add(freeze([1]), [2])
    assert (type(merged), type(copied), type(joined)) == (dict, dict, list)
    assert freeze({"a": 1}).get("a") == 1 and sorted(freeze([2, 1])) == [1, 2]


@pytest.mark.parametrize(
    ("value", "error", "sentence"),
    [
        ({1: "a"}, TypeError, "keys of a JSON object must be strings"),
        ({"a": {None: 1}}, TypeError, "keys of a JSON object must be strings"),
        ([b"bytes"], TypeError, "bytes is not JSON data"),
        ({"a": {1, 2}}, TypeError, "set is not JSON data"),
        (object(), TypeError, "object is not JSON data"),
        (float("nan"), ValueError, "nan is not JSON data"),
        ([float("inf")], ValueError, "inf is not JSON data"),
        ({"a": "\ud83d\ude00"}, ValueError, "half of a surrogate pair"),
        ({"\udc80": 1}, ValueError, "half of a surrogate pair"),
    ],
)
def test_non_json_is_refused(value: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        freeze(value)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_data_can_be_nested_up_to_the_cap() -> None:
    assert thaw(freeze(nested(JSON_DEPTH))) == nested(JSON_DEPTH)
    with pytest.raises(ValueError, match=f"more than {JSON_DEPTH} levels"):
        freeze(nested(JSON_DEPTH + 1))


def test_data_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="levels deep"):
        freeze(endless)


def test_tuples_become_lists() -> None:
    assert freeze((1, (2,))) == [1, [2]] and type(freeze((1,))) is FrozenList


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), object(), b"x"])
def test_unspellable_values_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        canonical_json(value)
