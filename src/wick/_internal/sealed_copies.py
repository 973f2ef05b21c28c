"""Copies of operations: open copies for inner rings, and sealed, read-only copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NoReturn, TypeVar

from wick._internal.frozen import thaw
from wick.errors import Sealed

T = TypeVar("T")


class ReadOnly:
    """Mixin of sealed operations: refuses to set or delete attributes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise Sealed(f"this operation is sealed: {name!r} can no longer be set; change it in a `before` or a `wrap`")

    def __delattr__(self, name: str) -> NoReturn:
        raise Sealed(f"this operation is sealed: {name!r} can no longer be deleted")


def open_copy(op: T, changes: Mapping[str, object]) -> T:
    """Return an independent, mutable copy with changed fields."""
    kind: type = type(op)
    if issubclass(kind, ReadOnly):
        kind = kind.__bases__[1]  # the open class: see `_sealed_class`
    new: T = object.__new__(kind)
    _make_copier(kind)(op, new)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


def sealed_copy(op: T, changes: Mapping[str, object]) -> T:
    """Return a read-only copy with changed fields."""
    sealed = open_copy(op, changes)
    kind: type = type(sealed)
    sealed.__class__ = _sealed_class(kind)  # read-only from here on
    return sealed


def copy_value(value: Any) -> Any:
    """Copy a container, so that changes to it can be detected. The values of a dict are copied too."""
    kind = type(value)
    if kind is list:  # the common case
        return value[:]
    if issubclass(kind, dict):
        return {key: thaw(item) for key, item in value.items()}
    return list(value) if issubclass(kind, (list, tuple)) else value


@cache
def _make_copier(kind: type) -> Callable[[object, object], None]:
    """Return a function that copies every field of a class."""
    # Generated code, as in dataclasses: sealing copies every operation, and a loop over the fields is slower.
    names = [field.name for field in fields(kind)]
    if "__setattr__" not in vars(kind):
        namespace: dict[str, Any] = {}
        lines = [f"new.{name} = old.{name}" for name in names]
    else:  # a `__setattr__` that checks changes has nothing to check in a new copy: set the slots
        namespace = {f"set_{name}": getattr(kind, name).__set__ for name in names}
        lines = [f"set_{name}(new, old.{name})" for name in names]
    exec("def copy(old, new):\n    " + "\n    ".join(lines), namespace)
    return namespace["copy"]  # type: ignore[no-any-return]


@cache
def _sealed_class(kind: type) -> type:
    """Return the read-only subclass of an operation's class."""
    return type(f"Sealed{kind.__name__}", (ReadOnly, kind), {"__slots__": ()})
