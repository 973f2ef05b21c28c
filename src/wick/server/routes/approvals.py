"""Approvals: list and answer the pending questions of runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field, JsonValue

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.api.conversions import make_approval
from wick.api.types import ApprovalList, ApprovalReceipt, Choice, ShellCommands
from wick.permissions.shell import parse_script
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.http.json_body import JsonRoute
from wick.server.strict_models import StrictModel
from wick.stores.held_thread import iter_threads

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
    heads = [
        head async for head in iter_threads(wick.store, caller.id, [thread_id] if thread_id else None, asking=True)
    ]
    approvals = []
    for head in heads:
        for question in await wick.runs.sessions.questions(head.id, owner=caller.id):
            asked = thaw(question)
            command, shell = (asked.get("args") or {}).get("command"), None
            if isinstance(command, str):
                shell = await run_in_thread(partial(_parse_shell, command), "reading a command")
            approvals.append(make_approval(head, asked, str(head.meta.get("agent", "")), shell))
    return ApprovalList(approvals=approvals)


@router.post("/{id}")
async def answer(id: str, body: Decision, caller: Caller, wick: Wick) -> ApprovalReceipt:
    """Answer a question; the run continues. Only the first answer counts."""
    named = [body.thread_id] if body.thread_id else None
    async for head in iter_threads(wick.store, caller.id, named, asking=True):
        if id in (await wick.runs.sessions.load(head.id, owner=caller.id)).questions:
            break
    else:
        raise not_found(f"open question {id!r}")
    await wick.runs.answer_question(caller, head.id, id, body.choice, body.words, body.args)
    return ApprovalReceipt(id=id, thread_id=head.id, choice=body.choice)


def _parse_shell(command: str) -> ShellCommands:
    script = parse_script(command)
    files = [redirect for redirect in script.redirects if redirect.is_file]
    return ShellCommands(
        commands=[str(one) for one in script.commands],
        reads=[one.target.text for one in files if not one.writes],
        writes=[one.target.text for one in files if one.writes],
        opaque=[*script.opaque],
    )
