"""The onion of an agent: the rings of each operation, outermost first, and its guards."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from wick.agent import Agent
from wick.capabilities.executables import Executables
from wick.hooks import Hook, order_rings, parse_patterns
from wick.operations import OPERATIONS
from wick.server.dependencies import Caller, Wick

router = APIRouter(tags=["hooks"])


class RingInfo(BaseModel):
    """A hook, where it stands."""

    hook: str
    capability: str | None
    source: str = Field(description="where it is from: a capability's key, the program that it is, or `code`")
    position: str
    point: str
    match: list[str] | None = Field(description="the tools that it is for; null where a program decides")
    priority: float | None = Field(description="null for one that nothing stands outside of")
    timeout: float | None
    inherit: bool
    shadow: bool
    fail: Literal["closed", "open"] = Field(description="whether its failure denies, or lets pass")


class OperationInfo(BaseModel):
    """An operation, its rings outermost first, and the guards at its gate."""

    operation: str
    rings: list[RingInfo]
    guards: list[RingInfo]


class Onion(BaseModel):
    agent_id: str
    operations: list[OperationInfo]


@router.get("/agents/{id}/onion")
async def get_onion(id: str, caller: Caller, wick: Wick) -> Onion:
    """Return the rings and the guards of each operation of your agent."""
    agent = (await wick.registry.get_agent(caller, id)).agent
    found = []
    for operation in OPERATIONS:
        there = order_rings(agent.hooks, operation)
        around = _list_rings(agent, (hook for hook in there if hook.position != "guard"))
        guards = _list_rings(agent, (hook for hook in there if hook.position == "guard"))
        found.append(OperationInfo(operation=operation.name, rings=around, guards=guards))
    return Onion(agent_id=id, operations=found)


def _list_rings(agent: Agent, hooks: Iterable[Hook]) -> list[RingInfo]:
    return [
        RingInfo(
            hook=hook.name,
            capability=getattr(hook.owner, "name", None),
            source=_hook_source(hook),
            position=hook.position,
            point=hook.point,
            match=None if callable(hook.match) else [*parse_patterns(hook.match)],
            priority=hook.priority if isfinite(hook.priority) else None,
            timeout=hook.timeout,
            inherit=hook.inherit or hook.position == "guard",
            shadow=hook.shadow,
            fail="open" if _fails_open(agent, hook) else "closed",
        )
        for hook in hooks
    ]


def _hook_source(hook: Hook) -> str:
    if hook.owner is not None:
        return str(hook.owner.name)
    program, is_program, _ = hook.name.partition("@")
    return f"program {program}" if is_program else "code"


def _fails_open(agent: Agent, hook: Hook) -> bool:
    programs = [part for part in agent.capabilities if isinstance(part, Executables)]
    return hook.on_error == "log" or any(part.fails_open(hook) for part in programs)
