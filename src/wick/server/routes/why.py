"""Why a tool call came to what it came to."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from wick.keeping import load
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.reasons import Reasons, reasons
from wick.server.routing import Router

router = Router(tags=["threads"])


@router.get("/threads/{id}/calls/{call_id}/why")
async def why(
    id: str, call_id: str, caller: Caller, wick: Wick, seq: Annotated[int | None, Query(ge=1)] = None
) -> Reasons:
    """Everything that decided about one tool call. `seq` is the entry of its message, where ids occur twice."""
    await wick.store.head(caller.id, id)
    found = reasons(await load(wick.store, caller.id, id), call_id, seq)
    if found is None:
        raise not_found(f"tool call {call_id!r} in thread {id}")
    return found
