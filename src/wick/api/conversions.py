"""Conversions of agents, tools, threads and questions to the types of the HTTP API.

The routes of the server and the local host of the command line use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from wick._internal.frozen import thaw
from wick.agent import Agent
from wick.api.types import (
    Approval,
    BackendInfo,
    ChangedVerdict,
    HookRing,
    InvalidSkill,
    OperationRings,
    ProtectionInfo,
    ShellCommands,
    SkillInfo,
    SkillList,
    ThreadInfo,
    ToolInfo,
)
from wick.capabilities.executables import Executables
from wick.capabilities.skills.catalog import Catalogue
from wick.capability import Capability
from wick.config.builder import BUILTIN
from wick.hooks import Hook, order_rings, parse_patterns
from wick.operations import OPERATIONS
from wick.protocols import Backend, Summary
from wick.replay import Change

QUESTION_KEYS = ("id", "question", "run", "operation", "tool", "call_id", "args", "hash", "expires")


def make_thread_info(head: Summary) -> ThreadInfo:
    """Return the description of a thread."""
    return ThreadInfo(
        id=head.id,
        title=head.title,
        agent_id=str(head.meta.get("agent", "")),
        meta={key: thaw(value) for key, value in head.meta.items() if key not in ("agent", "parent")},
        created=head.created,
        updated=head.updated,
        last=head.last,
        run_id=head.run,
        running=head.leased,
        asking=head.asking,
        queued=head.queued,
    )


def make_approval(
    head: Summary,
    question: Mapping[str, Any],
    agent: str,
    shell: ShellCommands | None = None,
    rules: Sequence[str] = (),
) -> Approval:
    """Return a pending question of a thread."""
    known = {key: question[key] for key in QUESTION_KEYS if key in question}
    about = {key: value for key, value in question.items() if key not in QUESTION_KEYS}
    thread = {"thread_id": head.id, "agent_id": agent, "title": head.title}
    more = {"about": about, "shell": shell, "rules": [*rules]}
    return Approval.model_validate({**known, **thread, "run_id": known.pop("run", ""), **more})


def list_tools(agent: Agent) -> list[ToolInfo]:
    """Return the tools of an agent, with their sources."""
    owners = {id(hook.owner): hook.owner for hook in agent.hooks if isinstance(hook.owner, Capability)}
    sources = {tool.name: owner.name for owner in owners.values() for tool in owner.tools()}
    return [
        ToolInfo(
            name=tool.name,
            description=tool.description,
            kind=tool.kind,
            read_only=tool.read_only,
            source=sources.get(tool.name, "builtin" if tool.name in BUILTIN else "server"),
            parameters=dict(tool.parameters),
        )
        for tool in agent.tools
    ]


def make_skill_list(*catalogues: Catalogue) -> SkillList:
    """Return the skills of catalogues, and their invalid files."""
    skills = [
        SkillInfo(name=skill.name, description=skill.description, path=skill.path, enabled=skill.enabled)
        for catalogue in catalogues
        for skill in catalogue.skills
    ]
    problems = [
        InvalidSkill(path=problem.path, reason=problem.reason)
        for catalogue in catalogues
        for problem in catalogue.problems
    ]
    return SkillList(skills=skills, problems=problems)


def make_backend_info(backend: Backend, sandbox_url: str | None = None) -> BackendInfo:
    """Return the state and the protection of a backend."""
    protection, status = backend.protection, backend.status
    return BackendInfo(
        mode="remote" if backend.name == "docker" else "local",
        sandbox_url=sandbox_url,
        type=backend.name,
        workdir=backend.workdir,
        status=status.state,
        reason=status.reason,
        protection=ProtectionInfo(level=protection.level, by=protection.by, says=protection.says, asks=protection.asks),
    )


def list_operation_rings(agent: Agent) -> list[OperationRings]:
    """Return the hooks of an agent, operation by operation."""
    operations = []
    for operation in OPERATIONS:
        hooks = order_rings(agent.hooks, operation)
        rings = _list_rings(agent, (hook for hook in hooks if hook.position != "guard"))
        guards = _list_rings(agent, (hook for hook in hooks if hook.position == "guard"))
        operations.append(OperationRings(operation=operation.operation_name, rings=rings, guards=guards))
    return operations


def _list_rings(agent: Agent, hooks: Iterable[Hook]) -> list[HookRing]:
    programs = [part for part in agent.capabilities if isinstance(part, Executables)]
    rings = []
    for hook in hooks:
        program, is_program, _ = hook.name.partition("@")
        source = f"program {program}" if is_program else "code"
        rings.append(
            HookRing(
                hook=hook.name,
                capability=getattr(hook.owner, "name", None),
                source=source if hook.owner is None else str(hook.owner.name),
                position=hook.position,
                point=hook.point,
                match=None if callable(hook.match) else [*parse_patterns(hook.match)],
                priority=hook.priority if isfinite(hook.priority) else None,
                timeout=hook.timeout,
                inherit=hook.inherit or hook.position == "guard",
                shadow=hook.shadow,
                fail="open" if hook.on_error == "log" or any(part.fails_open(hook) for part in programs) else "closed",
            )
        )
    return rings


def make_changed_verdict(change: Change, titles: Mapping[str, str]) -> ChangedVerdict:
    """Return a change of a replay, with the title of its thread."""
    names = ("seq", "call_id", "tool", "args", "recorded", "now", "reason")
    fields = {name: getattr(change, name) for name in names}
    return ChangedVerdict(thread_id=change.thread, title=titles.get(change.thread, ""), **fields)
