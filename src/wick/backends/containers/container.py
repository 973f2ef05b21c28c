"""One container on an engine: created, started, reused, replaced when its config changes, and removed.

A container is named by an internal id. Its labels record the id, the owner, the server and a digest of its config, so
that a server finds or removes it after a crash.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import posixpath
import tarfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from wick import constants
from wick.backends.containers import socket_folder
from wick.backends.containers.engine import Engine, EngineError
from wick.backends.containers.seccomp_profile import profile_option
from wick.backends.containers.spec import DAEMON_FOLDER, NO_NEW_PRIVILEGES, ContainerSpec
from wick.errors import BackendError


class Container:
    """The container of a spec, on an engine."""

    def __init__(self, engine: Engine, plan: ContainerSpec, *, daemon: bytes, pull: bool = False) -> None:
        self.engine, self.spec = engine, plan
        self.daemon, self._pull = daemon, pull
        self._path = f"/containers/{plan.name}"

    async def ensure_running(self) -> dict[str, Any]:
        """Find, start or create the container; return the engine's description of it."""
        image = await self._find_image()
        if self.spec.shared:
            socket_folder.create_folder(self.spec.shared)
        for tries in range(10):
            await asyncio.sleep(0.1 * tries)
            found = await self.inspect()
            if found is not None and (found := await self._reuse_container(found, image)):
                return found
            if image is None:
                name = self.spec.image
                remedy = f"pull it with: docker pull {name} (or set pull: true)"
                raise BackendError(f"there is no image {name} on the engine; {remedy}", "not_found")
            try:
                if found := await self._create_and_start(image):
                    return found
            except EngineError as error:
                if error.status not in (404, 409):  # changed by another process: inspect again
                    raise
        raise BackendError(f"the container {self.spec.name} keeps changing under our hands", "failed")

    async def inspect(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self.engine.get_or_none(f"{self._path}/json")
        return found

    async def remove(self) -> None:
        """Stop and remove the container and its network. One of another owner is left alone."""
        found = await self.inspect()
        if found is not None and not self._is_ours(found):
            return
        await _remove_container(self.engine, self.spec.name, gently=True)
        if self.spec.network == "own":
            await _delete_if_exists(self.engine, f"/networks/{self.spec.name}")

    async def restart(self) -> None:
        """End all processes inside; files stay."""
        await self.engine.request("POST", f"{self._path}/restart", {"t": 1}, seconds=constants.LAUNCH_SECONDS)

    # -- finding ----------------------------------------------------------------------------------------------------

    async def _reuse_container(self, found: dict[str, Any], image: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the existing container, running; None if it was removed."""
        if not self._is_ours(found):
            raise BackendError(f"the container {self.spec.name} belongs to another owner", "denied")
        state = str(found["State"]["Status"])
        for _ in range(20 if state == "created" else 0):  # another process may be starting it
            await asyncio.sleep(0.1)
            current = await self.inspect()
            if current is None or current["State"]["Status"] != "created":
                return current
        config = (found["Config"].get("Labels") or {}).get("wick.config")
        changed = image is not None and config != self._config_digest(image)
        if changed or state not in ("running", "exited", "paused"):
            await _remove_container(self.engine, self.spec.name)
            return None
        if state == "paused":
            raise BackendError(f"the container is paused; run: docker unpause {self.spec.name}", "not_running")
        if state == "exited":
            await self._start_container()
            return await self.inspect()
        return found

    def _is_ours(self, found: dict[str, Any]) -> bool:
        labels = found["Config"].get("Labels") or {}
        return (labels.get("wick.id"), labels.get("wick.owner")) == (self.spec.id, self.spec.owner)

    async def _find_image(self) -> dict[str, Any] | None:
        path = f"/images/{quote(self.spec.image, safe='/:@')}/json"
        found: dict[str, Any] | None = await self.engine.get_or_none(path)
        if found is None and self._pull:
            name, colon, tag = self.spec.image.rpartition(":")
            if "@" in self.spec.image:  # a digest stays with the name
                name, tag = self.spec.image, ""
            elif not colon or "/" in tag:  # a port of the registry is not a tag
                name, tag = self.spec.image, "latest"
            query = {"fromImage": name, "tag": tag}
            reply = await self.engine.request("POST", "/images/create", query, seconds=constants.PULL_SECONDS)
            found = await self.engine.get_or_none(path)
            if found is None:
                text = reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
                reason = (text.strip().splitlines() or ["the engine gave no reason"])[-1][:300]
                raise BackendError(f"the image {self.spec.image} could not be pulled: {reason}", "not_found")
        return found

    # -- creating ---------------------------------------------------------------------------------------------------

    async def _create_and_start(self, image: dict[str, Any]) -> dict[str, Any] | None:
        body = self.spec.create_body(image) | {
            "Labels": self._ownership_labels() | {"wick.config": self._config_digest(image)}
        }
        if self.spec.network == "own" and await self.engine.get_or_none(f"/networks/{self.spec.name}") is None:
            network = {"Name": self.spec.name, "Driver": "bridge", "Labels": self._ownership_labels()}
            await self.engine.request("POST", "/networks/create", body=network)
        try:
            await self._create_container(body)
        except EngineError as error:
            if error.status == 400 or error.status >= 500:
                raise BackendError(f"the container could not be made: {error}", "failed") from None
            raise
        try:
            uid, gid = await self._resolve_user(image)
            await self.inject_daemon()
            if not (self.spec.is_host_folder or self.spec.read_only):
                above, name = posixpath.split(self.spec.workdir)
                await self._upload_files(above, [(_tar_entry(name, 0o755, uid, gid), b"")])
            await self._start_container()
        except (BackendError, asyncio.CancelledError):
            with suppress(BackendError, TimeoutError):  # if it stays, the next start replaces it
                async with asyncio.timeout(constants.ENGINE_GRACE_SECONDS):
                    await asyncio.shield(_remove_container(self.engine, self.spec.name))
            raise
        return await self.inspect()

    async def _create_container(self, body: dict[str, Any]) -> None:
        path, name, seconds = "/containers/create", {"name": self.spec.name}, constants.LAUNCH_SECONDS
        try:
            await self.engine.request("POST", path, name, body=body, seconds=seconds)
        except EngineError as error:  # Podman takes a seccomp profile as the path of a file on its machine
            if "opening seccomp profile failed" not in str(error):
                raise
            with profile_option(is_local=self.engine.address.is_local) as seccomp:
                host = {**body["HostConfig"], "SecurityOpt": [NO_NEW_PRIVILEGES, *seccomp]}
                body = {**body, "HostConfig": host}
                await self.engine.request("POST", path, name, body=body, seconds=seconds)

    async def inject_daemon(self) -> None:
        """Copy the daemon to a folder that the container's user cannot write."""
        if self.spec.read_only:  # only volumes are writable; a new volume belongs to root
            return await self._upload_files(DAEMON_FOLDER, [(_tar_entry("wickd.pyz", 0o444), self.daemon)])
        name = DAEMON_FOLDER[1:]
        await self._upload_files(
            "/", [(_tar_entry(name, 0o555), b""), (_tar_entry(f"{name}/wickd.pyz", 0o444), self.daemon)]
        )

    async def _upload_files(self, folder: str, entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for info, content in entries:
                info.size, info.type = len(content), tarfile.REGTYPE if content else tarfile.DIRTYPE
                tar.addfile(info, io.BytesIO(content))
        path, packed = f"{self._path}/archive", buffer.getvalue()
        try:
            await self.engine.request("PUT", path, {"path": folder}, data=packed)
        except EngineError as error:  # Podman's helper sometimes ends too early; the upload is idempotent
            if error.status != 500:
                raise
            await self.engine.request("PUT", path, {"path": folder}, data=packed)

    async def _resolve_user(self, image: dict[str, Any]) -> tuple[int, int]:
        """Return the uid and gid of the user, by the container's passwd; root only if configured."""
        name, _, group = self.spec.resolve_user(image).partition(":")
        if name.isdigit():
            uid, gid = int(name), int(group) if group.isdigit() else int(name)
        else:
            try:
                packed = await self.engine.request("GET", f"{self._path}/archive", {"path": "/etc/passwd"})
                with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                    file = tar.extractfile(tar.getmembers()[0])
                    lines = file.read().decode(errors="replace").splitlines() if file else []
            except (EngineError, tarfile.TarError, IndexError):
                lines = []
            users = [line.split(":") for line in lines if line.startswith(f"{name}:")]
            ids = [user[2:4] for user in users if len(user) > 3 and user[2].isdigit() and user[3].isdigit()]
            if not ids:
                message = f"the image has no user named {name!r}; give its number, as in user='1000'"
                raise BackendError(message, "failed")
            uid, gid = int(ids[0][0]), int(ids[0][1])
        if uid == 0 and not self.spec.user:
            raise BackendError(f"the image's user {name!r} is root; name another one, as in user='1000'", "denied")
        return uid, gid

    async def _start_container(self) -> None:
        try:
            await self.engine.request("POST", f"{self._path}/start", seconds=constants.LAUNCH_SECONDS)
        except EngineError as error:
            if error.status == 400 or error.status >= 500:
                raise BackendError(f"the container could not be started: {error}", "failed") from None
            raise

    def _ownership_labels(self) -> dict[str, str]:
        return {"wick.id": self.spec.id, "wick.owner": self.spec.owner, "wick.server": self.spec.server}

    def _config_digest(self, image: dict[str, Any]) -> str:
        """Return the digest of the config and the image, without the daemon, which can be replaced at any time."""
        wanted = [self.spec.create_body(image), image["Id"]]
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def _tar_entry(name: str, mode: int, uid: int = 0, gid: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid, info.mtime = mode, uid, gid, int(time.time())
    return info


async def _remove_container(engine: Engine, name: str, *, gently: bool = False) -> None:
    path = f"/containers/{quote(name, safe='')}"
    if gently:
        try:
            await engine.request("POST", f"{path}/stop", {"t": 1}, seconds=constants.LAUNCH_SECONDS)
        except EngineError as error:
            if not error.status:  # unreachable; a container that cannot be stopped can be removed
                raise
    await _delete_if_exists(engine, path, {"force": True, "v": True})


async def _delete_if_exists(engine: Engine, path: str, query: Mapping[str, bool] | None = None) -> None:
    """Delete a resource; ignore that it is missing, being deleted, or (a network) in use."""
    try:
        await engine.request("DELETE", path, query, seconds=constants.LAUNCH_SECONDS)
    except EngineError as error:
        if error.status not in (403, 404, 409):
            raise


async def reap_containers(engine: Engine, *, server: str = "", keep: Collection[str] = ()) -> list[str]:
    """Remove the containers and networks of a server except the ids in `keep`; return the removed ids."""
    query: dict[str, str | bool] = {"all": True, "filters": json.dumps({"label": ["wick.id", f"wick.server={server}"]})}
    found = [*await engine.request("GET", "/containers/json", query), *await engine.request("GET", "/networks", query)]
    labels = [one.get("Labels") or {} for one in found]
    ids = {str(one["wick.id"]) for one in labels if "wick.id" in one and one.get("wick.server", "") == server}
    removed = sorted(ids - set(keep))
    for id in removed:
        await _remove_container(engine, f"wick-{id}")
        await _delete_if_exists(engine, f"/networks/wick-{id}")
    return removed
