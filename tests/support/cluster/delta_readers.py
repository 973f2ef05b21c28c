"""Readers of token deltas at the performing server and at another one: how many arrive, and how late.

A delta is the time at which the model made it, by the monotonic clock that all processes of a machine share. So its age
when it is read is its lag.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

import aiohttp


@dataclass
class DeltaTally:
    """The frames of the readers of one kind."""

    deltas: int = 0
    expected: int = 0
    lag_ms: list[float] = field(default_factory=list)
    streams: dict[str, list[str]] = field(default_factory=dict)  # ids of durable frames, by run

    @property
    def share(self) -> float:
        """The percentage of the deltas that arrived."""
        return 100 * self.deltas / max(1, self.expected)

    def lag(self, part: float) -> float:
        """Return a percentile of the lag in milliseconds."""
        lags = sorted(self.lag_ms) or [0.0]
        return lags[min(len(lags) - 1, int(len(lags) * part))]

    def line(self) -> str:
        return (
            f"{self.share:7.2f} % of {self.expected} deltas   p50 {self.lag(0.5):6.1f} ms   "
            f"p99 {self.lag(0.99):6.1f} ms   max {self.lag(1):6.1f} ms"
        )


async def follow_run(client: aiohttp.ClientSession, url: str, run: str, tally: DeltaTally, expected: int) -> None:
    """Follow a run at a server, and count its deltas."""
    tally.expected += expected
    ids = tally.streams.setdefault(run, [])
    async with client.get(f"{url}/runs/{run}/events") as response:
        async for line in response.content:
            now = monotonic_ns()
            if line.startswith(b"id: "):
                ids.append(line[4:].strip().decode())
            elif b'"on_chat_model_stream"' in line and line.startswith(b"data"):
                for stamp in json.loads(line[6:])["data"]["delta"].split():
                    tally.deltas += 1
                    tally.lag_ms.append((now - int(stamp)) / 1e6)


async def read_deltas(
    urls: Sequence[str],
    token: str,
    start: tuple[str, Mapping[str, Any]],
    *,
    runs: int,
    deltas: int,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> tuple[DeltaTally, DeltaTally]:
    """Start runs on all servers in turn by a path and a body; read each at its own server and at the next one.

    Return the frames at the performing servers, and those at other ones.
    """
    path, body = start
    here, there = DeltaTally(), DeltaTally()
    readers: list[asyncio.Task[None]] = []
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {token}"},
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
    ) as client:
        for number in range(runs):
            at = number % len(urls)
            async with client.post(f"{urls[at]}{path}", json=body) as started:
                run = started.headers["X-Run-Id"]  # the run continues without this client
            for index, tally in ((at, here), ((at + 1) % len(urls), there)):
                readers.append(asyncio.create_task(follow_run(client, urls[index], run, tally, deltas)))
        if meanwhile is not None:
            await meanwhile()
        await asyncio.gather(*readers)
    return here, there


def count_differing(here: DeltaTally, there: DeltaTally) -> int:
    """Return the number of streams at other servers whose durable frames differ from those at the performing one."""
    return sum(ids != here.streams[run] for run, ids in there.streams.items())
