"""Disk usage of a workspace, and free space of its disk.

walk = DiskUsage("/srv/workspace")
while not walk.step(0.002):              a few milliseconds at a time
    …
walk.bytes
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from itertools import islice
from typing import Iterator

from wick.workspace.rooted_folder import make_listable

BLOCK = 512  # bytes, of st_blocks
ENTRY = 4_096  # minimum bytes per file: an empty file still uses one of the disk's inodes
PATH_BYTES = 4_000  # the kernel takes paths up to 4,096
DEEPEST = 64_000  # bytes of a path; anything deeper counts as the whole quota
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def free_bytes(path: str) -> int:
    """Return the bytes on the disk of a path that are free for unprivileged users."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def free_room(path: str) -> int:
    """Return free bytes plus free inodes, weighted. A change shows that a usage count is out of date."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize + disk.f_favail * ENTRY


def total_bytes(path: str) -> int:
    """Return the size of the disk of a path, in bytes."""
    disk = os.statvfs(path)
    return disk.f_blocks * disk.f_frsize


class DiskUsage:
    """The bytes that a folder takes on its disk, counted step by step. No link is followed; a file counts once."""

    def __init__(self, path: str) -> None:
        self.bytes = 0
        self._linked: set[tuple[int, int]] = set()
        self._walk = self._walk_entries(path)

    def step(self, seconds: float) -> bool:
        """Continue counting for some seconds; return True when the count is complete."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if len(list(islice(self._walk, 64))) < 64:
                return True
        return False

    def _walk_entries(self, path: str) -> Iterator[None]:
        """Walk all entries by descriptor, because a folder may be replaced by a link meanwhile."""
        todo = [os.fsencode(path)]
        while todo:
            folder = todo.pop()
            if len(folder) > DEEPEST:
                self.bytes = 2**62
                return
            try:
                fd = _open_folder(folder)
            except OSError:
                continue
            try:
                for name in map(os.fsencode, os.listdir(fd)):
                    with suppress(OSError):
                        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        self._count_entry(info)
                        if stat.S_ISDIR(info.st_mode):
                            todo.append(folder + b"/" + name)
                    yield
            except OSError:
                continue
            finally:
                os.close(fd)

    def _count_entry(self, info: os.stat_result) -> None:
        if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
            if (info.st_dev, info.st_ino) in self._linked:
                return
            self._linked.add((info.st_dev, info.st_ino))
        self.bytes += max(info.st_blocks * BLOCK, ENTRY)


def _open_folder(path: bytes) -> int:
    """Open a folder at any depth. Make it listable for its owner if needed, so that its files count."""
    fd: int | None = None
    while len(path) > PATH_BYTES:
        head, path = path[: path.rindex(b"/", 0, PATH_BYTES)], path[path.rindex(b"/", 0, PATH_BYTES) + 1 :]
        fd = _open_at(head, fd)
    return _open_at(path, fd)


def _open_at(path: bytes, parent: int | None) -> int:
    try:
        try:
            return os.open(path, _FOLDER, dir_fd=parent)
        except PermissionError:
            info = os.stat(path, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                raise
            make_listable(os.open(path, os.O_PATH | _FOLDER, dir_fd=parent))
            return os.open(path, _FOLDER, dir_fd=parent)
    finally:
        if parent is not None:
            os.close(parent)
