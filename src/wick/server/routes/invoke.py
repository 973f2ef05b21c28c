"""Runs of agents: with the complete result, or as an event stream."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from wick.api.types import InvokeResult
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.runs import QueuedRun
from wick.server.runs.sse import EventStream
from wick.server.schemas import RunRequest, parse_messages, thread_response
from wick.server.stream_responses import STREAM
from wick.stores.held_thread import load

router = APIRouter(prefix="/agents", tags=["runs"], route_class=JsonRoute)

IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        description="a repeated request with the same key returns the same run; another request with this key is a 409",
    ),
]


@router.post("/{id}/invoke", response_model=InvokeResult)
async def invoke(id: str, body: RunRequest, caller: Caller, wick: Wick, key: IdempotencyKey = "") -> Response:
    """Run an agent, and return the complete result. The run continues if the client disconnects."""
    turn = await _start_run(id, body, caller, wick, key)
    info = await turn.wait_end()
    if info.error is not None:
        headers = {"X-Run-Id": turn.run_id, "X-Thread-Id": turn.thread_id}
        status = 400 if info.error["code"] == "config_error" else 502  # an invalid configuration, or a failed run
        raise ApiError(status, info.error["code"], info.error["message"], headers)
    thread = turn.thread or await load(wick.store, caller.id, turn.thread_id)
    outcome = {"outcome": info.outcome, "reason": info.reason, "usage": info.usage or {}, "cost": info.cost}
    response = next((message.text for message in reversed(thread.messages) if message.role == "assistant"), "")
    about = {"thread_id": turn.thread_id, "run_id": turn.run_id, "response": response}
    return await thread_response(InvokeResult, about | outcome, thread)


@router.post("/{id}/stream", status_code=200, response_class=EventStream, responses=STREAM)
async def stream(id: str, body: RunRequest, caller: Caller, wick: Wick, key: IdempotencyKey = "") -> EventStream:
    """Run an agent, and stream its events up to `done` or `error`.

    The headers `X-Run-Id` and `X-Thread-Id` identify the run. After a disconnect, `/runs/{id}/events` resumes it.
    """
    with ExitStack() as holding:
        holding.enter_context(wick.limits.hold("streams", caller.id))  # before the run starts: it could not be streamed
        turn = await _start_run(id, body, caller, wick, key)
        headers = {"X-Run-Id": turn.run_id, "X-Thread-Id": turn.thread_id}
        return EventStream(turn.frames, headers, holding.pop_all())


async def _start_run(id: str, body: RunRequest, caller: Caller, wick: Wick, key: str) -> QueuedRun:
    words = parse_messages(body, systems=wick.settings.allow_system_messages)
    more = {"recipe": body.recipe, "model": body.model}
    return await wick.runs.start(caller, id, words, body.thread_id or "", key=key, **more)
