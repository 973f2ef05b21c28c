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

FILE_RESULTS: dict[str, Any] = {
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
    """Raise the error of a reply, if it has one."""
    if "code" in reply:
        sentence, code = _validate("error", reply.get("error"), str), _validate("code", reply["code"], str)
        raise BackendError(sentence[:2_000], code[:40])


def parse_result(reply: Json) -> Json:
    """Return the result of a reply; raise its error."""
    raise_error(reply)
    found: Json = _validate("result", reply.get("result"), dict)
    return found


def parse_file_result(op: str, found: Json) -> Json:
    """Return the validated result of a file operation."""
    return cast(Json, _validate(op, found, FILE_RESULTS[op])) if op in FILE_RESULTS else found


def parse_executed(reply: Json) -> CommandResult:
    """Return the result of a command. `moved` is emptied, as only the host determines it."""
    raise_error(reply)
    return _parse_fields("execute", {**reply, "moved": []}, CommandResult)


def parse_exit_code(reply: Json) -> int:
    return _validate("exit_code", reply.get("exit_code"), int)


def parse_job(found: Json) -> JobInfo:
    return _parse_fields("job", found, JobInfo)


def parse_jobs(found: Json) -> list[JobInfo]:
    return [_parse_fields("jobs", one, JobInfo) for one in _validate("jobs", found.get("jobs"), list)]


def parse_job_output(found: Json) -> JobOutput:
    return _parse_fields("job_output", found, JobOutput)


def _parse_fields(what: str, found: Any, shape: type[T]) -> T:
    """Return the fields of a TypedDict from a reply that may have more."""
    named = {name: found.get(name) for name in _type_hints(cast(Any, shape))} if isinstance(found, dict) else found
    return _validate(what, named, shape)


def _validate(what: str, value: Any, shape: type[T]) -> T:
    if not _matches_type(value, shape):
        raise BackendError(f"invalid reply from wickd to {what}; check that its version matches", "failed")
    return cast(T, value)


def _matches_type(value: Any, shape: Any) -> bool:
    if is_typeddict(shape):
        hints = _type_hints(shape)
        return (
            isinstance(value, dict)
            and value.keys() == hints.keys()
            and all(_matches_type(value[name], hint) for name, hint in hints.items())
        )
    if get_origin(shape) is list:
        return isinstance(value, list) and all(_matches_type(one, get_args(shape)[0]) for one in value)
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is shape


@cache
def _type_hints(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)
