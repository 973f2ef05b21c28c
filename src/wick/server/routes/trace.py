"""What a run did, span by span and hook by hook."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, JsonValue

from wick.capabilities.recorder import VALUE
from wick.frozen import thaw
from wick.keeping import load
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.reasons import Verdict

router = APIRouter(tags=["runs"])


class SpanEvent(BaseModel):
    """Something that was recorded during a span."""

    name: str
    attributes: dict[str, JsonValue] = {}


class Span(BaseModel):
    """One operation: `start` in seconds since 1970, `ms` how long it took, `why` what hooks said about it."""

    name: str
    start: float
    ms: float | None = None
    attributes: dict[str, JsonValue] = {}
    error: str = ""
    events: list[SpanEvent] = []
    why: list[Verdict] = []
    children: list[Span] = []


class Trace(BaseModel):
    """The spans of a run; `left_out` says how many were too many."""

    run: str
    thread_id: str
    agent: str
    spans: list[Span]
    left_out: int = 0


@router.get("/runs/{id}/trace")
async def trace(id: str, caller: Caller, wick: Wick) -> Trace:
    """The trace of a run, as long as it is kept: that of a thread's last runs."""
    row = await wick.records.get("run", caller.id, id)
    if row is None:
        raise not_found(f"run {id!r}")
    thread = await load(wick.store, caller.id, row["thread"])
    kept = thread.values.get(VALUE, {}).get(id)
    if kept is None:
        raise not_found(f"trace of run {id!r}: the run goes on, its agent has no recorder, or it is long ago")
    return Trace.model_validate({**thaw(kept), "thread_id": thread.id})
