"""Links to threads: create, list and revoke them, and read a shared thread without an account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from wick._internal.worker_threads import run_in_thread
from wick.api.types import NewShare, SharedThread, ShareInfo, ShareList
from wick.errors import StoreError
from wick.server.auth.shares import MAX_SHARES, Share
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError, not_found
from wick.server.http.json_body import JsonRoute
from wick.server.http.spooling import spool_response
from wick.server.ops.redaction import Secrets
from wick.server.runs.history import ThreadHistory
from wick.server.service import Service
from wick.server.strict_models import StrictModel
from wick.threads import Thread

router = APIRouter(tags=["threads"], route_class=JsonRoute)

SHOWN_KEYS = ("role", "content", "tool_call_id", "failed", "seq", "at", "cut")


ShareId = Annotated[str, Path(max_length=100, description="the id of a link")]


class ShareSecret(StrictModel):
    """The secret of a link, which is the part after `#share=`."""

    secret: str = Field(min_length=20, max_length=200, description="the part of the link after `#share=`")


@router.get("/threads/{id}/shares")
async def list_shares(id: str, caller: Caller, wick: Wick) -> ShareList:
    """List the links to a thread."""
    head = await wick.store.head(caller.id, id)
    return ShareList(shares=[_describe(share) for share in await wick.shares.list(head)])


@router.post("/threads/{id}/shares", status_code=201)
async def create_share(id: str, caller: Caller, wick: Wick) -> NewShare:
    """Create a link to a thread as it is now. Everyone with the link reads its messages until it is revoked."""
    _check_enabled(wick)
    head = await wick.store.head(caller.id, id)
    if len(await wick.shares.list(head)) >= MAX_SHARES:
        raise ApiError(409, "conflict", f"the thread has {MAX_SHARES} links; revoke one first")
    secret, share = await wick.shares.create(head)
    return NewShare(**_describe(share).model_dump(), secret=secret, path=f"/#share={secret}")


@router.delete("/threads/{id}/shares/{share}", status_code=204)
async def revoke_share(id: str, share: ShareId, caller: Caller, wick: Wick) -> None:
    """Revoke a link."""
    if not await wick.shares.revoke(caller.id, id, share):
        raise not_found("such link")


@router.post("/shared", response_model=SharedThread)
async def read_shared(body: ShareSecret, wick: Wick, request: Request) -> Response:
    """Read a shared thread: its messages up to the moment when the link was created."""
    _check_enabled(wick)
    share = await wick.shares.find(body.secret)
    head = None
    if share is not None:
        try:
            head = await wick.store.head(share.owner, share.thread)
        except StoreError as error:
            if error.code != "not_found":
                raise
    if share is None or head is None or head.created != share.thread_created:
        raise ApiError(404, "not_found", "this link is not valid; it may have been revoked")
    async with wick.thread_loader.load(share.owner, share.thread, request) as thread:
        title, shared = head.title, share
        text = await run_in_thread(lambda: encode_shared(thread, title, shared, wick.secrets), "a shared thread")
        return await spool_response(Response(text, media_type="application/json"))


def encode_shared(thread: Thread, title: str, share: Share, secrets: Secrets) -> bytes:
    """Return a shared thread as JSON: its messages without reasoning, system prompts, and messages of hooks."""
    history = ThreadHistory.from_thread(thread)
    rows = []
    for message in thread.messages:
        row = history.to_json(message)
        is_of_hook = message.role == "user" and message.name
        if message.role != "system" and not is_of_hook and 0 < row.get("seq", 0) <= share.last:
            shown = {key: row[key] for key in SHOWN_KEYS if key in row}
            if calls := [{key: call[key] for key in ("id", "name", "args")} for call in row.get("tool_calls", ())]:
                shown["tool_calls"] = calls
            rows.append(secrets.redact_json(shown))
    fields = {"title": secrets.redact_text(title), "created": share.created, "messages": rows}
    return SharedThread.model_validate(fields).model_dump_json().encode()


def _describe(share: Share) -> ShareInfo:
    return ShareInfo(id=share.id, created=share.created, last=share.last)


def _check_enabled(wick: Service) -> None:
    if not wick.settings.shares:
        raise ApiError(403, "not_allowed", "this server shares no threads; see `shares` in server.yaml")
