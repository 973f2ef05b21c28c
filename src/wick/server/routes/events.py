"""Events about agents and containers, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.ops.event_bus import BusEvent, EventBus
from wick.server.runs.sse import EventStream

router = APIRouter(tags=["events"])

HEARTBEAT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class EventFrame:
    """An encoded event."""

    text: bytes


@router.get(
    "/agents/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def agent_events(caller: Caller, wick: Wick) -> Response:
    """Stream changes of agents, hooks, tools, skills, backends, containers and the config file."""
    return EventStream(lambda: _stream_batches(wick.bus, caller), holding=wick.limits.hold("streams", caller.id))


async def _stream_batches(bus: EventBus, user: User) -> AsyncIterator[list[EventFrame]]:
    """Yield batches of events, and an empty batch as a heartbeat: at the start, and after each quiet interval."""
    with bus.subscribe(user.id, operator=user.has_role("operator")) as reader:
        yield []
        while True:
            events: list[BusEvent] | None = None
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    events = await reader.receive()
            if events is not None and not events:  # the bus is closed
                return
            frames = []
            for event in events or ():
                data = orjson.dumps({"event": event.kind, "data": event.data})
                frames.append(EventFrame(b"event: %s\ndata: %s\n\n" % (event.kind.encode(), data)))
            yield frames
