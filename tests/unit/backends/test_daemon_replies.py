"""Replies of wickd are validated: it may run beside the commands."""

from __future__ import annotations

from typing import Any

import pytest

from wick.backends import daemon_replies
from wick.errors import BackendError


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        ("ls", {"path": ".", "entries": [{"name": 3, "type": "file", "size": 1}], "truncated": False}),
        ("ls", {"path": ".", "entries": "many", "truncated": False}),
        ("read", {"path": "a"}),
        ("stat", {"path": "a", "type": "file", "size": True, "mode": 1, "modified": 1.0}),
        ("glob", {"files": ["a", None], "truncated": False}),
        ("write", {"path": "a", "bytes_written": "3"}),
        ("grep", []),
    ],
)
def test_invalid_replies(op: str, answer: Any) -> None:
    with pytest.raises(BackendError, match=f"invalid reply from wickd to {op}"):
        daemon_replies.parse_file_result(op, answer)


JOB = {"id": "job-1", "command": "make", "running": True, "exit_code": -1, "error": "", "started": 1.5}


def test_unrequested_fields_are_omitted() -> None:
    """Another version may send unknown fields."""
    assert daemon_replies.parse_job({**JOB, "more": 1}) == JOB
    assert daemon_replies.parse_jobs({"jobs": [JOB, {**JOB, "id": "job-2"}]}) == [JOB, {**JOB, "id": "job-2"}]


@pytest.mark.parametrize("wrong", [{"id": 1}, {"running": 1}, {"exit_code": True}, {"error": None}, {"started": "now"}])
def test_invalid_job(wrong: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="invalid reply from wickd to job"):
        daemon_replies.parse_job({**JOB, **wrong})
    with pytest.raises(BackendError, match="invalid reply from wickd to jobs"):
        daemon_replies.parse_jobs({"jobs": [{**JOB, **wrong}]})


@pytest.mark.parametrize("found", [{}, {"jobs": {}}, {"jobs": [None]}, {"jobs": ["job-1"]}])
def test_invalid_jobs(found: Any) -> None:
    with pytest.raises(BackendError, match="invalid reply from wickd to jobs"):
        daemon_replies.parse_jobs(found)


ENDED = {
    "stdout": "a",
    "stderr": "",
    "exit_code": 0,
    "error": "",
    "truncated": False,
    "stdout_bytes": 1,
    "stderr_bytes": 0,
    "seconds": 0.5,
}


def test_how_a_command_ended() -> None:
    assert daemon_replies.parse_executed({**ENDED, "id": "r1"}) == {**ENDED, "moved": []}
    assert daemon_replies.parse_executed({**ENDED, "moved": ["a"]})["moved"] == []
    with pytest.raises(BackendError, match="invalid reply from wickd to execute"):
        daemon_replies.parse_executed({**ENDED, "stdout": b"a"})


def test_errors_are_reported() -> None:
    with pytest.raises(BackendError, match="no such job") as caught:
        daemon_replies.parse_result({"error": "no such job", "code": "not_found"})
    assert caught.value.code == "not_found"
    with pytest.raises(BackendError, match="invalid reply from wickd to code"):
        daemon_replies.parse_result({"error": "no such job", "code": 3})
    with pytest.raises(BackendError, match="invalid reply from wickd to result"):
        daemon_replies.parse_result({"result": []})
