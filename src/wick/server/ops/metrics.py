"""Prometheus metrics of a server.

metrics = Metrics()
metrics.runs.labels(outcome="completed").inc()
metrics.runs_running.set_function(lambda: 3)
metrics.render()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WS"))
MAX_MODELS = 2_000  # pairs of agent and model; users choose both names
OTHER = "other"  # the label value of everything above a bound


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._models: set[tuple[str, str]] = set()
        self._responses: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}  # by method, route and status
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, buckets=BUCKETS, registry=self.registry)

        by_route = ("method", "path", "status")
        self.requests = counter("wick_requests_total", "Responses, by method, route and status.", by_route)
        self.request_seconds = histogram("wick_request_seconds", "Seconds until a response started.", ("method",))
        self.refused = counter("wick_refused_total", "Requests refused before their route, by error code.", ("code",))
        self.runs = counter("wick_runs_total", "Finished runs, by outcome.", ("outcome",))
        self.runs_running = gauge("wick_runs_running", "Runs in progress.")
        self.streams_open = gauge("wick_streams_open", "Open event streams of runs.")
        self.terminals_open = gauge("wick_terminals_open", "Open terminals.")
        self.agents = gauge("wick_agents", "Agents of the config file and of the program.")
        self.instances = gauge("wick_instances", "Agents that are built and ready, one for each user.")
        by_model = ("agent", "model")
        self.tokens = counter("wick_tokens_total", "Tokens of model calls, by kind.", (*by_model, "kind"))
        self.cost = counter("wick_cost_dollars_total", "Cost of model calls with a known price.", by_model)
        self.frames = counter("wick_frames_total", "Frames sent to clients of event streams.")
        self.resyncs = counter("wick_resyncs_total", "Clients of event streams that fell behind and resynced.")
        self.live_connected = gauge("wick_live_connected", "1 if the live plane is connected, else 0.")
        self.servers_alive = gauge("wick_servers_alive", "Servers of the cluster with a recent heartbeat.")
        self.loop_lag = histogram("wick_loop_lag_seconds", "Lag of the event loop, in samples.")
        self.open_files = gauge("wick_open_files", "Open file descriptors of the server process.")
        self.memory = gauge("wick_memory_bytes", "Resident memory of the server process.")

    def count_response(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a response. A method that HTTP does not define is counted as `other`."""
        key = method if method in METHODS else OTHER, path, status
        if key not in self._responses:  # looking up labels takes a lock and costs as much as counting
            self._responses[key] = self.requests.labels(*key), self.request_seconds.labels(key[0])
        requests, latency = self._responses[key]
        requests.inc()
        latency.observe(seconds)

    def count_usage(self, agent: str, model: str, tokens: Mapping[str, int], dollars: float) -> None:
        """Count the tokens, by kind, and the cost of model calls. Above MAX_MODELS, all are counted as `other`."""
        if (agent, model) not in self._models:
            if len(self._models) < MAX_MODELS:
                self._models.add((agent, model))
            else:
                agent = model = OTHER
        for kind, count in tokens.items():
            self.tokens.labels(agent, model, kind).inc(count)
        self.cost.labels(agent, model).inc(dollars)

    def render(self) -> str:
        """Return all metrics in the text exposition format."""
        return generate_latest(_WithoutCreated(self.registry)).decode()


class _WithoutCreated(Collector):
    """Leaves out the `_created` series, which prometheus-client can disable only for the whole process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
