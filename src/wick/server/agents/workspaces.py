"""Workspaces of agents: a folder or a container for each user and agent.

Folders and containers are named by internal ids, never by logins. The files of a container are in a volume that
outlives it, so that an unused container can be removed.
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

from wick._internal.frozen import canonical_json, digest
from wick._internal.worker_threads import run_in_thread
from wick.backends.local import Local
from wick.backends.state import State
from wick.config.files import find_named_files, pin_volumes
from wick.config.keys import BACKENDS, load_backend_class
from wick.config.options_schema import read_hints
from wick.config.process_files import ProcessFiles, guard_editable, pin_files
from wick.errors import BackendError, ConfigError
from wick.protocols import Backend, Status
from wick.server.agents.overrides import Overrides
from wick.server.agents.templates import AgentTemplate
from wick.server.auth.identity import LOCAL_USER
from wick.server.records import Records
from wick.server.settings import Quotas
from wick.stores.s3 import SCHEME, BucketAddress, S3Bucket
from wick.workspace.protected import PROTECTED

logger = logging.getLogger("wick.server")

IMAGE = "python:3.12-slim"  # default image of containers
WORKDIR = "/workspace"  # default, in a container
KIND = "engine"  # kind of records: engines on which this server has started containers
REALM = "realm"  # kind of the record that names the group of servers with shared records


@dataclass(slots=True, eq=False)
class WorkspaceMount:
    """An open backend with a use count; it is stopped when the count reaches 0."""

    key: str
    backend: Backend
    uses: int = 0
    reported: Status = Status("idle")  # the last published status


class Workspaces:
    """The workspaces of all users."""

    def __init__(
        self,
        data: Path,
        records: Records,
        private: ProcessFiles | None = None,
        config: Path | None = None,
        quotas: Quotas | None = None,
        snapshots: str = "",
    ) -> None:
        self._quotas = Quotas() if quotas is None else quotas
        self.data, self.records, self._config = data.absolute(), records, config
        self._bucket = BucketAddress.parse(snapshots) if snapshots.startswith(SCHEME) else None
        self._snapshots = Path(snapshots or data / "snapshots").absolute()
        self._private = private_files(self.data) if private is None else private
        self.named_files = ProcessFiles()  # files that the templates name
        self.server = self.realm = ""
        self._bucket_check: asyncio.Task[None] | None = None
        self._open: dict[str, WorkspaceMount] = {}
        self._reaping = asyncio.Lock()  # no engine is recorded while containers are reaped

    async def start(self) -> None:
        """Load the ids of this server and its realm, which mark its containers and volumes."""
        self.server = await run_in_thread(lambda: load_or_create_id(self.data / "server-id"), "start")
        await self.records.put(REALM, "", REALM, {"name": secrets.token_hex(8)}, new=True)
        found = await self.records.get(REALM, "", REALM)
        self.realm = str((found or {}).get("name", ""))
        if self._bucket is not None:  # not awaited, as an object store may be away for a while
            self._bucket_check = asyncio.create_task(self._check_bucket(S3Bucket(self._bucket)))

    async def _check_bucket(self, bucket: S3Bucket) -> None:
        """Log a warning if the bucket of snapshots cannot be used."""
        try:
            await run_in_thread(bucket.check, "snapshots")
        except BackendError as error:
            logger.warning("snapshots cannot be stored: %s", error)

    async def reap(self) -> None:
        """Remove containers that an earlier process of this server has left."""
        async with self._reaping:
            for row in await self.records.list(KIND, self.server):
                docker = await run_in_thread(_import_docker, "containers")
                backends = [place.backend for place in self._open.values()]
                keep = [backend.id for backend in backends if isinstance(backend, docker.Docker)]
                try:
                    removed = await docker.reap(row.data["engine"], server=self.server, keep=keep)
                except (BackendError, ConfigError) as error:
                    logger.warning("containers of an earlier process could not be listed: %s", error)
                    continue
                if removed:
                    logger.info("removed %d containers of an earlier process", len(removed))

    async def stop(self) -> None:
        """Stop all open backends."""
        if self._bucket_check is not None:
            self._bucket_check.cancel()
        places, self._open = [*self._open.values()], {}
        await asyncio.gather(*(_stop_backend(place.backend) for place in places))

    def folder(self, user: str, agent: str) -> Path:
        """Return the workspace folder of a user's agent on the host."""
        return self.data / "workspaces" / user / agent

    def snapshot_options(self, user: str, agent: str) -> dict[str, str]:
        """Return the options of `Snapshots` that name where the snapshots of a workspace are stored."""
        if self._bucket is None:
            return {"folder": str(self._snapshots / user / agent)}
        cache = self.data / "snapshot-cache" / digest(str(self._bucket).encode())[:16] / user / agent
        return {"folder": str(self._bucket.join(user, agent)), "cache": str(cache)}

    @staticmethod
    def is_local(template: AgentTemplate, overrides: Overrides, user: str) -> bool:
        """Return True if the files of a user's agent are in a folder that the server creates on this machine."""
        given = template.options.get("backend", False)
        options: Mapping[str, Any] = given if isinstance(given, Mapping) else {"type": given or ""}
        wanted = {"local": "local", "remote": "docker", None: options.get("type", "")}[overrides.mode]
        is_named = wanted == options.get("type") and options.get("workdir") and user in (LOCAL_USER.id, template.owner)
        return wanted == "local" and not is_named and template.factory is None

    def backend_options(self, template: AgentTemplate, overrides: Overrides, user: str) -> dict[str, Any] | None:
        """Return the backend options of a user's agent, or None if it has no workspace."""
        given = template.options.get("backend", False)
        options: dict[str, Any] = {} if given is False else {"type": given} if isinstance(given, str) else dict(given)
        kind = options.pop("type", "")
        if overrides.mode is None and not kind:
            return None
        wanted = {"local": "local", "remote": "docker", None: kind}[overrides.mode]
        options = options if wanted == kind else {}
        if wanted == "local":
            return self._local_options(template, options, user)
        if wanted == "docker":
            return self._docker_options(template, options, overrides, user)
        if wanted in BACKENDS:
            return {"type": "state", **options}
        return {"type": wanted, **options, "workspace": self._volume_name(user, template.id)}

    async def open(self, wanted: Mapping[str, Any] | None) -> WorkspaceMount | None:
        """Open the workspace with these options, or share the open one. The caller must `close` it."""
        if wanted is None:
            return None
        key = digest(canonical_json(wanted))
        if key not in self._open:
            if wanted["type"] == "docker":
                engine = wanted.get("engine", "")
                async with self._reaping:  # a reap in progress may remove the wanted container
                    await self.records.put(KIND, self.server, digest(engine.encode())[:32], {"engine": engine})

            def create_backend() -> Backend:
                kind, options = wanted["type"], {name: wanted[name] for name in wanted if name != "type"}
                if kind == "local":
                    return Local(options.pop("path"), **options)
                if kind == "docker":
                    docker: Backend = _import_docker().Docker(**options)
                    return docker
                return State(**options) if kind == "state" else _create_from_plugin(kind, options)

            backend = await run_in_thread(create_backend, "workspace")
            self._open.setdefault(key, WorkspaceMount(key, backend))
        self._open[key].uses += 1
        return self._open[key]

    async def close(self, place: WorkspaceMount) -> None:
        """Decrement the use count, and stop the backend at 0."""
        place.uses -= 1
        if place.uses <= 0 and self._open.get(place.key) is place:
            del self._open[place.key]
            await _stop_backend(place.backend)

    async def delete_files(self, template: AgentTemplate, user: str) -> None:
        """Delete the files of a user's agent: its folder, and the volume of its container."""
        snapshots = self.snapshot_options(user, template.id)
        for folder in (self.folder(user, template.id), snapshots.get("cache", snapshots["folder"])):
            await run_in_thread(lambda folder=folder: rmtree(folder, ignore_errors=True), "delete")  # type: ignore[misc]
        if self._bucket is not None:
            bucket = S3Bucket(self._bucket.join(user, template.id))
            try:
                await run_in_thread(lambda: bucket.delete_all(found.name for found in [*bucket.list()]), "delete")
            except BackendError as error:
                logger.warning("snapshots of the deleted agent %s of %s are left: %s", template.id, user, error)
        for row in await self.records.list(KIND, self.server):
            with suppress(BackendError, ConfigError):
                engine = (await run_in_thread(_import_docker, "containers")).Engine(row.data["engine"])
                try:
                    await engine.request("DELETE", f"/volumes/{self._volume_name(user, template.id)}")
                finally:
                    await engine.close()

    # -- backend options ----------------------------------------------------------------------------------------------

    def _local_options(self, template: AgentTemplate, options: dict[str, Any], user: str) -> dict[str, Any]:
        """Return the options of a local folder. The template's `workdir` is only for the local user and its owner."""
        named = options.pop("workdir", None) if user in (LOCAL_USER.id, template.owner) else None
        options.pop("workdir", None)
        folder = template.folder / Path(named).expanduser() if named else self.folder(user, template.id)
        readable = [str(template.folder / Path(one).expanduser()) for one in options.pop("readable", ())]
        pinned = [*options.pop("pinned", ()), *self._find_pinned_files(template, str(folder), protects=True)]
        options |= guard_editable(folder, options.get("protect", PROTECTED))
        disk = 0 if named else self._quotas.disk  # no disk quota for the owner's own project folder
        quota = {"disk": disk, "reserve": self._quotas.reserve}
        return {"type": "local", "path": str(folder), "readable": readable, **quota, **options, "pinned": pinned}

    def _find_pinned_files(self, template: AgentTemplate, workspace: str, *, protects: bool = False) -> list[str]:
        """Return the config files of this server in a workspace; raise a ConfigError if its code is there."""
        files = self._private | self.named_files | _template_files(template, workspace)
        config = {} if self._config is None else {str(self._config.absolute()): "the config of this server"}
        return pin_files(workspace, files | ProcessFiles(config=config), protects=protects)

    def collect_files(self, templates: Iterable[AgentTemplate]) -> None:
        """Collect the files that all templates name: the workspace of one may not contain the code of another."""
        found = ProcessFiles()
        for template in templates:
            backend = template.options.get("backend")
            workdir = str(backend.get("workdir", "")) if isinstance(backend, Mapping) else ""
            found |= _template_files(template, str(template.folder / Path(workdir).expanduser()))
        self.named_files = found

    def check(self, template: AgentTemplate) -> bool:
        """Raise a ConfigError if a workspace contains code of this server; return True if it contains its config."""
        wanted = self.backend_options(template, Overrides(), LOCAL_USER.id) or {}
        return bool(wanted.get("pinned")) or any(
            source.startswith("/") and self._find_pinned_files(template, source) for source in wanted.get("volumes", ())
        )

    def _docker_options(
        self, template: AgentTemplate, options: dict[str, Any], overrides: Overrides, user: str
    ) -> dict[str, Any]:
        workdir = options.get("workdir", WORKDIR)
        volumes = self._mount_volumes(template, options.pop("volumes", {}), workdir, user)
        engine = overrides.sandbox_url if overrides.sandbox_url is not None else options.pop("engine", "")
        options.pop("engine", None)
        wanted = {"image": IMAGE, **options, "workdir": workdir, "volumes": volumes, "engine": engine, "owner": user}
        id = options.pop("id", "") if user == LOCAL_USER.id else ""
        wanted["id"] = id or digest(canonical_json([self.server, user, template.id, wanted]))[:24]
        return {"type": "docker", **wanted, "server": self.server}

    def _mount_volumes(
        self, template: AgentTemplate, given: Mapping[str, str], workdir: str, user: str
    ) -> dict[str, str]:
        """Return the mounts of a template. They are read-only except for the local user."""
        beside = {}
        for source, target in given.items():
            is_volume = not source.startswith((".", "~")) and "/" not in source  # a bare name is one of the engine
            beside[source if is_volume else str(template.folder / Path(source).expanduser())] = target
        if user == LOCAL_USER.id:
            beside = pin_volumes(beside, lambda source: self._find_pinned_files(template, source))
            covered = any(_covers_workdir(target, workdir) for target in beside.values())
            return beside if covered else {**beside, self._volume_name(user, template.id): workdir}
        shared = {
            source: f"{target.partition(':')[0]}:ro"
            for source, target in beside.items()
            if not _covers_workdir(target, workdir)
        }
        return {**shared, self._volume_name(user, template.id): workdir}

    def _volume_name(self, user: str, agent: str) -> str:
        """Return the name of the volume, which is the same on all servers of a realm."""
        return f"wick-{digest(canonical_json([self.realm, user, agent]))[:24]}"


def _template_files(template: AgentTemplate, workspace: str) -> ProcessFiles:
    options = {**template.options, "sessions": False}  # the server has a store of its own
    return find_named_files(options, template.folder, None, workspace)


def private_files(data: Path, *others: tuple[Path | None, str]) -> ProcessFiles:
    """Return the server's private host files: its data folder, and files that its settings name."""
    found = {str(data): "the data folder of the server", str(data / "workspaces"): "the workspaces of all users"}
    return ProcessFiles({**found, **{str(path): what for path, what in others if path is not None}})


def _import_docker() -> ModuleType:
    """Import the Docker backend on first use, in a worker thread, since the import is slow."""
    from wick.backends import docker

    return docker


def _create_from_plugin(kind: str, options: Mapping[str, Any]) -> Backend:
    """Return the backend of a plugin. Its parameter `workspace` separates the users of a server."""
    factory = load_backend_class(kind)
    if "workspace" not in read_hints(factory):
        problem = f"the backend {kind!r} cannot be used in a server, as it does not separate users"
        raise ConfigError(f"{problem}; its factory needs a parameter `workspace`, the name of a workspace")
    backend: Backend = factory(**options)
    return backend


def _covers_workdir(target: str, workdir: str) -> bool:
    inside = posixpath.normpath(target.partition(":")[0])
    return workdir == inside or workdir.startswith(f"{inside.rstrip('/')}/")


async def _stop_backend(backend: Backend) -> None:
    try:
        await backend.stop()
    except BackendError as error:
        logger.warning("a workspace could not be stopped: %s", error)


def load_or_create_id(path: Path) -> str:
    """Return the id of this server from a file in its data folder; create it on first use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(8))
    return path.read_text().strip()
