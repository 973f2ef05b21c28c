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
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from time import monotonic_ns
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]

from cluster.delta_readers import DeltaTally, count_differing, read_deltas  # noqa: E402  # of tests/support

TOKEN = "bench-token-0123456789abcdef"
WAIT_SECONDS = 2.0  # before the first delta, for readers to join


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
        differing = count_differing(here, there)
        print(f"{kind:9} streams whose durable frames differ: {differing} of {len(there.streams)}", flush=True)


def run_cluster(given: argparse.Namespace, kind: str) -> tuple[DeltaTally, DeltaTally]:
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
        deltas = int(given.rate * given.seconds)

        async def stop_nats() -> None:
            if nats is not None and given.away:
                await asyncio.sleep(WAIT_SECONDS + 2)
                nats.kill()
                await asyncio.sleep(given.away)
                nats.start()

        start = "/agents/clock/stream", {"messages": [{"role": "user", "content": "Go."}]}
        return asyncio.run(read_deltas(urls, TOKEN, start, runs=given.runs, deltas=deltas, meanwhile=stop_nats))


if __name__ == "__main__":
    main()
