"""What a daemon in a container answers is not trusted: it is checked against wick.shapes before anybody uses it."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from wick.errors import BackendError
from wick.shapes import Content, Edited, Found, Json, Lines, Listing, Matches, Stat, Written

SHAPES: dict[str, Any] = {
    "ls": Listing,
    "stat": Stat,
    "read": Content,
    "lines": Lines,
    "glob": Found,
    "grep": Matches,
    "write": Written,
    "edit": Edited,
}


def checked(op: str, answer: Json) -> Json:
    """The answer to a file operation, if it has the shape that it should have."""
    if op in SHAPES and not _fits(answer, SHAPES[op]):
        raise BackendError(f"the daemon in the container gave an answer to {op} that is none", "failed")
    return answer


def _fits(value: Any, shape: Any) -> bool:
    if is_typeddict(shape):
        hints = _hints(shape)
        return (
            isinstance(value, dict)
            and value.keys() == hints.keys()
            and all(_fits(value[name], hint) for name, hint in hints.items())
        )
    if get_origin(shape) is list:
        return isinstance(value, list) and all(_fits(one, get_args(shape)[0]) for one in value)
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is shape


@cache
def _hints(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)
