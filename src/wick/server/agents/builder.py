"""Makes an agent of a template for one user, with all that was changed about it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from wick._internal.aliases import resolve_tool_name
from wick._internal.frozen import canonical_json, digest
from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent
from wick.backends.state import State
from wick.capabilities.budget import Budget
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.sessions import Sessions
from wick.capability import Capability
from wick.config.builder import BUILTIN, AgentConfig
from wick.operations import Run
from wick.protocols import Backend
from wick.server.agents.http_tools import Kept, Registered, Toolbox
from wick.server.agents.overrides import Overrides
from wick.server.agents.templates import Template, checked, rebuilt
from wick.server.agents.workspaces import Place, Places
from wick.server.auth.identity import User
from wick.server.ops.redaction import Redaction


@dataclass(slots=True, eq=False)
class Instance:
    """An agent of one user, ready to run, with what belongs to it."""

    id: str
    user_id: str
    template: Template
    said: Overrides
    version: str
    sessions: Sessions
    agent: Agent = field(init=False)
    config: AgentConfig | None = None
    place: Place | None = None
    uses: int = 0
    used_at: float = field(default_factory=time.monotonic)
    missing_tools: tuple[str, ...] = ()

    @property
    def backend(self) -> Backend | None:
        """Where its files are and its commands run."""
        if self.place is not None:
            return self.place.backend
        owners = (hook.owner for hook in self.agent.hooks)
        return next((owner.backend for owner in owners if isinstance(owner, Filesystem)), None)

    @contextmanager
    def using(self) -> Iterator[Instance]:
        """Keep it from being ended."""
        self.uses += 1
        try:
            yield self
        finally:
            self.uses -= 1
            self.used_at = time.monotonic()


class InUse(Capability):
    """Keeps an agent and its workspace from being ended while a run uses them."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @asynccontextmanager
    async def session(self, run: Run) -> AsyncIterator[None]:
        with self._instance.using():
            yield


class Building:
    """Makes agents; budgets, which are one for everyone, are made once."""

    def __init__(self, places: Places, toolbox: Toolbox, sessions: Sessions, redaction: Redaction) -> None:
        self.places, self.toolbox, self.sessions, self.redaction = places, toolbox, sessions, redaction
        self._budgets: dict[tuple[str, str], Budget] = {}

    async def build(self, user: User, instance: Instance, kept: Sequence[Kept], grants: Sequence[Any]) -> Instance:
        """Give an instance its agent, and the place where that works."""
        template = instance.template
        if make := template.make:
            await run_in_thread(_load, "agent")
            made = await run_in_thread(lambda: make(user), "agent")
            own = {name for tool in made.tools for name in tool.names}  # a program's own tool stays what it is
            tools = [tool for tool in self.toolbox.chosen(template.id, (), kept) if own.isdisjoint(tool.names)]
            around = (InUse(instance), Registered(tools), self.sessions, self.redaction)
            instance.agent = await run_in_thread(lambda: made.with_hooks(*around), "agent")
            return instance
        wanted = await run_in_thread(lambda: self.places.wanted(template, instance.said, user.id), "workspace")
        instance.place = await self.places.open(wanted)
        try:
            await run_in_thread(lambda: self._build(instance, kept, grants), "agent")
        except BaseException:
            if instance.place is not None:
                await self.places.close(instance.place)
            raise
        return instance

    def problem(self, template: Template, kept: Sequence[Kept]) -> str:
        """Return why no agent can be built of a template, or nothing. No place is opened for that."""
        if template.make is not None:
            return ""
        instance = Instance(template.id, "", template, Overrides(), "", self.sessions)
        try:
            self._build(instance, kept, (), State() if template.options.get("backend") else None)
        except Exception as error:  # code of the file may raise anything; the server starts all the same
            return str(error) or repr(error)
        return ""

    def _build(
        self, instance: Instance, kept: Sequence[Kept], grants: Sequence[Any], backend: Backend | None = None
    ) -> None:
        _load()
        template, backend = instance.template, instance.place.backend if instance.place is not None else backend
        config = options(template, instance.said, grants, backend is not None and backend.name != "state")
        tools = self.toolbox.chosen(template.id, config.options.get("tools", ()), kept)
        known, instance.missing_tools = _known(config.options, {tool.name for tool in tools})
        registered = Registered([*template.tools, *tools])
        given = {"in_use": InUse(instance), "registered": registered, "sessions": self.sessions}
        given |= self._budget(template, config)
        instance.config = rebuilt(config, {**known, "sessions": True, "backend": False}, instance.said.order, given)
        agent = instance.config.agent(model=template.model, backend=backend)
        instance.agent = agent.with_hooks(*template.hooks, self.redaction)

    def _budget(self, template: Template, config: AgentConfig) -> dict[str, Capability]:
        """A budget is kept for as long as it stays the same: building an agent again is no way to a new one."""
        said = config.options.get("budget")
        if not isinstance(said, Mapping):
            return {}
        key = ("" if template.shares_budget else template.id, digest(canonical_json(said)))
        if key not in self._budgets:
            self._budgets[key] = Budget(**said)
        return {"budget": self._budgets[key]}


def _load() -> None:
    """What a model's client asks with; it is loaded here, where nobody else waits, and not when a run first asks."""
    import aiohttp  # noqa: F401


def options(template: Template, said: Overrides, grants: Sequence[Any] = (), has_folder: bool = True) -> AgentConfig:
    """What is said about an agent, with all that was changed about it; a ConfigError if that does not go together."""
    config = checked(template.id, template.options, template.folder, said.hooks)
    found = dict(config.options)
    if "skills" in found:
        found["skills"] = said.skill_options(found["skills"], has_folder)
    if found.get("permissions"):
        rules: dict[str, Any] = {} if found["permissions"] is True else found["permissions"]
        found["permissions"] = {**rules, "grants": [*rules.get("grants", ()), *grants]}
    return AgentConfig(config.file, config.id, found, ((),))


def _known(options: Mapping[str, Any], brought: set[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options with the tools that can be found; those of the server are brought by themselves."""
    named = [one for one in options.get("tools", ()) if not isinstance(one, str) or one not in brought]
    missing = [
        one for one in named if isinstance(one, str) and ":" not in one and resolve_tool_name(one) not in BUILTIN
    ]
    if missing:  # to look for what is installed takes a while
        installed = {point.name for point in entry_points(group="wick.tools")}
        missing = [one for one in missing if one not in installed]
    return {**options, "tools": [one for one in named if one not in missing]}, tuple(missing)
