"""Copies of operations: one that inner rings may change, and one that nobody can change any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, NoReturn, TypeVar

from wick._internal.frozen import thaw
from wick.errors import Sealed

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
    return _copy_fields(op, kind.__bases__[1] if issubclass(kind, ReadOnly) else kind, changes)


def sealed_copy(op: T, changes: dict[str, Any]) -> T:
    """A copy that refuses to change."""
    sealed = open_copy(op, changes)
    kind: Any = type(sealed)
    sealed.__class__ = _sealed_class(kind)  # from here on
    return sealed


def copy_value(value: Any) -> Any:
    """Containers are copied, so that a change to one shows; what they hold of ours cannot change anyway."""
    kind = type(value)
    if kind is list:  # most of them
        return value[:]
    if issubclass(kind, dict):
        return {key: thaw(item) for key, item in value.items()}
    return list(value) if issubclass(kind, (list, tuple)) else value


def _copy_fields(op: T, kind: Any, changes: dict[str, Any]) -> T:
    new: T = object.__new__(kind)
    _make_copier(kind)(op, new)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


@cache
def _make_copier(kind: Any) -> Callable[[Any, Any], None]:
    """What copies every field of a kind."""
    # Written out, as dataclasses write theirs: every operation is copied when it is sealed, and a loop takes longer.
    made: dict[str, Any] = {}
    exec("def copy(old, new):" + "".join(f"\n    new.{field.name} = old.{field.name}" for field in fields(kind)), made)
    return made["copy"]  # type: ignore[no-any-return]


@cache
def _sealed_class(kind: Any) -> Any:
    return type(f"Sealed{kind.__name__}", (ReadOnly, kind), {"__slots__": ()})
