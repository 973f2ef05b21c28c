"""Statistics of the process: event-loop lag, memory and open file descriptors."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress
from time import thread_time

from wick.server.ops.metrics import BUCKETS, Metrics

SAMPLE_SECONDS = 0.02  # between two samples while the event loop works
IDLE_SAMPLE_SECONDS = 0.25  # and while it waits; a longer stall is always measured
BUSY_SHARE = 0.05  # of a core, above which the event loop works


class LoopMonitor:
    """Measures the lag of the event loop, from `start` to `stop`.

    It samples fifty times a second while the loop works, and four times a second while it waits: each sample wakes
    the process. A request, a late sample, or use of the CPU by the loop shortens the interval again.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._due = self._cpu = 0.0
        self._interval = SAMPLE_SECONDS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        metrics.memory.set_function(memory_bytes)
        metrics.open_files.set_function(count_open_files)

    def start(self) -> None:
        self._loop, self._cpu = asyncio.get_running_loop(), thread_time()
        self._schedule(self._loop, SAMPLE_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop = None

    def note_request(self) -> None:
        """Sample at the short interval from now on: a request may block the loop."""
        if self._interval <= SAMPLE_SECONDS or self._timer is None or self._loop is None:
            return
        if self._due > self._loop.time():  # else the sample is late, which must be counted
            self._timer.cancel()
            self._schedule(self._loop, SAMPLE_SECONDS)

    def _schedule(self, loop: asyncio.AbstractEventLoop, interval: float) -> None:
        self._interval = interval
        self._due = loop.time() + interval
        self._timer = loop.call_at(self._due, self._measure, loop)

    def _measure(self, loop: asyncio.AbstractEventLoop) -> None:
        late, cpu = loop.time() - self._due, thread_time()
        for lag in lag_samples(late) if late >= SAMPLE_SECONDS else (max(late, 0.0),):
            self._metrics.loop_lag.observe(lag)
        is_busy = late >= SAMPLE_SECONDS or cpu - self._cpu > BUSY_SHARE * self._interval
        self._cpu = cpu
        self._schedule(loop, SAMPLE_SECONDS if is_busy else min(2 * self._interval, IDLE_SAMPLE_SECONDS))


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
