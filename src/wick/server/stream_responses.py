"""The OpenAPI schema of event streams."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, JsonValue

EventName = Literal[
    "on_chat_model_start",
    "on_chat_model_stream",
    "on_chat_model_restart",
    "on_chat_model_end",
    "on_tool_start",
    "on_tool_stream",
    "on_tool_end",
    "on_state",
    "on_user_message",
    "on_approval_request",
    "on_approval_response",
    "on_subagent_start",
    "on_subagent_end",
    "on_task_start",
    "on_task_update",
    "on_task_end",
    "resync",
    "done",
    "error",
]


class StreamEvent(BaseModel):
    """One event of a stream: the JSON in the `data:` of a frame."""

    event: EventName
    name: str = ""
    run_id: str = ""
    data: dict[str, JsonValue] = {}
    thread_id: str = ""


STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "model": StreamEvent,
        "description": "Server-sent events; `id` is that of a durable frame, for Last-Event-ID.",
        "content": {"text/event-stream": {}},
    }
}
