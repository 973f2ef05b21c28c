"""Validation of replies from wickd against `wick.workspace.results`; wickd may run beside commands, untrusted."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from wick.errors import BackendError
from wick.workspace.results import (
    CommandResult,
    EditResult,
    FileLines,
    FileStat,
    GlobResult,
    GrepResult,
    JobInfo,
    JobOutput,
    Json,
    Listing,
    ReadResult,
    WriteResult,
)

T = TypeVar("T")

FILES: dict[str, Any] = {
    "ls": Listing,
    "stat": FileStat,
    "read": ReadResult,
    "lines": FileLines,
    "glob": GlobResult,
    "grep": GrepResult,
    "write": WriteResult,
    "edit": EditResult,
}


def raise_error(reply: Json) -> None:
    """Raise what a reply says went wrong."""
    if "code" in reply:
        sentence, code = _checked("error", reply.get("error"), str), _checked("code", reply["code"], str)
        raise BackendError(sentence[:2_000], code[:40])


def result(reply: Json) -> Json:
    """What was asked for."""
    raise_error(reply)
    found: Json = _checked("result", reply.get("result"), dict)
    return found


def file(op: str, found: Json) -> Json:
    """The result of a file operation."""
    return cast(Json, _checked(op, found, FILES[op])) if op in FILES else found


def executed(reply: Json) -> CommandResult:
    """How a command ended; what was moved aside meanwhile is not for a wickd to say."""
    raise_error(reply)
    return _part("execute", {**reply, "moved": []}, CommandResult)


def exit_code(reply: Json) -> int:
    return _checked("exit_code", reply.get("exit_code"), int)


def job(found: Json) -> JobInfo:
    return _part("job", found, JobInfo)


def jobs(found: Json) -> list[JobInfo]:
    return [_part("jobs", one, JobInfo) for one in _checked("jobs", found.get("jobs"), list)]


def job_output(found: Json) -> JobOutput:
    return _part("job_output", found, JobOutput)


def _part(what: str, found: Any, shape: type[T]) -> T:
    """The fields that a shape has, of an answer that may have others."""
    named = {name: found.get(name) for name in _hints(cast(Any, shape))} if isinstance(found, dict) else found
    return _checked(what, named, shape)


def _checked(what: str, value: Any, shape: type[T]) -> T:
    if not _fits(value, shape):
        raise BackendError(f"wickd gave an answer to {what} that is none; is it of this version?", "failed")
    return cast(T, value)


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
