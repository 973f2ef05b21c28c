"""Replies of a wickd, checked: it may run where the commands do, so nothing it says is taken as it is."""

from __future__ import annotations

from typing import Any, TypeVar

from wick.errors import BackendError
from wick.shapes import Executed, Job, JobOutput, Json

T = TypeVar("T")


def checked(value: Any, kind: type[T]) -> T:
    """The value, if it is what it should be."""
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise BackendError(f"wickd answered with something that is no {kind.__name__}; is it of this version?", "failed")


def raise_error(reply: Json) -> None:
    """Raise what a reply says went wrong."""
    if "code" in reply:
        raise BackendError(checked(reply.get("error"), str)[:2_000], checked(reply["code"], str)[:40])


def result(reply: Json) -> Json:
    """What was asked for."""
    raise_error(reply)
    found: Json = checked(reply.get("result"), dict)
    return found


def executed(reply: Json) -> Executed:
    raise_error(reply)
    return {
        "stdout": checked(reply.get("stdout"), str),
        "stderr": checked(reply.get("stderr"), str),
        "exit_code": checked(reply.get("exit_code"), int),
        "error": checked(reply.get("error"), str),
        "truncated": checked(reply.get("truncated"), bool),
        "stdout_bytes": checked(reply.get("stdout_bytes"), int),
        "stderr_bytes": checked(reply.get("stderr_bytes"), int),
        "seconds": _number(reply.get("seconds")),
        "moved": [],
    }


def job(found: Any) -> Job:
    fields = checked(found, dict)
    return {
        "id": checked(fields.get("id"), str),
        "command": checked(fields.get("command"), str),
        "running": checked(fields.get("running"), bool),
        "exit_code": checked(fields.get("exit_code"), int),
        "error": checked(fields.get("error"), str),
        "started": _number(fields.get("started")),
    }


def job_output(found: Json) -> JobOutput:
    return {
        "id": checked(found.get("id"), str),
        "output": checked(found.get("output"), str),
        "offset": checked(found.get("offset"), int),
        "next_offset": checked(found.get("next_offset"), int),
        "running": checked(found.get("running"), bool),
        "exit_code": checked(found.get("exit_code"), int),
    }


def _number(value: Any) -> float:
    return float(checked(value, int if isinstance(value, int) else float))
