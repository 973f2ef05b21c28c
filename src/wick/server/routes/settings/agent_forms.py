"""The form of agents: the options that a user may set, as a JSON Schema."""

from __future__ import annotations

from fastapi import APIRouter

from wick._internal.worker_threads import run_in_thread
from wick.api.types import AgentForm
from wick.config.builder import BUILTIN
from wick.server.agents.agent_form import build_agent_form
from wick.server.dependencies import Caller, Wick

router = APIRouter(prefix="/settings", tags=["settings"])


@router.get("/agent-form")
async def get_agent_form(caller: Caller, wick: Wick) -> AgentForm:
    """Return the options of an agent that you may set, as a JSON Schema for forms."""
    form = await run_in_thread(lambda: build_agent_form(caller), "form")  # imports all capabilities
    tools = sorted({*BUILTIN, *await wick.registry.toolbox.list_names(caller)})
    return AgentForm(form=form, tools=tools)
