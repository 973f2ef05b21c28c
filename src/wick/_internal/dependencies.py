"""Dependencies of a run: the parameters of tools and hooks that receive `agent.run(…, deps=…)`.

    def lookup(name: str, db: Deps[Database]) -> str: ...      the run's deps, as a parameter
    def lookup(name: str, run: Run[Database]) -> str: ...      the run, whose `deps` are a Database

Type checkers read `Deps[Database]` as `Database`. The model never sees such a parameter and cannot fill it in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, is_typeddict

T = TypeVar("T")


class _DepsMarker:
    """The marker in `Annotated[T, …]` of parameters that receive the deps of the run."""

    def __repr__(self) -> str:
        return "Deps"


_MARKER = _DepsMarker()
Deps = Annotated[T, _MARKER]
Deps.__doc__ = "The type of a parameter of a tool or a hook that receives the deps of the run: `db: Deps[Database]`."


@dataclass(frozen=True, slots=True)
class DepsParameter:
    """A parameter of a tool or a hook that depends on the type of the run's deps."""

    name: str
    type_name: str
    required: bool
    is_injected: bool  # False for `run: Run[T]`, which receives the run
    kinds: tuple[type, ...] = field(repr=False)  # empty: any value is accepted

    def accepts(self, deps: object) -> bool:
        """Return True if the parameter can receive these deps."""
        if deps is None:
            return not self.required or type(None) in self.kinds
        return not self.kinds or isinstance(deps, self.kinds)

    def wants(self, deps: object) -> bool:
        """Return True if these deps are passed to the parameter; without deps, its default is used."""
        return self.accepts(deps) and (deps is not None or self.required)

    def accepts_type(self, deps_type: type) -> bool:
        """Return True if the parameter can receive deps of this type."""
        return not self.kinds or issubclass(deps_type, self.kinds)


def read_deps_parameter(name: str, hint: Any, required: bool, run_types: Iterable[Any] = ()) -> DepsParameter | None:
    """Return the parameter if its annotation is `Deps[T]`, or one of `run_types` with a type argument; else None."""
    for part in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if get_origin(part) is Annotated and _MARKER in get_args(part):
            kind, is_injected = get_args(part)[0], True
        elif get_origin(part) in run_types:
            kind, is_injected = get_args(part)[0], False
            if kind is Any or isinstance(kind, TypeVar):  # `Run[T]` and `Run[Any]` need no deps
                continue
        else:
            continue
        needed = required or not is_injected
        return DepsParameter(name, show_type(kind), needed, is_injected, _runtime_types(kind))
    return None


def _runtime_types(hint: Any) -> tuple[type, ...]:
    """Return the classes to check deps with, or an empty tuple if the type cannot be checked at run time."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        members = [_runtime_types(member) for member in get_args(hint)]
        return tuple(kind for kinds in members for kind in kinds) if all(members) else ()
    kind = type(None) if hint is None else get_origin(hint) or hint
    if is_typeddict(kind):
        return (dict,)
    if not isinstance(kind, type) or kind is object:
        return ()
    try:
        isinstance(None, kind)
        issubclass(type(None), kind)
    except TypeError:  # a protocol without @runtime_checkable, or with attributes
        return ()
    return (kind,)


def show_type(hint: Any) -> str:
    """Return the short name of a type."""
    return hint.__qualname__.split("<locals>.")[-1] if isinstance(hint, type) and not get_args(hint) else str(hint)
