"""The decisions that hooks return. Returning nothing means: proceed.

    Block     do not perform it; its result says why   anywhere
    Ask       perform it only if the user agrees       before, wrap, guard
    Stop      end the run                              anywhere but after a Run
    Continue  take another step                        after a Step

The user answers an `Ask` with `Allow` or `Block`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wick._internal.familiar_words import DECISION_OPTIONS, explain_options

if TYPE_CHECKING:
    from wick.operations import Operation

STOPS = ("blocked", "stop requested", "budget", "step limit", "token limit", "time limit", "retry limit")


@dataclass(frozen=True, slots=True)
class Block:
    """Do not perform the operation; its result says why."""

    reason: str  # the explanation, which the model reads


@dataclass(frozen=True, slots=True)
class Ask:
    """Perform the operation only if the user agrees."""

    question: str  # the question to the user
    details: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False, compare=False)  # more JSON data


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run. A reason with a known prefix, such as `budget: …`, stays unchanged."""

    reason: str  # why the run ends; it becomes `result.reason`

    def with_prefix(self) -> Stop:
        """Return this Stop with the prefix `stop requested`, unless its reason has a known prefix."""
        if self.kind in STOPS:
            return self
        return Stop(f"stop requested: {self.reason}" if self.reason else "stop requested")

    @property
    def kind(self) -> str:
        return self.reason.partition(":")[0]

    def outranks(self, other: Stop) -> bool:
        """Return True if this reason is more authoritative. `STOPS` lists the known prefixes in that order."""
        return STOPS.index(self.kind) < STOPS.index(other.kind)


@dataclass(frozen=True, slots=True)
class Continue:
    """Take another step. A `message` is sent to the model first."""

    message: str = ""  # a message for the model; after a final reply an empty one is sent as "Continue."


if not TYPE_CHECKING:  # type checkers report unknown options themselves
    for kind in (Block, Ask, Stop, Continue):
        kind.__init__ = explain_options(f"{kind.__name__}()", DECISION_OPTIONS)(kind.__init__)

Decision = Block | Ask | Stop | Continue
DECISIONS = (Block, Ask, Stop, Continue)


@dataclass(frozen=True, slots=True)
class Allow:
    """The user agrees. With `args`, the call runs with these arguments instead."""

    args: Mapping[str, Any] | None = None  # the arguments to run the call with instead
    source: bool = field(default=False, kw_only=True, repr=False)  # endorse its sources for this run
    step: bool = field(default=False, kw_only=True, repr=False)  # also agree to the other questions of this step


@dataclass(frozen=True, slots=True)
class Question(Ask):
    """All questions about one sealed operation, joined for the user.

    `others` are the open questions about the other tool uses of the same step. `Allow(step=True)` agrees to them, too.
    """

    id: str  # the id of the question, the same after a pause
    hash: str  # the hash of the sealed operation that the answer is bound to
    about: dict[str, Any]  # the operation as JSON data: `tool`, `args` and `call_id` of a tool use
    op: Operation[object] = field(repr=False, compare=False)  # the sealed operation, read-only
    others: tuple[Mapping[str, Any], ...] = field(default=(), repr=False, compare=False)  # as JSON data

    @property
    def tool(self) -> str:
        """The name of the tool; empty unless the operation is a tool use."""
        return str(self.about.get("tool", ""))

    @property
    def args(self) -> dict[str, Any]:
        """The arguments that the tool would run with, after all changes by hooks; empty without a tool."""
        return dict(self.about.get("args", {}))


Answer = Allow | Block | bool
Asker = Callable[[Question], Answer | Awaitable[Answer]]
