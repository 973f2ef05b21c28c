"""Events for open windows, as server-sent events: changes of threads, questions, files and agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from wick.api.conversions import make_thread_info
from wick.errors import StoreError
from wick.protocols import Summary
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.ops.event_bus import FILES, RESYNC, THREAD_CHANGED, BusEvent, BusSubscription, EventBus
from wick.server.runs.sse import EventStream
from wick.server.service import Service

router = APIRouter(tags=["events"])

HEARTBEAT_SECONDS = 15.0
BATCH_SECONDS = 0.05  # between two batches for one window: a run may change its thread many times a second
ANNOUNCE_SECONDS = 0.1  # for other servers to learn that a window is open


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


@router.get(
    "/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def window_events(caller: Caller, wick: Wick) -> Response:
    """Stream changes of your threads, questions and files, and of agents. The first event is `resync`."""
    return EventStream(lambda: _stream_changes(wick, caller), holding=wick.limits.hold("streams", caller.id))


async def _stream_batches(bus: EventBus, user: User) -> AsyncIterator[list[EventFrame]]:
    """Yield batches of events, and an empty batch as a heartbeat: at the start, and after each quiet interval."""
    with bus.subscribe(user.id, operator=user.has_role("operator")) as reader:
        yield []
        while (events := await _receive(reader)) is not None:
            yield [encode_frame(event.kind, event.data) for event in events]


async def _stream_changes(wick: Service, user: User) -> AsyncIterator[list[EventFrame]]:
    """Yield batches of events for a window, with changed threads as they are then, and heartbeats.

    `resync` asks the window to load its lists again: at the start, after lost events, and while other servers
    cannot be reached.
    """
    with wick.bus.subscribe(user.id, operator=user.has_role("operator"), window=True) as reader:
        if wick.live.is_shared:
            await asyncio.sleep(ANNOUNCE_SECONDS)
        yield [encode_frame(RESYNC, {})]
        was_alone = False
        while (events := await _receive(reader)) is not None:
            is_alone = bool(wick.live.problem)
            frames = [encode_frame(RESYNC, {})] if is_alone or was_alone else []
            was_alone = is_alone
            yield frames + await _build_frames(wick, user, events)
            await asyncio.sleep(BATCH_SECONDS)


async def _receive(reader: BusSubscription) -> list[BusEvent] | None:
    """Return the next events, an empty list after a quiet interval, or None once the bus is closed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await reader.receive() or None
    return []


async def _build_frames(wick: Service, user: User, events: Sequence[BusEvent]) -> list[EventFrame]:
    """Return the frames of events. Several changes of a thread are one frame."""
    frames, changed = list[EventFrame](), dict[str, dict[str, bool]]()
    for event in events:
        if event.kind == THREAD_CHANGED:
            flags = changed.setdefault(str(event.data.get("thread_id", "")), {"approvals": False, "files": False})
            for name in flags:
                flags[name] |= bool(event.data.get(name))
        else:
            frames.append(encode_frame(event.kind, event.data))
    for id, flags in changed.items():
        frames += await _describe_change(wick, user, id, **flags)
    return frames


async def _describe_change(wick: Service, user: User, id: str, *, approvals: bool, files: bool) -> list[EventFrame]:
    """Return the frames about a changed thread: as it is now, its questions, and the files of its agent."""
    frames = []
    try:
        head: Summary | None = await wick.store.head(user.id, id)
    except StoreError as error:
        if error.code != "not_found":
            return [encode_frame(RESYNC, {})]
        head = None
        frames.append(encode_frame("thread_deleted", {"thread_id": id}))
    if head is not None and "parent" not in head.meta:
        frames.append(encode_frame("thread", make_thread_info(head).model_dump(mode="json")))
    if approvals:
        frames.append(encode_frame("approvals", {"thread_id": id}))
    if files:
        agent = "" if head is None or "parent" in head.meta else str(head.meta.get("agent", ""))
        frames.append(encode_frame(FILES, {"agent_id": agent, "thread_id": id}))
    return frames


def encode_frame(kind: str, data: Mapping[str, Any]) -> EventFrame:
    """Return an event as a server-sent event."""
    text = orjson.dumps({"event": kind, "data": data})
    return EventFrame(b"event: %s\ndata: %s\n\n" % (kind.encode(), text))
