"""Watcher of agents.yaml: reloads it when it changes, and keeps the previous agents if it is not valid."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from wick._internal.worker_threads import run_in_thread
from wick.config import Config, load
from wick.errors import ConfigError

logger = logging.getLogger("wick.server")

POLL_SECONDS = 1.0
FileStamp = tuple[int, int, int] | None


class ConfigWatcher:
    """Reads a config file and watches it for changes."""

    def __init__(self, path: Path, check: Callable[[Config], bool] = lambda config: False) -> None:
        self.path = Path(path)
        self._check = check  # raises a ConfigError, or returns True if the file is in a workspace
        self._stamp: FileStamp = None
        self._pinned = 0  # the inode that the mounts of a workspace protect

    async def read(self) -> Config:
        """Load and check the file; raise a ConfigError if it cannot be used."""
        self._stamp = await run_in_thread(self._stat, "config")
        if self._pinned and self._stamp is not None and self._stamp[2] != self._pinned:
            raise ConfigError(  # a mount protects only the old inode
                f"{self.path} is in a workspace and was replaced by another file, which a command may have written; "
                "review it and restart the server, or move it out of the workspace"
            )
        config = await run_in_thread(lambda: load(self.path), "config")
        if await run_in_thread(lambda: self._check(config), "config") and self._stamp is not None:
            self._pinned = self._stamp[2]
        return config

    async def watch(self, took: Callable[[Config], None], broken: Callable[[str], None]) -> None:
        """Reload the file whenever it has changed, and report the config or the error."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if await run_in_thread(self._stat, "config") == self._stamp:
                continue
            try:
                took(await self.read())
                logger.info("reloaded %s", self.path)
            except ConfigError as error:
                logger.warning("the config was not reloaded: %s", error)
                broken(str(error))
            except Exception:  # the file may import a module that raises anything
                logger.exception("the config was not reloaded: %s cannot be used", self.path)
                broken("the changed config cannot be used; see the server's log")

    def _stat(self) -> FileStamp:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
