"""Registry of the server's agents: templates, and an instance of a template for each user.

    instance = await registry.get_agent(user, "coder")
    result = await instance.agent.run("Hello", user=user.id, thread="th_1")

An instance is rebuilt when its file, an override, a registered tool or a grant has changed. A run keeps the instance
that it started with; the next run gets the new one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

import orjson

from wick._internal.frozen import canonical_json, digest
from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent
from wick.config import Config
from wick.config.provider_models import list_environment_models
from wick.config.secrets import find_secrets
from wick.errors import ConfigError
from wick.protocols import Store
from wick.server.agents.builder import AgentBuilder, AgentInstance
from wick.server.agents.config_watcher import ConfigWatcher
from wick.server.agents.http_tools import RegisteredTool, ToolRegistry
from wick.server.agents.locality import Locality
from wick.server.agents.overrides import Overrides
from wick.server.agents.provider_keys import ProviderKeys
from wick.server.agents.run_sessions import RunSessions
from wick.server.agents.templates import (
    EVERYONE,
    AgentFactory,
    AgentTemplate,
    check_id,
    find_field_problems,
    is_valid_id,
    template_from_code,
    template_from_request,
    templates_from_config,
    validate_options,
)
from wick.server.agents.workspaces import Workspaces, private_files
from wick.server.auth.identity import User
from wick.server.errors import ApiError, not_found
from wick.server.ops.event_bus import EventBus
from wick.server.ops.redaction import NO_SECRETS, Redaction, Secrets
from wick.server.records import Records
from wick.server.records.counters import RecordCounters
from wick.server.settings import Settings
from wick.server.static_files import page_folder
from wick.tools import Tool

logger = logging.getLogger("wick.server")

AGENT, OVERRIDE, GRANT, CLAIM = "agent", "override", "grant", "agent_claim"  # kinds of records
CLAIM_SECONDS = 60.0  # longer than it takes to store an agent
ModelSource = Literal["key", "environment", "config"]
QUESTION_SECONDS = 300.0  # a question waits this long before its run pauses
IDLE_SECONDS = 1_800.0  # after which an unused instance is closed
RETIRED_SECONDS = 30.0  # for a run that was just given an instance to start
MAX_INSTANCES = 1_000
SWEEP_SECONDS = 1.0
MAX_CHECKED_AGENTS = 100  # agents of the file that are checked at the start


class AgentRegistry:
    """Templates and instances of the server's agents."""

    def __init__(
        self, settings: Settings, records: Records, store: Store, bus: EventBus, secrets: Secrets = NO_SECRETS
    ) -> None:
        secrets = Secrets() if secrets is NO_SECRETS else secrets
        self.settings, self.records, self.bus, self.secrets = settings, records, bus, secrets
        self.sessions = RunSessions(store, patience=QUESTION_SECONDS, answer_within=settings.answer_within)
        jwks = settings.jwt.jwks if settings.jwt is not None else ""
        named_files = private_files(
            settings.data.absolute(),
            (settings.file, "the server's settings"),
            (None if not jwks or jwks.startswith("https://") else Path(jwks), "the keys of sign-ins"),
            (page_folder(settings.static), "the page of the server"),
            (settings.snapshot_folder, "the snapshots of the server"),
        )
        self.workspaces = Workspaces(
            settings.data, records, named_files, settings.config, settings.quotas, settings.snapshots
        )
        self.locality = Locality(store, self.workspaces)
        self.toolbox = ToolRegistry(records)
        self.provider_keys = ProviderKeys(settings, records, secrets)
        counters = RecordCounters(records) if settings.on_postgres else None
        self._builder = AgentBuilder(self.locality, self.toolbox, self.sessions, Redaction(secrets), counters)
        self._enforced = validate_options("enforced", {}, settings.data.absolute(), settings.enforced).options
        self._code_templates: dict[str, AgentTemplate] = {}
        self._file_templates: dict[str, AgentTemplate] = {}
        self._instances: OrderedDict[tuple[str, str], AgentInstance] = OrderedDict()
        self._retired: set[AgentInstance] = set()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._tasks: list[asyncio.Task[None]] = []
        self._watcher: ConfigWatcher | None = None

    def __len__(self) -> int:
        """Return the number of agents that all users have."""
        return len(self._file_templates.keys() | self._code_templates.keys())

    def count_instances(self) -> int:
        """Return the number of agents that are built, one for each user."""
        return len(self._instances)

    # -- registration by a program ------------------------------------------------------------------------------------

    def register_agent(self, id: str, given: Mapping[str, Any] | Agent | AgentFactory) -> None:
        """Add an agent: options as in agents.yaml, an Agent, or a function that creates one for a user."""
        template = replace(template_from_code(id, given, self.settings.data.absolute()), enforced=self._enforced)
        self._code_templates[id] = template
        # the budgets of a function's agents may be of one user or of all, so they are not shared
        objects = [hook.owner for hook in given.hooks] if isinstance(given, Agent) else template.hooks
        self._builder.share_budgets(id, objects)
        self.secrets.learn(find_secrets(self._code_templates[id].options))

    def register_tool(self, given: Tool | Callable[..., Any]) -> None:
        """Add a tool that agents may name."""
        self.toolbox.register(given)

    # -- start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the config file and start the background tasks; raise a ConfigError if the file is not valid."""
        await self.workspaces.start()
        await self.locality.start()
        if self.settings.config is not None:
            self._watcher = ConfigWatcher(self.settings.config, self._check_config)
            self._file_templates = self._load_templates(await self._watcher.read())
        else:
            await run_in_thread(lambda: self.workspaces.collect_files(self._code_templates.values()), "check")
        await run_in_thread(
            lambda: [self._check_workspace(template) for template in self._code_templates.values()], "check"
        )
        background: dict[str, Coroutine[Any, Any, None]] = {
            "sweep": self._sweep_forever(),
            "reap": self.workspaces.reap(),
        }
        if self._watcher is not None:
            # For operators only: the message may name host folders.
            background["reload"] = self._watcher.watch(
                self._on_reload, lambda message: self.bus.publish("config_error", {"message": message}, operators=True)
            )
        self._tasks = [asyncio.create_task(work, name=name) for name, work in background.items()]

    async def find_problems(self, user: User) -> dict[str, str]:
        """Return why agents of the file cannot be built, by agent id."""
        templates = [*self._file_templates.values()][:MAX_CHECKED_AGENTS]
        registered = await self.toolbox.list_registered(user)
        found = await run_in_thread(
            lambda: {one.id: self._builder.find_problem(one, registered) for one in templates}, "check"
        )
        return {id: problem for id, problem in found.items() if problem}

    async def stop(self) -> None:
        """Stop the background tasks, and close all instances with their commands, containers and connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        there = [*self._instances.values(), *self._retired]
        self._instances.clear()
        self._retired.clear()
        await asyncio.gather(*(self._close(instance) for instance in there))
        await self._builder.stop()
        await self.workspaces.stop()

    def _check_config(self, config: Config) -> bool:
        """Raise a ConfigError if this config cannot be served; return True if its file is in a workspace."""
        found, before = templates_from_config(config), self.workspaces.named_files
        self.workspaces.collect_files([*found.values(), *self._code_templates.values()])
        try:
            held = [self._check_workspace(template) for template in found.values()]  # every one is checked
        except ConfigError:
            self.workspaces.named_files = before
            raise
        return any(held)

    def _check_workspace(self, template: AgentTemplate) -> bool:
        try:
            return self.workspaces.check(template)
        except ConfigError as error:
            raise ConfigError(f"the agent {template.id!r} cannot be served: {error}") from None

    def _load_templates(self, config: Config) -> dict[str, AgentTemplate]:
        """Return the templates of a config, and redact its API keys from now on."""
        found = {
            id: replace(template, enforced=self._enforced) for id, template in templates_from_config(config).items()
        }
        self.secrets.learn(secret for template in found.values() for secret in find_secrets(template.options))
        return found

    def _on_reload(self, config: Config) -> None:
        """Replace the templates of the file, and publish the added, removed and changed ones with the changed keys."""
        before, after = self._file_templates, self._load_templates(config)
        self._file_templates = after
        changed = {
            id: sorted(key for key in {*before[id].options, *after[id].options}
                       if before[id].options.get(key) != after[id].options.get(key))
            for id in sorted(before.keys() & after.keys()) if before[id].version != after[id].version
        }  # fmt: skip
        added, removed = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
        if added or removed or changed:
            self.bus.publish("config_reloaded", {"added": added, "removed": removed, "changed": changed})

    # -- agents -------------------------------------------------------------------------------------------------------

    async def list_templates(self, user: User) -> list[AgentTemplate]:
        """Return the templates of a user: shared ones and the user's own."""
        rows = [*await self.records.list(AGENT, EVERYONE), *await self.records.list(AGENT, user.id)]
        found = {row.id: self._template_from_record(row.owner, row.id, row.data) for row in rows}
        return [*{**found, **self._code_templates, **self._file_templates}.values()]

    async def list_ids(self, user: User) -> list[str]:
        return sorted(template.id for template in await self.list_templates(user))

    async def get_template(self, user: User, id: str) -> AgentTemplate:
        """Return a template of a user; raise a 404 if it does not exist or belongs to another user."""
        if found := self._file_templates.get(id) or self._code_templates.get(id):
            return found
        for owner in (EVERYONE, user.id) if is_valid_id(id) else ():
            if (data := await self.records.get(AGENT, owner, id)) is not None:
                return self._template_from_record(owner, id, data)
        raise not_found(f"agent {id[:100]!r}")

    def _template_from_record(self, owner: str, id: str, data: Mapping[str, Any]) -> AgentTemplate:
        template = template_from_request(id, data["options"], self.settings.data.absolute(), owner)
        return replace(template, enforced=self._enforced)

    async def create(self, user: User, id: str, options: Mapping[str, Any], *, shared: bool) -> AgentTemplate:
        """Store an agent that a user created. The caller checks its options against the HTTP policy."""
        check_json(options)
        check_id(id)
        owner = EVERYONE if shared else user.id
        template = self._template_from_record(owner, id, {"options": options})
        await run_in_thread(lambda: self._check_template(template), "check")
        taken = (
            id in self._file_templates
            or id in self._code_templates
            or await self.records.get(AGENT, EVERYONE, id) is not None
        )
        data = {"options": dict(options), "by": user.id, "created": time.time(), "revision": 1}
        if taken or not await self.records.put(AGENT, owner, id, data, new=True):
            raise ApiError(409, "conflict", f"there is an agent {id!r} already; choose another id")
        self.bus.publish("agent_created", {"agent_id": id}, None if shared else user.id)
        return template

    def _check_template(self, template: AgentTemplate) -> None:
        """Raise an error with the fields of a template that are not valid."""
        if problems := find_field_problems(template):
            message = "; ".join(problems.values())
            raise ApiError(400, "invalid", f"the agent {template.id!r} is not valid: {message}", fields=problems)
        self.workspaces.check(template)

    async def get_revision(self, template: AgentTemplate) -> int:
        """Return the number of times that an agent was stored; 0 if it was not created over HTTP."""
        row = await self.records.get(AGENT, template.owner, template.id) if template.origin == "created" else None
        return 0 if row is None else int(row.get("revision", 1))

    def explain_no_edit(self, user: User, template: AgentTemplate) -> str:
        """Return why a user may not change an agent, or an empty text."""
        if template.origin != "created":
            where = "agents.yaml" if template.origin == "file" else "a program"
            return f"the agent {template.id!r} is defined in {where}; change it there, or make a copy of it here"
        editors = self.settings.agent_editors
        if template.owner == EVERYONE and not user.has_role(editors):
            return f"an agent that everyone has is changed by the role {editors}"
        return ""

    async def replace(self, user: User, id: str, options: Mapping[str, Any], revision: int) -> AgentTemplate:
        """Replace the options of an agent that was created over HTTP, if it can be built with them.

        Raise a 409 unless `revision` is the stored one. Hidden values keep the stored ones. The caller checks the
        options against the HTTP policy.
        """
        old = await self.get_template(user, id)
        if problem := self.explain_no_edit(user, old):
            raise ApiError(403 if old.origin == "created" else 409, "not_allowed", problem)
        check_json(options)
        row = await self.records.get(AGENT, old.owner, id) or {}
        data = {**row, "options": dict(options), "by": user.id, "revision": revision + 1}
        template = self._template_from_record(old.owner, id, data)
        await run_in_thread(lambda: self._check_template(template), "check")
        overrides = await self.get_overrides(user, id)
        await self._close(await self._builder.build(user, *await self._prepare(user, template, overrides)))
        # of several servers that replace the same revision, one creates this record
        claim = f"{old.owner} {id} {row.get('created')} {revision}"
        if int(row.get("revision", 1)) != revision or not await self.records.put(
            CLAIM, "", claim, {}, new=True, until=time.time() + CLAIM_SECONDS
        ):
            message = "the agent has been changed in the meantime; open it again, and repeat your change"
            raise ApiError(409, "conflict", message)
        await self.records.put(AGENT, old.owner, id, data)
        self.secrets.learn(find_secrets(options))
        self.bus.publish("agent_changed", {"agent_id": id}, None if old.owner == EVERYONE else user.id)
        return template

    async def delete(self, user: User, id: str, *, files: bool) -> None:
        """Delete an agent that was created over HTTP, with its overrides and, if `files`, this user's workspace."""
        template = await self.get_template(user, id)
        if template.origin != "created":
            raise ApiError(409, "conflict", f"the agent {id!r} is set up by the server's config; delete it there")
        if template.owner == EVERYONE and not user.has_role("operator"):
            raise ApiError(403, "not_allowed", "an agent that everyone has is deleted by an operator")
        await self.records.delete(AGENT, template.owner, id)
        for owner in {user.id, template.owner}:  # a later agent with this id must not get its overrides and grants
            await self.records.delete(OVERRIDE, owner, id)
        for row in await self.records.list(GRANT, user.id):
            if row.data["agent"] == id:
                await self.records.delete(GRANT, user.id, row.id)
        for key in [key for key in self._instances if key[1] == id and template.owner in (EVERYONE, key[0])]:
            retired = self._retire(key)
            if retired is not None and not retired.uses:
                await self._discard(retired)
        if files:
            await self.workspaces.delete_files(template, user.id)
            await self.locality.forget(user.id, id)
        self.bus.publish("agent_deleted", {"agent_id": id}, None if template.owner == EVERYONE else user.id)

    async def get_agent(self, user: User, id: str) -> AgentInstance:
        """Return this user's instance of an agent. Build it if it does not exist or its options have changed."""
        key, template = (user.id, id), self._file_templates.get(id) or self._code_templates.get(id)
        records_version = await self.records.version()  # before the records are read
        found = self._instances.get(key)
        if found is None or not found.is_current(records_version, template):
            async with self._locks.setdefault(key, asyncio.Lock()):  # concurrent requests share the reads and the build
                found = self._instances.get(key)
                if found is None or not found.is_current(records_version, template):
                    overrides = await self.get_overrides(user, id)
                    draft = await self._prepare(user, await self.get_template(user, id), overrides)
                    if found is None or found.version != draft[0].version:
                        found = await self._builder.build(user, *draft)
                        self._retire(key)
                        self._instances[key] = found
                    found.records_version, found.seen_template = records_version, template
        self._instances.move_to_end(key)
        found.used_at = time.monotonic()
        return found

    async def is_local(self, user: User, id: str) -> bool:
        """Return True if the files of a user's agent are in a folder that the server creates on this machine."""
        template, found = await self.get_template(user, id), self._instances.get((user.id, id))
        if template.factory is not None:
            return False
        is_current = found is not None and found.records_version == await self.records.version()
        overrides = found.overrides if found is not None and is_current else await self.get_overrides(user, id)
        return self.workspaces.is_local(template, overrides, user.id)

    async def _prepare(
        self, user: User, template: AgentTemplate, overrides: Overrides
    ) -> tuple[AgentInstance, list[RegisteredTool], list[Any]]:
        """Return an unbuilt instance with its tools and grants. Its version is a digest of all of them."""
        registered = await self.toolbox.list_registered(user)
        grants = [*(await self.list_grants(user, template.id)).values()]
        tools = [(one.name, one.data) for one in registered]
        keys = await self.provider_keys.load()
        parts = [template.version, template.owner, overrides.to_json(), tools, grants, keys.version]
        version = digest(canonical_json(parts))
        instance = AgentInstance(template.id, user.id, template, overrides, version, self.sessions, keys=keys)
        return instance, registered, grants

    async def list_models(self) -> dict[str, ModelSource]:
        """Return the models that a run may use in place of its agent's own, each with its source."""
        found: dict[str, ModelSource] = dict.fromkeys(self.settings.models, "config")
        for key in (await self.provider_keys.load()).by_provider.values():
            found |= {name: "key" for name in key.names if name not in found}
        for provider, model in list_environment_models():
            found.setdefault(f"{provider}:{model}", "environment")
        return found

    async def check_model_choice(self, name: str) -> None:
        """Raise a 403 if a run may not use this model."""
        known = await self.list_models()
        if name not in known:
            choices = f"choose one of {', '.join(known)}" if known else "an admin adds models in the settings"
            message = f"the model {name[:100]!r} is not allowed here; {choices}"
            raise ApiError(403, "not_allowed", message, fields={"model": message})

    def _retire(self, key: tuple[str, str]) -> AgentInstance | None:
        """Remove an instance from the registry. Runs that use it keep it until it is swept."""
        old = self._instances.pop(key, None)
        if old is not None:
            self._retired.add(old)
        return old

    # -- overrides and grants -----------------------------------------------------------------------------------------

    async def get_overrides(self, user: User, id: str) -> Overrides:
        """Return the overrides of a user, merged over those for all users."""
        own = Overrides.from_json(await self.records.get(OVERRIDE, user.id, id))
        return own.apply_over(Overrides.from_json(await self.records.get(OVERRIDE, EVERYONE, id)))

    async def change_overrides(
        self, user: User, id: str, change: Callable[[Overrides], Overrides], *, everyone: bool = False
    ) -> None:
        """Store changed overrides if the agent can be built with them. They apply from the next run on."""
        template, owner = await self.get_template(user, id), EVERYONE if everyone else user.id
        if template.factory is not None:
            raise ApiError(409, "conflict", f"the agent {id!r} is made by a program; change it there")
        async with self._locks.setdefault((owner, f"change {id}"), asyncio.Lock()):
            changed = change(Overrides.from_json(await self.records.get(OVERRIDE, owner, id)))
            check_json(changed.to_json())
            other = Overrides.from_json(await self.records.get(OVERRIDE, user.id if everyone else EVERYONE, id))
            merged = other.apply_over(changed) if everyone else changed.apply_over(other)
            await self._close(await self._builder.build(user, *await self._prepare(user, template, merged)))
            await self.records.put(OVERRIDE, owner, id, changed.to_json())

    @asynccontextmanager
    async def try_overrides(
        self, user: User, id: str, change: Callable[[AgentTemplate, Overrides], Overrides]
    ) -> AsyncIterator[AgentInstance]:
        """Build an agent with changed overrides while the context is open. Nothing is stored."""
        template, overrides = await self.get_template(user, id), await self.get_overrides(user, id)
        if template.factory is not None:
            raise ApiError(409, "conflict", f"the agent {id!r} is made by a program; try changes there")
        instance = await self._builder.build(user, *await self._prepare(user, template, change(template, overrides)))
        try:
            yield instance
        finally:
            await self._close(instance)

    async def grant(self, user: User, id: str, rule: Mapping[str, Any]) -> None:
        """Store that a user always allows exactly this tool use, for one agent."""
        if rule.get("operation", "tool_use") != "tool_use" or not isinstance(rule.get("args"), Mapping):
            return  # only tool uses can be granted
        await self.records.put(GRANT, user.id, digest(canonical_json([id, rule])), {"agent": id, "rule": dict(rule)})
        self._publish_grants(user, id)

    async def list_grants(self, user: User, id: str) -> dict[str, Mapping[str, Any]]:
        """Return the grants of a user for an agent, by grant id."""
        rows = await self.records.list(GRANT, user.id)
        return {row.id: row.data["rule"] for row in rows if row.data["agent"] == id}

    async def revoke(self, user: User, id: str, grant: str) -> bool:
        """Delete a grant; return False if it does not exist."""
        row = await self.records.get(GRANT, user.id, grant)
        if row is None or row["agent"] != id or not await self.records.delete(GRANT, user.id, grant):
            return False
        self._publish_grants(user, id)
        return True

    def _publish_grants(self, user: User, id: str) -> None:
        self.bus.publish("hooks_changed", {"agent_id": id, "hooks": ["permissions"], "reordered": False}, user.id)

    # -- closing instances --------------------------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self._sweep()
            except Exception:
                logger.exception("sweeping agents failed; retrying")

    async def _sweep(self) -> None:
        """Close unused instances, and publish changed workspace statuses."""
        for instance in self._instances.values():
            place = instance.workspace
            if place is not None and place.backend.status != place.reported:
                place.reported = place.backend.status
                change = {"agent_id": instance.id, "status": place.reported.state, "reason": place.reported.reason}
                self.bus.publish("container_status", change, instance.user_id)
        now, over, idle = time.monotonic(), len(self._instances) - MAX_INSTANCES, list[tuple[str, str]]()
        for number, (key, instance) in enumerate(self._instances.items()):
            old = now - instance.used_at > IDLE_SECONDS
            if (old or number < over) and not instance.uses:
                backend = instance.backend
                if backend is None or not any(job["running"] for job in await backend.jobs()):
                    idle.append(key)
        for key in idle:
            self._retire(key)
        since = time.monotonic() - RETIRED_SECONDS
        for instance in [one for one in self._retired if not one.uses and one.used_at <= since]:
            await self._discard(instance)

    async def _discard(self, instance: AgentInstance) -> None:
        self._retired.discard(instance)
        await self._close(instance)

    async def _close(self, instance: AgentInstance) -> None:
        async with AsyncExitStack() as ending:  # closes all parts even if one fails
            if instance.workspace is not None:
                ending.push_async_callback(self.workspaces.close, instance.workspace)
            for part in instance.config.resources if instance.config is not None else ():
                if end := getattr(part, "close", None) or getattr(part, "stop", None):
                    ending.push_async_callback(end)


def check_json(data: Mapping[str, Any]) -> None:
    """Raise a 422 if data cannot be stored as JSON: a lone surrogate, or an integer over 64 bits."""
    try:
        orjson.dumps(data)
    except TypeError as error:
        raise ApiError(422, "invalid", f"this cannot be stored as JSON: {error}") from None
