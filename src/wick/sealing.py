"""Copies of operations: one that inner rings may change, and one that nobody can change any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

from wick.errors import Sealed
from wick.frozen import thaw

T = TypeVar("T")


class ReadOnly:
    """What an operation becomes when it is sealed."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise Sealed(f"this operation is sealed: {name!r} can no longer be set; change it in a `before` or a `wrap`")

    def __delattr__(self, name: str) -> NoReturn:
        raise Sealed(f"this operation is sealed: {name!r} can no longer be deleted")


def open_copy(op: T, changes: dict[str, Any]) -> T:
    """A copy of its own that can change, with some fields other than they were."""
    kind: Any = type(op)
    return _remade(op, kind.__bases__[1] if issubclass(kind, ReadOnly) else kind, changes)


def sealed_copy(op: T, changes: dict[str, Any]) -> T:
    """A copy that refuses to change."""
    kind: Any = type(op)
    sealed: T = _remade(op, _sealed_kind(kind), changes)
    return sealed


def copied(value: Any) -> Any:
    """Containers are copied, so that a change to one shows; what they hold of ours cannot change anyway."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    return list(value) if isinstance(value, (list, tuple)) else value


def _remade(op: T, kind: Any, changes: dict[str, Any]) -> T:
    new: T = object.__new__(kind)
    read, puts = _slots(kind)
    for put, value in zip(puts.values(), read(op), strict=True):
        put(new, value)
    for name, value in changes.items():
        puts[name](new, value)
    return new


@cache
def _slots(kind: Any) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, Callable[[Any, Any], None]]]:
    """What reads all fields of a kind at once, and what sets each, past the seal as well."""
    names = [field.name for field in fields(kind)]
    return attrgetter(*names), {name: getattr(kind, name).__set__ for name in names}


@cache
def _sealed_kind(kind: Any) -> Any:
    if issubclass(kind, ReadOnly):
        return kind
    return type(f"Sealed{kind.__name__}", (ReadOnly, kind), {"__slots__": ()})
