"""Agents: list, describe, create and delete them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field, JsonValue, create_model

from wick._internal.safe_yaml import KeyPath
from wick._internal.worker_threads import run_in_thread
from wick.api.conversions import list_tools
from wick.api.types import AgentDetail, AgentInfo, AgentList, AgentOptionsInfo
from wick.capabilities.sessions import Sessions
from wick.config import RINGS
from wick.config.provider_models import is_demo
from wick.config.yaml_text import VariableText, write_agent
from wick.server.agents.builder import AgentInstance, InUse, effective_options
from wick.server.agents.http_policy import check_agent
from wick.server.agents.http_tools import Registered
from wick.server.agents.redacted_options import (
    HIDDEN,
    cover_secrets,
    enabled_capabilities,
    model_name,
    restore_secrets,
)
from wick.server.agents.registry import AGENT
from wick.server.agents.templates import EVERYONE, AgentTemplate
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.ops.redaction import Redaction
from wick.server.routes.backend import describe_backend
from wick.server.strict_models import StrictModel

logger = logging.getLogger("wick.server")
router = APIRouter(tags=["agents"], route_class=JsonRoute)

IfMatch = Annotated[str, Header(alias="If-Match", max_length=40, description="the revision that is replaced")]
Option = bool | str | list[JsonValue] | dict[str, JsonValue] | None


class _AgentOptions(StrictModel):
    name: str | None = Field(default=None, max_length=200)
    model: str | dict[str, JsonValue] | None = None
    system_prompt: str | None = Field(default=None, max_length=200_000)
    context_window: int | None = Field(default=None, gt=0)
    examples: list[Annotated[str, Field(min_length=1, max_length=2_000)]] | None = Field(default=None, max_length=20)
    settings: dict[str, JsonValue] | None = None
    tools: list[str] | None = Field(default=None, max_length=200)
    backend: Literal[False] | str | dict[str, JsonValue] | None = None


class _NewAgent(_AgentOptions):
    agent_id: str = Field(max_length=64)
    shared: bool = Field(default=False, description="for all users; requires an operator")


_RINGS: dict[str, Any] = {ring.key: (Option, None) for ring in RINGS if ring.kind and ring.key != "sessions"}
NewAgent = create_model("NewAgent", __base__=_NewAgent, **_RINGS)
AgentChange = create_model("AgentChange", __base__=_AgentOptions, **_RINGS)
AgentChange.__doc__ = "The options of an agent, in place of its stored ones. A hidden value keeps the stored one."
NewAgent.__doc__ = "A new agent: the keys of agents.yaml that are allowed over HTTP."


@router.get("/agents", include_in_schema=False)
@router.get("/agents/")
async def list_agents(caller: Caller, wick: Wick) -> AgentList:
    """List your agents: those of all users, and your own."""
    agents = []
    for template in sorted(await wick.registry.list_templates(caller), key=lambda template: template.id):
        summary = _summary(template, template.options)
        if template.factory is not None:  # its options are unknown until it is built
            try:
                summary |= await _describe_built(await wick.registry.get_agent(caller, template.id))
            except Exception:  # the other agents are still listed
                logger.warning(
                    "the agent %s cannot be built; its model and hooks are not listed", template.id, exc_info=True
                )
        agents.append(AgentInfo(**summary))
    return AgentList(agents=agents)


async def _describe_built(instance: AgentInstance) -> dict[str, Any]:
    """Return the name, the model and the hooks of an agent that a factory built."""
    agent = instance.agent
    model = await run_in_thread(lambda: agent.model, "finding a model")
    hooks = [hook for hook in agent.hooks if not isinstance(hook.owner, (InUse, Registered, Sessions, Redaction))]
    names = [hook.owner.name if hook.owner is not None else hook.name for hook in hooks]
    return {"name": agent.name, "model": model.name, "hooks": [*dict.fromkeys(names)]}


@router.post("/agents", status_code=201, include_in_schema=False)
@router.post("/agents/", status_code=201)
async def create_agent(body: NewAgent, caller: Caller, wick: Wick) -> AgentDetail:  # type: ignore[valid-type]
    """Create an agent of your own."""
    options: dict[str, Any] = body.model_dump(exclude_none=True)  # type: ignore[attr-defined]
    id, shared = options.pop("agent_id"), options.pop("shared")
    if shared and not caller.has_role("operator"):
        raise ApiError(403, "not_allowed", "an agent for all users requires an operator; leave out shared")
    check_agent(options, caller, await wick.registry.toolbox.list_names(caller))
    wick.limits.check_room("agents", len(await wick.records.list(AGENT, EVERYONE if shared else caller.id)))
    await wick.registry.create(caller, id, options, shared=shared)
    try:
        return await _build_detail(await wick.registry.get_agent(caller, id))
    except Exception:  # an agent that cannot be built is not stored
        await wick.registry.delete(caller, id, files=False)
        raise


@router.get("/agents/{id}")
async def get_agent(id: str, caller: Caller, wick: Wick) -> AgentDetail:
    """Return one of your agents, with its tools, hooks and backend."""
    return await _build_detail(await wick.registry.get_agent(caller, id))


@router.get("/agents/{id}/config")
async def get_config(id: str, caller: Caller, wick: Wick, response: Response) -> AgentOptionsInfo:
    """Return the options of an agent as in agents.yaml, without secrets. Those of others require an operator."""
    template = await wick.registry.get_template(caller, id)
    if template.owner != caller.id and not caller.has_role("operator"):
        raise ApiError(403, "not_allowed", "only an operator sees the options of an agent that is not one's own")
    if template.factory is not None:
        raise ApiError(409, "conflict", f"the agent {id!r} is made by a program and has no options")
    revision = await wick.registry.get_revision(template)
    response.headers["ETag"] = f'"{revision}"'
    return AgentOptionsInfo(
        agent_id=id,
        revision=revision,
        shared=template.owner == EVERYONE,
        refused=wick.registry.explain_no_edit(caller, template),
        options=cover_secrets(template.options, lambda _: HIDDEN),
        yaml=write_agent(id, cover_secrets(template.options, _name_variable)),
        enforced=sorted(template.enforced),
    )


def _name_variable(place: KeyPath) -> str:
    """Return a reference to the variable that a secret is read from in agents.yaml."""
    name = re.sub(r"\W+", "_", "_".join(map(str, place)), flags=re.ASCII).upper()
    return VariableText(f"${{{name}}}")


@router.put("/agents/{id}")
async def replace_agent(id: str, body: AgentChange, caller: Caller, wick: Wick, if_match: IfMatch) -> AgentDetail:  # type: ignore[valid-type]
    """Replace the options of an agent that was created over HTTP. A broken agent does not replace a working one."""
    old = await wick.registry.get_template(caller, id)
    given: dict[str, Any] = body.model_dump(exclude_none=True)  # type: ignore[attr-defined]
    if not (revision := if_match.strip('W/" ')).isdecimal():
        raise ApiError(422, "invalid", "If-Match is the revision of GET /agents/{id}/config, such as 3")
    options = restore_secrets(given, old.options)
    changed = {key: value for key, value in options.items() if old.options.get(key) != value}
    check_agent(changed, caller, await wick.registry.toolbox.list_names(caller))
    await wick.registry.replace(caller, id, options, int(revision))
    return await _build_detail(await wick.registry.get_agent(caller, id))


@router.delete("/agents/{id}", status_code=204)
async def delete_agent(
    id: str,
    caller: Caller,
    wick: Wick,
    files: Annotated[bool, Query(description="also delete the files of your workspace")] = False,
) -> None:
    """Delete an agent that was created over HTTP."""
    await wick.registry.delete(caller, id, files=files)


def _summary(template: AgentTemplate, options: Mapping[str, Any]) -> dict[str, Any]:
    model = template.model.name if template.model is not None else model_name(options.get("model", "auto"))
    return {
        "agent_id": template.id,
        "name": str(options.get("name", template.id)),
        "model": model if template.factory is None else "",
        "origin": template.origin,
        "shared": template.owner == EVERYONE,
        "hooks": [*enabled_capabilities(options), *(hook.name for hook in template.hooks)]
        if template.factory is None
        else [],
    }


async def _build_detail(instance: AgentInstance) -> AgentDetail:
    template, agent = instance.template, instance.agent
    model = await run_in_thread(lambda: agent.model, "finding a model")
    known = effective_options(template, instance.overrides).options
    summary = _summary(template, known)
    if template.factory is not None:
        summary |= await _describe_built(instance)
    return AgentDetail(
        **summary,
        system_prompt=agent.system,
        context_window=known.get("context_window"),
        answering_model=model.name,
        is_demo=is_demo(model),
        examples=[*known.get("examples", ())],
        tools=list_tools(agent),
        missing_tools=[*instance.missing_tools],
        backend=describe_backend(instance),
    )
