"""What a hook may say: four decisions, and returning nothing, which means go on.

    Block     do not do it; its result says why        anywhere
    Ask       do it only if the user agrees            before, wrap, guard
    Stop      end the run                              anywhere but after a Run
    Continue  take another step                        after a Step

And what the user may say to an `Ask`: `Allow`, or a `Block`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

STOPS = ("blocked", "stop requested", "budget", "step limit", "token limit", "time limit", "retry limit")


@dataclass(frozen=True, slots=True)
class Block:
    """Do not perform the operation; its result says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Perform the operation only if the user agrees."""

    question: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run. A reason that begins with a known word, as in `budget: …`, is kept as it is."""

    reason: str

    def requested(self) -> Stop:
        """The same with a reason that says who wanted it, when no known word does."""
        if self.kind in STOPS:
            return self
        return Stop(f"stop requested: {self.reason}" if self.reason else "stop requested")

    @property
    def kind(self) -> str:
        return self.reason.partition(":")[0]

    def outranks(self, other: Stop) -> bool:
        """Whether this is the more authoritative reason; the known words stand in that order."""
        return STOPS.index(self.kind) < STOPS.index(other.kind)


@dataclass(frozen=True, slots=True)
class Continue:
    """Take another step, telling the model `message` first if there is one."""

    message: str = ""


Decision = Block | Ask | Stop | Continue
DECISIONS = (Block, Ask, Stop, Continue)


@dataclass(frozen=True, slots=True)
class Allow:
    """The user agrees; with `args`, to the call with these arguments instead."""

    args: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Question(Ask):
    """What the user is asked: every question about one sealed operation, put together."""

    id: str
    hash: str
    about: dict[str, Any]
    op: Any = field(repr=False, compare=False)


Answer = Allow | Block | bool | None
Asker = Callable[[Question], Answer | Awaitable[Answer]]
