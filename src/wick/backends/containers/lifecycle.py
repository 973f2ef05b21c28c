"""The lifecycle of a backend's container: created on demand, reused, given a daemon, and removed.

Connections belong to an event loop, so each loop has its own `ContainerLink` to the container.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from wick import constants
from wick._internal.tasks import run_detached
from wick._internal.worker_threads import run_in_thread
from wick.backends.containers import socket_folder
from wick.backends.containers.container import Container
from wick.backends.containers.daemon_launch import DaemonUnavailable, LaunchedDaemon, launch_daemon
from wick.backends.containers.engine import Engine
from wick.backends.containers.exec_commands import MARK, ExecRunner
from wick.backends.containers.exec_files import ExecFiles
from wick.backends.containers.mount_guard import MountGuards
from wick.backends.containers.spec import ContainerSpec
from wick.backends.daemon_client import Daemon
from wick.errors import BackendError
from wick.protocols import Status
from wick.wickd import zipapp


@dataclass(slots=True, eq=False)
class ContainerLink:
    """The connections of one event loop to the container."""

    guards: MountGuards
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    container: str = ""  # its id; a new container has a new daemon
    env: dict[str, str] = field(default_factory=dict)
    exec_runner: ExecRunner | None = None
    files: ExecFiles | None = None
    launched: LaunchedDaemon | None = None
    no_daemon_reason: str = ""  # if a daemon could not be started
    retry_at: float = 0.0  # when to try the daemon again
    seen_at: float = float("-inf")  # when the container was last known to run
    is_over: bool = False  # the backend was stopped

    @property
    def daemon(self) -> Daemon | None:
        return self.launched.daemon if self.launched and self.launched.daemon.alive else None

    @property
    def has_daemon(self) -> bool:
        return self.daemon is not None


class ContainerLifecycle:
    """A container that is started on demand, and the links of event loops to it."""

    def __init__(self, engine: Engine, plan: ContainerSpec, *, daemon: str, protect: Sequence[str], pull: bool) -> None:
        self.engine, self.spec = engine, plan
        self.status = Status("idle")
        self.may_exist = False  # True if a container may exist
        self.token = secrets.token_urlsafe(32)
        self._daemon_transport, self._protect, self._pull = daemon, tuple(protect), pull
        # The folders of this host that commands can write; those of another machine cannot be watched from here.
        self.watched = plan.shared_folders() if engine.address.is_local else []
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, ContainerLink] = WeakKeyDictionary()

    @property
    def link(self) -> ContainerLink | None:
        """The link of the running event loop, if it has one."""
        return self._links.get(asyncio.get_running_loop())

    @property
    def has_daemon(self) -> bool:
        return any(link.has_daemon for link in self._links.values())

    @property
    def is_fallback(self) -> bool:
        """True if a container runs without a daemon."""
        return any(link.exec_runner is not None and not link.has_daemon for link in self._links.values())

    async def end(self) -> None:
        """Release the connections, and remove the container."""
        link = self._links.pop(asyncio.get_running_loop(), None)
        try:
            if link is not None:
                async with link.lock:  # wait for a concurrent launch
                    link.is_over = True
                    await _release_link(link)
            if self.may_exist:
                await (await self._build_container()).remove()
        except BackendError as error:
            self.status = Status("error", str(error))
            raise
        finally:
            if link is not None:
                await link.guards.close()
            await self.engine.close()
        if self.spec.shared:
            socket_folder.remove_folder(self.spec.shared)
        self.status = Status("idle")

    async def ensure_ready(self) -> ContainerLink:
        """Return this event loop's link to the running container, with a daemon if possible."""
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            link = self._links[loop] = ContainerLink(MountGuards(self.watched, self.spec.workdir, self._protect))
        if not link.has_daemon:
            async with link.lock:
                if link.is_over:
                    raise BackendError("the container was stopped meanwhile", "not_running")
                is_recent = loop.time() < link.seen_at + constants.CONTAINER_FRESH_SECONDS
                if link.daemon is None and (not is_recent or self._wants_daemon(link)):
                    await run_detached(self._launch_container(link))
        return link

    async def _launch_container(self, link: ContainerLink) -> None:
        if self.status.state != "launched":
            self.status = Status("launching")
        try:
            container, self.may_exist = await self._build_container(), True
            found = await container.ensure_running()
            if link.container != (container_id := str(found["Id"])):
                await _release_link(link)
                link.container, link.no_daemon_reason, link.retry_at = container_id, "", 0.0
                link.env = dict(line.partition("=")[::2] for line in found["Config"].get("Env") or [])
                link.exec_runner = ExecRunner(self.engine, container_id)
                link.env[MARK] = link.exec_runner.daemon_mark
                link.files = ExecFiles(link.exec_runner, self.spec.workdir, self._protect)
            if self._wants_daemon(link):
                await self._start_daemon(link, container, found)
        except BackendError as error:
            self.status = Status("error", str(error))
            raise
        except asyncio.CancelledError:
            self.status = Status("idle" if self.status.state == "launching" else self.status.state)
            raise
        link.seen_at = asyncio.get_running_loop().time()
        reason = f"commands go through the engine's exec, for {link.no_daemon_reason}" if link.no_daemon_reason else ""
        self.status = Status("launched", reason)

    async def _build_container(self) -> Container:
        code = await run_in_thread(zipapp.build_zipapp, "wickd")
        return Container(self.engine, self.spec, daemon=code, pull=self._pull)

    def mark_lost(self, link: ContainerLink, error: BackendError) -> None:
        """Record that the container or its engine was lost."""
        link.seen_at = float("-inf")
        self.status = Status("error", str(error))

    def kill_daemon_commands(self) -> None:
        """Kill the processes that a lost daemon left, in the background."""
        if (link := self.link) and link.exec_runner:
            link.exec_runner.kill_daemon_commands()

    def _wants_daemon(self, link: ContainerLink) -> bool:
        return self._daemon_transport != "none" and asyncio.get_running_loop().time() >= link.retry_at

    async def _start_daemon(self, link: ContainerLink, container: Container, found: dict[str, Any]) -> None:
        """Start the daemon, or record why there is none: commands then use the engine's exec."""
        if link.launched is not None:
            await link.launched.close()
            link.launched = None
            self.kill_daemon_commands()
        try:
            link.launched = await launch_daemon(container, found, self._daemon_transport, self.token)
            link.no_daemon_reason = ""
        except DaemonUnavailable as reason:
            link.no_daemon_reason = str(reason)
            link.retry_at = (
                float("inf") if reason.final else asyncio.get_running_loop().time() + constants.DAEMON_PAUSE_SECONDS
            )


async def _release_link(link: ContainerLink) -> None:
    """Close the connection to the daemon."""
    if link.launched is not None:
        await link.launched.close()
    if link.exec_runner is not None:
        await link.exec_runner.close()
    link.launched = link.exec_runner = link.files = None
