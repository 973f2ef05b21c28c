"""Prometheus metrics of a server, as scraped."""

from __future__ import annotations

import re
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server_process import host_server
from wick.server.ops.metrics import BUCKETS, MAX_MODELS, Metrics


def scrape(metrics: Metrics | str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Parse the metrics as Prometheus does: by name and labels."""
    text = metrics if isinstance(metrics, str) else metrics.render()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(metrics: Metrics | str, name: str, **labels: str) -> float:
    return scrape(metrics)[name, frozenset(labels.items())]


def test_a_counter_adds_up_by_its_labels() -> None:
    metrics = Metrics()
    metrics.runs.labels("completed").inc()
    metrics.runs.labels("completed").inc(2)
    metrics.runs.labels("failed").inc()
    assert "# TYPE wick_runs_total counter" in metrics.render()
    assert value(metrics, "wick_runs_total", outcome="completed") == 3
    assert value(metrics, "wick_runs_total", outcome="failed") == 1


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.005, 0.3, 99.0):
        metrics.count_response("GET", "/health", 200, seconds)
    bucket = "wick_request_seconds_bucket"
    assert value(metrics, bucket, method="GET", le="0.005") == 2
    assert value(metrics, bucket, method="GET", le="0.5") == 3
    assert value(metrics, bucket, method="GET", le="+Inf") == 4
    assert value(metrics, "wick_request_seconds_count", method="GET") == 4
    assert value(metrics, "wick_request_seconds_sum", method="GET") == pytest.approx(99.306)
    counts = [value(metrics, bucket, method="GET", le=str(bound)) for bound in BUCKETS]
    assert counts == sorted(counts)


def test_a_gauge_is_read_on_every_scrape() -> None:
    metrics, running = Metrics(), [0]
    metrics.runs_running.set_function(lambda: running[0])
    running[0] = 7
    assert value(metrics, "wick_runs_running") == 7


def test_label_values_are_escaped() -> None:
    metrics = Metrics()
    metrics.runs.labels('a"b\\c\nd').inc()
    line = next(line for line in metrics.render().splitlines() if line.startswith("wick_runs_total"))
    assert re.fullmatch(r'wick_runs_total\{outcome="a\\"b\\\\c\\nd"\} 1.0', line)


def test_label_values_of_users_are_bounded_and_sums_stay_right() -> None:
    metrics = Metrics()
    for number in range(MAX_MODELS + 100):
        metrics.count_usage(str(number), "m", {"input": 2, "output": 1}, 0.5)
    metrics.count_usage("0", "m", {"input": 2, "output": 1}, 0.5)  # a known agent keeps its own series
    assert metrics.render().count("wick_cost_dollars_total{") == MAX_MODELS + 1
    assert value(metrics, "wick_tokens_total", agent="0", model="m", kind="input") == 4
    assert value(metrics, "wick_tokens_total", agent="other", model="other", kind="input") == 200
    assert value(metrics, "wick_cost_dollars_total", agent="other", model="other") == 50
    for method in ("BREW", "PROPFIND", "x" * 1000):
        metrics.count_response(method, "(none)", 405, 0.0)
    assert value(metrics, "wick_requests_total", method="other", path="(none)", status="405") == 3


def test_two_servers_in_a_process_do_not_share_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.frames.inc(3)
    assert value(first, "wick_frames_total") == 3 and value(second, "wick_frames_total") == 0
    assert "wick_" not in prometheus_client.generate_latest().decode()


def test_a_scrape_has_documented_series_only() -> None:
    metrics = Metrics()
    metrics.count_response("GET", "/health", 200, 0.1)
    assert "_created" not in metrics.render()
    assert {line.split()[2] for line in metrics.render().splitlines() if line.startswith("# HELP")} == {
        line.split()[2] for line in metrics.render().splitlines() if line.startswith("# TYPE wick_")
    }


async def test_agents_of_single_users_are_not_named(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"a": {"model": "demo"}}) as here:
        async with here.client("ada") as ada:
            async with ada.post("/agents/", json={"agent_id": "secret-plan", "model": "demo"}) as answer:
                assert answer.status == 201, await answer.text()
            body = {"messages": [{"role": "user", "content": "hi"}]}
            async with ada.post("/agents/secret-plan/invoke", json=body) as answer:
                assert answer.status == 200, await answer.text()
        async with here.client("olga") as olga, olga.get("/metrics") as answer:
            text = await answer.text()
    assert "secret-plan" not in text
    assert value(text, "wick_tokens_total", agent="other", model="other", kind="output") > 0


async def test_a_server_counts_requests_runs_tokens_and_instances(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"a": {"model": "demo"}}) as here:
        async with here.client("ada") as ada:
            async with ada.post("/agents/a/invoke", json={"messages": [{"role": "user", "content": "hi"}]}) as answer:
                assert answer.status == 200, await answer.text()
                used = (await answer.json())["usage"]
            async with ada.get("/metrics") as answer:
                assert answer.status == 403
                code = (await answer.json())["error"]["code"]
        async with here.client("olga") as olga, olga.get("/metrics") as answer:
            assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain; version=")
            text = await answer.text()
    found = scrape(text)
    tokens = {dict(labels)["kind"]: count for (name, labels), count in found.items() if name == "wick_tokens_total"}
    assert tokens == {"input": used["input_tokens"], "output": used["output_tokens"]} and tokens["output"] > 0
    route = {"method": "POST", "path": "/agents/{id}/invoke", "status": "200"}
    assert value(text, "wick_requests_total", **route) == 1
    assert value(text, "wick_refused_total", code=code) == 1
    assert value(text, "wick_runs_total", outcome="completed") == 1
    assert value(text, "wick_agents") == 1 and value(text, "wick_instances") == 2  # of ada, and of the startup message
    assert value(text, "wick_terminals_open") == 0 and value(text, "wick_runs_running") == 0
    assert value(text, "wick_memory_bytes") > 1_000_000
