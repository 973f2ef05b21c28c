"""Approvals: list and answer the pending questions of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field, JsonValue

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.api.conversions import make_approval
from wick.api.types import Approval, ApprovalList, ApprovalReceipt, Choice, ShellCommands
from wick.permissions.shell import parse_script
from wick.protocols import Summary
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.http.json_body import JsonRoute
from wick.server.service import Service
from wick.server.strict_models import StrictModel

router = APIRouter(prefix="/approvals", tags=["approvals"], route_class=JsonRoute)


class Decision(StrictModel):
    """An answer. `allow` may change the arguments, `words` explain `deny`; the others also allow repetitions."""

    choice: Choice
    words: str = Field("", max_length=10_000)
    args: dict[str, JsonValue] | None = None
    thread_id: str = Field("", max_length=200, description="the thread of the question; optional")


@router.get("")
async def waiting(caller: Caller, wick: Wick, thread_id: Annotated[str, Query(max_length=200)] = "") -> ApprovalList:
    """List the pending questions of one thread or of all."""
    heads = [head async for head in _list_asking_threads(wick, caller, thread_id)]
    approvals = []
    for head in heads:
        for question in await wick.runs.sessions.questions(head.id, owner=caller.id):
            approvals.append(await _create_approval(head, thaw(question)))
    return ApprovalList(approvals=approvals)


@router.post("/{id}")
async def answer(id: str, body: Decision, caller: Caller, wick: Wick) -> ApprovalReceipt:
    """Answer a question; the run continues. Only the first answer counts."""
    thread = await _find_thread(wick, caller, id, body.thread_id)
    await wick.runs.answer_question(caller, thread, id, body.choice, body.words, body.args)
    return ApprovalReceipt(id=id, thread_id=thread, choice=body.choice)


async def _list_asking_threads(wick: Service, user: User, thread_id: str) -> AsyncIterator[Summary]:
    if thread_id:
        yield await wick.store.head(user.id, thread_id)
        return
    cursor = None
    while cursor != "":
        page = await wick.store.list(user.id, asking=True, cursor=cursor or "", limit=100)
        for head in page.threads:
            yield head
        cursor = page.next


async def _create_approval(head: Summary, asked: Mapping[str, Any]) -> Approval:
    command = (asked.get("args") or {}).get("command")
    shell = (
        await run_in_thread(lambda: _parse_shell(command), "reading a command") if isinstance(command, str) else None
    )
    return make_approval(head, asked, str(head.meta.get("agent", "")), shell)


def _parse_shell(command: str) -> ShellCommands:
    script = parse_script(command)
    files = [redirect for redirect in script.redirects if redirect.is_file]
    return ShellCommands(
        commands=[str(one) for one in script.commands],
        reads=[one.target.text for one in files if not one.writes],
        writes=[one.target.text for one in files if one.writes],
        opaque=[*script.opaque],
    )


async def _find_thread(wick: Service, user: User, id: str, thread_id: str) -> str:
    async for head in _list_asking_threads(wick, user, thread_id):
        thread = await wick.runs.sessions.load(head.id, owner=user.id)
        if id in thread.questions:
            return head.id
    raise not_found(f"open question {id!r}")
