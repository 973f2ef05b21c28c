"""Numbers for Prometheus, in the format it reads."""

from __future__ import annotations

import re

import pytest

from wick.server.ops.metrics import BUCKETS, MAX_SERIES, Metrics


def value(text: str, series: str) -> float:
    (found,) = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.rsplit(" ", 1)[0] == series]
    return float(found)


def test_counters_add_up_by_their_labels() -> None:
    metrics = Metrics()
    metrics.add("wick_runs_total", outcome="completed")
    metrics.add("wick_runs_total", 2, outcome="completed")
    metrics.add("wick_runs_total", outcome="failed")
    text = metrics.render()
    assert "# TYPE wick_runs_total counter" in text
    assert value(text, 'wick_runs_total{outcome="completed"}') == 3
    assert value(text, 'wick_runs_total{outcome="failed"}') == 1


def test_a_histogram_counts_what_is_at_most_its_bound() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.005, 0.3, 99.0):
        metrics.observe("wick_request_seconds", seconds, method="GET")
    text = metrics.render()
    assert value(text, 'wick_request_seconds_bucket{method="GET",le="0.005"}') == 2
    assert value(text, 'wick_request_seconds_bucket{method="GET",le="0.5"}') == 3
    assert value(text, 'wick_request_seconds_bucket{method="GET",le="+Inf"}') == 4
    assert value(text, 'wick_request_seconds_count{method="GET"}') == 4
    assert value(text, 'wick_request_seconds_sum{method="GET"}') == pytest.approx(99.306)
    counts = [value(text, f'wick_request_seconds_bucket{{method="GET",le="{bound}"}}') for bound in BUCKETS]
    assert counts == sorted(counts)


def test_a_gauge_is_looked_up_when_asked() -> None:
    metrics, running = Metrics(), [0]
    metrics.gauge("wick_runs_running", lambda: running[0])
    running[0] = 7
    assert value(metrics.render(), "wick_runs_running") == 7


def test_labels_cannot_break_out_of_their_line() -> None:
    metrics = Metrics()
    metrics.add("wick_runs_total", outcome='a"b\\c\nd')
    line = next(line for line in metrics.render().splitlines() if line.startswith("wick_runs_total"))
    assert re.fullmatch(r'wick_runs_total\{outcome="a\\"b\\\\c\\nd"\} 1', line)


def test_labels_from_outside_do_not_grow_without_end() -> None:
    metrics = Metrics()
    for number in range(MAX_SERIES + 100):
        metrics.add("wick_tokens_total", agent=str(number))
    assert metrics.render().count("wick_tokens_total{") == MAX_SERIES


def test_a_number_that_nobody_explained_is_refused() -> None:
    with pytest.raises(KeyError, match="HELP"):
        Metrics().add("wick_mystery")
