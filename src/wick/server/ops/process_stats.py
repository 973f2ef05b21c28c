"""Statistics of the process: event-loop lag, memory and open file descriptors."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress

from wick.server.ops.metrics import BUCKETS, Metrics

SAMPLE_SECONDS = 0.02


class LoopMonitor:
    """Measures the lag of the event loop fifty times a second, from `start` to `stop`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        metrics.memory.set_function(memory_bytes)
        metrics.open_files.set_function(count_open_files)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + SAMPLE_SECONDS
        self._timer = loop.call_at(self._due, self._measure, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self, loop: asyncio.AbstractEventLoop) -> None:
        late = loop.time() - self._due
        for lag in lag_samples(late) if late >= SAMPLE_SECONDS else (max(late, 0.0),):
            self._metrics.loop_lag.observe(lag)
        self._due = loop.time() + SAMPLE_SECONDS
        self._timer = loop.call_at(self._due, self._measure, loop)


def lag_samples(late: float) -> list[float]:
    """Return the lag of this sample and of the samples that were missed while the loop was blocked."""
    late = min(max(late, 0.0), BUCKETS[-1])
    return [late - missed * SAMPLE_SECONDS for missed in range(int(late / SAMPLE_SECONDS) + 1)]


def memory_bytes() -> float:
    """Return the resident memory of the process, or its peak where the system does not report the current value."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * resource.getpagesize())
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(most if sys.platform == "darwin" else most * 1024)


def count_open_files() -> float:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return float(len(os.listdir(folder)) - 1)  # one descriptor is that of the listed folder
    return 0.0
