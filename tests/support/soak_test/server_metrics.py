"""Metrics of the server, sampled every second."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import time
from typing import Any

import aiohttp

from server_process import ServerProcess
from soak_test.clients import BROKEN
from soak_test.ledger import Ledger
from soak_test.loop_lag import Buckets, buckets, late_ms, looks, since, together

WARM_SECONDS = 20.0  # of a process: lazy loading is not a leak


@dataclass(frozen=True)
class Sample:
    """One sample."""

    at: float  # seconds since the soak began
    life: int  # how often the server had been started
    megabytes: float
    files: int
    streams: int
    ended: int
    faults: int
    lag_ms: float | None = None  # 99th percentile since the last sample


@dataclass
class Vitals:
    """All samples and their evaluation."""

    began: float = field(default_factory=time)
    samples: list[Sample] = field(default_factory=list)
    lags: dict[int, Buckets] = field(default_factory=dict)  # by life

    async def look(self, server: ServerProcess, ledger: Ledger, client: aiohttp.ClientSession) -> None:
        if server.process is None or server.process.poll() is not None:
            return
        life, pid = server.starts, server.process.pid
        lag = self._lag(life, await _lags(client))
        with suppress(OSError):
            memory = _megabytes(pid)
            files = len(os.listdir(f"/proc/{pid}/fd"))
            ended, faults = sum(ledger.ended.values()), sum(ledger.faults.values())
            streams = ledger.open_streams
            self.samples.append(Sample(time() - self.began, life, memory, files, streams, ended, faults, lag))

    def _lag(self, life: int, found: Buckets) -> float | None:
        """Return the lag since the last sample of this server process."""
        before, self.lags[life] = self.lags.get(life, {}), found or self.lags.get(life, {})
        return late_ms(since(found, before))

    def longest(self) -> list[Sample]:
        """The longest life of the server, without its first seconds."""
        lives: dict[int, list[Sample]] = {}
        for sample in self.samples:
            lives.setdefault(sample.life, []).append(sample)
        life = max(lives.values(), key=lambda each: each[-1].at - each[0].at, default=[])
        return [sample for sample in life if sample.at >= life[0].at + WARM_SECONDS]

    def figures(self, health: Path) -> dict[str, Any]:
        life = self.longest()
        answers = [float(ms) for _, ms in _lines(health) if ms != "-"]
        lags = together(self.lags.values())
        return {
            "memory_mb_most": round(max((sample.megabytes for sample in self.samples), default=0.0), 1),
            "memory_slope_mb_per_minute": slope([(each.at / 60, each.megabytes) for each in life]),
            "longest_life_minutes": round((life[-1].at - life[0].at) / 60, 1) if life else 0.0,
            "files_most": max((sample.files for sample in self.samples), default=0),
            "lag_p99_ms": late_ms(lags),
            "lag_looks": looks(lags),
            "health_p50_ms": part(answers, 0.5),
            "health_p99_ms": part(answers, 0.99),
            "health_asked": len(answers),
            "streams_median": part([float(sample.streams) for sample in self.samples], 0.5),
        }

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(sample) for sample in self.samples]


def _megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def _lags(client: aiohttp.ClientSession) -> Buckets:
    """Return the event-loop lag since the start of the server; empty without a server."""
    with suppress(*BROKEN):
        async with client.get("/metrics", timeout=aiohttp.ClientTimeout(total=5)) as answer:
            return buckets(await answer.text())
    return {}


def _lines(file: Path) -> list[list[str]]:
    text = file.read_text() if file.exists() else ""
    return [line.split() for line in text.splitlines() if len(line.split()) == 2]


def part(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    return round(sorted(values)[min(len(values) - 1, int(len(values) * share))], 2)


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of the second number over the first, by least squares."""
    if len(points) < 3:
        return None
    middle = sum(x for x, _ in points) / len(points)
    height = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return round(sum((x - middle) * (y - height) for x, y in points) / spread, 3) if spread else None
