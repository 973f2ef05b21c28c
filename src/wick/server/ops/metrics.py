"""Prometheus metrics: counters, gauges and histograms, in the text exposition format.

metrics = Metrics()
metrics.add("wick_runs_total", outcome="completed")
metrics.observe("wick_request_seconds", 0.012, method="GET")
metrics.gauge("wick_runs_running", lambda: 3)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

# Every metric with its help text.
HELP = {
    "wick_requests_total": "Requests that were answered, by method, route and status.",
    "wick_request_seconds": "How long requests took until their answer began.",
    "wick_refused_total": "Requests that were not let in, by reason.",
    "wick_runs_total": "Runs that ended, by outcome.",
    "wick_runs_running": "Runs that go on now.",
    "wick_streams_open": "Streams that are being read now.",
    "wick_terminals_open": "Terminals that are open now.",
    "wick_agents": "Agents that can be talked to.",
    "wick_instances": "Agents that are built and ready, one for each user.",
    "wick_tokens_total": "Tokens that models took in and gave out, by agent, model and kind.",
    "wick_cost_dollars_total": "What they cost, as far as prices are known.",
    "wick_frames_total": "Frames that were sent to readers of streams.",
    "wick_resyncs_total": "Readers of streams that could not keep up and began anew from the log.",
    "wick_loop_lag_seconds": "How late the event loop was, whenever it was looked at.",
    "wick_open_files": "Descriptors that the server has open.",
    "wick_memory_bytes": "Memory that the server holds.",
}
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MAX_SERIES = 2_000  # per metric; some label values come from requests

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """The metrics of a server. A metric without a help text in HELP is refused."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, list[float]]] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Increment a counter."""
        series, key = self._counters.setdefault(_check_name(name), {}), _series_key(labels)
        if key in series or len(series) < MAX_SERIES:
            series[key] = series.get(key, 0.0) + amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Record a value in a histogram."""
        series, key = self._histograms.setdefault(_check_name(name), {}), _series_key(labels)
        if key not in series and len(series) >= MAX_SERIES:
            return
        counts = series.setdefault(key, [0.0] * (len(BUCKETS) + 2))
        counts[bisect_left(BUCKETS, value)] += 1
        counts[-1] += value

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Register a gauge whose value is read on every scrape."""
        self._gauges[_check_name(name)] = read

    def render(self) -> str:
        """Return all metrics in the text exposition format."""
        return "\n".join(self._render_lines()) + "\n"

    def _render_lines(self) -> Iterator[str]:
        for name, read in sorted(self._gauges.items()):
            yield from _header_lines(name, "gauge")
            yield f"{name} {read():g}"
        for name, series in sorted(self._counters.items()):
            yield from _header_lines(name, "counter")
            for key, value in sorted(series.items()):
                yield f"{name}{_format_labels(key)} {value:.17g}"
        for name, rows in sorted(self._histograms.items()):
            yield from _header_lines(name, "histogram")
            for key, counts in sorted(rows.items()):
                yield from _bucket_lines(name, key, counts)


def _check_name(name: str) -> str:
    if name not in HELP:
        raise KeyError(f"{name} has no help text in metrics.HELP; add one")
    return name


def _header_lines(name: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {HELP[name]}"
    yield f"# TYPE {name} {kind}"


def _bucket_lines(name: str, key: Labels, counts: list[float]) -> Iterator[str]:
    total = 0.0
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts[:-1], strict=True):
        total += count
        yield f"{name}_bucket{_format_labels((*key, ('le', bound)))} {total:g}"
    yield f"{name}_sum{_format_labels(key)} {counts[-1]:.17g}"
    yield f"{name}_count{_format_labels(key)} {total:g}"


def _series_key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _format_labels(key: Labels) -> str:
    if not key:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in key) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
