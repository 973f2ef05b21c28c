"""Consequences of failed hook programs: a deciding program blocks the operation, an observing one is logged.

`fail: open` lets an operation pass although its deciding program failed. `fail: closed` withholds a result that an
observing program did not see.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from wick.decisions import Block
from wick.errors import HookError
from wick.operations import Run

logger = logging.getLogger(__name__)

Fail = Literal["closed", "open"]

DECIDING = frozenset(("before_tool_call", "user_message_send", "PreToolUse", "UserPromptSubmit"))


def decides(event: str) -> bool:
    """Return True if a program at this event decides about the operation."""
    return event in DECIDING or event.startswith(("before_", "guard_", "wrap_"))


def describe_failure(event: str, fail: Fail | None) -> str:
    """Return the effect of a failure for lists: "open", "closed", or "" if it is only logged."""
    return fail or ("closed" if decides(event) else "")


def handle_failure(run: Run, name: str, problem: str, fail: Fail | None, decides: bool) -> Block | None:
    """Apply the failure policy; return a Block if the operation is denied. `problem` continues a sentence."""
    if decides and fail != "open":
        return Block(f"the hook program {name} {problem}, so it has not agreed")
    if not decides and fail == "closed":
        raise HookError(f"the hook program {name} {problem}")
    logger.warning("the hook program %s %s; the run continues", name, problem)
    run.record("hook_failed", hook=name, problem=problem)
    return None


def one_line(error: Any, most: int = 300) -> str:
    """Return foreign text on one line, shortened, for use inside of a sentence."""
    line = " ".join(str(error).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
