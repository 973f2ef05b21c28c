"""Every operation of a workspace on any path, and its predicted outcome."""

from __future__ import annotations

import base64
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from faults.path_model import GUARDED, HIDDEN, NEEDLE, SECRET_BYTES, TOKEN, Found, Ground, content, guarded
from faults.tally import Tally
from wick.errors import BackendError

_SIZE = re.compile(rf"(?<![\d.]){SECRET_BYTES}(?![\d.])")  # as a number of its own, not as part of a time
WRITTEN, MOVED, MOVABLE = "written by a path", "moved-here", "movable.txt"

OPERATIONS: dict[str, Callable[[Any, str], Any]] = {
    "ls": lambda files, path: files.ls(path),
    "stat": lambda files, path: files.stat(path),
    "read": lambda files, path: files.read(path),
    "lines": lambda files, path: files.lines(path),
    "glob": lambda files, path: files.glob("**", path, everything=True),
    "grep": lambda files, path: files.grep(NEEDLE, path, everything=True),
    "write": lambda files, path: files.write(path, WRITTEN),
    "edit": lambda files, path: files.edit(path, NEEDLE, WRITTEN),
    "mkdir": lambda files, path: files.mkdir(path),
    "move": lambda files, path: files.move(path, MOVED),
    "move to": lambda files, path: files.move(MOVABLE, path),
    "delete": lambda files, path: files.delete(path),
    "purge": lambda files, path: files.delete(path, recursive=True),
}
READS = frozenset(("ls", "stat", "read", "lines", "glob", "grep", "download"))
AT_THE_LINK = frozenset(("stat", "move", "move to", "delete", "purge"))  # operations that do not follow the last link


@dataclass(frozen=True)
class Expected:
    """The predicted outcome of an operation: `done`, `refused` or `either`, and its location."""

    outcome: str
    found: Found


def expected(ground: Ground, operation: str, path: str) -> Expected:
    """Return the prediction of the model."""
    found = ground.model.find(path, follow=operation not in AT_THE_LINK)
    if found.where in ("out", "invalid"):
        return Expected("refused", found)
    if operation in AT_THE_LINK and found.kind == "link" and path.endswith(("/", "/.")):
        return Expected("either", replace(found, plain=False))  # a link or its target: systems differ
    if guarded(*found.names, *path.split("/")):
        return Expected("either", found)
    return Expected("done" if _can(ground, operation, path, found) else "either", found)


def _can(ground: Ground, operation: str, path: str, found: Found) -> bool:
    """Return True if the model allows it."""
    there, new = found.where == "there", found.where == "missing" and found.plain
    if operation in ("ls", "glob"):
        return there and found.kind == "dir"
    if operation == "grep":
        return there and found.kind in ("dir", "file")
    if operation in ("read", "lines", "edit", "download"):
        return there and found.kind == "file"
    if operation in ("write", "upload"):
        return (there and found.kind == "file") or new
    if operation == "mkdir":
        return (there and found.kind == "dir") or new
    if operation == "stat":
        return there
    if operation == "move to":
        return new and found.names[:1] != (MOVABLE,)
    if not there or not found.names:
        return False
    if found.kind != "dir" or not ground.model.inside(found.names):
        return True
    return operation in ("move", "purge") and not _holds_guarded(ground, found)


def _holds_guarded(ground: Ground, found: Found) -> bool:
    return any(guarded(*path.split("/")) for path in ground.model.beneath(found.names, "file"))


# -- outcomes -------------------------------------------------------------------------------------------------------


def wrong(ground: Ground, operation: str, wanted: Expected, answer: Any) -> str:
    """Return the mismatch between a result and its prediction, or ""."""
    said = repr(answer) if isinstance(answer, BackendError) else repr(_without_path(answer))
    if not isinstance(answer, BackendError) and (TOKEN in said or _SIZE.search(said)):
        return f"ESCAPED: it told of the outside: {said[:200]}"
    if HIDDEN in said:
        return f"ESCAPED: it told a secret: {said[:200]}"
    if operation not in READS and (touched := ground.touched()):
        return f"ESCAPED: {touched}"
    if isinstance(answer, BackendError):
        if wanted.outcome == "done":
            return f"REFUSED, but it is inside: {answer.code}: {answer}"
        leads_out = wanted.found.where == "out" or not wanted.found.plain or wanted.found.where == "loop"
        return "" if answer.code != "escapes" or leads_out else f"REFUSED as if it led out: {answer}"
    if wanted.outcome == "refused":
        return f"ESCAPED: {wanted.found.where}, but answered: {said[:200]}"
    return "" if wanted.outcome == "either" or _fits(ground, operation, wanted.found, answer) else f"odd: {said[:300]}"


def _without_path(answer: Any) -> Any:
    """Return a result without the given path, which may name the outside."""
    return {key: value for key, value in answer.items() if key != "path"} if isinstance(answer, Mapping) else answer


def _fits(ground: Ground, operation: str, found: Found, answer: Any) -> bool:
    """Return True if the operation took effect at the predicted location."""
    model, place, name = ground.model, ground.path(found.names), "/".join(found.names)
    if operation == "ls":
        return {entry["name"] for entry in answer["entries"]} == model.inside(found.names)
    if operation == "stat":
        return bool(answer["type"] == found.kind)
    if operation in ("read", "lines"):
        return _text(answer) == (content("hard") if name == "hard" else content(name))
    if operation == "download":
        return bool(answer == (content("hard") if name == "hard" else content(name)))
    if operation == "glob":
        return {*answer["files"]} >= model.beneath(found.names, "file")
    if operation == "grep":
        return {match["file"] for match in answer["matches"]} >= model.beneath(found.names, "file") - GUARDED.keys()
    if operation in ("write", "upload"):
        return _is(place, WRITTEN)
    if operation == "edit":
        return _is(place, content(name if name != "hard" else "hard").replace(NEEDLE, WRITTEN))
    if operation == "mkdir":
        return os.path.isdir(place)
    moved = ground.path((MOVED,)) if operation == "move" else place
    gone = ground.path((MOVABLE,)) if operation == "move to" else place
    return not os.path.lexists(gone) and (operation in ("delete", "purge") or os.path.lexists(moved))


def _text(answer: Mapping[str, Any]) -> str:
    text: str = answer["content"]
    return base64.b64decode(text).decode() if answer.get("encoding") == "base64" else text


def _is(place: str, text: str) -> bool:
    with open(place, encoding="utf-8") as file:
        return file.read() == text


# -- trying ---------------------------------------------------------------------------------------------------------


async def done(files: Any, operation: str, path: str) -> Any:
    """Return the result of an operation, or its BackendError."""
    try:
        answer = {**OPERATIONS, **getattr(files, "operations", {})}[operation](files, path)
        return await answer if inspect.isawaitable(answer) else answer
    except BackendError as error:
        return error


async def try_paths(
    tally: Tally, ground: Ground, files: Any, paths: Iterable[str], operations: Iterable[str] = OPERATIONS
) -> None:
    """Try every operation on every path; a mismatch is a violation."""
    count = legal = outside = 0
    for path in paths:
        count += 1
        for operation in operations:
            answer = await done(files, operation, path)
            wanted = expected(ground, operation, path)
            why = wrong(ground, operation, wanted, answer)
            tally.check(not why, f"{operation} {path[:200]!r}: {why}" if why else "")
            legal += wanted.outcome == "done"
            outside += wanted.found.where == "out"
            if operation not in READS or why:
                ground.restore(refused=isinstance(answer, BackendError) and not why)
    tally.note(paths=count, legal=legal, outside=outside)
