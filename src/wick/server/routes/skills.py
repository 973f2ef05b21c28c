"""Skills: list, enable, disable and upload them."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request

from wick.api.types import InvalidSkill, SkillInfo, SkillList
from wick.backends.files import HostFolder
from wick.capabilities.skills import Skills
from wick.capabilities.skills.catalog import COPIES, FILE, Catalogue, Skill, slugify
from wick.constants import ARCHIVE_BYTES
from wick.server.agents.builder import AgentInstance
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.http.uploads import UPLOAD, open_upload
from wick.server.strict_models import StrictModel

router = APIRouter(tags=["skills"], route_class=JsonRoute)


class SkillChange(StrictModel):
    """Skills to enable and disable, by name."""

    enable: list[str] = Field(default_factory=list, max_length=200)
    disable: list[str] = Field(default_factory=list, max_length=200)


@router.get("/agents/skills/available")
async def available_skills(caller: Caller) -> SkillList:
    """List the shipped skills, which an agent gets with `skills: {shipped: true}`."""
    return _list_catalogue(await Skills(shipped=True).discover())


@router.get("/agents/{id}/skills")
async def list_skills(id: str, caller: Caller, wick: Wick) -> SkillList:
    """List the skills of your agent."""
    instance = await wick.registry.get_agent(caller, id)
    with instance.hold():
        return _list_catalogue(await _find_skills(instance).discover())


@router.patch("/agents/{id}/skills")
async def switch_skills(id: str, change: SkillChange, caller: Caller, wick: Wick) -> SkillList:
    """Enable and disable skills of your agent, from its next run on."""
    instance = await wick.registry.get_agent(caller, id)
    with instance.hold():
        found = await _find_skills(instance).discover()
    known = {skill.key: skill.name for skill in found.skills}
    switched = {**dict.fromkeys(change.enable, True), **dict.fromkeys(change.disable, False)}
    if unknown := [name for name in switched if _skill_key(name) not in known]:
        raise ApiError(
            404, "not_found", f"there is no skill {unknown[0][:100]!r}; there are {', '.join(known.values())}"
        )
    named = {known[_skill_key(name)]: on for name, on in switched.items()}
    await wick.registry.change_overrides(caller, id, lambda own: replace(own, skills={**own.skills, **named}))
    wick.bus.publish("skills_changed", {"agent_id": id, "skills": named}, caller.id)
    return await list_skills(id, caller, wick)


@router.post("/agents/{id}/skills", status_code=201, openapi_extra=UPLOAD)
async def upload_skill(request: Request, id: str, caller: Caller, wick: Wick, overwrite: bool = False) -> SkillInfo:
    """Upload a skill for your agent: a SKILL.md, or a zip archive that contains one."""
    _find_skills(await wick.registry.get_agent(caller, id))
    async with open_upload(request, ARCHIVE_BYTES) as file, wick.files:  # a small archive may expand to a large one
        if not (await wick.registry.get_overrides(caller, id)).uploads:
            await wick.registry.change_overrides(caller, id, lambda own: replace(own, uploads=True))
        instance = await wick.registry.get_agent(caller, id)
        skills = _find_skills(instance)
        if not skills.paths or skills.backend is None:
            raise ApiError(409, "conflict", f"the agent {id!r} has no folder for uploaded skills")
        with instance.hold():
            skill = await skills.upload(await file.read(), replace=overwrite)
    wick.bus.publish("skills_changed", {"agent_id": id, "skills": {skill.name: True}}, caller.id)
    return _skill_info(skill)


def _find_skills(instance: AgentInstance) -> Skills:
    owners = (hook.owner for hook in instance.agent.hooks)
    found = next((owner for owner in owners if isinstance(owner, Skills)), None)
    if found is None:
        raise ApiError(409, "conflict", f"the agent {instance.id!r} has no skills; enable its capability `skills`")
    return found


def _skill_key(name: str) -> str:
    return slugify(name).casefold()


def _list_catalogue(found: Catalogue) -> SkillList:
    problems = [InvalidSkill(path=problem.path, reason=problem.reason) for problem in found.problems]
    return SkillList(skills=[_skill_info(skill) for skill in found.skills], problems=problems)


def _skill_info(skill: Skill) -> SkillInfo:
    here = isinstance(skill.files, HostFolder)  # its path on this machine is not shown
    path = f"{COPIES}/{slugify(skill.name)}/{FILE}" if here else skill.path
    return SkillInfo(name=skill.name, description=skill.description, path=path, enabled=skill.enabled)
