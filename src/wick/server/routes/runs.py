"""Runs: their state, their event stream, and cancellation."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from wick.api.types import RunState
from wick.server.dependencies import Caller, Wick
from wick.server.runs.frames import START, StreamPosition, parse_position
from wick.server.runs.record import RunInfo
from wick.server.runs.sse import EventStream
from wick.server.schemas import make_run_state
from wick.server.service import Service
from wick.server.stream_responses import STREAM

router = APIRouter(prefix="/runs", tags=["runs"])

LastSeen = Annotated[str, Header(alias="Last-Event-ID", max_length=40, description="the id of the last frame received")]
LastSeenQuery = Annotated[str, Query(max_length=40, description="the same, for clients that cannot send the header")]


@router.get("/{id}")
async def state(id: str, caller: Caller, wick: Wick) -> RunState:
    """Return the state of a run."""
    return make_run_state(*await wick.runs.load_state(caller, id))


@router.get(
    "/{id}/events",
    status_code=200,
    response_class=EventStream,
    responses=STREAM | {204: {"description": "The run has ended, and the client has received all frames."}},
)
async def events(
    id: str, caller: Caller, wick: Wick, last_seen: LastSeen = "", last_event_id: LastSeenQuery = ""
) -> Response:
    """Stream the events of a run, from its start or after the last frame received, up to `done` or `error`.

    The stream of a run that waits for an answer ends with `done` and the outcome `interrupted`. It can be resumed after
    that frame. A client that has received all frames of an ended run gets a 204.
    """
    after = parse_position(last_seen or last_event_id)
    info, how = await wick.runs.load_state(caller, id)
    if after != START and how == "ended" and await _has_seen_all(wick, info, after):
        return Response(status_code=204)
    headers = {"X-Run-Id": id, "X-Thread-Id": info.thread}
    return EventStream(lambda: wick.runs.follow(info, after), headers, wick.limits.hold("streams", caller.id))


async def _has_seen_all(wick: Service, info: RunInfo, after: StreamPosition) -> bool:
    """Return True if an ended run has no frame after a position."""
    async with aclosing(wick.runs.follow(info, after)) as batches:
        async for frames in batches:
            if frames:
                return False
    return True


@router.post("/{id}/cancel")
async def cancel(id: str, caller: Caller, wick: Wick) -> RunState:
    """Cancel a run, with its commands and child runs, within a second. An ended run is not changed."""
    await wick.runs.cancel(caller, id)
    return make_run_state(*await wick.runs.load_state(caller, id))
