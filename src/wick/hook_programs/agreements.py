"""Agreements of hook programs, each for one exact operation and one program.

    record_agreement(use, program)     the program has agreed to this call in its present form
    has_agreed(sealed, program)        True if the sealed call is the one that it agreed to

Agreements are stored in the notes of the operation, which its copies and the sealed operation share. Programs are
identified by object, not by name: two programs with the same name do not share agreements.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from wick._internal.frozen import canonical_json, digest
from wick.operations import Operation, Run, ToolUse
from wick.run_state import InboxScreen

_NOTE = "agreed_by_programs"


def record_agreement(op: Operation[Any], program: Hashable) -> None:
    """Record that a program has agreed to this operation in its present form."""
    op.notes.setdefault(_NOTE, {}).setdefault(program, set()).add(fingerprint(op))


def has_agreed(op: Operation[Any], program: Hashable) -> bool:
    """Return True if a program has agreed to this operation in its present form."""
    return fingerprint(op) in op.notes.get(_NOTE, {}).get(program, ())


def fingerprint(op: Operation[Any]) -> str:
    """Return a hash of the agreed content: a call with its arguments, or a run with its input."""
    if isinstance(op, ToolUse):
        return digest(canonical_json([op.bound.name, op.bound.origin, op.call.id, op.args]))
    if isinstance(op, Run):
        return digest(canonical_json([op.id, [message.digest for message in op.input]]))
    return op.hash


def screen_messages(run: Run, program: Hashable, name: str, screen: InboxScreen) -> None:
    """Register a screen for messages that arrive during a run, next to other screens of this name."""
    names = run.scratch.setdefault(_NOTE, {})
    if program not in names:
        while name in run.progress.inbox.screens:
            name += "'"
        names[program] = name
    run.screen(names[program], screen)
