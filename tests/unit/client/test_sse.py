"""Frames from bytes, however they are cut; events from frames, as they were."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick import constants
from wick.client.errors import ServerError
from wick.client.sse import SseFrame, SseParser, parse_event
from wick.events import (
    ApprovalRequest,
    ApprovalResponse,
    ChatModelEnd,
    ChatModelStream,
    Done,
    Event,
    Failed,
    StateChange,
    SubagentStart,
    TaskEnd,
    ToolEnd,
)

TEXT = (
    ": hello\n\nid: 12\nevent: on_tool_end\ndata: {}\n\n:\n\nevent: done\r\ndata: a\r\ndata: ä\r\n\r\n"
    "retry: 5\n\nid:7\ndata:x\n\nevent: alone\n\ndata: never ends\n"
).encode()
FRAMES = [
    SseFrame("12", "on_tool_end", "{}"),
    SseFrame("", "done", "a\nä"),
    SseFrame("7", "", "x"),
    SseFrame("", "alone", ""),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_bytes_may_be_cut_anywhere(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    frames = SseParser()
    found = [frame for a, b in pairwise(places) for frame in frames.feed(TEXT[a:b])]
    assert found == FRAMES


def test_an_event_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.client.sse.SSE_LINE_BYTES", 100)
    frames = SseParser()
    assert frames.feed(b"data: " + b"x" * 90) == []
    with pytest.raises(ServerError, match="longer than 100 bytes"):
        frames.feed(b"x" * 90)
    assert constants.SSE_LINE_BYTES > 1_000_000


def test_invalid_json_is_an_error() -> None:
    with pytest.raises(ServerError, match="not JSON"):
        SseFrame("", "done", "{").json()
    assert SseFrame("", "done", "[1]").json() == {}


SAMPLES: list[Event] = [
    ChatModelStream("r", "m", "a piece", "tool_args", 1),
    ChatModelEnd("r", "m", {"role": "assistant", "content": "x"}, {"input_tokens": 1}),
    ToolEnd("r", "add", "1", "5", "", [{"hook": "h"}]),
    StateChange("r", "", {"todos": [{"content": "x"}], "data": None}),
    ApprovalRequest("r", "tool_use", "ask_1", "May I?", {"tool": "rm", "args": {"path": "x"}}),
    ApprovalResponse("r", "tool_use", "ask_1", True, ""),
    SubagentStart("c", "child", "r", "1", "th", "do it", True),
    TaskEnd("r", "child", "t", "done", "text", ""),
    Done("r", "", "th_1", "stopped", "budget", "text", {"output_tokens": 3}),
    Failed("r", "", "th_1", "model_error", "no"),
]


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.event)
def test_an_event_round_trips(event: Event) -> None:
    assert parse_event(event.to_json()) == event


@pytest.mark.parametrize("kind", Event.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_event_type_is_known(kind: type[Event]) -> None:
    assert parse_event(kind(run_id="r").to_json()) == kind(run_id="r")


@pytest.mark.parametrize("data", [None, [], "x", {"new": 1}])
def test_unknown_fields_are_ignored(data: Any) -> None:
    assert isinstance(parse_event({"event": "done", "data": data, "thread_id": "t"}), Done)
    assert parse_event({"event": "on_moon", "run_id": "r", "data": data}) is None
