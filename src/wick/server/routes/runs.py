"""Runs: how they are, what they say, and an end to them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from wick.server.dependencies import Caller, Wick
from wick.server.runs.frames import START, StreamPosition, parse_position
from wick.server.runs.record import RunInfo
from wick.server.runs.sse import EventStream
from wick.server.schemas import RunOut, run_out
from wick.server.service import Service
from wick.server.stream_responses import STREAM

router = APIRouter(prefix="/runs", tags=["runs"])

LastSeen = Annotated[str, Header(alias="Last-Event-ID", max_length=40, description="the id of the last frame seen")]
LastSeenQuery = Annotated[str, Query(max_length=40, description="the same, for clients that cannot send the header")]


@router.get("/{id}")
async def state(id: str, caller: Caller, wick: Wick) -> RunOut:
    """How a run is."""
    return run_out(*await wick.runs.load_state(caller, id))


@router.get(
    "/{id}/events",
    status_code=200,
    response_class=EventStream,
    responses=STREAM | {204: {"description": "The run is over, and all of it has been seen."}},
)
async def events(
    id: str, caller: Caller, wick: Wick, last_seen: LastSeen = "", last_event_id: LastSeenQuery = ""
) -> Response:
    """What a run says, from its beginning or after the last frame seen, up to `done` or `error`.

    A run that waits for an answer says `done` with the outcome `interrupted`; after that frame it can be followed
    further. Who has seen all of a run gets a 204.
    """
    after = parse_position(last_seen or last_event_id)
    info, how = await wick.runs.load_state(caller, id)
    if after != START and how == "ended" and await _has_seen_all(wick, info, after):
        return Response(status_code=204)
    headers = {"X-Run-Id": id, "X-Thread-Id": info.thread}
    return EventStream(lambda: wick.runs.follow(info, after), headers, wick.limits.hold("streams", caller.id))


async def _has_seen_all(wick: Service, info: RunInfo, after: StreamPosition) -> bool:
    """Whether nothing of a run that is over comes after a place."""
    async with aclosing(wick.runs.follow(info, after)) as batches:
        async for frames in batches:
            if frames:
                return False
    return True


@router.post("/{id}/cancel")
async def cancel(id: str, caller: Caller, wick: Wick) -> RunOut:
    """End a run: everything it has begun is ended within a second. One that is over stays as it is."""
    await wick.runs.cancel(caller, id)
    return run_out(*await wick.runs.load_state(caller, id))
