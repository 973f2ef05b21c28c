"""The record of each hook that ran: its verdict, its duration and its changes."""

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
    """One hook's verdict on an operation."""

    hook: str
    position: str
    verdict: str  # pass, block, ask, stop, continue, failed; for a question: approved, refused
    reason: str = ""
    ms: float = 0.0
    changed: dict[str, Any] | None = None
    shadow: bool = False  # recorded only, without effect

    def to_json(self) -> dict[str, Any]:
        row = {"hook": self.hook, "position": self.position, "verdict": self.verdict, "ms": round(self.ms, 3)}
        extra = {"reason": self.reason, "changed": self.changed, "shadow": self.shadow}
        return row | {key: value for key, value in extra.items() if value}


@dataclass(slots=True, eq=False, weakref_slot=True)
class DispatchState:
    """The state of one operation while it passes its rings, shared by all copies of it."""

    why: list[Why] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    invalid: str = ""  # why the call cannot run
    prevented: Block | Stop | None = None
    sealed: dict[str, Any] = field(default_factory=dict)  # the last sealed values of the editable fields
    grants: set[tuple[str, bytes]] = field(default_factory=set)  # allowed tool and arguments
    unlinked: set[str] = field(default_factory=set)  # paths that rules matched by name; no symlinks
    default_question: str = ""  # asked by a permission mode only; a grant skips it
    follow: list[Message] = field(default_factory=list)  # messages of hooks before the next step
    finish: str = ""
    usage: Usage = Usage()  # of the last attempt
    reply: Message | ToolResult | None = None  # the reply as streamed
    shown: bool = False  # deltas were emitted
    holds: int = 0
    held: list[Event] = field(default_factory=list)

    def show(self, event: Event, emit: Emit) -> None:
        """Emit a delta, or buffer it while a hook holds the stream."""
        if self.holds:
            self.held.append(event)
        else:
            self.shown = True
            emit(event)

    def release(self, unchanged: bool, emit: Emit) -> None:
        """End one hold. Emit the buffered deltas, or drop them if the result was changed."""
        self.holds -= 1
        if not unchanged:
            self.held.clear()
        if not self.holds:
            held, self.held = self.held, []
            for event in held:
                self.show(event, emit)


def diff_values(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the changed keys with [old, new]. Long values are shortened."""
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
