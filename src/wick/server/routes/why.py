"""The reasons of a tool call's outcome."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request

from wick._internal.worker_threads import run_in_thread
from wick.api.types import CallReasons
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.runs.call_history import explain_call

router = APIRouter(tags=["threads"])


@router.get("/threads/{id}/calls/{call_id}/why")
async def why(
    id: str,
    call_id: str,
    caller: Caller,
    wick: Wick,
    request: Request,
    seq: Annotated[int | None, Query(ge=1)] = None,
) -> CallReasons:
    """Return the verdicts, questions and attempts of a tool call. `seq` is the entry of its message, if ids repeat."""
    await wick.store.head(caller.id, id)
    async with wick.thread_loader.load(caller.id, id, request) as thread:
        found = await run_in_thread(lambda: explain_call(thread, call_id, seq), "the reasons of a call")
    if found is None:
        raise not_found(f"tool call {call_id!r} in thread {id}")
    return found
