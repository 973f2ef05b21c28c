"""Parsing of server-sent events, from bytes to wick's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from wick.client.errors import ServerError
from wick.constants import SSE_LINE_BYTES
from wick.events import (
    ApprovalRequest,
    ApprovalResponse,
    ChatModelEnd,
    ChatModelRestart,
    ChatModelStart,
    ChatModelStream,
    Done,
    Event,
    Failed,
    Resync,
    StateChange,
    SubagentEnd,
    SubagentStart,
    TaskEnd,
    TaskStart,
    TaskUpdate,
    ToolEnd,
    ToolStart,
    ToolStream,
    UserMessage,
)


@dataclass(frozen=True, slots=True)
class SseFrame:
    """One server-sent event. An event with an `id` is in the thread's log, so a stream can resume after it."""

    id: str
    event: str
    data: str

    def json(self) -> dict[str, Any]:
        """Return the data as a JSON object; empty if it is another JSON value."""
        try:
            value = from_json(self.data)
        except ValueError:
            raise ServerError(f"the server sent an event that is not JSON: {self.data[:80]!r}", "invalid") from None
        return value if isinstance(value, dict) else {}


class SseParser:
    """An incremental parser that accepts chunks of bytes and returns complete frames."""

    __slots__ = ("_data", "_event", "_id", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._event = self._id = ""

    def feed(self, chunk: bytes) -> list[SseFrame]:
        """Add received bytes, and return the frames that they complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > SSE_LINE_BYTES:
            raise ServerError(f"the server sent an event longer than {SSE_LINE_BYTES:,} bytes", "too_large")
        frames = list[SseFrame]()
        for line in lines:
            name, colon, value = line.rstrip(b"\r").decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value
            elif name == "id":
                self._id = value
            elif not name and not colon:  # an empty line ends a frame; a comment, such as a heartbeat, has a colon
                if self._data or self._event:
                    frames.append(SseFrame(self._id, self._event, "\n".join(self._data)))
                self._data, self._event, self._id = [], "", ""  # unlike in browsers, an id applies to its frame only
        return frames


def parse_event(payload: Mapping[str, Any]) -> Event | None:
    """Return the event of the output of `Event.to_json`; None if this version does not know it."""
    name, data = str(payload.get("event", "")), payload.get("data")
    fields: dict[str, Any] = data if isinstance(data, dict) else {}
    event: Event
    if name == StateChange.event:
        event = StateChange(values=fields)
    elif name == ApprovalRequest.event:
        about = {key: value for key, value in fields.items() if key not in ("id", "question")}
        event = ApprovalRequest(id=str(fields.get("id", "")), question=str(fields.get("question", "")), about=about)
    elif name == Failed.event:
        error = fields.get("error")
        error = error if isinstance(error, dict) else {}
        event = Failed(code=str(error.get("code", "error")), message=str(error.get("message", "")))
    elif name in _FIELD_EVENTS:  # its data are its fields
        kind = _FIELD_EVENTS[name]
        own = kind.__dataclass_fields__.keys() - {"run_id", "name"}
        event = kind(**{key: value for key, value in fields.items() if key in own})
    else:
        return None
    event.run_id, event.name = str(payload.get("run_id", "")), str(payload.get("name", ""))
    if isinstance(event, Done | Failed):
        event.thread_id = str(payload.get("thread_id", ""))
    return event


_FIELD_EVENTS: dict[str, type[Event]] = {
    kind.event: kind
    for kind in (
        ChatModelStart,
        ChatModelStream,
        ChatModelRestart,
        ChatModelEnd,
        ToolStart,
        ToolStream,
        ToolEnd,
        ApprovalResponse,
        SubagentStart,
        SubagentEnd,
        TaskStart,
        TaskUpdate,
        TaskEnd,
        Done,
        Resync,
        UserMessage,
    )
}
