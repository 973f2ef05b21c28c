"""The agents of a server: templates, and of each one an agent for every user who asks for it.

    instance = await registry.agent(user, "coder")
    result = await instance.agent.run("Hello", user=user.id, thread="th_1")

An agent is built anew from its template when something about it has changed: the file, an override, a tool that was
registered, a permission that was granted. A run keeps the agent that it was begun with; the next one gets the new one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import orjson

from wick._internal.frozen import canonical_json, digest
from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent
from wick.config import Config
from wick.config.process_files import ProcessFiles
from wick.config.secrets import find_secrets
from wick.errors import ConfigError
from wick.protocols import Store
from wick.server.agents.builder import Building, Instance
from wick.server.agents.config_watcher import Watched
from wick.server.agents.http_tools import Kept, Toolbox
from wick.server.agents.overrides import Overrides
from wick.server.agents.run_sessions import RunSessions
from wick.server.agents.templates import (
    EVERYONE,
    Make,
    Template,
    check_id,
    checked,
    is_id,
    of_code,
    of_file,
    of_post,
)
from wick.server.agents.workspaces import Places, private_files
from wick.server.auth.identity import User
from wick.server.errors import ApiError, not_found
from wick.server.ops.event_bus import Bus
from wick.server.ops.redaction import NO_SECRETS, Redaction, Secrets
from wick.server.records import Records
from wick.server.settings import Settings
from wick.server.static_files import page_folder
from wick.tools import Tool

logger = logging.getLogger("wick.server")

AGENT, OVERRIDE, GRANT = "agent", "override", "grant"  # kinds of records
PATIENCE = 300.0  # seconds that a question waits before its run pauses
IDLE_SECONDS = 1_800.0  # after which what nobody uses is ended
RETIRED_SECONDS = 30.0  # in which a run that was just given an agent begins
MOST_INSTANCES = 1_000
SWEEP_SECONDS = 1.0
CHECKED_AGENTS = 100  # of the file, when the server starts


class Registry:
    """The agents of a server."""

    def __init__(
        self, settings: Settings, records: Records, store: Store, bus: Bus, secrets: Secrets = NO_SECRETS
    ) -> None:
        secrets = Secrets() if secrets is NO_SECRETS else secrets
        self.settings, self.records, self.bus, self.secrets = settings, records, bus, secrets
        self.sessions = RunSessions(store, patience=PATIENCE, busy="wait")
        self.places = Places(settings.data, records, _private(settings), settings.config, settings.quotas)
        self.toolbox = Toolbox(records)
        self._building = Building(self.places, self.toolbox, self.sessions, Redaction(secrets))
        self._code: dict[str, Template] = {}
        self._file: dict[str, Template] = {}
        self._instances: OrderedDict[tuple[str, str], Instance] = OrderedDict()
        self._retired: set[Instance] = set()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._tasks: list[asyncio.Task[None]] = []
        self._watched: Watched | None = None

    def __len__(self) -> int:
        """How many agents everyone has."""
        return len(self._file.keys() | self._code.keys())

    # -- what a program registers -------------------------------------------------------------------------------------

    def register_agent(self, id: str, given: Mapping[str, Any] | Agent | Make) -> None:
        """Add an agent: options as in agents.yaml, an Agent, or a function that makes one for a user."""
        self._code[id] = of_code(id, given, self.settings.data.absolute())
        self.secrets.learn(find_secrets(self._code[id].options))

    def register_tool(self, given: Tool | Callable[..., Any]) -> None:
        """Add a tool that agents may name."""
        self.toolbox.register(given)

    # -- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the file, and look after agents from now on. A ConfigError says what is wrong with the file."""
        await self.places.start()
        if self.settings.config is not None:
            self._watched = Watched(self.settings.config, self._check)
            self._file = self._of_file(await self._watched.read())
        else:
            await run_in_thread(lambda: self.places.learn(self._code.values()), "check")
        await run_in_thread(lambda: [self._check_workspace(template) for template in self._code.values()], "check")
        self._tasks = [asyncio.create_task(work, name=name) for name, work in self._chores()]

    async def problems(self, user: User) -> dict[str, str]:
        """Return why agents of the file cannot be used, by their ids; a rule in `defaults` may name what one lacks."""
        templates = [*self._file.values()][:CHECKED_AGENTS]
        kept = await self.toolbox.kept(user)
        found = await run_in_thread(lambda: {one.id: self._building.problem(one, kept) for one in templates}, "check")
        return {id: problem for id, problem in found.items() if problem}

    def _chores(self) -> Iterator[tuple[str, Any]]:
        yield "sweep", self._sweep_again()
        yield "reap", self.places.reap()
        if self._watched is not None:
            yield "reload", self._watched.follow(self._reloaded, self._broken)

    async def stop(self) -> None:
        """End what the agents have begun: commands, containers, connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        there = [*self._instances.values(), *self._retired]
        self._instances.clear()
        self._retired.clear()
        await asyncio.gather(*(self._ended(instance) for instance in there))
        await self.places.stop()

    def _check(self, config: Config) -> bool:
        """Raise a ConfigError if the server may not take this file; return True if it lies in a workspace."""
        found, before = of_file(config), self.places.named
        self.places.learn([*found.values(), *self._code.values()])
        try:
            held = [self._check_workspace(template) for template in found.values()]  # every one is checked
        except ConfigError:
            self.places.named = before
            raise
        return any(held)

    def _check_workspace(self, template: Template) -> bool:
        try:
            return self.places.check(template)
        except ConfigError as error:
            raise ConfigError(f"the agent {template.id!r} cannot be served: {error}") from None

    def _of_file(self, config: Config) -> dict[str, Template]:
        """The agents of the file; its keys are secrets from now on."""
        found = of_file(config)
        self.secrets.learn(secret for template in found.values() for secret in find_secrets(template.options))
        return found

    def _reloaded(self, config: Config) -> None:
        before, self._file = self._file, self._of_file(config)
        if told := _difference(before, self._file):
            self.bus.publish("config_reloaded", told)

    def _broken(self, message: str) -> None:
        self.bus.publish("config_error", {"message": message}, operators=True)  # it may name folders

    # -- agents -------------------------------------------------------------------------------------------------------

    async def templates(self, user: User) -> list[Template]:
        """The agents that a user has: everyone's, and their own."""
        rows = [*await self.records.list(AGENT, EVERYONE), *await self.records.list(AGENT, user.id)]
        found = {row.id: self._posted(row.owner, row.id, row.data) for row in rows}
        return [*{**found, **self._code, **self._file}.values()]

    async def ids(self, user: User) -> list[str]:
        return sorted(template.id for template in await self.templates(user))

    async def template(self, user: User, id: str) -> Template:
        """One of them; somebody else's is not there."""
        if found := self._file.get(id) or self._code.get(id):
            return found
        for owner in (EVERYONE, user.id) if is_id(id) else ():
            if (data := await self.records.get(AGENT, owner, id)) is not None:
                return self._posted(owner, id, data)
        raise not_found(f"agent {id[:100]!r}")

    def _posted(self, owner: str, id: str, data: Mapping[str, Any]) -> Template:
        return of_post(id, data["options"], self.settings.data.absolute(), owner)

    async def create(self, user: User, id: str, options: Mapping[str, Any], *, shared: bool) -> Template:
        """Keep an agent that a user made; whether they may is asked before."""
        check_plain(options)
        check_id(id)
        owner = EVERYONE if shared else user.id
        made = of_post(id, options, self.settings.data.absolute(), owner)
        await run_in_thread(lambda: (checked(id, options, made.folder), self.places.check(made)), "check")
        taken = id in self._file or id in self._code or await self.records.get(AGENT, EVERYONE, id) is not None
        data = {"options": dict(options), "by": user.id, "created": time.time()}
        if taken or not await self.records.put(AGENT, owner, id, data, new=True):
            raise ApiError(409, "conflict", f"there is an agent {id!r} already; choose another id")
        self.bus.publish("agent_created", {"agent_id": id}, None if shared else user.id)
        return made

    async def delete(self, user: User, id: str, *, files: bool) -> None:
        """Delete an agent that was made over HTTP: with what was changed about it and, if asked, this user's files."""
        template = await self.template(user, id)
        if template.origin != "created":
            raise ApiError(409, "conflict", f"the agent {id!r} is set up by the server's config; delete it there")
        if template.owner == EVERYONE and not user.may("operator"):
            raise ApiError(403, "not_allowed", "an agent that everyone has is deleted by an operator")
        await self.records.delete(AGENT, template.owner, id)
        await self._forget(user, template)
        for key in [key for key in self._instances if key[1] == id and template.owner in (EVERYONE, key[0])]:
            gone = self._retire(key)
            if gone is not None and not gone.uses:
                await self._end(gone)
        if files:
            await self.places.forget(template, user.id)
        self.bus.publish("agent_deleted", {"agent_id": id}, None if template.owner == EVERYONE else user.id)

    async def _forget(self, user: User, template: Template) -> None:
        """What was changed about an agent, and granted to it, is not for another one that gets its id."""
        for owner in {user.id, template.owner}:
            await self.records.delete(OVERRIDE, owner, template.id)
        for row in await self.records.list(GRANT, user.id):
            if row.data["agent"] == template.id:
                await self.records.delete(GRANT, user.id, row.id)

    async def agent(self, user: User, id: str) -> Instance:
        """This user's own agent of that id, as it is to be from now on."""
        draft = await self._draft(user, await self.template(user, id), await self.said(user, id))
        key, version = (user.id, id), draft[0].version
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._instances.get(key)
            if found is None or found.version != version:
                found = await self._building.build(user, *draft)
                self._retire(key)
                self._instances[key] = found
        self._instances.move_to_end(key)
        found.used_at = time.monotonic()
        return found

    async def _draft(self, user: User, template: Template, said: Overrides) -> tuple[Instance, list[Kept], list[Any]]:
        """What an agent of a user is to be made of; its version is another one whenever any of that is."""
        kept, grants = await self.toolbox.kept(user), [*(await self.grants(user, template.id)).values()]
        tools = [(one.name, one.data) for one in kept]
        version = digest(canonical_json([template.version, template.owner, said.to_json(), tools, grants]))
        return Instance(template.id, user.id, template, said, version, self.sessions), kept, grants

    def _retire(self, key: tuple[str, str]) -> Instance | None:
        """Take an instance away from whoever asks next; whoever has it keeps it."""
        old = self._instances.pop(key, None)
        if old is not None:
            self._retired.add(old)
        return old

    # -- what is changed about them -----------------------------------------------------------------------------------

    async def said(self, user: User, id: str) -> Overrides:
        """What was changed about an agent: by the user, over what was changed for everyone."""
        own = Overrides.read(await self.records.get(OVERRIDE, user.id, id))
        return own.over(Overrides.read(await self.records.get(OVERRIDE, EVERYONE, id)))

    async def change(
        self, user: User, id: str, change: Callable[[Overrides], Overrides], *, everyone: bool = False
    ) -> None:
        """Change something about an agent, if it can still be built then; from the next run on."""
        template, owner = await self.template(user, id), EVERYONE if everyone else user.id
        if template.make is not None:
            raise ApiError(409, "conflict", f"the agent {id!r} is made by a program; change it there")
        async with self._locks.setdefault((owner, f"change {id}"), asyncio.Lock()):
            changed = change(Overrides.read(await self.records.get(OVERRIDE, owner, id)))
            check_plain(changed.to_json())
            other = Overrides.read(await self.records.get(OVERRIDE, user.id if everyone else EVERYONE, id))
            said = other.over(changed) if everyone else changed.over(other)
            await self._ended(await self._building.build(user, *await self._draft(user, template, said)))
            await self.records.put(OVERRIDE, owner, id, changed.to_json())

    @asynccontextmanager
    async def tried(
        self, user: User, id: str, change: Callable[[Template, Overrides], Overrides]
    ) -> AsyncIterator[Instance]:
        """An agent as it would be after a change, for as long as somebody looks at it; nothing is kept."""
        template, said = await self.template(user, id), await self.said(user, id)
        if template.make is not None:
            raise ApiError(409, "conflict", f"the agent {id!r} is made by a program; try changes there")
        instance = await self._building.build(user, *await self._draft(user, template, change(template, said)))
        try:
            yield instance
        finally:
            await self._ended(instance)

    async def grant(self, user: User, id: str, rule: Mapping[str, Any]) -> None:
        """Remember that a user has allowed exactly this use of a tool for good, for one of their agents."""
        if rule.get("operation", "tool_use") != "tool_use" or not isinstance(rule.get("args"), Mapping):
            return  # only uses of tools are granted
        await self.records.put(GRANT, user.id, digest(canonical_json([id, rule])), {"agent": id, "rule": dict(rule)})
        self._tell_granted(user, id)

    async def grants(self, user: User, id: str) -> dict[str, Mapping[str, Any]]:
        """What a user has allowed one of their agents for good, by the ids of the grants."""
        rows = await self.records.list(GRANT, user.id)
        return {row.id: row.data["rule"] for row in rows if row.data["agent"] == id}

    async def revoke(self, user: User, id: str, grant: str) -> bool:
        """Forget a grant; False if there is none."""
        kept = await self.records.get(GRANT, user.id, grant)
        if kept is None or kept["agent"] != id or not await self.records.delete(GRANT, user.id, grant):
            return False
        self._tell_granted(user, id)
        return True

    def _tell_granted(self, user: User, id: str) -> None:
        self.bus.publish("hooks_changed", {"agent_id": id, "hooks": ["permissions"], "reordered": False}, user.id)

    # -- ending -------------------------------------------------------------------------------------------------------

    async def _sweep_again(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self._sweep()
            except Exception:
                logger.exception("looking after agents failed; it is tried again")

    async def _sweep(self) -> None:
        """End what nobody uses, and tell how the workspaces are."""
        for instance in self._instances.values():
            self._tell(instance)
        for key in await self._idle():
            self._retire(key)
        since = time.monotonic() - RETIRED_SECONDS
        for instance in [one for one in self._retired if not one.uses and one.used_at <= since]:
            await self._end(instance)

    async def _end(self, instance: Instance) -> None:
        self._retired.discard(instance)
        await self._ended(instance)

    async def _idle(self) -> list[tuple[str, str]]:
        now, over = time.monotonic(), len(self._instances) - MOST_INSTANCES
        found = []
        for number, (key, instance) in enumerate(self._instances.items()):
            old = now - instance.used_at > IDLE_SECONDS
            if (old or number < over) and not instance.uses and not await _works(instance):
                found.append(key)
        return found

    def _tell(self, instance: Instance) -> None:
        place = instance.place
        if place is not None and place.backend.status != place.seen:
            place.seen = place.backend.status
            told = {"agent_id": instance.id, "status": place.seen.state, "reason": place.seen.reason}
            self.bus.publish("container_status", told, instance.user_id)

    async def _ended(self, instance: Instance) -> None:
        async with AsyncExitStack() as ending:  # one that fails keeps no other from ending
            if instance.place is not None:
                ending.push_async_callback(self.places.close, instance.place)
            for part in instance.config.resources if instance.config is not None else ():
                if end := getattr(part, "close", None) or getattr(part, "stop", None):
                    ending.push_async_callback(end)


def _private(settings: Settings) -> ProcessFiles:
    """What the server's settings name on this machine."""
    jwks = settings.jwt.jwks if settings.jwt is not None else ""
    keys = None if not jwks or jwks.startswith("https://") else Path(jwks)
    page = page_folder(settings.static)
    named = [(settings.file, "the server's settings"), (keys, "the keys of sign-ins"), (page, "the page of the server")]
    return private_files(settings.data.absolute(), *named)


def check_plain(data: Mapping[str, Any]) -> None:
    """An ApiError, if data cannot be kept: half a character, or a number that is too large."""
    try:
        orjson.dumps(data)
    except TypeError as error:
        raise ApiError(422, "invalid", f"this cannot be kept as JSON: {error}") from None


async def _works(instance: Instance) -> bool:
    """Whether something goes on in its workspace that nobody waits for."""
    backend = instance.backend
    return backend is not None and any(job["running"] for job in await backend.jobs())


def _difference(before: Mapping[str, Template], after: Mapping[str, Template]) -> dict[str, Any]:
    """Which agents of a file came, went and changed, and in which keys."""
    changed = {
        id: sorted(key for key in {*before[id].options, *after[id].options}
                   if before[id].options.get(key) != after[id].options.get(key))
        for id in sorted(before.keys() & after.keys()) if before[id].version != after[id].version
    }  # fmt: skip
    told = {"added": sorted(after.keys() - before.keys()), "removed": sorted(before.keys() - after.keys())}
    return {**told, "changed": changed} if changed or any(told.values()) else {}
