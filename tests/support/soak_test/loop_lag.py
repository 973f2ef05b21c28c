"""Event-loop lag of a server, from its histogram `wick_loop_lag_seconds`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

_BUCKET = re.compile(r'^wick_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)

Buckets = dict[float, float]  # the number of samples up to that lag in seconds


def buckets(metrics: str) -> Buckets:
    """Parse the histogram from the text of /metrics; empty before the first sample."""
    return {float(bound): float(count) for bound, count in _BUCKET.findall(metrics)}


def since(now: Buckets, before: Buckets) -> Buckets:
    """Return the difference of two histograms."""
    return {bound: count - before.get(bound, 0.0) for bound, count in now.items()}


def together(several: Iterable[Buckets]) -> Buckets:
    """All of them in one."""
    total: Buckets = {}
    for one in several:
        for bound, count in one.items():
            total[bound] = total.get(bound, 0.0) + count
    return total


def looks(found: Buckets) -> int:
    return int(max(found.values(), default=0.0))


def late_ms(found: Buckets, share: float = 0.99) -> float | None:
    """Return a percentile of the lag in milliseconds, interpolated between buckets."""
    if not looks(found):
        return None
    wanted = share * looks(found)
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *sorted(found.items())]):
        if count >= wanted:
            bound = low if high == float("inf") else high
            return round((low + (bound - low) * (wanted - below) / (count - below)) * 1000, 2)
    return None
