"""Approvals: list and answer the pending questions of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, JsonValue

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.permissions.shell import parse_script
from wick.protocols import Summary
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.http.json_body import JsonRoute
from wick.server.service import Service
from wick.server.strict_models import StrictModel

router = APIRouter(prefix="/approvals", tags=["approvals"], route_class=JsonRoute)

QUESTION_KEYS = ("id", "question", "run", "operation", "tool", "call_id", "args", "hash", "expires")


class ShellOut(BaseModel):
    """What a command would run, as far as that can be read; `opaque` says why more may happen than can be seen."""

    commands: list[str]
    reads: list[str]
    writes: list[str]
    opaque: list[str]


class Approval(BaseModel):
    """A question about exactly one thing that is to be done; `hash` stands for it."""

    id: str
    thread_id: str
    agent_id: str
    title: str
    run_id: str = ""
    question: str
    operation: str = ""
    tool: str = ""
    call_id: str = ""
    args: dict[str, JsonValue] | None = None
    shell: ShellOut | None = Field(None, description="of a shell command, what it would run")
    about: dict[str, JsonValue] = Field({}, description="what else is known of it")
    hash: str = ""
    expires: float | None = Field(None, description="when it lapses, in seconds since 1970")


class Approvals(BaseModel):
    """What waits for an answer."""

    approvals: list[Approval]


class Decision(StrictModel):
    """An answer. `allow` may change the arguments, `words` explain `deny`; the others also allow repetitions."""

    choice: Literal["allow", "deny", "allow_session", "allow_always"]
    words: str = Field("", max_length=10_000)
    args: dict[str, JsonValue] | None = None
    thread_id: str = Field("", max_length=200, description="the thread of the question; optional")


class Decided(BaseModel):
    """Which question was answered, and how."""

    id: str
    thread_id: str
    choice: str


@router.get("")
async def waiting(caller: Caller, wick: Wick, thread_id: Annotated[str, Query(max_length=200)] = "") -> Approvals:
    """List the pending questions of one thread or of all."""
    heads = [head async for head in _list_asking_threads(wick, caller, thread_id)]
    found = [approval for head in heads for approval in await _list_approvals(wick, caller, head)]
    return Approvals(approvals=found)


@router.post("/{id}")
async def answer(id: str, body: Decision, caller: Caller, wick: Wick) -> Decided:
    """Answer a question; the run continues. Only the first answer counts."""
    thread = await _find_thread(wick, caller, id, body.thread_id)
    await wick.runs.answer_question(caller, thread, id, body.choice, body.words, body.args)
    return Decided(id=id, thread_id=thread, choice=body.choice)


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


async def _list_approvals(wick: Service, user: User, head: Summary) -> list[Approval]:
    asked = await wick.runs.sessions.questions(head.id, owner=user.id)
    return [await _create_approval(head, thaw(question)) for question in asked]


async def _create_approval(head: Summary, asked: Mapping[str, Any]) -> Approval:
    known = {key: asked[key] for key in QUESTION_KEYS if key in asked}
    about = {key: value for key, value in asked.items() if key not in QUESTION_KEYS}
    whose = {"thread_id": head.id, "agent_id": str(head.meta.get("agent", "")), "title": head.title}
    command = (asked.get("args") or {}).get("command")
    shell = (
        await run_in_thread(lambda: _parse_shell(command), "reading a command") if isinstance(command, str) else None
    )
    return Approval.model_validate({**known, **whose, "run_id": known.pop("run", ""), "about": about, "shell": shell})


def _parse_shell(command: str) -> ShellOut:
    script = parse_script(command)
    files = [redirect for redirect in script.redirects if redirect.is_file]
    return ShellOut(
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
