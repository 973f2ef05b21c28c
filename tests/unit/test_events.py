"""Events of a run: their wire format and order."""

from __future__ import annotations

import json

import pytest

from kit import collect_events
from wick import Agent, Scripted, ToolCall, ToolUse, assistant, tool
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
    StateChange,
    ToolEnd,
    ToolStart,
    ToolStream,
)

RUN = {"run_id": "run_1"}


@pytest.mark.parametrize(
    ("event", "wire"),
    [
        (ChatModelStart("run_1", "m", 2), {"event": "on_chat_model_start", "name": "m", "data": {"step": 2}}),
        (
            ChatModelStream("run_1", "m", "Let me read"),
            {"event": "on_chat_model_stream", "name": "m", "data": {"delta": "Let me read", "kind": "text"}},
        ),
        (
            ChatModelStream("run_1", "m", '{"pa', "tool_args", 0),
            {"event": "on_chat_model_stream", "name": "m", "data": {"delta": '{"pa', "kind": "tool_args", "index": 0}},
        ),
        (
            ChatModelRestart("run_1", "m", "so far"),
            {"event": "on_chat_model_restart", "name": "m", "data": {"content": "so far"}},
        ),
        (
            ChatModelEnd("run_1", "m", {"role": "assistant", "content": "hi"}, {"input_tokens": 1}),
            {
                "event": "on_chat_model_end",
                "name": "m",
                "data": {"message": {"role": "assistant", "content": "hi"}, "usage": {"input_tokens": 1}},
            },
        ),
        (
            ToolStart("run_1", "read_file", "c1", {"path": "/workspace/main.py"}),
            {
                "event": "on_tool_start",
                "name": "read_file",
                "data": {"call_id": "c1", "args": {"path": "/workspace/main.py"}},
            },
        ),
        (
            ToolStream("run_1", "execute", "c1", "line 1\n"),
            {"event": "on_tool_stream", "name": "execute", "data": {"call_id": "c1", "delta": "line 1\n"}},
        ),
        (
            ToolEnd("run_1", "read_file", "c1", "from fastapi import FastAPI\n..."),
            {
                "event": "on_tool_end",
                "name": "read_file",
                "data": {"call_id": "c1", "output": "from fastapi import FastAPI\n..."},
            },
        ),
        (
            ToolEnd("run_1", "rm", "c1", "", "no", [{"hook": "careful"}]),
            {
                "event": "on_tool_end",
                "name": "rm",
                "data": {"call_id": "c1", "output": "", "error": "no", "why": [{"hook": "careful"}]},
            },
        ),
        (StateChange("run_1", "", {"todos": [1]}), {"event": "on_state", "data": {"todos": [1]}}),
        (
            ApprovalRequest("run_1", "tool_use", "ask_1", "sure?", {"tool": "rm", "args": {}}),
            {
                "event": "on_approval_request",
                "name": "tool_use",
                "data": {"id": "ask_1", "question": "sure?", "tool": "rm", "args": {}},
            },
        ),
        (
            ApprovalResponse("run_1", "tool_use", "ask_1", False, "no"),
            {
                "event": "on_approval_response",
                "name": "tool_use",
                "data": {"id": "ask_1", "allowed": False, "reason": "no"},
            },
        ),
        (
            ApprovalResponse("run_1", "tool_use", "ask_1", True, args={"path": "b"}),
            {
                "event": "on_approval_response",
                "name": "tool_use",
                "data": {"id": "ask_1", "allowed": True, "reason": "", "args": {"path": "b"}},
            },
        ),
        (
            Done("run_1", "", "th_8f3a2b", "completed", "completed", "hi", {"input_tokens": 1}),
            {
                "event": "done",
                "data": {"outcome": "completed", "reason": "completed", "text": "hi", "usage": {"input_tokens": 1}},
                "thread_id": "th_8f3a2b",
            },
        ),
        (
            Failed("run_1", "", "th_8f3a2b", "model_error", "it broke"),
            {
                "event": "error",
                "data": {"error": {"code": "model_error", "message": "it broke"}},
                "thread_id": "th_8f3a2b",
            },
        ),
    ],
    ids=lambda value: value["event"] if isinstance(value, dict) else "",
)
def test_events_on_the_wire(event: Event, wire: dict[str, object]) -> None:
    assert event.to_json() == wire | RUN
    assert json.loads(json.dumps(event.to_json())) == event.to_json()


def test_empty_fields_are_omitted() -> None:
    assert StateChange().to_json() == {"event": "on_state"}


def test_only_done_and_error_are_terminal() -> None:
    assert {kind.event for kind in Event.__subclasses__() if kind.terminal} == {"done", "error"}


async def test_the_events_of_a_tool_cycle() -> None:
    @tool
    async def read_file(path: str, use: ToolUse) -> str:
        """Read a file."""
        use.stream("reading\n")
        return f"from fastapi import FastAPI  # {path}"

    call = ToolCall("call_1", "read_file", {"path": "/workspace/main.py"})
    model = Scripted(assistant("Let me read that file.", call), "A FastAPI app.", name="m")
    wire = [event.to_json() for event in await collect_events(Agent(model, tools=[read_file]), "What is in main.py?")]

    run_id, thread_id = wire[0]["run_id"], wire[-1]["thread_id"]
    assert run_id.startswith("run_") and thread_id.startswith("th_")
    assert all(event["run_id"] == run_id for event in wire)
    assert [(event["event"], event.get("name", "")) for event in wire] == [
        ("on_chat_model_start", "m"),
        *[("on_chat_model_stream", "m")] * 5,
        *[("on_chat_model_stream", "m")] * 3,
        ("on_chat_model_end", "m"),
        ("on_tool_start", "read_file"),
        ("on_tool_stream", "read_file"),
        ("on_tool_end", "read_file"),
        ("on_chat_model_start", "m"),
        *[("on_chat_model_stream", "m")] * 3,
        ("on_chat_model_end", "m"),
        ("done", ""),
    ]
    streamed = [event["data"] for event in wire if event["event"] == "on_chat_model_stream"]
    assert [piece["delta"] for piece in streamed[:5]] == ["Let", " me", " read", " that", " file."]
    assert {piece["kind"] for piece in streamed[:5]} == {"text"}
    assert {(piece["kind"], piece["index"]) for piece in streamed[5:8]} == {("tool_args", 0)}
    assert json.loads("".join(piece["delta"] for piece in streamed[5:8])) == {"path": "/workspace/main.py"}
    assert wire[9]["data"]["message"] == {
        "role": "assistant",
        "content": "Let me read that file.",
        "tool_calls": [call.to_json()],
    }
    assert wire[10]["data"] == {"call_id": "call_1", "args": {"path": "/workspace/main.py"}}
    assert wire[11]["data"] == {"call_id": "call_1", "delta": "reading\n"}
    assert wire[12]["data"] == {"call_id": "call_1", "output": "from fastapi import FastAPI  # /workspace/main.py"}
    assert [wire[0]["data"]["step"], wire[13]["data"]["step"]] == [1, 2]
    done = wire[-1]["data"]
    assert (done["outcome"], done["reason"], done["text"]) == ("completed", "completed", "A FastAPI app.")
    assert done["usage"]["output_tokens"] > 0
