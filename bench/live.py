"""Measure the token deltas that a reader on another server receives, and their lag, over NATS and over Postgres.

    python bench/live.py                    prints a table
    python bench/live.py --runs 40 --rate 20 --seconds 10 --away 5

Each server is a separate process. Runs start on all of them; each has a reader on the performing server and one on
another server. The text of a delta is the time at which it was created, so its age when it is read is the lag. `--away`
kills NATS for some seconds in the middle. The last line counts streams with other durable frames than at the first
server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic_ns
from typing import Any

import aiohttp

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]

TOKEN = "bench-token-0123456789abcdef"
WAIT_SECONDS = 2.0  # before the first delta, for readers to join


@dataclass
class Tally:
    """The frames of the readers of one kind."""

    deltas: int = 0
    expected: int = 0
    lag_ms: list[float] = field(default_factory=list)
    streams: dict[str, list[str]] = field(default_factory=dict)  # ids of durable frames, by run

    def line(self) -> str:
        lags = sorted(self.lag_ms) or [0.0]
        p50, p99 = lags[len(lags) // 2], lags[int(len(lags) * 0.99)]
        share = 100 * self.deltas / max(1, self.expected)
        return (
            f"{share:7.2f} % of {self.expected} deltas   p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   max {lags[-1]:6.1f} ms"
        )


def serve(rate: float, seconds: float) -> None:
    """Run one server, whose model streams timestamps."""
    from wick import Agent
    from wick.protocols import Delta, Finish, Request, TextDelta
    from wick.server.server import Server

    class Clock:
        name = "clock"

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            await asyncio.sleep(WAIT_SECONDS)
            for _ in range(int(rate * seconds)):
                yield TextDelta(f"{monotonic_ns()} ")
                await asyncio.sleep(1 / rate)
            yield Finish()

    Server(os.environ["BENCH_SETTINGS"]).register_agent("clock", Agent(Clock(), name="clock")).start()


async def read(url: str, run: str, tally: Tally, expected: int) -> None:
    """Follow a run, and count its deltas."""
    tally.expected += expected
    ids = tally.streams.setdefault(run, [])
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(url, headers=headers, timeout=aiohttp.ClientTimeout(total=None)) as client,
        client.get(f"/runs/{run}/events") as response,
    ):
        async for line in response.content:
            now = monotonic_ns()
            if line.startswith(b"id: "):
                ids.append(line[4:].strip().decode())
            elif b'"on_chat_model_stream"' in line and line.startswith(b"data"):
                stamp = json.loads(line[6:])["data"]["delta"]
                tally.deltas += 1
                tally.lag_ms.append((now - int(stamp)) / 1e6)


async def measure(urls: list[str], runs: int, deltas: int, nats: Any, away: float) -> tuple[Tally, Tally]:
    """Start runs on all servers in turn; read each at its own server and at the next one."""
    here, there = Tally(), Tally()
    readers: list[asyncio.Task[None]] = []
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as client:
        for number in range(runs):
            at = number % len(urls)
            body = {"messages": [{"role": "user", "content": "Go."}]}
            async with client.post(f"{urls[at]}/agents/clock/stream", json=body) as started:
                run = started.headers["X-Run-Id"]  # the run continues without this client
            for index, tally in ((at, here), ((at + 1) % len(urls), there)):
                readers.append(asyncio.create_task(read(urls[index], run, tally, deltas)))
        if nats is not None and away:
            await asyncio.sleep(WAIT_SECONDS + 2)
            nats.kill()
            await asyncio.sleep(away)
            nats.start()
        await asyncio.gather(*readers)
    return here, there


def main() -> None:
    """Measure both live planes, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--rate", type=float, default=20.0, help="deltas of a run in a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--away", type=float, default=0.0, help="seconds for which NATS is killed")
    parser.add_argument("--live", choices=["nats", "postgres", "both"], default="both")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.rate, given.seconds)
        return
    for kind in ("nats", "postgres") if given.live == "both" else (given.live,):
        here, there = run_cluster(given, kind)
        print(f"{kind:9} same server   {here.line()}")
        print(f"{kind:9} other server  {there.line()}")
        differing = sum(ids != here.streams[run] for run, ids in there.streams.items())
        print(f"{kind:9} streams whose durable frames differ: {differing} of {len(there.streams)}", flush=True)


def run_cluster(given: argparse.Namespace, kind: str) -> tuple[Tally, Tally]:
    """Start the servers of one live plane, and measure."""
    import yaml

    from nats_server import run_nats
    from postgres import shared_server

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nats = stack.enter_context(run_nats()) if kind == "nats" else None
        tokens = [{"name": "bench", "role": "admin", "sha256": sha256(TOKEN.encode()).hexdigest()}]
        settings: dict[str, Any] = {"port": 0, "tokens": tokens, "grace": 0, "store": shared_server().conninfo}
        settings |= {"store_schema": shared_server().schema(), "live": "postgres" if nats is None else nats.url}
        settings["quotas"] = {"runs": 0, "streams": 0, "requests_per_second": 0}
        urls = []
        for number in range(given.servers):
            file = folder / f"{number}.yaml"
            file.write_text(yaml.safe_dump(settings | {"data": str(folder / str(number))}))
            command = [sys.executable, __file__, "--serve", "--rate", str(given.rate), "--seconds", str(given.seconds)]
            process = subprocess.Popen(
                command, env={**os.environ, "BENCH_SETTINGS": str(file)}, stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            assert process.stdout is not None
            found = re.search(r"wick serves (\S+)", process.stdout.readline())
            assert found, "the server did not start"
            urls.append(found[1])
        return asyncio.run(measure(urls, given.runs, int(given.rate * given.seconds), nats, given.away))


if __name__ == "__main__":
    main()
