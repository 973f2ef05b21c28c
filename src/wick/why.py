"""The record of a dispatch: the verdict of each hook, and the state of an operation while it passes its rings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wick._internal.visible_text import format_count
from wick.constants import PREVIEW_CHARS
from wick.decisions import Block, Stop
from wick.events import ChatModelStream, Emit, Event
from wick.messages import Message, ToolResult
from wick.protocols import Finish, Usage

PASS_REASON = "pass_reason"  # in the notes of an operation: why the hook that runs lets it pass


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


@dataclass(slots=True)
class StreamState:
    """The streamed output of a model call or a tool use.

    `loop` writes the reply and its data, `onion` the holds. Events are shown and retracted by this class only.
    """

    is_sent: bool = False  # a request was sent to the model
    reply: Message | ToolResult | None = None  # the reply as streamed
    usage: Usage = Usage()  # of the last attempt
    finish: str = ""  # the finish reason of the last attempt
    end: Finish = Finish("")  # the last delta of the last attempt
    shown: bool = False  # events were emitted
    holds: int = 0  # the number of `after` hooks that hold the stream
    held: list[Event] = field(default_factory=list)  # buffered while a hook holds the stream
    sent: list[str] = field(default_factory=list)  # the text of the reply that was emitted

    def show(self, event: Event, emit: Emit) -> None:
        """Emit a delta, or buffer it while a hook holds the stream."""
        if self.holds:
            self.held.append(event)
        else:
            self.shown = True
            if isinstance(event, ChatModelStream) and event.kind == "text":
                self.sent.append(event.delta)
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

    def retract(self) -> bool:
        """Drop the buffered deltas. Return True if others were emitted, which subscribers must discard."""
        self.held.clear()
        self.sent.clear()
        shown, self.shown = self.shown, False
        return shown


@dataclass(slots=True)
class ToolGrants:
    """Permissions of one tool use. Hook programs write `allowed`, the capability `permissions` the rest."""

    allowed: set[tuple[str, bytes]] = field(default_factory=set)  # tool and arguments
    unlinked: set[str] = field(default_factory=set)  # paths that rules matched by name; no symlinks
    default_question: str = ""  # asked by a permission mode only; a grant skips it


@dataclass(slots=True, eq=False, weakref_slot=True)
class DispatchState:
    """The state of one operation while it passes its rings, shared by all copies of it.

    Hooks use `why` and `notes`, through the operation. The other fields belong to the dispatcher; each is written by
    the module that is named beside it.
    """

    why: list[Why] = field(default_factory=list)  # onion, approvals
    notes: dict[str, Any] = field(default_factory=dict)  # hooks
    invalid: str = ""  # loop: why the call cannot run
    prevented: Block | Stop | None = None  # results: the decision not to perform it
    sealed: dict[str, object] = field(default_factory=dict)  # onion: the last sealed values of the editable fields
    follow_ups: list[Message] = field(default_factory=list)  # results: messages of hooks before the next step
    stream: StreamState = field(default_factory=StreamState)  # loop, onion
    grants: ToolGrants = field(default_factory=ToolGrants)  # permissions, hook programs


def describe_answer(answer: Mapping[str, Any], asked_args: Mapping[str, Any], ms: float = 0.0) -> Why:
    """Return the item of an answer to a question: its log entry, compared with the arguments of the question."""
    verdict, given, changed = "approved" if answer["allowed"] else "refused", answer.get("args"), None
    if answer["allowed"] and isinstance(given, dict):  # the gate refuses others
        changed = diff_values({key: asked_args[key] for key in asked_args if key in given}, given) or None
    hook = answer.get("deputy") or answer.get("by") or "user"
    return Why(hook, "gate", verdict, answer.get("reason", ""), ms, changed)


def diff_values(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the changed keys with [old, new]. Long values are shortened."""
    changed: dict[str, Any] = {}
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if before == after and (key in old) == (key in new):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            changed[key] = diff_values(before, after)
        else:
            changed[key] = [_shorten(before), _shorten(after)]
    return changed


def _shorten(value: object) -> object:
    if isinstance(value, list | tuple) and value and not isinstance(value[0], str | int | float):
        return format_count(len(value), "item")
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}…"
