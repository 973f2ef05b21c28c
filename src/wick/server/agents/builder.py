"""Builds the agent of one user from a template and its overrides."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from wick._internal.aliases import resolve_tool_name
from wick._internal.frozen import canonical_json, digest
from wick._internal.plugins import find_plugins
from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent
from wick.backends.state import State
from wick.capabilities.budget import Budget, Counters
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.sessions import Sessions
from wick.capability import Capability
from wick.config.builder import BUILTIN, AgentConfig
from wick.operations import Run
from wick.protocols import Backend
from wick.server.agents.http_tools import Registered, RegisteredTool, ToolRegistry
from wick.server.agents.locality import Locality, WorkspaceMove
from wick.server.agents.overrides import Overrides
from wick.server.agents.provider_keys import StoredKeys
from wick.server.agents.templates import AgentTemplate, add_enforced, rebuild_config, validate_options
from wick.server.agents.workspaces import WorkspaceMount, Workspaces
from wick.server.auth.identity import User
from wick.server.ops.redaction import Redaction


@dataclass(slots=True, eq=False)
class AgentInstance:
    """A built agent of one user, with its template, overrides and workspace."""

    id: str
    user_id: str
    template: AgentTemplate
    overrides: Overrides
    version: str
    sessions: Sessions
    agent: Agent = field(init=False)
    config: AgentConfig | None = None
    workspace: WorkspaceMount | None = None
    uses: int = 0
    used_at: float = field(default_factory=time.monotonic)
    missing_tools: tuple[str, ...] = ()
    shared_budgets: tuple[Budget, ...] = ()
    records_version: str = ""  # of the records with which `version` was compared last
    seen_template: AgentTemplate | None = None  # of a file or a program, at that time
    keys: StoredKeys = StoredKeys()
    _variants: dict[str, Agent] = field(default_factory=dict)  # the agent with other models

    def is_current(self, records_version: str, template: AgentTemplate | None) -> bool:
        """Return True if it was last compared with these records and this template."""
        return self.records_version == records_version and self.seen_template is template

    @property
    def backend(self) -> Backend | None:
        """The backend of its workspace, or of its Filesystem capability."""
        if self.workspace is not None:
            return self.workspace.backend
        owners = (hook.owner for hook in self.agent.hooks)
        return next((owner.backend for owner in owners if isinstance(owner, Filesystem)), None)

    def with_model(self, name: str) -> Agent:
        """Return the agent with another model, which answers one run; without a name, the agent itself."""
        if not name:
            return self.agent
        if name not in self._variants:
            self._variants[name] = self.agent.with_options(model=self.keys.fill_spec(name))
        return self._variants[name]

    @contextmanager
    def hold(self) -> Iterator[AgentInstance]:
        """Keep the instance from being closed while the context is open."""
        self.uses += 1
        try:
            yield self
        finally:
            self.uses -= 1
            self.used_at = time.monotonic()


class InUse(Capability):
    """Capability that keeps an instance and its workspace open while a run uses them."""

    def __init__(self, instance: AgentInstance) -> None:
        self._instance = instance

    @asynccontextmanager
    async def session(self, run: Run) -> AsyncIterator[None]:
        with self._instance.hold():
            try:
                yield
            finally:
                for budget in self._instance.shared_budgets:
                    await budget.release()


class AgentBuilder:
    """Builds agents. Budgets are shared by all users, so each is created once."""

    def __init__(
        self,
        locality: Locality,
        toolbox: ToolRegistry,
        sessions: Sessions,
        redaction: Redaction,
        counters: Counters | None = None,
    ) -> None:
        self.locality, self.workspaces = locality, locality.workspaces
        self.toolbox, self.sessions, self.redaction = toolbox, sessions, redaction
        self._budgets: dict[tuple[str, str], Budget] = {}
        self._counters = counters  # those of all servers of the database, if there can be several
        self._shared_budgets: list[Budget] = []

    def share_budgets(self, id: str, capabilities: Iterable[object]) -> None:
        """Share the budgets of an agent with the servers whose agent of this id has the same budgets.

        A budget of several agents gets the id of the one that was registered first.
        """
        if self._counters is None:
            return
        budgets = dict.fromkeys(one for one in capabilities if isinstance(one, Budget))
        for number, budget in enumerate(budgets):
            if not budget.is_shared:
                options = [number, budget.name, budget.tokens, str(budget.dollars), budget.reserve]
                budget.share(self._counters, f"budget/{id}/{digest(canonical_json(options))}")
                self._shared_budgets.append(budget)

    async def stop(self) -> None:
        """Return the unspent parts of shared budgets."""
        for budget in self._shared_budgets:
            await budget.unshare()
        self._shared_budgets.clear()

    async def build(
        self, user: User, instance: AgentInstance, registered: Sequence[RegisteredTool], grants: Sequence[Any]
    ) -> AgentInstance:
        """Create the agent of an instance and open its workspace."""
        template = instance.template
        if make := template.factory:
            await run_in_thread(import_http_client, "agent")
            built = await run_in_thread(lambda: make(user), "agent")
            # registered tools do not replace the program's own
            own = {name for tool in built.tools for name in tool.names}
            tools = [
                tool for tool in self.toolbox.select_tools(template.id, (), registered) if own.isdisjoint(tool.names)
            ]
            around = (InUse(instance), Registered(tools), self.sessions, self.redaction)
            instance.agent = await run_in_thread(lambda: built.with_hooks(*around), "agent")
            instance.shared_budgets = _find_shared_budgets(instance.agent)
            return instance
        wanted = await run_in_thread(
            lambda: self.workspaces.backend_options(template, instance.overrides, user.id), "workspace"
        )
        instance.workspace = await self.workspaces.open(wanted)
        try:
            await run_in_thread(lambda: self._build(instance, registered, grants), "agent")
        except BaseException:
            if instance.workspace is not None:
                await self.workspaces.close(instance.workspace)
            raise
        return instance

    def find_problem(self, template: AgentTemplate, registered: Sequence[RegisteredTool]) -> str:
        """Return why a template cannot be built, or an empty string. No workspace is opened for this."""
        if template.factory is not None:
            return ""
        instance = AgentInstance(template.id, "", template, Overrides(), "", self.sessions)
        try:
            self._build(instance, registered, (), State() if template.options.get("backend") else None)
        except Exception as error:  # code of the file may raise anything; the server starts all the same
            return str(error) or repr(error)
        return "" if instance.agent.deps_factory is not None else instance.agent.find_deps_problem()

    def _build(
        self,
        instance: AgentInstance,
        registered: Sequence[RegisteredTool],
        grants: Sequence[Any],
        backend: Backend | None = None,
    ) -> None:
        import_http_client()
        template, backend = instance.template, instance.workspace.backend if instance.workspace is not None else backend
        config = effective_options(
            template, instance.overrides, grants, backend is not None and backend.name != "state"
        )
        tools = self.toolbox.select_tools(template.id, config.options.get("tools", ()), registered)
        known, instance.missing_tools = _split_missing_tools(config.options, {tool.name for tool in tools})
        given: dict[str, Capability] = {
            "in_use": InUse(instance),
            "registered": Registered([*template.tools, *tools]),
            "sessions": self.sessions,
        }
        budget = config.options.get("budget")
        if isinstance(budget, Mapping):  # a rebuilt agent with the same options keeps its spent budget
            key = ("" if template.shares_budget else template.id, digest(canonical_json(budget)))
            if key not in self._budgets:
                self._budgets[key] = Budget(**budget)
                self.share_budgets(key[0], [self._budgets[key]])
            given["budget"] = self._budgets[key]
        is_shared = self.locality.is_shared and Workspaces.is_local(template, instance.overrides, instance.user_id)
        if is_shared and backend is not None:
            given["workspace_move"] = WorkspaceMove(self.locality, instance.user_id, template.id, backend)
        if snapshots := config.options.get("snapshots", is_shared):  # by default on, if another server may need them
            place = self.workspaces.snapshot_options(instance.user_id, template.id)
            own = {} if snapshots is True else snapshots
            known = {**known, "snapshots": own if "folder" in own else {**place, **own}}
        known = instance.keys.fill_options(known)
        instance.config = rebuild_config(
            config, {**known, "sessions": True, "backend": False}, instance.overrides.order, given
        )
        agent = instance.config.agent(model=template.model, backend=backend)
        instance.agent = agent.with_hooks(*template.hooks, self.redaction)
        instance.shared_budgets = _find_shared_budgets(instance.agent)


def _find_shared_budgets(agent: Agent) -> tuple[Budget, ...]:
    owners = dict.fromkeys(hook.owner for hook in agent.hooks if isinstance(hook.owner, Budget))
    return tuple(budget for budget in owners if budget.is_shared)


def import_http_client() -> None:
    """Import the HTTP client of models in this worker thread, so that the first model call does not block the loop."""
    import aiohttp  # noqa: F401


def effective_options(
    template: AgentTemplate, overrides: Overrides, grants: Sequence[Any] = (), has_folder: bool = True
) -> AgentConfig:
    """Return the options of a template with its overrides and grants; raise a ConfigError if they are not valid."""
    config = validate_options(template.id, template.options, template.folder, overrides.hooks)
    options = add_enforced(config.options, template.enforced)
    if "skills" in options:
        options["skills"] = overrides.skill_options(options["skills"], has_folder)
    if options.get("permissions"):
        rules: dict[str, Any] = {} if options["permissions"] is True else options["permissions"]
        options["permissions"] = {**rules, "grants": [*rules.get("grants", ()), *grants]}
    return AgentConfig(config.file, config.id, options, ((),))


def _split_missing_tools(options: Mapping[str, Any], brought: set[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options without missing and server tools, and the names of the missing ones."""
    named = [one for one in options.get("tools", ()) if not isinstance(one, str) or one not in brought]
    missing = [
        one for one in named if isinstance(one, str) and ":" not in one and resolve_tool_name(one) not in BUILTIN
    ]
    if missing:  # reading entry points is slow
        installed = {plugin.name for plugin in find_plugins("wick.tools")}
        missing = [one for one in missing if one not in installed]
    return {**options, "tools": [one for one in named if one not in missing]}, tuple(missing)
