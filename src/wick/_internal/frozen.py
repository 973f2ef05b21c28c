"""Immutable JSON data, for values that are sealed, logged or hashed.

freeze(value)          a read-only deep copy of dicts and lists
thaw(value)            a mutable deep copy
canonical_json(value)  the canonical encoding of a value: equal data, equal bytes
digest(data)           the hash of such bytes
"""

from __future__ import annotations

import json.encoder
from collections.abc import Callable, Iterable
from hashlib import sha256
from math import isfinite
from typing import Any, NoReturn

from wick.constants import JSON_DEPTH
from wick.errors import Sealed


def _raise_not_json(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} is not JSON data")


def _build_encoder() -> Callable[[Any, int], Iterable[str]]:
    """Build the encoder once; JSONEncoder.encode would build it per value. Sorted keys, no spaces, ASCII, no NaN."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        plain = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False)
        return lambda value, _: plain.iterencode(value)
    encoder = make(None, _raise_not_json, json.encoder.encode_basestring_ascii, None, ":", ",", True, False, False)
    return encoder  # type: ignore[no-any-return]


_encode_pieces = _build_encoder()
_PLAIN = frozenset((int, bool, type(None)))  # types whose values are frozen and JSON data, whatever they are
_SCALARS = frozenset((*_PLAIN, str, float))


def _refuse_change(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise Sealed(
        "this data is read-only: it is sealed or logged; change it in a before hook, as in @before(ToolUse), "
        "or change a copy, such as dict(data)"
    )


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse_change

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return {key: thaw(value) for key, value in self.items()}

    def __reduce__(self) -> Any:
        return freeze, (thaw(self),)


class FrozenList(list[Any]):
    """A list that refuses to change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = _refuse_change
    insert = pop = remove = reverse = sort = _refuse_change

    def __deepcopy__(self, memo: object) -> list[Any]:
        return [thaw(value) for value in self]

    def __reduce__(self) -> Any:
        return freeze, (thaw(self),)


def freeze(value: Any, depth: int = JSON_DEPTH) -> Any:
    """Return a read-only deep copy of JSON data; raise TypeError or ValueError for anything else."""
    kind = type(value)
    if kind is str and value.isascii():  # most of it
        return value
    if depth == JSON_DEPTH and (kind is FrozenDict or kind is FrozenList):
        return value
    if isinstance(value, str):
        return _check_utf8(value)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):  # a subclass may override how its value appears
        return value if type(value) is int else int.__index__(value)
    if isinstance(value, float):
        number = value if type(value) is float else float.__float__(value)
        if not isfinite(number):
            raise ValueError(f"{number} is not JSON data")
        return number
    if depth == 0:
        raise ValueError(f"the data is nested more than {JSON_DEPTH} levels deep")
    if isinstance(value, dict):  # avoid a call per plain value
        return FrozenDict({
            key if type(key) is str and key.isascii() else _check_key(key):
            item if type(item) in _PLAIN or (type(item) is str and item.isascii()) else freeze(item, depth - 1)
            for key, item in dict.items(value)
        })  # fmt: skip
    if isinstance(value, list | tuple):
        items = list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        return FrozenList([
            item if type(item) in _PLAIN or (type(item) is str and item.isascii()) else freeze(item, depth - 1)
            for item in items
        ])  # fmt: skip
    _raise_not_json(value)


def _check_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError("the keys of a JSON object must be strings")
    return _check_utf8(key)


def _check_utf8(text: str) -> str:
    # A lone surrogate has no UTF-8 form, and two of them would encode like a different character.
    text = text if type(text) is str else str.__str__(text)
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise ValueError("text with half of a surrogate pair is not JSON data") from None
    return text


def thaw(value: Any) -> Any:
    """Return a mutable deep copy of JSON data."""
    if isinstance(value, dict):
        return {key: item if type(item) in _SCALARS else thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _SCALARS else thaw(item) for item in value]
    return value


def canonical_json(value: Any) -> bytes:
    """Encode a JSON value canonically: sorted keys, no spaces, ASCII, no NaN."""
    return "".join(_encode_pieces(value, 0)).encode("ascii")


def digest(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return sha256(data).hexdigest()
