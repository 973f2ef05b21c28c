"""A verdict holds only for the exact operation that it was about, and only for who gave it.

    remember(use, program)      the program has agreed to this call as it is now
    agreed(sealed, program)     whether what will be done is what it agreed to

What was agreed to is kept with the operation itself: the open one, every copy of it and the sealed one share it. Who
agreed is told apart by what it is and not by its name: two programs of one name do not speak for each other.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from wick._internal.frozen import canonical_json, digest
from wick.operations import InboxScreen, Operation, Run, ToolUse

_NOTE = "agreed_by_programs"


def remember(op: Operation[Any], who: Hashable) -> None:
    """Note that somebody has agreed to this operation, exactly as it is."""
    op.notes.setdefault(_NOTE, {}).setdefault(who, set()).add(exactly(op))


def agreed(op: Operation[Any], who: Hashable) -> bool:
    """Whether somebody has agreed to this operation, exactly as it is."""
    return exactly(op) in op.notes.get(_NOTE, {}).get(who, ())


def exactly(op: Operation[Any]) -> str:
    """What a verdict is about, as a hash: a call with its arguments, a run with what it is to answer."""
    if isinstance(op, ToolUse):
        return digest(canonical_json([op.bound.name, op.bound.origin, op.call.id, op.args]))
    if isinstance(op, Run):
        return digest(canonical_json([op.id, [message.digest for message in op.input]]))
    return op.hash


def screen(run: Run, who: Hashable, name: str, look: InboxScreen) -> None:
    """Have what is said while a run goes on looked at; another of this name goes on looking, too."""
    names = run.scratch.setdefault(_NOTE, {})
    if who not in names:
        while name in run.progress.screens:
            name += "'"
        names[who] = name
    run.screen(names[who], look)
