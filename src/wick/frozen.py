"""JSON data that cannot change: what is sealed, logged or hashed is frozen first.

freeze(value)     a read-only deep copy: dicts and lists stay dicts and lists, but refuse to change
thaw(value)       a plain deep copy that can be changed again
canonical(value)  the one spelling of a value as bytes: the same data, the same bytes
digest(data)      the hash of such bytes
"""

from __future__ import annotations

import json
from hashlib import sha256
from math import isfinite
from typing import Any, NoReturn

from wick.caps import JSON_DEPTH
from wick.errors import Sealed

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise Sealed("this data is read-only: it is sealed or logged; change a copy made by thaw() instead")


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return {key: thaw(value) for key, value in self.items()}

    def __reduce__(self) -> Any:
        return freeze, (thaw(self),)


class FrozenList(list[Any]):
    """A list that refuses to change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = _refuse
    insert = pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, memo: object) -> list[Any]:
        return [thaw(value) for value in self]

    def __reduce__(self) -> Any:
        return freeze, (thaw(self),)


def freeze(value: Any, depth: int = JSON_DEPTH) -> Any:
    """A read-only deep copy of JSON data; a TypeError or ValueError says what is not JSON."""
    if isinstance(value, str):
        return _utf8(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return _finite(value)
    if depth == 0:
        raise ValueError(f"the data is nested more than {JSON_DEPTH} levels deep")
    if isinstance(value, dict):
        return FrozenDict([(_key(key), freeze(item, depth - 1)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return FrozenList([freeze(item, depth - 1) for item in value])
    raise TypeError(f"{type(value).__name__} is not JSON data")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError("the keys of a JSON object must be strings")
    return _utf8(key)


def _utf8(text: str) -> str:
    # Half a surrogate pair has no bytes, and two halves would be spelled like the character they are not.
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise ValueError("text with half of a surrogate pair is not JSON data") from None
    return text


def _finite(number: float) -> float:
    if not isfinite(number):
        raise ValueError(f"{number} is not JSON data")
    return number


def thaw(value: Any) -> Any:
    """A plain deep copy of JSON data, free to change."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, ASCII, no NaN."""
    return _encode(value).encode("ascii")


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()
