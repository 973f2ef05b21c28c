"""How much of a disk a workspace takes, and how much of it stays free.

    walk = Usage("/srv/workspace")
    while not walk.step(0.002):              a few milliseconds at a time
        …
    walk.bytes

This module also runs inside containers: the standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from itertools import islice
from typing import Iterator

BLOCK = 512  # bytes, of st_blocks


def free_bytes(path: str) -> int:
    """Return the bytes that are free for a plain user on the disk of a path."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def total_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


class Usage:
    """The bytes that a folder takes on its disk, counted step by step. No link is followed; a file counts once."""

    def __init__(self, path: str) -> None:
        self.bytes = 0
        self._linked: set[tuple[int, int]] = set()
        self._walk = self._entries(path)

    def step(self, seconds: float) -> bool:
        """Go on counting for so long; return True when all is counted."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if len(list(islice(self._walk, 64))) < 64:
                return True
        return False

    def _entries(self, path: str) -> Iterator[None]:
        """Every entry, by descriptors: a folder may be exchanged for a link meanwhile."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        todo = [path]
        while todo:
            folder = todo.pop()
            try:
                fd = os.open(folder, flags)
            except OSError:
                continue
            try:
                for name in os.listdir(fd):
                    with suppress(OSError):
                        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        self._count(found)
                        if stat.S_ISDIR(found.st_mode):
                            todo.append(f"{folder}/{name}")
                    yield
            except OSError:
                continue
            finally:
                os.close(fd)

    def _count(self, found: os.stat_result) -> None:
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) in self._linked:
                return
            self._linked.add((found.st_dev, found.st_ino))
        self.bytes += found.st_blocks * BLOCK
