"""Backends of agents: a folder of this machine, or a container."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from wick._internal.worker_threads import run_in_thread
from wick.api.conversions import make_backend_info
from wick.api.types import BackendInfo
from wick.server.agents.builder import AgentInstance
from wick.server.agents.overrides import Overrides
from wick.server.agents.redacted_options import redact_options
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.strict_models import StrictModel

router = APIRouter(tags=["backend"], route_class=JsonRoute)

LEVELS = ("none", "weak", "strong")


class BackendChange(StrictModel):
    """`local` is a folder of this machine, `remote` a container. The default engine is that of this machine."""

    mode: Literal["local", "remote"]
    sandbox_url: str | None = Field(
        default=None, max_length=500, description="a container engine, as in tcp://host:2376; requires an operator"
    )


@router.get("/agents/{id}/backend")
async def get_backend(id: str, caller: Caller, wick: Wick) -> BackendInfo | None:
    """Return the backend of your agent, with the protection of its commands."""
    return describe_backend(await wick.registry.get_agent(caller, id))


@router.patch("/agents/{id}/backend")
async def switch_backend(id: str, change: BackendChange, caller: Caller, wick: Wick) -> BackendInfo | None:
    """Switch the backend of your agent, from its next run on."""
    if change.sandbox_url is not None and not caller.has_role("operator"):
        raise ApiError(403, "not_allowed", "another container engine requires an operator; leave out sandbox_url")
    instance = await wick.registry.get_agent(caller, id)
    if not caller.has_role("operator") and (instance.backend is None or instance.backend.name == "state"):
        raise ApiError(403, "not_allowed", f"the agent {id!r} has no commands; ask an operator to enable them")
    # Try the new workspace before it is stored: commands must not be less protected there.
    places, overrides = wick.registry.workspaces, _apply_change(instance.overrides, change)
    place = await places.open(
        await run_in_thread(lambda: places.backend_options(instance.template, overrides, caller.id), "workspace")
    )
    if place is not None:
        try:
            level = place.backend.protection.level
        finally:
            await places.close(place)
        now = instance.backend.protection.level if instance.backend is not None else "strong"
        if LEVELS.index(level) < LEVELS.index(now) and not caller.has_role("operator"):
            raise ApiError(
                403, "not_allowed", f"commands would be less protected there ({level}); ask an operator to switch"
            )
    await wick.registry.change_overrides(caller, id, lambda own: _apply_change(own, change))
    info = describe_backend(await wick.registry.get_agent(caller, id))
    wick.bus.publish("backend_changed", {"agent_id": id, "mode": change.mode}, caller.id)
    return info


def _apply_change(overrides: Overrides, change: BackendChange) -> Overrides:
    return replace(overrides, mode=change.mode, sandbox_url=change.sandbox_url)


def describe_backend(instance: AgentInstance) -> BackendInfo | None:
    """Return the backend of an agent, or None if it has none."""
    if instance.backend is None:
        return None
    return make_backend_info(instance.backend, redact_options(instance.overrides.sandbox_url))
