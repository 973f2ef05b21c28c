"""The onion of an agent: the rings of each operation, outermost first, and its guards."""

from __future__ import annotations

from fastapi import APIRouter

from wick.api.conversions import list_operation_rings
from wick.api.types import AgentOnion
from wick.server.dependencies import Caller, Wick

router = APIRouter(tags=["hooks"])


@router.get("/agents/{id}/onion")
async def get_onion(id: str, caller: Caller, wick: Wick) -> AgentOnion:
    """Return the rings and the guards of each operation of your agent."""
    agent = (await wick.registry.get_agent(caller, id)).agent
    return AgentOnion(agent_id=id, operations=list_operation_rings(agent))
