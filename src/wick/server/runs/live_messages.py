"""Messages about runs on the live plane, between the server that performs a run and servers with readers of it.

    run.RUN     from the server that performs it: batches of transient events, each with its place in the log
    held.RUN    to that server: requests to follow the run, to cancel it, or to read its inbox

A batch has the fence of the lease and a number, so that a receiver detects lost batches and a new lease holder. All
messages are validated: another program may be connected to the live plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from wick import events
from wick._internal.fast_json import encode_json
from wick.constants import LIVE_BYTES
from wick.events import ChatModelEnd, ChatModelStart, Event, StateChange, ToolEnd, ToolStart
from wick.server.live import subject_token
from wick.server.runs.open_message import OpenMessage

LOGGED_EVENTS = (ChatModelEnd, ToolStart, ToolEnd, StateChange)  # events of the run itself that its log entries produce
APPROVAL_EVENTS = (events.ApprovalRequest, events.ApprovalResponse)  # the same for events of the run and its children


def frames_subject(run: str) -> str:
    return f"run.{subject_token(run)}"


def holder_subject(run: str) -> str:
    return f"held.{subject_token(run)}"


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


T = TypeVar("T", bound=_Message)


class HolderRequest(_Message):
    """A request to the server that performs a run."""

    action: Literal["follow", "cancel", "read_inbox"]
    owner: str  # the owner of the run, which the sender has checked
    fence: int = 0  # lease holders with a lower fence do not reply


class LiveItem(_Message):
    """An event and its place: after `at` entries of the log. Without an event it reports only that place."""

    at: int = Field(ge=0)
    is_open: bool = False  # the model is writing a reply
    event: dict[str, Any] | None = None


class LiveBatch(_Message):
    """Events of a run, in order."""

    fence: int
    number: int
    items: list[LiveItem] = []
    is_lost: bool = False  # its events were too large
    is_last: bool = False  # the run is no longer performed there


class LiveSnapshot(_Message):
    """The reply to `follow`: the place in the log and the open reply of the model, as of the batch `number`."""

    fence: int
    number: int
    at: int = Field(ge=0)
    text: str | None = None  # of the reply that the model is writing
    start: dict[str, Any] | None = None  # the start event of that reply
    is_cut: bool = False  # the text is too large, and missing


def encode_message(message: _Message) -> bytes:
    return encode_json(message.model_dump(exclude_defaults=True))


def encode_batches(fence: int, number: int, items: Sequence[LiveItem], is_last: bool) -> list[bytes]:
    """Return items as messages with consecutive numbers. An item that is too large is replaced by a gap."""
    whole = encode_message(LiveBatch(fence=fence, number=number, items=[*items], is_last=is_last))
    if len(whole) <= LIVE_BYTES:
        return [whole]
    if len(items) == 1:
        return [encode_message(LiveBatch(fence=fence, number=number, is_lost=True, is_last=is_last))]
    half = len(items) // 2
    first = encode_batches(fence, number, items[:half], False)
    return [*first, *encode_batches(fence, number + len(first), items[half:], is_last)]


def encode_snapshot(fence: int, number: int, at: int, message: OpenMessage) -> bytes:
    """Return the reply to `follow`, without the text if it is too large."""
    start = None if message.start is None or not message.is_open else encode_event_fields(message.start)
    snapshot = LiveSnapshot(fence=fence, number=number, at=at, text=message.text, start=start)
    data = encode_message(snapshot)
    if len(data) <= LIVE_BYTES:
        return data
    return encode_message(LiveSnapshot(fence=fence, number=number, at=at, is_cut=True))


def parse_request(data: bytes) -> HolderRequest | None:
    return _parse(HolderRequest, data)


def parse_batch(data: bytes) -> LiveBatch | None:
    return _parse(LiveBatch, data)


def parse_snapshot(data: bytes) -> LiveSnapshot | None:
    return _parse(LiveSnapshot, data)


def _parse(kind: type[T], data: bytes) -> T | None:
    try:
        return kind.model_validate_json(data)
    except ValidationError:
        return None


# -- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _EventKind:
    fields: tuple[str, ...]
    adapter: TypeAdapter[Event]


@cache
def _event_kinds() -> dict[str, _EventKind]:
    """Return the events that a transient frame may have, by name."""
    durable = (*APPROVAL_EVENTS, events.UserMessage, events.Resync)
    kinds = [kind for kind in Event.__subclasses__() if not kind.terminal and kind not in durable]
    return {kind.event: _EventKind((*kind.__dataclass_fields__,), TypeAdapter(kind)) for kind in kinds}


def encode_event_fields(event: Event) -> dict[str, Any]:
    """Return an event as JSON data that `decode_event` accepts."""
    kind = _event_kinds()[event.event]
    return {"event": event.event} | {name: value for name in kind.fields if (value := getattr(event, name))}


def decode_event(data: dict[str, Any], run: str) -> Event | None:
    """Return a transient event of a run or of a child, or None if it is invalid, or one that comes from the log."""
    kind = _event_kinds().get(str(data.get("event")))
    if kind is None:
        return None
    try:
        event = kind.adapter.validate_python({key: value for key, value in data.items() if key != "event"})
    except ValidationError:
        return None
    return None if isinstance(event, LOGGED_EVENTS) and event.run_id == run else event


def decode_start(data: dict[str, Any] | None, run: str) -> ChatModelStart | None:
    """Return the start event of a snapshot."""
    event = None if data is None else decode_event(data, run)
    return event if isinstance(event, ChatModelStart) else None
