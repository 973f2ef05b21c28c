"""The frames of a log: deterministic, and resumable anywhere."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import echo, tool_call, tool_calls_reply
from wick import Agent, Allow, Ask, Block, Question, Scripted, Thread, ToolCall, ToolResult, ToolUse, assistant, guard
from wick.capabilities.recorder import Recorder
from wick.capabilities.todos import Todos
from wick.events import ChatModelStream, Done, ToolStart
from wick.messages import result_message
from wick.server.errors import ApiError
from wick.server.runs.frames import (
    START,
    Frame,
    FrameBuilder,
    TextFrames,
    encode_event,
    parse_position,
    transient_frame,
)


def read(frame: Frame) -> tuple[str, str, dict[str, Any]]:
    """The id, the name and the data of a frame, as a client reads them."""
    lines = dict(line.split(": ", 1) for line in frame.text.decode().strip().split("\n"))
    assert frame.text.endswith(b"\n\n") and lines["event"] == frame.event.event
    return lines.get("id", ""), lines["event"], json.loads(lines["data"])


def build_frames(thread: Thread, run: str = "", after: str = "") -> list[tuple[str, str, dict[str, Any]]]:
    """Return all frames of a run with its terminal one."""
    telling = FrameBuilder(thread.id, run or _runs(thread)[-1])
    place = parse_position(after)
    frames = [frame for entry in thread.entries for frame in telling.build_frames(entry.to_json(), place)]
    return [read(frame) for frame in [*frames, *([telling.pause] if telling.pause else [])]]


def _runs(thread: Thread) -> list[str]:
    return [entry.data["run"] for entry in thread.entries if entry.kind == "run_start"]


async def tool_run(*hooks: Any, **options: Any) -> Thread:
    thread = Thread("th_1")
    script = Scripted(
        tool_calls_reply(tool_call("echo", "a", text="x"), tool_call("echo", "b", text="y")), "All done.", spare=True
    )
    agent = Agent(script, tools=[echo], hooks=hooks, **options)
    await agent.run("Go.", thread=thread)
    return thread


async def test_frames_follow_the_order_of_the_log() -> None:
    found = build_frames(await tool_run())
    assert [event for _, event, _ in found] == [
        "on_chat_model_end",
        *("on_tool_start", "on_tool_start", "on_tool_end", "on_tool_end"),
        "on_chat_model_end",
        "done",
    ]
    ids = [id for id, _, _ in found]
    assert ids[:3] == ["3.1", "3.2", "3"] and all("." not in id for id in ids[3:]) and len(set(ids)) == len(ids)
    (start, end) = found[1][2], found[3][2]
    assert start["name"] == "echo" and start["data"] == {"call_id": "a", "args": {"text": "x"}}
    assert end["data"]["call_id"] == "a" and end["data"]["output"] == "x" and "error" not in end["data"]
    last = found[-1][2]
    assert (
        last["thread_id"] == "th_1" and last["data"]["outcome"] == "completed" and last["data"]["text"] == "All done."
    )
    assert {frame["run_id"] for _, _, frame in found} == {last["run_id"]} and last["data"]["usage"]["output_tokens"] > 0


async def test_a_stream_resumes_exactly_after_any_id() -> None:
    thread = await tool_run()
    whole = build_frames(thread)
    for number, (id, _, _) in enumerate(whole, 1):
        assert build_frames(thread, after=id) == whole[number:]


async def test_hook_decisions_are_sent_with_the_result() -> None:
    @guard(ToolUse, match="echo")
    def picky(use: ToolUse) -> Block | None:
        return Block("not that") if use.args["text"] == "x" else None

    ends = [frame["data"] for _, event, frame in build_frames(await tool_run(picky)) if event == "on_tool_end"]
    refused = next(end for end in ends if end["call_id"] == "a")
    assert refused["error"] == "not that" and refused["output"] == ""
    (why,) = refused["why"]
    assert (why["hook"], why["position"], why["verdict"], why["reason"]) == ("picky", "guard", "block", "not that")
    assert "why" not in next(end for end in ends if end["call_id"] == "b")


async def test_questions_values_and_notices_are_sent() -> None:
    @guard(ToolUse, match="echo")
    def confirm(use: ToolUse) -> Ask:
        return Ask("may I?")

    found = build_frames(await tool_run(confirm, Todos(), Recorder(), ask=lambda question: True))
    requests = [frame["data"] for _, event, frame in found if event == "on_approval_request"]
    responses = [frame["data"] for _, event, frame in found if event == "on_approval_response"]
    assert {request["call_id"]: request["args"]["text"] for request in requests} == {"a": "x", "b": "y"}
    assert {response["id"] for response in responses} == {request["id"] for request in requests}
    assert all(response["allowed"] for response in responses)
    assert not any("traces" in frame["data"] for _, event, frame in found if event == "on_state")


async def test_the_answer_of_the_user_is_sent_with_its_changed_arguments() -> None:
    @guard(ToolUse, match="echo")
    def confirm(use: ToolUse) -> Ask:
        return Ask("may I?")

    def answer(question: Question) -> Allow | Block:
        return Allow({"text": "z"}) if question.args["text"] == "x" else Block("not today")

    found = build_frames(await tool_run(confirm, ask=answer))
    responses = [frame["data"] for _, event, frame in found if event == "on_approval_response"]
    assert [(row["allowed"], row.get("args")) for row in responses] == [(True, {"text": "z"}), (False, None)]
    ends = {frame["data"]["call_id"]: frame["data"] for _, event, frame in found if event == "on_tool_end"}
    (changed,) = [row for row in ends["a"]["why"] if row["position"] == "gate"]
    assert ends["a"]["output"] == "z"
    assert changed == {"hook": "user", "position": "gate", "verdict": "approved", "changed": {"text": ["x", "z"]}}
    (denied,) = [row for row in ends["b"]["why"] if row["position"] == "gate"]
    assert denied == {"hook": "user", "position": "gate", "verdict": "refused", "reason": "not today"}


def test_the_answer_about_a_call_of_a_subagent_is_not_in_the_record_of_another_call() -> None:
    thread = Thread("th_1")
    thread.append("run_start", {"run": "r", "agent": "a", "guards": [], "input": 0})
    thread.append("message", assistant("", ToolCall("c1", "task", {})))
    about = {"operation": "tool_use", "call_id": "c1", "args": {"text": "x"}}
    thread.append("asked", {"id": "q", "question": "may I?", "hash": "h", "run": "child", **about})
    thread.append("answered", {"id": "q", "hash": "h", "allowed": True, "args": {"text": "y"}})
    thread.append("message", result_message(ToolCall("c1", "task", {}), ToolResult("done")))
    frames = {event: frame["data"] for _, event, frame in build_frames(thread)}
    assert frames["on_approval_response"]["args"] == {"text": "y"} and "why" not in frames["on_tool_end"]


async def test_a_value_is_sent_with_its_change() -> None:
    thread = Thread("th_1")
    thread.append("run_start", {"run": "r", "agent": "a", "guards": [], "input": 0})
    thread.values["todos"] = [{"id": "1"}]
    thread.values.put("files", "a.txt", "hello")
    thread.values.drop("files", "a.txt")
    del thread.values["todos"]
    states = [frame["data"] for _, event, frame in build_frames(thread) if event == "on_state"]
    assert states == [
        {"todos": [{"id": "1"}]},
        {"files": {"a.txt": "hello"}},
        {"files": {"a.txt": None}},
        {"todos": None},
    ]


def paused() -> Thread:
    """A run that pauses over a question."""
    thread = Thread("th_1")
    thread.append("run_start", {"run": "r", "agent": "a", "guards": [], "input": 0})
    thread.append("asked", {"id": "q", "question": "may I?", "hash": "h", "run": "r", "operation": "tool_use"})
    thread.append("run_end", {"run": "r", "outcome": "interrupted", "reason": "paused: may I?", "usage": {}})
    return thread


def test_a_pause_is_terminal_until_the_run_continues() -> None:
    thread = paused()
    assert [event for _, event, _ in build_frames(thread)] == ["on_approval_request", "done"]
    assert build_frames(thread)[-1][2]["data"]["outcome"] == "interrupted"
    assert build_frames(thread, after="3") == []
    thread.append("run_start", {"run": "r", "agent": "a", "guards": [], "input": 0, "resumed": True})
    assert [event for _, event, _ in build_frames(thread)] == ["on_approval_request"]
    thread.append("asked", {"id": "q", "question": "may I?", "hash": "h"})  # again, for the store
    thread.append("answered", {"id": "q", "hash": "h", "allowed": False, "reason": "no"})
    thread.append("run_end", {"run": "r", "outcome": "cancelled", "reason": "user requested", "usage": {}})
    assert [event for _, event, _ in build_frames(thread)] == ["on_approval_request", "on_approval_response", "done"]
    assert [id for id, _, _ in build_frames(thread, after="3")] == ["6", "7"]


def test_a_released_run_has_no_terminal_frame() -> None:
    thread = Thread("th_1")
    thread.append("run_start", {"run": "r", "agent": "a", "guards": [], "input": 0})
    thread.append("run_end", {"run": "r", "outcome": "interrupted", "reason": "interrupted", "usage": {}})
    assert build_frames(thread) == []


def test_a_rewind_ends_a_waiting_run() -> None:
    thread = paused()
    thread.rewind(0)
    assert [event for _, event, _ in build_frames(thread, "r")] == ["on_approval_request", "done"]
    assert build_frames(thread, "r")[-1][2]["data"]["reason"] == "the thread was rewound"


def test_a_failure_has_its_error() -> None:
    thread = Thread("th_1")
    thread.append("run_start", {"run": "r", "agent": "a", "guards": [], "input": 0})
    error = {"code": "model_error", "message": "it is down"}
    thread.append("run_end", {"run": "r", "outcome": "failed", "reason": "error", "usage": {}, "error": error})
    ((id, event, frame),) = build_frames(thread)
    assert (id, event) == ("2", "error") and frame["data"]["error"] == error and frame["thread_id"] == "th_1"


async def test_runs_of_a_thread_are_separated() -> None:
    thread = await tool_run()
    await Agent(Scripted("Again.")).run("More.", thread=thread)
    first, second = _runs(thread)
    assert {frame["run_id"] for _, _, frame in build_frames(thread, first)} == {first}
    assert [event for _, event, _ in build_frames(thread, second)] == ["on_chat_model_end", "done"]
    assert build_frames(thread, "run_of_nobody") == []


@pytest.mark.parametrize("id", ["x", "1.", "-1", "1.0", "1.2.3", " 1", "9" * 30])
def test_an_invalid_id_is_refused(id: str) -> None:
    with pytest.raises(ApiError, match="Last-Event-ID"):
        parse_position(id)


def test_places() -> None:
    assert parse_position("") == START and parse_position("12") == (12, inf) and parse_position("12.3") == (12, 3)
    assert parse_position("12.3") < parse_position("12") < parse_position("13.1")


def test_a_piece_has_no_id() -> None:
    frame = transient_frame(ChatModelStream("r", "m", "Hel"))
    assert frame.position is None and read(frame)[0] == "" and not frame.terminal
    assert transient_frame(Done("r")).terminal


@given(st.lists(st.tuples(st.sampled_from(["", "m", '"delta":']), st.text()), min_size=1, max_size=4))
def test_frames_of_text_deltas_are_those_of_their_events(deltas: list[tuple[str, str]]) -> None:
    frames = TextFrames("r")
    for model, text in [*deltas, ("m", '","delta":"'), ("m", "\ud800")]:
        assert frames.build(model, text) == transient_frame(ChatModelStream("r", model, text))


@given(st.text(), st.dictionaries(st.text(), st.integers()))
def test_any_text_is_one_frame(text: str, args: dict[str, int]) -> None:
    for event in (ChatModelStream("r", "m", text), ToolStart("r", text, "c", args)):
        lines = encode_event(event, "7").decode().split("\n")
        assert lines[0] == "id: 7" and lines[3:] == ["", ""]
        assert json.loads(lines[2].removeprefix("data: ")) == event.to_json()
