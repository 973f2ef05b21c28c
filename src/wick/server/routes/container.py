"""Containers of agents: stop and restart."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from wick.api.types import ContainerState
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.strict_models import StrictModel

router = APIRouter(tags=["container"], route_class=JsonRoute)


class ContainerAction(StrictModel):
    """`stop` stops and removes the container, `restart` starts a new one. The workspace is not changed."""

    action: Literal["stop", "restart"]


@router.post("/agents/{id}/container")
async def control_container(id: str, body: ContainerAction, caller: Caller, wick: Wick) -> ContainerState:
    """Stop or restart the container of your agent. Commands that run in it are killed."""
    instance = await wick.registry.get_agent(caller, id)
    backend = instance.backend
    if instance.workspace is None or backend is None:
        raise ApiError(409, "conflict", f"the agent {id!r} has no container of yours")
    with instance.hold():
        await backend.stop()
        if body.action == "restart":
            await backend.start()
    status = instance.workspace.reported = backend.status
    change = {"agent_id": id, "status": status.state, "reason": status.reason}
    wick.bus.publish("container_status", change, caller.id)
    return ContainerState(agent_id=id, status=status.state, reason=status.reason)
