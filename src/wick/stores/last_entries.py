"""The last entries of a run: whether a store appends them in the transaction that releases the lease."""

from __future__ import annotations

from functools import cache
from inspect import signature

from wick.protocols import Store


def can_append_on_release(store: Store) -> bool:
    """Return True if `store.release` takes entries, and appends them as `store.append` would.

    A subclass or a wrapper that defines `append` without `release` gets all entries by `append`: it may count, copy or
    encrypt them, and the inherited `release` would not call it.
    """
    own = getattr(store, "__dict__", {})
    if "append" in own or "release" in own:  # set on the object itself
        return "release" in own and "entries" in signature(store.release).parameters
    return _inherits_release(type(store))


@cache
def _inherits_release(kind: type[Store]) -> bool:
    """Return True if `release` is defined where `append` is, or in a subclass of that, and takes entries."""
    defined = [name for level in kind.__mro__ for name in ("release", "append") if name in vars(level)]
    return defined[:1] == ["release"] and "entries" in signature(kind.release).parameters
