"""Disk quota for commands: end a command when its workspace exceeds the quota or the disk's reserve is used."""

from __future__ import annotations

from typing import Callable

from wick.wickd.event_loop import EventLoop, Timer
from wick.workspace.disk_usage import DiskUsage, free_bytes, free_room
from wick.workspace.results import Json

FASTEST = 2_000_000_000  # assumed maximum write rate of a command, in bytes per second
SOONEST, LATEST = 0.005, 0.25  # seconds between two checks
SLICE = 0.003  # seconds of counting at a time


class DiskQuotaWatch:
    """A periodic check of the disk while a command runs. The less space is left, the shorter the interval.

    `quota` and `used` are bytes of the workspace, `reserve` must stay free; 0 is no limit. The change of free space and
    inodes is a cheap upper bound of the bytes written. The workspace is counted only if that bound exceeds the quota.
    """

    def __init__(self, loop: EventLoop, limits: Json, end: Callable[[str], None]) -> None:
        self._loop, self._end = loop, end
        self._paths, self._quota, self._reserve = limits["paths"], limits["quota"], limits["reserve"]
        self._used = limits["used"]
        self._free = self._measure_free(free_room)
        self._usage: DiskUsage | None = None
        self.timer: Timer | None = None
        self.stopped = False
        self._check_limits()

    def stop(self) -> None:
        self.stopped = True
        if self.timer is not None:
            self.timer.cancel()

    def _measure_free(self, free: Callable[[str], int]) -> int:
        try:
            return min(map(free, self._paths))
        except (OSError, ValueError):
            return 2**62

    def _check_limits(self) -> None:
        if self.stopped:
            return
        free = self._measure_free(free_bytes)
        if self._reserve and free < self._reserve:
            self._end(f"the disk is full but for {self._reserve} bytes that are reserved; delete files")
            return
        room = free - self._reserve if self._reserve else free
        now = self._measure_free(free_room) if self._quota else 0
        left = self._quota - self._used - max(self._free - now, 0) if self._quota else room
        if left < 0:  # other processes may have used the missing space: count the workspace, in slices
            usage = self._usage = self._usage or DiskUsage(self._paths[0])
            if usage.step(SLICE):
                self._used, self._free, self._usage = usage.bytes, now, None
                if self._used > self._quota:
                    self._end(f"the workspace has more than its {self._quota} bytes (quotas.disk); delete files")
                    return
        room = min(room, left)
        pause = 0.0 if self._usage else min(max(room / FASTEST / 2, SOONEST), LATEST)
        self.timer = self._loop.call_later(pause, self._check_limits)
