"""Approvals: list and answer the pending questions of runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field, JsonValue

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.api.conversions import make_approval, make_thread_info
from wick.api.types import ApprovalList, ApprovalReceipt, Choice, ShellCommands
from wick.constants import RULE_CHARS
from wick.permissions.proposals import propose_rules
from wick.permissions.shell import parse_script
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.http.json_body import JsonRoute
from wick.server.strict_models import StrictModel
from wick.stores.held_thread import iter_threads

router = APIRouter(prefix="/approvals", tags=["approvals"], route_class=JsonRoute)


class Decision(StrictModel):
    """An answer. `allow` may change the arguments, and `words` explain `deny`.

    `allow_session` and `allow_always` also allow repetitions, `allow_source` endorses the sources of the question for
    this run, and `allow_step` and `deny_step` answer all questions of the step.
    """

    choice: Choice
    words: str = Field("", max_length=10_000)
    args: dict[str, JsonValue] | None = None
    rules: list[Annotated[str, Field(max_length=RULE_CHARS)]] = Field(
        default_factory=list, max_length=20, description="with `allow_session`, of the `rules` that the question has"
    )
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
            command, shell, rules = (asked.get("args") or {}).get("command"), None, list[str]()
            if isinstance(command, str):
                shell = await run_in_thread(partial(_parse_shell, command), "reading a command")
                rules = await run_in_thread(partial(propose_rules, asked), "proposing rules")
            approvals.append(make_approval(head, asked, make_thread_info(head).agent, shell, rules))
    return ApprovalList(approvals=approvals)


@router.post("/{id}")
async def answer(id: str, body: Decision, caller: Caller, wick: Wick) -> ApprovalReceipt:
    """Answer a question; the run continues. Only the first answer counts."""
    thread = await _find_thread(wick, caller, id, body.thread_id)
    await wick.runs.answer_question(caller, thread, id, body.choice, body.words, body.args, body.rules)
    return ApprovalReceipt(id=id, thread_id=thread, choice=body.choice)


async def _find_thread(wick: Wick, caller: Caller, question: str, named: str) -> str:
    """Return the thread of a question. One that has expired is found last: its answer is a `conflict`."""
    for asking in (True, False):
        async for head in iter_threads(
            wick.store, caller.id, [named] if named else None, asking=asking, running=None if asking else True
        ):
            if question in (await wick.runs.sessions.load(head.id, owner=caller.id)).questions:
                return head.id
    raise not_found(f"open question {question!r}")


def _parse_shell(command: str) -> ShellCommands:
    script = parse_script(command)
    files = [redirect for redirect in script.redirects if redirect.is_file]
    return ShellCommands(
        commands=[str(one) for one in script.commands],
        reads=[one.target.text for one in files if not one.writes],
        writes=[one.target.text for one in files if one.writes],
        opaque=[*script.opaque],
    )
