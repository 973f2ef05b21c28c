"""File operations of requests, executed by a `Workspace`."""

from __future__ import annotations

import json
from typing import Any

from wick.errors import BackendError
from wick.wickd.grep_jobs import run_grep
from wick.wickd.requests import decode_base64
from wick.workspace.protected import PROTECTED
from wick.workspace.results import Json
from wick.workspace.workspace import Workspace

_TEXT, _NUMBER, _FLAG = (str,), (int, type(None)), (bool,)
# The arguments of each operation and their types.
OPERATIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "ls": {"path": _TEXT, "links": _FLAG},
    "read": {"path": _TEXT, "offset": _NUMBER, "limit": _NUMBER, "links": _FLAG},
    "lines": {"path": _TEXT, "offset": _NUMBER, "limit": _NUMBER, "links": _FLAG},
    "write": {"path": _TEXT, "content": _TEXT, "content64": _TEXT, "links": _FLAG},
    "edit": {"path": _TEXT, "old": _TEXT, "new": _TEXT, "replace_all": _FLAG, "occurrence": _TEXT, "links": _FLAG},
    "glob": {"pattern": _TEXT, "path": _TEXT, "everything": _FLAG, "links": _FLAG},
    "grep": {
        "pattern": _TEXT,
        "path": _TEXT,
        "glob": _TEXT,
        "ignore_case": _FLAG,
        "everything": _FLAG,
        "links": _FLAG,
    },
    "walk": {"path": _TEXT, "glob": _TEXT, "everything": _FLAG},
    "mkdir": {"path": _TEXT},
    "move": {"source": _TEXT, "target": _TEXT},
    "delete": {"path": _TEXT, "recursive": _FLAG},
    "stat": {"path": _TEXT},
}
_NEEDED = ("path", "old", "new", "pattern", "source", "target")
_OPTIONAL = {(op, "path") for op in ("ls", "glob", "grep", "walk")}


def is_long_running(call: Json) -> bool:
    """Return True if an operation runs in its own process, which can be killed."""
    return call["op"] in ("glob", "grep", "walk") or bool(call["args"].get("recursive"))


def perform_call(call: Json) -> bytes:
    """Execute an operation in its own process, and return the encoded reply."""
    return json.dumps(handle_call(call), separators=(",", ":")).encode()


def handle_call(call: Json) -> Json:
    """Execute an operation and return `result`, or `error` and `code`."""
    op = call["op"]
    try:
        args = _check_args(op, call["args"])
        workspace = Workspace(call["root"], PROTECTED if call["protect"] is None else call["protect"])
        try:
            if op == "walk":
                result: Any = workspace.list_searchable(**args)
            elif op == "grep":
                result = run_grep(workspace, **args)
            else:
                result = getattr(workspace, op)(**args)
        finally:
            workspace.close()
        return {"result": result or {}}
    except BackendError as error:
        return {"error": str(error), "code": error.code}
    except OSError as error:
        return {"error": f"{op} failed: {error.strerror or error}", "code": "failed"}


def _check_args(op: str, args: Json) -> Json:
    """Return the arguments of an operation with decoded content; raise BackendError if they are invalid."""
    kinds = OPERATIONS[op]
    for name, value in args.items():
        if name not in kinds:
            raise BackendError(f"{op} has no argument {name!r}; it has {', '.join(kinds)}", "invalid")
        if not isinstance(value, kinds[name]) or (isinstance(value, bool) and bool not in kinds[name]):
            raise BackendError(f"the argument {name!r} of {op} cannot be {value!r}", "invalid")
    missing = [name for name in _NEEDED if name in kinds and name not in args and (op, name) not in _OPTIONAL]
    if missing:
        raise BackendError(f"{op} needs {' and '.join(missing)}", "invalid")
    if "content64" in args:
        args = {**args, "content": decode_base64("content64", args["content64"])}
        del args["content64"]
    elif op == "write" and "content" not in args:
        raise BackendError("write needs content", "invalid")
    return args
