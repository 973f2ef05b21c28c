"""What it means when a program fails: one that decides has not agreed, one that only looks is logged.

`fail: open` lets an operation pass although the program that decides about it failed; `fail: closed` withholds what a
program should have looked at.
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
    """Whether a program at this event says if something is done, so that its silence is no agreement."""
    return event in DECIDING or event.startswith(("before_", "guard_", "wrap_"))


def shown(event: str, fail: Fail | None) -> str:
    """What a failure at this event means, as lists show it: open, closed, or nothing for one that is only logged."""
    return fail or ("closed" if decides(event) else "")


def failed(run: Run, name: str, problem: str, fail: Fail | None, decides: bool) -> Block | None:
    """What follows when a program failed; `problem` is the rest of a sentence about it."""
    if decides and fail != "open":
        return Block(f"the hook program {name} {problem}, so it has not agreed")
    if not decides and fail == "closed":
        raise HookError(f"the hook program {name} {problem}")
    logger.warning("the hook program %s %s; the run goes on", name, problem)
    run.record("hook_failed", hook=name, problem=problem)
    return None


def words(error: Any, most: int = 300) -> str:
    """Somebody else's words in a sentence of ours, on one line."""
    line = " ".join(str(error).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
