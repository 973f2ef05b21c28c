"""The life of a backend's container: made when it is needed, found again, given a daemon, let go, removed.

What is connected belongs to an event loop, so each loop has a `Link` of its own to the one container.
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
from wick.backends.containers.daemon_launch import Launched, NoDaemon, launch
from wick.backends.containers.engine import Engine
from wick.backends.containers.exec_commands import Plain
from wick.backends.containers.mount_guard import MountGuards
from wick.backends.containers.shell_files import ShellFiles
from wick.backends.containers.spec import Plan
from wick.backends.daemon_client import Daemon
from wick.errors import BackendError
from wick.protocols import Status
from wick.wickd import zipapp


@dataclass(slots=True, eq=False)
class Link:
    """What one event loop has of the container."""

    guards: MountGuards
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    container: str = ""  # its id; another one has another daemon
    env: dict[str, str] = field(default_factory=dict)
    plain: Plain | None = None
    files: ShellFiles | None = None
    launched: Launched | None = None
    why: str = ""  # there is no daemon
    retry_at: float = 0.0  # when one is tried again
    seen_at: float = float("-inf")  # when the container was last known to run
    over: bool = False  # it was let go for good

    @property
    def daemon(self) -> Daemon | None:
        return self.launched.daemon if self.launched and self.launched.daemon.alive else None


class Life:
    """A container that is there when it is asked for, and the links of event loops to it."""

    def __init__(self, engine: Engine, plan: Plan, *, daemon: str, protect: Sequence[str], pull: bool) -> None:
        self.engine, self.plan = engine, plan
        self.status = Status("idle")
        self.begun = False  # whether there may be a container
        self.token = secrets.token_urlsafe(32)
        self._how, self._protect, self._pull = daemon, tuple(protect), pull
        # The folders of this host that commands can write; those of another machine cannot be watched from here.
        self.watched = plan.shared_folders() if engine.address.local else []
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = WeakKeyDictionary()

    @property
    def link(self) -> Link | None:
        """The link of this event loop, if it has one."""
        return self._links.get(asyncio.get_running_loop())

    @property
    def has_daemon(self) -> bool:
        return any(link.daemon is not None for link in self._links.values())

    async def end(self) -> None:
        """Let go of the container, and remove it."""
        link = self._links.pop(asyncio.get_running_loop(), None)
        try:
            if link is not None:
                async with link.lock:  # whoever launches it now is waited for
                    link.over = True
                    await _let_go(link)
            if self.begun:
                await (await self._container()).remove()
        except BackendError as error:
            self.status = Status("error", str(error))
            raise
        finally:
            if link is not None:
                await link.guards.close()
            await self.engine.close()
        if self.plan.shared:
            socket_folder.remove(self.plan.shared)
        self.status = Status("idle")

    async def ready(self) -> Link:
        """This event loop's link to the running container, with a daemon if there can be one."""
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            link = self._links[loop] = Link(MountGuards(self.watched, self.plan.workdir, self._protect))
        if link.daemon is None:
            async with link.lock:
                if link.over:
                    raise BackendError("the container was stopped meanwhile", "not_running")
                if not self._is_fresh(link):
                    await run_detached(self._launch(link))
        return link

    def _is_fresh(self, link: Link) -> bool:
        """Whether somebody else has got the daemon, or the container was there a moment ago and no daemon is due."""
        now = asyncio.get_running_loop().time()
        if link.daemon is not None:
            return True
        return now < link.seen_at + constants.CONTAINER_FRESH_SECONDS and not self._wants_daemon(link)

    async def _launch(self, link: Link) -> None:
        if self.status.state != "launched":
            self.status = Status("launching")
        try:
            container, self.begun = await self._container(), True
            found = await container.ensure()
            await self._move_in(link, found)
            if self._wants_daemon(link):
                await self._start_daemon(link, container, found)
        except BackendError as error:
            self.status = Status("error", str(error))
            raise
        except asyncio.CancelledError:
            self.status = Status("idle" if self.status.state == "launching" else self.status.state)
            raise
        link.seen_at = asyncio.get_running_loop().time()
        self.status = Status("launched", link.why)

    async def _container(self) -> Container:
        code = await run_in_thread(zipapp.build_zipapp, "wickd")
        return Container(self.engine, self.plan, daemon=code, pull=self._pull)

    async def _move_in(self, link: Link, found: dict[str, Any]) -> None:
        """Take the container as it is now; it may not be the one that was there before."""
        container = str(found["Id"])
        if link.container == container:
            return
        await _let_go(link)
        link.container, link.why, link.retry_at = container, "", 0.0
        link.env = dict(line.partition("=")[::2] for line in found["Config"].get("Env") or [])
        link.plain = link.guards.plain = Plain(self.engine, container)
        link.files = ShellFiles(link.plain, self.plan.workdir, self._protect)

    def lost(self, link: Link, error: BackendError) -> None:
        """The container, or its engine, is not there as it was a moment ago."""
        link.seen_at = float("-inf")
        self.status = Status("error", str(error))

    def settle(self) -> None:
        """The daemon is lost, and whoever got away from it is to be ended."""
        if (link := self.link) and link.plain:
            link.plain.settle()

    def _wants_daemon(self, link: Link) -> bool:
        return self._how != "none" and asyncio.get_running_loop().time() >= link.retry_at

    async def _start_daemon(self, link: Link, container: Container, found: dict[str, Any]) -> None:
        """Start it, or note why there is none: commands then go through the engine's exec."""
        if link.launched is not None:
            await link.launched.close()
            link.launched = None
            self.settle()
        try:
            link.launched = await launch(container, found, self._how, self.token)
            link.why = ""
        except NoDaemon as reason:
            link.why = f"commands go through the engine's exec, for {reason}"
            link.retry_at = (
                float("inf") if reason.final else asyncio.get_running_loop().time() + constants.DAEMON_PAUSE_SECONDS
            )


async def _let_go(link: Link) -> None:
    """End the connection to a daemon, and what this loop follows in the background."""
    if link.launched is not None:
        await link.launched.close()
    if link.plain is not None:
        await link.plain.close()
    link.launched = link.plain = link.files = None
