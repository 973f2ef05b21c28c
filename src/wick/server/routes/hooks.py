"""Hooks of an agent: its capabilities, their options and their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field, JsonValue

from wick.api.types import HookInfo, HookList
from wick.config import BY_KEY
from wick.server.agents.builder import AgentInstance, effective_options
from wick.server.agents.http_policy import check_hook
from wick.server.agents.overrides import Overrides
from wick.server.agents.redacted_options import enabled_capabilities, redact_options
from wick.server.agents.templates import sort_rings
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.strict_models import StrictModel

router = APIRouter(tags=["hooks"], route_class=JsonRoute)

Option = bool | str | list[JsonValue] | dict[str, JsonValue] | None


class HookChange(StrictModel):
    """Changes by capability: `true`, `false` or options; `null` restores the agent's configuration."""

    hooks: dict[str, Option] = Field(default_factory=dict, max_length=50)
    order: list[str] | None = Field(
        default=None, max_length=50, description="outermost first; other names keep their order"
    )


@router.get("/agents/{id}/hooks")
async def list_hooks(id: str, caller: Caller, wick: Wick) -> HookList:
    """List the capabilities of your agent, outermost first."""
    return _list_capabilities(await wick.registry.get_agent(caller, id), caller)


@router.patch("/agents/{id}/hooks")
async def change_hooks(
    id: str,
    change: HookChange,
    caller: Caller,
    wick: Wick,
    everyone: Annotated[bool, Query(description="for all users; requires an operator")] = False,
) -> HookList:
    """Enable, disable, configure and reorder capabilities, from the next run on."""
    template = await wick.registry.get_template(caller, id)
    if (everyone or change.order is not None) and not caller.has_role("operator"):
        raise ApiError(403, "not_allowed", "changing hooks for all users, or their order, requires an operator")
    order = change.order or []
    for name in (*change.hooks, *order):
        if name not in BY_KEY or not BY_KEY[name].kind:
            known = ", ".join(key for key, ring in BY_KEY.items() if ring.kind)
            raise ApiError(422, "invalid", f"there is no hook {name[:100]!r}; there are {known}")
    if len({*order}) != len(order):
        raise ApiError(422, "invalid", "the order has a hook twice; name each hook once")
    for name, value in change.hooks.items():
        check_hook(name, value, caller, own=template.owner == caller.id)
    await wick.registry.change_overrides(
        caller, id, lambda overrides: _apply_change(overrides, change), everyone=everyone
    )
    instance = await wick.registry.get_agent(caller, id)
    event = {"agent_id": id, "hooks": [*change.hooks], "reordered": change.order is not None}
    wick.bus.publish("hooks_changed", event, None if everyone else caller.id)
    return _list_capabilities(instance, caller)


def _apply_change(overrides: Overrides, change: HookChange) -> Overrides:
    hooks = {**overrides.hooks, **change.hooks}
    order = overrides.order if change.order is None else change.order
    return replace(overrides, hooks={name: value for name, value in hooks.items() if value is not None}, order=order)


def _list_capabilities(instance: AgentInstance, user: User) -> HookList:
    known = effective_options(instance.template, instance.overrides).options
    on = set(enabled_capabilities({**known, "backend": instance.backend is not None}))
    rings = [ring for ring in sort_rings(instance.overrides.order) if ring.kind and ring.key != "sessions"]
    hooks = []
    for name in (ring.key for ring in rings):
        refusal = ""  # why the user may not switch it
        try:
            check_hook(name, name not in on, user, own=instance.template.owner == user.id)
        except ApiError as error:
            refusal = str(error)
        owner = next((part for part in instance.agent.capabilities if part.name == name), None)
        info = HookInfo(
            name=name,
            on=name in on,
            changed=name in instance.overrides.hooks,
            options=redact_options(known.get(name, name in on)),
            points=[hook.point for hook in owner.hooks()] if owner is not None else [],
            tools=[tool.name for tool in owner.tools()] if owner is not None else [],
            refused=refusal,
        )
        hooks.append(info)
    return HookList(hooks=hooks)
