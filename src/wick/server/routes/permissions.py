"""Permissions of an agent: its mode, its rules, and the permanent grants of the user."""

from __future__ import annotations

from fastapi import APIRouter

from wick.api.types import Grant, PermissionsInfo, RuleInfo
from wick.capabilities.permissions import Permissions
from wick.permissions.rules import POLICIES
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found

router = APIRouter(tags=["permissions"])

_POLICY_OF_RULE = {
    item["rule"]: name for name, items in POLICIES.items() for item in items if not isinstance(item, str)
}


@router.get("/agents/{id}/permissions")
async def get_permissions(id: str, caller: Caller, wick: Wick) -> PermissionsInfo:
    """Return the permission mode and rules of your agent, and your permanent grants."""
    instance = await wick.registry.get_agent(caller, id)
    hooks = instance.agent.hooks
    found = [*dict.fromkeys(hook.owner for hook in hooks if isinstance(hook.owner, Permissions))]
    grants = await wick.registry.list_grants(caller, id)
    return PermissionsInfo(
        agent_id=id,
        mode=found[0].mode if found else None,
        rules=[
            RuleInfo(type=rule.type, rule=rule.text, message=rule.message, policy=_POLICY_OF_RULE.get(rule.text, ""))
            for capability in found
            for rule in capability.rules
        ],
        grants=[Grant(id=key, tool=str(rule["tool"]), args=rule["args"]) for key, rule in grants.items()],
    )


@router.delete("/agents/{id}/permissions/grants/{grant}", status_code=204)
async def revoke_grant(id: str, grant: str, caller: Caller, wick: Wick) -> None:
    """Revoke a permanent grant; the agent asks again from its next run on."""
    await wick.registry.get_template(caller, id)
    if not await wick.registry.revoke(caller, id, grant):
        raise not_found(f"grant {grant[:100]!r}")
