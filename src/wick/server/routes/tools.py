"""Tools of the server: list the available ones, and register tools behind HTTP."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field, JsonValue

from wick._internal.worker_threads import run_in_thread
from wick.api.types import AvailableTool, AvailableTools
from wick.capabilities.builtins import has_search
from wick.config.builder import BUILTIN
from wick.constants import CALLBACK_SECONDS
from wick.server.agents.http_tools import RegisteredTool
from wick.server.agents.redacted_options import redact_options
from wick.server.agents.templates import EVERYONE
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.strict_models import StrictModel

router = APIRouter(tags=["tools"], route_class=JsonRoute)


class NewTool(StrictModel):
    """A tool behind HTTP: `POST {callback_url}/tools/{name}` uses it."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")
    description: str = Field(min_length=1, max_length=4_000)
    parameters: dict[str, JsonValue] = Field(description="the JSON Schema of its arguments")
    callback_url: str = Field(max_length=2_000)
    timeout: float = Field(default=CALLBACK_SECONDS, gt=0, le=600)
    headers: dict[str, str] = Field(
        default_factory=dict, max_length=20, description="sent with each call; not returned"
    )
    read_only: bool = False
    agents: list[str] = Field(
        default_factory=list, max_length=200, description="agents that get the tool without naming it; * is all"
    )
    shared: bool = Field(default=True, description="for the agents of all users; otherwise only for yours")


@router.get("/agents/tools/available")
async def available_tools(caller: Caller, wick: Wick) -> AvailableTools:
    """List the tools that your agents may use, besides those of their capabilities."""
    toolbox = wick.registry.toolbox
    builtin = [
        name for name in BUILTIN if name != "web_search" or await run_in_thread(has_search, "looking for a search")
    ]
    found = [AvailableTool(name=name, description=_BUILTIN[name], kind="builtin") for name in builtin]
    found += [
        AvailableTool(name=tool.name, description=tool.description, kind="native", parameters=dict(tool.parameters))
        for tool in toolbox.native.values()
    ]
    operator = caller.has_role("operator")
    return AvailableTools(
        tools=[*found, *(_describe_tool(one, operator) for one in await toolbox.list_registered(caller))]
    )


@router.post("/agents/tools", status_code=201, include_in_schema=False)
@router.post("/agents/tools/", status_code=201)
async def register_tool(body: NewTool, caller: Caller, wick: Wick) -> AvailableTool:
    """Register or replace a tool behind HTTP; agents get it from their next run on."""
    data = body.model_dump(exclude={"name", "shared"})
    registered = await wick.registry.toolbox.add(caller, body.name, data, shared=body.shared)
    wick.bus.publish("tools_changed", {"registered": body.name}, None if body.shared else caller.id)
    return _describe_tool(registered, True)


@router.delete("/agents/tools/{name}", status_code=204)
async def deregister_tool(name: str, caller: Caller, wick: Wick) -> None:
    """Remove a tool behind HTTP."""
    if name in wick.registry.toolbox.native or name in BUILTIN:
        raise ApiError(409, "conflict", f"the tool {name!r} belongs to the program that runs the server")
    registered = await wick.registry.toolbox.remove(caller, name)
    wick.bus.publish("tools_changed", {"deregistered": name}, None if registered.owner == EVERYONE else caller.id)


_BUILTIN = {
    "calculate": "Evaluates an expression.",
    "datetime": "Returns the current date and time.",
    "http_request": "Sends an HTTP request to a public address.",
    "web_search": "Searches the web.",
}


def _describe_tool(registered: RegisteredTool, operator: bool) -> AvailableTool:
    data = registered.data
    return AvailableTool(
        name=registered.name,
        description=data["description"],
        kind="http",
        parameters=data["parameters"],
        callback_url=redact_options(data["callback_url"]) if operator else None,
        agents=data.get("agents", []),
        shared=registered.owner == EVERYONE,
    )
