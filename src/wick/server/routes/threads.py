"""Threads: list, search, read, change, fork, rewind, switch and export them, and send messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query
from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from wick._internal.fast_json import encode_json
from wick._internal.frozen import canonical_json, thaw
from wick._internal.worker_threads import run_in_thread
from wick.api.conversions import make_thread_info
from wick.api.types import (
    QueuedMessage,
    SearchHit,
    SearchHits,
    ThreadDetail,
    ThreadExport,
    ThreadInfo,
    ThreadMatches,
    ThreadPage,
)
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.http.spooling import spool_response
from wick.server.routes.invoke import IdempotencyKey
from wick.server.routes.undo import restore_files
from wick.server.runs.thread_search import search_thread
from wick.server.schemas import (
    OWN_META,
    MessageRequest,
    list_root_threads,
    parse_messages,
    thread_response,
)
from wick.server.strict_models import StrictModel
from wick.stores.markdown_export import export_markdown
from wick.threads import SCHEMA

router = APIRouter(prefix="/threads", tags=["threads"], route_class=JsonRoute)

META_BYTES = 10_000


class ThreadChange(StrictModel):
    """Changes of a thread. Omitted fields are not changed."""

    title: str | None = Field(None, min_length=1, max_length=500)
    meta: dict[str, JsonValue] | None = Field(None, description="replaces the current metadata")


class Fork(StrictModel):
    """The entry after which a thread is forked, by default the last."""

    at: int | None = Field(None, ge=0, le=2**53)
    title: str = Field("", max_length=500)
    agent_id: str = Field("", max_length=200, description="the agent that continues it; that of the thread by default")
    files: bool = Field(
        False, description="also restore the files of that moment; see `POST /threads/{id}/files/restore`"
    )


class Rewind(StrictModel):
    """The entry to which a thread is rewound."""

    to: int = Field(ge=0, le=2**53)
    files: bool = Field(
        False, description="also restore the files of that moment; see `POST /threads/{id}/files/restore`"
    )


class BranchSwitch(StrictModel):
    """The branch to which a thread is switched."""

    to: int = Field(ge=1, le=2**53, description="an entry in the `branches` of a message")


@router.get("")
async def all_threads(
    caller: Caller,
    wick: Wick,
    cursor: Annotated[str, Query(max_length=500)] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    order: Literal["updated", "created"] = "updated",
    running: bool | None = None,
    asking: bool | None = None,
) -> ThreadPage:
    """List your threads, the latest first, without those of subagents."""
    found: list[ThreadInfo] = []
    while True:
        page = await wick.store.list(
            caller.id, running=running, asking=asking, order=order, cursor=cursor, limit=limit - len(found)
        )
        found, cursor = found + list_root_threads(page.threads), page.next
        if not cursor or len(found) >= limit:
            return ThreadPage(threads=found, next=cursor)


@router.get("/search")
async def search(
    caller: Caller,
    wick: Wick,
    q: Annotated[str, Query(min_length=1, max_length=500)],
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> SearchHits:
    """Search for messages that contain all of these words."""
    hits = await wick.store.search(caller.id, q, limit=limit)
    return SearchHits(
        hits=[SearchHit(thread_id=h.thread, title=h.title, seq=h.seq, at=h.at, text=h.text) for h in hits]
    )


@router.get("/{id}", response_model=ThreadDetail)
async def one(id: str, caller: Caller, wick: Wick, request: Request) -> Response:
    """Return a thread with its messages."""
    head = await wick.store.head(caller.id, id)
    async with wick.thread_loader.load(caller.id, id, request) as thread:
        # after the log, so that no message is in both
        queue = await wick.store.inbox(caller.id, id) if head.queued else ()
        unheard = [{"position": row.position, "message": row.data} for row in queue if row.kind == "message"]
        last = len(thread.entries)  # the thread may have grown since its head was read
        about = {**make_thread_info(head).model_dump(), "last": last, "unheard": thaw(unheard)}
        return await spool_response(await thread_response(ThreadDetail, {**about, "usage": thread.usage}, thread))


@router.get("/{id}/search")
async def find(
    id: str, caller: Caller, wick: Wick, request: Request, q: Annotated[str, Query(min_length=1, max_length=500)]
) -> ThreadMatches:
    """Search for a text in the messages, tool calls and results of a thread."""
    async with wick.thread_loader.load(caller.id, id, request) as thread:
        matches, more = await run_in_thread(lambda: search_thread(thread, q), "searching a thread")
    return ThreadMatches(matches=matches, more=more)


@router.patch("/{id}")
async def change(id: str, body: ThreadChange, caller: Caller, wick: Wick) -> ThreadInfo:
    """Change the title or the metadata of a thread."""
    head = await wick.store.head(caller.id, id)
    if body.meta is not None and len(canonical_json(body.meta)) > META_BYTES:
        raise ApiError(413, "too_large", f"the metadata of a thread may have at most {META_BYTES:,} bytes")
    given = {key: value for key, value in (body.meta or {}).items() if key not in OWN_META}
    meta = None if body.meta is None else given | {key: head.meta[key] for key in OWN_META if key in head.meta}
    return make_thread_info(await wick.store.describe(caller.id, id, title=body.title, meta=meta))


@router.delete("/{id}", status_code=204)
async def delete(id: str, caller: Caller, wick: Wick) -> None:
    """Delete a thread with the threads of its subagents. Its current run is cancelled."""
    await wick.runs.delete_thread(caller, id)
    await wick.shares.revoke_all(caller.id, id)


@router.post("/{id}/fork", status_code=201)
async def fork(id: str, body: Fork, caller: Caller, wick: Wick) -> ThreadInfo:
    """Fork a thread: copy it up to an entry."""
    if body.agent_id:
        await wick.registry.get_agent(caller, body.agent_id)
    if body.files and body.at is not None:
        await restore_files(wick, caller, id, body.at, [])
    return make_thread_info(await wick.runs.fork(caller, id, body.at, body.title, body.agent_id))


@router.post("/{id}/rewind", response_model=ThreadDetail)
async def rewind(id: str, body: Rewind, caller: Caller, wick: Wick, request: Request) -> Response:
    """Rewind a thread to its state after an entry. Later entries stay in the log, but are not part of the thread."""
    if body.files:
        await restore_files(wick, caller, id, body.to, [])
    await wick.runs.sessions.rewind(id, body.to, owner=caller.id)
    return await one(id, caller, wick, request)


@router.post("/{id}/switch", response_model=ThreadDetail)
async def switch(id: str, body: BranchSwitch, caller: Caller, wick: Wick, request: Request) -> Response:
    """Switch a thread to another branch: to a message that an edit or a retry has replaced, with all after it."""
    await wick.runs.sessions.switch_branch(id, body.to, owner=caller.id)
    return await one(id, caller, wick, request)


@router.post("/{id}/messages", status_code=202)
async def say(id: str, body: MessageRequest, caller: Caller, wick: Wick, key: IdempotencyKey = "") -> QueuedMessage:
    """Send messages to a thread: its current run reads them before its next step; otherwise a run starts."""
    words = parse_messages(body, systems=wick.settings.allow_system_messages)
    turn = await wick.runs.send(caller, id, words, key=key)
    return QueuedMessage(thread_id=id, run_id=turn.run_id, position=turn.position)


_EXPORTS: dict[int | str, dict[str, Any]] = {
    200: {"model": ThreadExport, "content": {"text/markdown": {"schema": {"type": "string"}}}}
}


@router.get("/{id}/export", response_class=JSONResponse, responses=_EXPORTS)
async def export(
    id: str, caller: Caller, wick: Wick, request: Request, format: Literal["json", "markdown"] = "json"
) -> Response:
    """Export a thread: its log as JSON, or its messages as Markdown."""
    head = await wick.store.head(caller.id, id)
    async with wick.thread_loader.load(caller.id, id, request) as thread:
        name = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in id)
        suffix = "json" if format == "json" else "md"
        headers = {"Content-Disposition": f'attachment; filename="{name}.{suffix}"'}
        if format == "json":

            def encode_log() -> bytes:  # entry by entry: one large call would hold the GIL and block the event loop
                head = orjson.dumps({"schema": SCHEMA, "id": thread.id})[:-1]
                entries = b",".join([encode_json(entry.to_json()) for entry in thread.entries])
                return b'%s,"entries":[%s]}' % (head, entries)

            log = await run_in_thread(encode_log, "export")
            return await spool_response(Response(log, media_type="application/json", headers=headers))
        text = await run_in_thread(lambda: export_markdown(head.title or id, thread), "export")
        return await spool_response(Response(text, media_type="text/markdown; charset=utf-8", headers=headers))
