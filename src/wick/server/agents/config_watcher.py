"""Follows agents.yaml: who changes it need not start the server again, and who breaks it breaks nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from wick._internal.worker_threads import in_thread
from wick.config import Config, load
from wick.errors import ConfigError

logger = logging.getLogger("wick.server")

POLL_SECONDS = 1.0
FileStamp = tuple[int, int, int] | None


class ConfigWatcher:
    """A config file that may change at any time."""

    def __init__(self, path: Path, check: Callable[[Config], bool] = lambda config: False) -> None:
        self.path = Path(path)
        self._check = check  # raises a ConfigError, or returns True if the file lies in a workspace
        self._stamp: FileStamp = None
        self._pinned = 0  # the inode that the mounts of a workspace protect

    async def read(self) -> Config:
        """What it says now; a ConfigError if that cannot be used."""
        self._stamp = await in_thread(self._stat, "config")
        self._check_inode()
        config = await in_thread(lambda: load(self.path), "config")
        if await in_thread(lambda: self._check(config), "config") and self._stamp is not None:
            self._pinned = self._stamp[2]
        return config

    def _check_inode(self) -> None:
        """A mount protects one inode. A file that replaced it could be written by a command that runs."""
        if self._pinned and self._stamp is not None and self._stamp[2] != self._pinned:
            raise ConfigError(
                f"{self.path} lies in a workspace and was replaced by another file, which a command may have written; "
                "look at it, and start the server again, or keep it outside of the workspace"
            )

    async def watch(self, took: Callable[[Config], None], broken: Callable[[str], None]) -> None:
        """Read it again whenever it has changed."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if await in_thread(self._stat, "config") == self._stamp:
                continue
            try:
                took(await self.read())
                logger.info("%s was read again", self.path)
            except ConfigError as error:
                logger.warning("the agents stay as they were: %s", error)
                broken(str(error))
            except Exception:  # a part of the file may load a module that fails
                logger.exception("the agents stay as they were, as %s cannot be used", self.path)
                broken("the config was changed and cannot be used; the server's log has more")

    def _stat(self) -> FileStamp:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
