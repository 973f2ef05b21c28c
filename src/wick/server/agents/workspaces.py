"""Where the agents of each user work: a folder of their own, or a container of their own.

Folders and containers are named by internal ids, never by what somebody is called. What a container's user writes is in
a volume that outlives the container, so that one which nobody uses can go.
"""

from __future__ import annotations

import asyncio
import logging
import os
import posixpath
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import Any

from wick._internal.frozen import canonical, digest
from wick._internal.worker_threads import in_thread
from wick.backends.local import Local
from wick.backends.state import State
from wick.config.files import named_files, pin_volumes
from wick.config.process_files import ProcessFiles, guard_editable, pin_files
from wick.errors import BackendError, ConfigError
from wick.protocols import Backend, Status
from wick.server.agents.overrides import Overrides
from wick.server.agents.templates import AgentTemplate
from wick.server.auth.identity import LOCAL_USER
from wick.server.records import Records
from wick.server.settings import Quotas
from wick.workspace.protected import PROTECTED

logger = logging.getLogger("wick.server")

IMAGE = "python:3.12-slim"  # of containers, where the template names none
WORKDIR = "/workspace"  # in a container
KIND = "engine"  # of the records that say where this server has had containers
REALM = "realm"  # of the one that names those who share their records, and so their users


@dataclass(slots=True, eq=False)
class WorkspaceMount:
    """A backend that is there, for as long as somebody uses it."""

    key: str
    backend: Backend
    uses: int = 0
    reported: Status = Status("idle")  # as it was told last


class Workspaces:
    """The folders and containers of everyone."""

    def __init__(
        self,
        data: Path,
        records: Records,
        private: ProcessFiles | None = None,
        config: Path | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._quotas = Quotas() if quotas is None else quotas
        self.data, self.records, self._config = data.absolute(), records, config
        self._private = private_files(self.data) if private is None else private
        self.named_files = ProcessFiles()  # what the templates of this server name
        self.server = self.realm = ""
        self._open: dict[str, WorkspaceMount] = {}
        self._reaping = asyncio.Lock()  # what is being looked through is not added to

    async def start(self) -> None:
        """Remember who this server is, so that what it left behind can be told from what is somebody else's."""
        self.server = await in_thread(lambda: _load_or_create_id(self.data / "server-id"), "start")
        await self.records.put(REALM, "", REALM, {"name": secrets.token_hex(8)}, new=True)
        found = await self.records.get(REALM, "", REALM)
        self.realm = str((found or {}).get("name", ""))

    async def reap(self) -> None:
        """Remove the containers that an earlier start of this server has left."""
        async with self._reaping:
            for row in await self.records.list(KIND, self.server):
                await self._reap(row.data["engine"])

    async def _reap(self, engine: str) -> None:
        docker = await in_thread(_import_docker, "containers")
        there = [place.backend for place in self._open.values()]
        keep = [backend.id for backend in there if isinstance(backend, docker.Docker)]
        try:
            gone = await docker.reap(engine, server=self.server, keep=keep)
        except (BackendError, ConfigError) as error:
            logger.warning("containers of an earlier start could not be looked for: %s", error)
            return
        if gone:
            logger.info("removed %d containers of an earlier start", len(gone))

    async def stop(self) -> None:
        """End everything that was started in any of them."""
        places, self._open = [*self._open.values()], {}
        await asyncio.gather(*(_stop_backend(place.backend) for place in places))

    def folder(self, user: str, agent: str) -> Path:
        """The workspace of a user's agent on this machine."""
        return self.data / "workspaces" / user / agent

    def backend_options(self, template: AgentTemplate, said: Overrides, user: str) -> dict[str, Any] | None:
        """What the place of a user's agent is made with; None, if the agent has none."""
        given = template.options.get("backend", False)
        options: dict[str, Any] = {} if given is False else {"type": given} if isinstance(given, str) else dict(given)
        kind = options.pop("type", "")
        if said.mode is None and not kind:
            return None
        wanted = {"local": "local", "remote": "docker", None: kind}[said.mode]
        options = options if wanted == kind else {}
        if wanted == "local":
            return self._local_options(template, options, user)
        return (
            self._docker_options(template, options, said, user) if wanted == "docker" else {"type": "state", **options}
        )

    async def open(self, wanted: Mapping[str, Any] | None) -> WorkspaceMount | None:
        """The place, which is made if it is not there; whoever is done with it says `close`."""
        if wanted is None:
            return None
        key = digest(canonical(wanted))
        if key not in self._open:
            if wanted["type"] == "docker":
                await self._record_engine(wanted.get("engine", ""))
            made = await in_thread(lambda: _create_backend(wanted), "workspace")
            self._open.setdefault(key, WorkspaceMount(key, made))
        self._open[key].uses += 1
        return self._open[key]

    async def _record_engine(self, engine: str) -> None:
        """Remember where containers may be left; one that was left may be the one that is wanted, so it goes first."""
        async with self._reaping:
            await self.records.put(KIND, self.server, digest(engine.encode())[:32], {"engine": engine})

    async def close(self, place: WorkspaceMount) -> None:
        """One user less; what nobody uses is ended."""
        place.uses -= 1
        if place.uses <= 0 and self._open.get(place.key) is place:
            del self._open[place.key]
            await _stop_backend(place.backend)

    async def delete_files(self, template: AgentTemplate, user: str) -> None:
        """Delete the files of a user's agent: its folder, and its volume where it had a container."""
        folder = self.folder(user, template.id)
        await in_thread(lambda: rmtree(folder, ignore_errors=True), "delete")
        for row in await self.records.list(KIND, self.server):
            with suppress(BackendError, ConfigError):
                engine = (await in_thread(_import_docker, "containers")).Engine(row.data["engine"])
                try:
                    await engine.ask("DELETE", f"/volumes/{self._volume_name(user, template.id)}")
                finally:
                    await engine.close()

    # -- what they are made with --------------------------------------------------------------------------------------

    def _local_options(self, template: AgentTemplate, options: dict[str, Any], user: str) -> dict[str, Any]:
        """A folder: the one that the template names is for whoever started the server, all others have their own."""
        named = options.pop("workdir", None) if user in (LOCAL_USER.id, template.owner) else None
        options.pop("workdir", None)
        folder = template.folder / Path(named).expanduser() if named else self.folder(user, template.id)
        readable = [str(template.folder / Path(one).expanduser()) for one in options.pop("readable", ())]
        pinned = [*options.pop("pinned", ()), *self._find_pinned_files(template, str(folder), protects=True)]
        options |= guard_editable(folder, options.get("protect", PROTECTED))
        disk = 0 if named else self._quotas.disk  # the owner's own project has the size that it has
        quota = {"disk": disk, "reserve": self._quotas.reserve}
        return {"type": "local", "path": str(folder), "readable": readable, **quota, **options, "pinned": pinned}

    def _find_pinned_files(self, template: AgentTemplate, workspace: str, *, protects: bool = False) -> list[str]:
        """Return the files of a workspace that configure this server; a ConfigError if its code is there."""
        files = self._private | self.named_files | _template_files(template, workspace)
        config = {} if self._config is None else {str(self._config.absolute()): "the config of this server"}
        return pin_files(workspace, files | ProcessFiles(config=config), protects=protects)

    def collect_files(self, templates: Iterable[AgentTemplate]) -> None:
        """Note the files of all templates: the workspace of one may not hold the code of another."""
        found = ProcessFiles()
        for template in templates:
            backend = template.options.get("backend")
            workdir = str(backend.get("workdir", "")) if isinstance(backend, Mapping) else ""
            found |= _template_files(template, str(template.folder / Path(workdir).expanduser()))
        self.named_files = found

    def check(self, template: AgentTemplate) -> bool:
        """Raise a ConfigError if the workspace of an agent holds code of this server; return True if its config."""
        wanted = self.backend_options(template, Overrides(), LOCAL_USER.id) or {}
        return bool(wanted.get("pinned")) or any(
            source.startswith("/") and self._find_pinned_files(template, source) for source in wanted.get("volumes", ())
        )

    def _docker_options(
        self, template: AgentTemplate, options: dict[str, Any], said: Overrides, user: str
    ) -> dict[str, Any]:
        workdir = options.get("workdir", WORKDIR)
        volumes = self._mount_volumes(template, options.pop("volumes", {}), workdir, user)
        engine = said.sandbox_url if said.sandbox_url is not None else options.pop("engine", "")
        options.pop("engine", None)
        made = {"image": IMAGE, **options, "workdir": workdir, "volumes": volumes, "engine": engine, "owner": user}
        id = options.pop("id", "") if user == LOCAL_USER.id else ""
        made["id"] = id or digest(canonical([self.server, user, template.id, made]))[:24]
        return {"type": "docker", **made, "server": self.server}

    def _mount_volumes(
        self, template: AgentTemplate, given: Mapping[str, str], workdir: str, user: str
    ) -> dict[str, str]:
        """The mounts that the template names; those of whoever did not start the server can only be read."""
        beside = {_resolve_source(template.folder, source): target for source, target in given.items()}
        if user == LOCAL_USER.id:
            beside = pin_volumes(beside, lambda source: self._find_pinned_files(template, source))
            covered = any(_covers_workdir(target, workdir) for target in beside.values())
            return beside if covered else {**beside, self._volume_name(user, template.id): workdir}
        shared = {
            source: _as_read_only(target) for source, target in beside.items() if not _covers_workdir(target, workdir)
        }
        return {**shared, self._volume_name(user, template.id): workdir}

    def _volume_name(self, user: str, agent: str) -> str:
        """The name of what outlives the container: the same on every server that has the same users."""
        return f"wick-{digest(canonical([self.realm, user, agent]))[:24]}"


def _template_files(template: AgentTemplate, workspace: str) -> ProcessFiles:
    options = {**template.options, "sessions": False}  # the server has a store of its own
    return named_files(options, template.folder, None, workspace)


def private_files(data: Path, *others: tuple[Path | None, str]) -> ProcessFiles:
    """Return what of this machine is a server's own: its data folder, and what its settings name."""
    found = {str(data): "the data folder of the server", str(data / "workspaces"): "the workspaces of all users"}
    return ProcessFiles({**found, **{str(path): what for path, what in others if path is not None}})


def _create_backend(wanted: Mapping[str, Any]) -> Backend:
    options = dict(wanted)
    kind = options.pop("type")
    if kind == "local":
        return Local(options.pop("path"), **options)
    return _import_docker().Docker(**options) if kind == "docker" else State(**options)


def _import_docker() -> ModuleType:
    """What drives containers; it is loaded when there are any, for that takes a while, and beside the event loop."""
    from wick.backends import docker

    return docker


def _resolve_source(folder: Path, source: str) -> str:
    """A folder of this machine; a name alone is a volume of the engine's."""
    named = not source.startswith((".", "~")) and "/" not in source
    return source if named else str(folder / Path(source).expanduser())


def _covers_workdir(target: str, workdir: str) -> bool:
    inside = posixpath.normpath(target.partition(":")[0])
    return workdir == inside or workdir.startswith(f"{inside.rstrip('/')}/")


def _as_read_only(target: str) -> str:
    return f"{target.partition(':')[0]}:ro"


async def _stop_backend(backend: Backend) -> None:
    try:
        await backend.stop()
    except BackendError as error:
        logger.warning("a workspace could not be stopped: %s", error)


def _load_or_create_id(path: Path) -> str:
    """A name that this server keeps, in a file of its data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(8))
    return path.read_text().strip()
