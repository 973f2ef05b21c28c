"""The room that a workspace has on its disk: checked before a file is written or a command begins."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock
from typing import Any

from wick.errors import BackendError
from wick.workspace.disk_usage import Usage, free_bytes, free_room, total_bytes

COUNT_SECONDS = 30.0  # after which a workspace is counted again, if anything on its disk has changed
RESERVE_PART, QUOTA_PART = 10, 4  # of a small disk, a tenth is reserved, and a workspace gets a fourth


@dataclass(frozen=True, slots=True)
class Quota:
    """What a workspace may take: `disk` bytes of its own, while `reserve` bytes of its disk stay free; 0: no limit."""

    disk: int = 0
    reserve: int = 0

    def __bool__(self) -> bool:
        return bool(self.disk or self.reserve)


class DiskSpace:
    """How much room a workspace has. Counting is rare: the free space of the disk says when it may have changed."""

    def __init__(self, folder: str, quota: Quota) -> None:
        total = total_bytes(folder) if quota else 0
        self.disk = min(quota.disk, total // QUOTA_PART) if quota.disk else 0
        self.reserve = min(quota.reserve, total // RESERVE_PART) if quota.reserve else 0
        self._folder, self._lock = folder, Lock()
        self._used, self._free, self._at = 0, 0, 0.0
        self._is_counted = False

    def check(self, wanted: int = 0) -> int:
        """Raise a BackendError if there is no room for so many bytes; return how many there are room for."""
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
                said = f"the workspace has {used} of its {self.disk} bytes (quotas.disk)"
                raise BackendError(f"{said}; delete files, which the file tools still do", "no_space")
            room = min(room, self.disk - used)
        return max(room, 1)

    def add_written(self, written: int) -> None:
        """Count a file that was written."""
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
                usage = Usage(self._folder)
                while not usage.step(1.0):
                    pass
                self._used, self._free, self._at, self._is_counted = usage.bytes, free, time.monotonic(), True
            return self._used

    def watch_limits(self, scratch: str) -> dict[str, Any] | None:
        """Return what wickd watches while a command runs."""
        if not (self.disk or self.reserve):
            return None
        paths = [self._folder, *([scratch] if scratch else [])]
        return {"paths": paths, "quota": self.disk, "used": self._used, "reserve": self.reserve}
