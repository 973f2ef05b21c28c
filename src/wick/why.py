"""The record: which hook looked at an operation, what it said, how long it took and what it changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wick.constants import PREVIEW_CHARS
from wick.decisions import Block, Stop
from wick.events import Emit, Event
from wick.messages import Message, ToolResult
from wick.protocols import Usage


@dataclass(frozen=True, slots=True)
class Why:
    """One hook's part in what became of an operation."""

    hook: str
    position: str
    verdict: str  # pass, block, ask, stop, continue, failed; for a question: approved, refused
    reason: str = ""
    ms: float = 0.0
    changed: dict[str, Any] | None = None
    shadow: bool = False  # only recorded: it did not count

    def to_json(self) -> dict[str, Any]:
        row = {"hook": self.hook, "position": self.position, "verdict": self.verdict, "ms": round(self.ms, 3)}
        extra = {"reason": self.reason, "changed": self.changed, "shadow": self.shadow}
        return row | {key: value for key, value in extra.items() if value}


@dataclass(slots=True, eq=False, weakref_slot=True)
class DispatchState:
    """What one operation leaves behind; every copy of it that a wrap passes on shares it."""

    why: list[Why] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    invalid: str = ""  # why the call cannot be made at all
    prevented: Block | Stop | None = None
    sealed: dict[str, Any] = field(default_factory=dict)  # what hooks may change, as it was last sealed
    grants: set[tuple[str, bytes]] = field(default_factory=set)  # a tool with exactly these arguments may be used
    unlinked: set[str] = field(default_factory=set)  # paths that rules decided about as paths without links
    default_question: str = ""  # what only a permission mode asks, so that a grant could have silenced it
    follow: list[Message] = field(default_factory=list)  # what hooks tell the model before another step
    finish: str = ""
    usage: Usage = Usage()  # of the last attempt
    reply: Message | ToolResult | None = None  # as it was streamed
    shown: bool = False  # somebody has seen deltas of it
    holds: int = 0
    held: list[Event] = field(default_factory=list)

    def show(self, event: Event, emit: Emit) -> None:
        """Announce a provisional piece of the result, or keep it while a hook holds it."""
        if self.holds:
            self.held.append(event)
        else:
            self.shown = True
            emit(event)

    def release(self, unchanged: bool, emit: Emit) -> None:
        """A holding hook has answered: announce what was kept, unless it has become something else."""
        self.holds -= 1
        if not unchanged:
            self.held.clear()
        if not self.holds:
            held, self.held = self.held, []
            for event in held:
                self.show(event, emit)


def diff_values(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What changed, key by key, as [before, after]; long values are shortened."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key) or (key in old) != (key in new)]
    return {key: _diff_value(old.get(key), new.get(key)) for key in keys}


def _diff_value(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return diff_values(old, new)
    return [_shorten(old), _shorten(new)]


def _shorten(value: Any) -> Any:
    if isinstance(value, list | tuple) and value and not isinstance(value[0], str | int | float):
        return f"{len(value)} items"
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}…"
