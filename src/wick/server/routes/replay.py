"""Policy replay: evaluate recorded tool uses with other guards. No tool is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from wick.agent import Agent
from wick.api.conversions import make_changed_verdict
from wick.api.types import ReplayReport
from wick.capabilities.permissions import Mode, Permissions
from wick.replay import replay
from wick.server.agents.builder import effective_options
from wick.server.agents.http_policy import check_hook
from wick.server.agents.overrides import Overrides
from wick.server.agents.templates import AgentTemplate
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.http.json_body import JsonRoute
from wick.server.routes.hooks import Option
from wick.server.service import Service
from wick.server.strict_models import StrictModel
from wick.stores.held_thread import iter_threads, load
from wick.threads import Thread

router = APIRouter(tags=["replay"], route_class=JsonRoute)

MAX_THREADS = 500
SECONDS = 20.0  # after which no other thread is loaded
MAX_SKIPPED = 100
PASSIVE_MODE: Mode = "bypassPermissions"  # tool uses without a matching rule are allowed


class RuleSet(StrictModel):
    """Permission rules, such as `Bash(git push *)`."""

    deny: list[str] = Field(default_factory=list, max_length=200)
    ask: list[str] = Field(default_factory=list, max_length=200)
    allow: list[str] = Field(default_factory=list, max_length=200)


class ReplayRequest(StrictModel):
    """The threads to replay, and changes of the agent's guards: other hooks, additional rules."""

    agent_id: str = Field(max_length=64)
    thread_ids: list[str] | None = Field(
        default=None, max_length=MAX_THREADS, description="ids of your threads; null is all threads of this agent"
    )
    hooks: dict[str, Option] = Field(
        default_factory=dict, max_length=50, description="as in `PATCH /agents/{id}/hooks`; the agent is not changed"
    )
    rules: RuleSet = Field(default_factory=RuleSet, description="added to the rules of the agent")


@router.post("/replay")
async def replay_threads(body: ReplayRequest, caller: Caller, wick: Wick) -> ReplayReport:
    """Evaluate the recorded tool uses of your threads with other guards, and return the verdicts that differ."""
    for name, value in body.hooks.items():
        check_hook(name, value, caller, own=True)  # it affects only threads of the user
    past = _RecordedThreads(wick, caller, body)
    with wick.limits.hold("runs", caller.id):
        async with _replay_agent(wick, caller, body) as agent:
            report = await replay(agent, past.threads())
    return ReplayReport(
        threads=report.threads,
        uses=report.uses,
        changes=[make_changed_verdict(change, past.titles) for change in report.changes],
        skipped=report.skipped[:MAX_SKIPPED],
        more=past.more,
        asked=report.asked,
    )


@asynccontextmanager
async def _replay_agent(wick: Service, user: User, body: ReplayRequest) -> AsyncIterator[Agent]:
    """Build the agent with the requested guards. An agent of a factory can only get additional rules."""
    template = await wick.registry.get_template(user, body.agent_id)
    if template.factory is not None and not body.hooks:
        agent = (await wick.registry.get_agent(user, body.agent_id)).agent
        yield agent.with_hooks(Permissions(**body.rules.model_dump(), mode=PASSIVE_MODE))
        return
    async with wick.registry.try_overrides(
        user, body.agent_id, lambda template, overrides: _apply_request(template, overrides, body)
    ) as instance:
        yield instance.agent


def _apply_request(template: AgentTemplate, overrides: Overrides, body: ReplayRequest) -> Overrides:
    asked = {name: value for name, value in body.hooks.items() if value is not None}
    unchanged = {name: value for name, value in overrides.hooks.items() if name not in body.hooks}
    changed = replace(overrides, hooks={**unchanged, **asked})
    more = {type: given for type, given in body.rules.model_dump().items() if given}
    if not more:
        return changed
    known = effective_options(template, changed).options.get("permissions")
    rules: Mapping[str, Any] = known if isinstance(known, Mapping) else {} if known is True else {"mode": PASSIVE_MODE}
    with_more = {**rules, **{type: [*rules.get(type, ()), *given] for type, given in more.items()}}
    return replace(changed, hooks={**changed.hooks, "permissions": with_more})


class _RecordedThreads:
    """Loads the threads of a user one by one, until the time limit."""

    def __init__(self, wick: Service, user: User, body: ReplayRequest) -> None:
        self.wick, self.user, self.body = wick, user, body
        self.titles: dict[str, str] = {}
        self.more = False

    async def threads(self) -> AsyncIterator[Thread]:
        until, ids = monotonic() + SECONDS, self.body.thread_ids
        named = None if ids is None else dict.fromkeys(ids)
        async for head in iter_threads(self.wick.store, self.user.id, named):
            if named is None and (head.meta.get("agent") != self.body.agent_id or "parent" in head.meta):
                continue
            if len(self.titles) >= MAX_THREADS or monotonic() > until:
                self.more = True
                return
            self.titles[head.id] = head.title
            yield await load(self.wick.store, self.user.id, head.id)
