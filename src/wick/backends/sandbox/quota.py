"""Disk quota of a workspace: checked before a file is written or a command starts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock
from typing import Any

from wick.errors import BackendError
from wick.workspace.disk_usage import DiskUsage, free_bytes, free_room, total_bytes

COUNT_SECONDS = 30.0  # after which usage is counted again, if the free space has changed
RESERVE_PART, QUOTA_PART = 10, 4  # on a small disk, reserve at most 1/10, and use at most 1/4


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a workspace: at most `disk` bytes, with `reserve` bytes of its disk left free; 0: no limit."""

    disk: int = 0
    reserve: int = 0

    def __bool__(self) -> bool:
        return bool(self.disk or self.reserve)


class DiskSpace:
    """The disk space of a workspace. Usage is counted rarely: changed free space triggers a recount."""

    def __init__(self, folder: str, quota: Quota) -> None:
        total = total_bytes(folder) if quota else 0
        self.disk = min(quota.disk, total // QUOTA_PART) if quota.disk else 0
        self.reserve = min(quota.reserve, total // RESERVE_PART) if quota.reserve else 0
        self._folder, self._lock = folder, Lock()
        self._used, self._free, self._at = 0, 0, 0.0
        self._is_counted = False

    def check(self, wanted: int = 0) -> int:
        """Raise a BackendError if so many bytes do not fit; return how many bytes fit."""
        if not (self.disk or self.reserve):
            return 0
        free = free_bytes(self._folder)
        if self.reserve and free - wanted < self.reserve:
            raise BackendError(
                f"the disk is full but for {self.reserve} bytes that are reserved; delete files", "no_space"
            )
        room = free - self.reserve
        if self.disk:
            used = self._count_used(free_room(self._folder), wanted)
            if used + wanted > self.disk:
                problem = f"the workspace has {used} of its {self.disk} bytes (quotas.disk)"
                raise BackendError(f"{problem}; delete files, which the file tools still do", "no_space")
            room = min(room, self.disk - used)
        return max(room, 1)

    def add_written(self, written: int) -> None:
        """Add a written file to the usage."""
        with self._lock:
            self._used += written

    def _count_used(self, free: int, wanted: int) -> int:
        with self._lock:
            drop, old = max(self._free - free, 0), time.monotonic() - self._at > COUNT_SECONDS and free != self._free
            if (
                not self._is_counted
                or old
                or self._used + drop + wanted > self.disk
                or 2 * drop > self.disk - self._used
            ):
                usage = DiskUsage(self._folder)
                while not usage.step(1.0):
                    pass
                self._used, self._free, self._at, self._is_counted = usage.bytes, free, time.monotonic(), True
            return self._used

    def watch_limits(self, scratch: str) -> dict[str, Any] | None:
        """Return the limits that wickd enforces while a command runs, or None."""
        if not (self.disk or self.reserve):
            return None
        paths = [self._folder, *([scratch] if scratch else [])]
        return {"paths": paths, "quota": self.disk, "used": self._used, "reserve": self.reserve}
