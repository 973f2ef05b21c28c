"""Metrics of all workers of a host: a scrape of one collects those of the others over the live plane."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from secrets import token_hex

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from wick.server.live import LivePlane, subject_token
from wick.server.ops.metrics import Metrics

WAIT_SECONDS = 1.0  # for the replies of the other workers


class WorkerMetrics:
    """The metrics of the workers that one supervisor has started. Each series has the label `worker`, a process id."""

    def __init__(self, metrics: Metrics, live: LivePlane, group: str, count: int) -> None:
        self._metrics, self._live, self._count = metrics, live, count
        self._subject, self._worker = f"metrics.{subject_token(group)}", str(os.getpid())
        live.subscribe(self._subject, self._reply)

    def _reply(self, data: bytes) -> None:
        """Send the metrics of this worker to the one that asks. The data of a request is the last part of its inbox."""
        text = json.dumps([self._worker, self._metrics.render()])
        self._live.publish(f"{self._subject}.{subject_token(data.decode(errors='replace'))}", text.encode())

    async def render(self) -> str:
        """Return the metrics of all workers. One that does not reply in time is left out."""
        found, is_complete = {self._worker: [*text_string_to_metric_families(self._metrics.render())]}, asyncio.Event()

        def receive(data: bytes) -> None:
            with suppress(ValueError, TypeError):  # another program may be connected to the live plane
                worker, text = json.loads(data)
                found[str(worker)] = [*text_string_to_metric_families(text)]
            if len(found) >= self._count:
                is_complete.set()

        inbox = token_hex(8)
        unsubscribe = self._live.subscribe(f"{self._subject}.{inbox}", receive)
        try:
            self._live.publish(self._subject, inbox.encode())
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await is_complete.wait()
        finally:
            unsubscribe()
        return generate_latest(_MergedMetrics(found)).decode()


class _MergedMetrics(Collector):
    """The metrics of several workers as one set."""

    def __init__(self, by_worker: Mapping[str, Iterable[Metric]]) -> None:
        self._by_worker = by_worker

    def collect(self) -> Iterator[Metric]:
        merged: dict[str, Metric] = {}
        for worker, metrics in sorted(self._by_worker.items()):
            for each in metrics:
                metric = merged.setdefault(each.name, Metric(each.name, each.documentation, each.type))
                metric.samples += [
                    sample._replace(labels={"worker": worker, **sample.labels}) for sample in each.samples
                ]
        yield from merged.values()
