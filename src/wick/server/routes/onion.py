"""The rings of an agent as data: what each operation goes through, outermost first."""

from __future__ import annotations

from wick.api.conversions import list_operation_rings
from wick.api.types import AgentOnion
from wick.server.dependencies import Caller, Wick
from wick.server.http.json_body import Router

router = Router(tags=["hooks"])


@router.get("/agents/{id}/onion")
async def get_onion(id: str, caller: Caller, wick: Wick) -> AgentOnion:
    """What stands around each operation of your agent."""
    agent = (await wick.registry.get_agent(caller, id)).agent
    return AgentOnion(agent_id=id, operations=list_operation_rings(agent))
