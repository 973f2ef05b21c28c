"""A verdict holds only for the exact operation that it was about.

    remember(use, "check")      the program has agreed to this call as it is now
    agreed(sealed, "check")     whether what will be done is what it agreed to

What was agreed to is kept with the operation itself: the open one, every copy of it and the sealed one share it.
"""

from __future__ import annotations

from typing import Any

from wick.frozen import canonical, digest
from wick.operations import Operation, Run, ToolUse

_NOTE = "agreed_by_programs"


def remember(op: Operation[Any], name: str) -> None:
    """Note that a program has agreed to this operation, exactly as it is."""
    op.notes.setdefault(_NOTE, {}).setdefault(name, set()).add(exactly(op))


def agreed(op: Operation[Any], name: str) -> bool:
    """Whether a program has agreed to this operation, exactly as it is."""
    return exactly(op) in op.notes.get(_NOTE, {}).get(name, ())


def exactly(op: Operation[Any]) -> str:
    """What a verdict is about, as a hash: a call with its arguments, a run with what it is to answer."""
    if isinstance(op, ToolUse):
        return digest(canonical([op.bound.name, op.call.id, op.args]))
    if isinstance(op, Run):
        return digest(canonical([op.id, [message.digest for message in op.input]]))
    return op.hash
