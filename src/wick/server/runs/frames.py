"""Frames of an event stream. Durable frames are a pure function of a thread's log, so every server sends the same.

    id: 12.1
    event: on_chat_model_end
    data: {"event": "on_chat_model_end", "run_id": "run_…", "data": {…}}

The last frame of entry 12 has the id `12`, those before it `12.1`, `12.2`, … A frame without an id is not in the log
and may be dropped. `FrameBuilder` turns the log into frames, entry by entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from wick._internal.fast_json import encode_json
from wick._internal.frozen import thaw
from wick.capabilities.recorder import VALUE as TRACES
from wick.events import (
    ApprovalRequest,
    ApprovalResponse,
    ChatModelEnd,
    ChatModelStream,
    Done,
    Event,
    Failed,
    StateChange,
    ToolEnd,
    ToolStart,
    UserMessage,
)
from wick.server.errors import ApiError
from wick.stores.rows import message_text
from wick.threads.state import split_reply_row
from wick.why import describe_answer

StreamPosition = tuple[int, float]  # an entry and the number of its frame; the last frame is at infinity
START: StreamPosition = (0, inf)
RELEASED = "interrupted"  # reason of a run that a server released: it is resumed, so this is not an end
# fields of a decision that are sent
VERDICT_FIELDS = ("hook", "position", "verdict", "ms", "reason", "changed", "shadow")
# fields of an `asked` entry that are not part of `about`
QUESTION_FIELDS = ("id", "question", "expires", "run", "operation", "hash")


@dataclass(slots=True)  # not frozen: creating one for each delta takes a quarter of the time
class Frame:
    """One event of a stream, encoded once for all readers, which do not change it."""

    event: Event
    text: bytes
    position: StreamPosition | None = None  # None if it is not in the log
    terminal: bool = False


def encode_event(event: Event, id: str = "") -> bytes:
    """Encode an event as a server-sent event."""
    data = encode_json(event.to_json())
    head = f"id: {id}\n" if id else ""
    return b"%sevent: %s\ndata: %s\n\n" % (head.encode(), event.event.encode(), data)


def transient_frame(event: Event) -> Frame:
    """Return a frame that is not in the log."""
    return Frame(event, encode_event(event), None, event.terminal)


class TextFrames:
    """Builds the frames of a run's text deltas. What is the same in all frames of a model is encoded once."""

    __slots__ = ("_head", "_model", "_run", "_tail")

    def __init__(self, run: str) -> None:
        self._run, self._model, self._head, self._tail = run, "", b"", b""

    def build(self, model: str, text: str) -> Frame:
        """Return the frame of `ChatModelStream(run, model, text)`."""
        event = ChatModelStream(self._run, model, text)
        if not self._head or model != self._model:
            frame, delta = encode_event(event), encode_json(text)
            self._model, (self._head, _, self._tail) = model, frame.rpartition(b'"delta":' + delta)
        return Frame(event, b'%s"delta":%s%s' % (self._head, encode_json(text), self._tail))


def durable_frames(events: Sequence[Event], seq: int) -> list[Frame]:
    """Return the frames of one log entry."""
    last = len(events)
    names = [str(seq) if number == last else f"{seq}.{number}" for number in range(1, last + 1)]
    return [
        Frame(event, encode_event(event, name), (seq, inf if number == last else number), event.terminal)
        for number, (event, name) in enumerate(zip(events, names, strict=True), 1)
    ]


def parse_position(id: str) -> StreamPosition:
    """Return the position of a Last-Event-ID; raise a 400 if it is not valid."""
    if not id:
        return START
    found = re.fullmatch(r"(\d{1,18})(?:\.([1-9]\d{0,8}))?", id)
    if found is None:
        raise ApiError(400, "invalid", "Last-Event-ID is the id of a frame, such as 12 or 12.1; or leave it out")
    return int(found[1]), int(found[2]) if found[2] else inf


@dataclass(slots=True)
class FrameBuilder:
    """Turns the log of a thread into the frames of one run."""

    thread: str
    run: str
    active: bool = False  # the current entries belong to this run
    finished: bool = False  # the run has ended
    pause: Frame | None = None  # frame of an interruption, sent only if nothing follows
    text: str = ""  # the last reply of the model
    why: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # decisions of hooks, by call
    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # entries of open questions

    def build_frames(self, row: Mapping[str, Any], after: StreamPosition = START) -> list[Frame]:
        """Return the frames of a log entry that come after a position."""
        kind, data, seq = row["kind"], row["data"], row["seq"]
        events: list[Event] = []
        if kind == "run_start":
            self.active, self.pause = data["run"] == self.run, None
        elif self.active and not self.finished and kind in _HANDLERS:
            events = _HANDLERS[kind](self, data)
        for event in events:
            event.run_id = event.run_id or self.run  # a question of a subagent keeps its own
        self.pause = None if self.finished else self.pause
        if not events or seq < after[0]:
            return []
        frames = [one for one in durable_frames(events, seq) if one.position is not None and one.position > after]
        if frames and frames[-1].terminal and not self.finished:
            self.pause = frames.pop()
        return frames

    def _message(self, message: Any) -> list[Event]:
        if message["role"] == "assistant":
            self.text, self.why = message_text(message), {}
            calls = message.get("tool_calls", ())
            starts = [ToolStart(name=call["name"], call_id=call["id"], args=call["args"]) for call in calls]
            message, about = split_reply_row(message)
            about = about or {}
            usage = {name: int(count) for name, count in about.get("usage", {}).items()}
            cut = bool(about.get("cut"))
            return [ChatModelEnd(name=about.get("model", ""), message=dict(message), usage=usage, cut=cut), *starts]
        if message["role"] != "tool":
            return [UserMessage(message=message)]
        call, text = message["tool_call_id"], message_text(message)
        output, error = ("", text) if message.get("failed") else (text, "")
        why = self.why.pop(call, [])
        return [ToolEnd(name=message.get("name", ""), call_id=call, output=output, error=error, why=why)]

    def _program(self, data: Any) -> list[Event]:
        """Return the start or the end of a call in a program."""
        if "lines" in data:
            about = {"program": data["program"], "lines": tuple(data["lines"])}
            return [ToolStart(name=data["name"], call_id=data["call"], args=data["args"], **about)]
        why, error = self.why.pop(data["call"], []), data.get("error", "")
        return [ToolEnd(name=data["name"], call_id=data["call"], output=data["output"], error=error, why=why)]

    def _decision(self, data: Any) -> list[Event]:
        if data.get("operation") == "tool_use" and "call" in data:
            self.why.setdefault(data["call"], []).append({key: data[key] for key in VERDICT_FIELDS if key in data})
        return []

    def _value(self, data: Any) -> list[Event]:
        if data["key"] == TRACES:
            return []
        value = data.get("value")
        return [StateChange(values={data["key"]: {data["item"]: value} if "item" in data else value})]

    def _asked(self, data: Any) -> list[Event]:
        if data["id"] in self.asked:  # an entry repeats the question so that the store keeps it
            return []
        self.asked[data["id"]] = data
        about = {key: value for key, value in data.items() if key not in QUESTION_FIELDS}
        event = ApprovalRequest(data.get("run", ""), data.get("operation", ""), data["id"], data["question"], about)
        return [event]

    def _answered(self, data: Any) -> list[Event]:
        asked, answer = self.asked.pop(data["id"], {}), thaw(data)
        if asked.get("call_id") and asked.get("run", self.run) == self.run:  # a call of a subagent has its own stream
            verdict = describe_answer(answer, thaw(asked.get("args", {}))).to_json()
            del verdict["ms"]  # not part of the data of an answer
            self.why.setdefault(asked["call_id"], []).append(verdict)
        reason, args = answer.get("reason", ""), answer.get("args")
        return [ApprovalResponse(id=data["id"], allowed=data["allowed"], reason=reason, args=args)]

    def _end(self, data: Any) -> list[Event]:
        outcome, reason = data["outcome"], data["reason"]
        self.finished = outcome != "interrupted"
        if not self.finished and reason == RELEASED:
            return []
        if outcome == "failed":
            error = data.get("error") or {"code": "error", "message": reason}
            return [Failed(thread_id=self.thread, code=error["code"], message=error["message"])]
        usage = {name: int(count) for name, count in data.get("usage", {}).items()}
        return [Done(thread_id=self.thread, outcome=outcome, reason=reason, text=self.text, usage=usage)]

    def _rewind(self, data: Any) -> list[Event]:
        self.finished = True
        return [Done(thread_id=self.thread, outcome="cancelled", reason="the thread was rewound", text=self.text)]


_HANDLERS: dict[str, Callable[[FrameBuilder, Any], list[Event]]] = {
    "message": FrameBuilder._message,
    "call": FrameBuilder._program,
    "result": FrameBuilder._program,
    "decision": FrameBuilder._decision,
    "value": FrameBuilder._value,
    "asked": FrameBuilder._asked,
    "answered": FrameBuilder._answered,
    "run_end": FrameBuilder._end,
    "rewind": FrameBuilder._rewind,
}
