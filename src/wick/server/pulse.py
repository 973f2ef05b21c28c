"""How the process is: how late its event loop is, how much memory and how many descriptors it holds."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress

from wick.server.metrics import Metrics

LOOK_SECONDS = 1.0


class Pulse:
    """Looks after the event loop once a second, from `start` to `stop`."""

    def __init__(self, metrics: Metrics) -> None:
        self.lag = 0.0
        self._task: asyncio.Task[None] | None = None
        metrics.gauge("wick_loop_lag_seconds", lambda: self.lag)
        metrics.gauge("wick_memory_bytes", memory_bytes)
        metrics.gauge("wick_open_files", open_files)

    def start(self) -> None:
        self._task = asyncio.create_task(self._look(), name="wick pulse")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(LOOK_SECONDS)
            self.lag = max(0.0, loop.time() - before - LOOK_SECONDS)


def memory_bytes() -> float:
    """What the process holds now; the most it ever held, where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * resource.getpagesize())
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(most if sys.platform == "darwin" else most * 1024)


def open_files() -> float:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return float(len(os.listdir(folder)) - 1)  # one of them is the folder's own
    return 0.0
