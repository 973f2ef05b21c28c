"""Clients of a cluster: each starts runs, follows them to their end, and reconnects at any server."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp

from cluster.machines import TOKEN
from server_process import read_frames

RETRY_SECONDS = 0.2
CONNECT = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=60)


@dataclass
class RunScript:
    """The shape of the runs: their steps, and the pace of the model."""

    steps: int = 6
    deltas: int = 8
    pause: float = 0.3


@dataclass(eq=False)
class ClientRun:
    """A run as its client sees it."""

    name: str
    started: float = field(default_factory=time.time)
    id: str = ""
    thread: str = ""
    ids: list[str] = field(default_factory=list)  # of durable frames, in the order of arrival
    outcome: str = ""
    reason: str = ""
    ended: float = 0.0


class Load:
    """Keeps a number of runs open. `pick_url` returns the server for each request.

    With `reads_elsewhere`, a client leaves the server that started its run, and follows it at another one.
    """

    def __init__(self, pick_url: Callable[[], str], script: RunScript, prefix: str = "r") -> None:
        self.pick_url, self.script = pick_url, script
        self.runs: dict[str, ClientRun] = {}
        self._open: dict[str, ClientRun] = {}
        self.connections: Counter[str] = Counter()  # by the URL of their server
        self.failures: Counter[str] = Counter()  # of requests that start a run or follow one
        self._numbers, self._prefix = count(1), prefix
        self.reads_elsewhere = self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []
        # a connection for each request, so that the proxy chooses a server for each
        self.client = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=CONNECT,
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
        )

    def start(self, open_runs: int) -> None:
        """Start to keep this number of runs open."""
        self._tasks = [asyncio.create_task(self._repeat(index / open_runs)) for index in range(open_runs)]

    async def _repeat(self, offset: float) -> None:
        await asyncio.sleep(offset * 3)  # so that not all runs are at the same step
        while not self._stopped:
            await self.perform()

    async def finish(self, seconds: float) -> None:
        """Start no more runs, and wait for the others. Those that do not end in time count as lost."""
        self._stopped = True
        _, pending = await asyncio.wait(self._tasks, timeout=seconds)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    @property
    def open_runs(self) -> list[ClientRun]:
        return [*self._open.values()]

    def create_run(self) -> ClientRun:
        """Return a new run, which is not started yet."""
        run = ClientRun(f"{self._prefix}{next(self._numbers)}")
        self.runs[run.name] = self._open[run.name] = run
        return run

    async def perform(self, run: ClientRun | None = None, agent: str = "worker", **more: Any) -> ClientRun:
        """Start a run and follow it to its end. `more` is added to its script."""
        run = run or self.create_run()
        script = {"run": run.name, **vars(self.script), **more}
        body = {"messages": [{"role": "user", "content": json.dumps(script)}]}
        started_at = ""
        while not run.ended:
            last = {"Last-Event-ID": run.ids[-1]} if run.ids else {}
            url = self.pick_url()
            while self.reads_elsewhere and url == started_at:
                url = self.pick_url()
            self.connections[url] += 1
            try:
                if run.id:
                    request = self.client.get(f"{url}/runs/{run.id}/events", headers=last)
                else:
                    key = {"Idempotency-Key": run.name}
                    request = self.client.post(f"{url}/agents/{agent}/stream", json=body, headers=key)
                async with request as response:
                    if response.status != 200:
                        self.failures[f"{response.status} {'follow' if run.id else 'start'}"] += 1
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    run.id = response.headers.get("X-Run-Id", run.id)
                    run.thread = response.headers.get("X-Thread-Id", run.thread)
                    if self.reads_elsewhere and not started_at:
                        started_at = url
                        continue
                    await self._follow(run, response)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if not run.id or isinstance(error, aiohttp.ClientConnectorError):
                    self.failures[f"{type(error).__name__} {'follow' if run.id else 'start'}"] += 1
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                self.connections[url] -= 1
        del self._open[run.name]
        return run

    async def _follow(self, run: ClientRun, response: aiohttp.ClientResponse) -> None:
        """Read frames until the end of the run or of the connection."""
        async for frame in read_frames(response):
            if frame["id"]:
                run.ids.append(frame["id"])
            if frame["event"] in ("done", "error"):
                data = frame["data"]["data"]
                run.outcome = data.get("outcome", "failed")
                run.reason = data.get("reason", "") or data.get("message", "")
                if run.outcome != "interrupted":
                    run.ended = time.time()

    async def count_missing_frames(self, urls: list[str]) -> int:
        """Read each finished run once more; return the number of durable frames that its client did not get."""
        missing = 0
        for number, run in enumerate(self.runs.values()):
            if run.ended:
                replayed = [frame["id"] async for frame in self._replay(urls[number % len(urls)], run) if frame["id"]]
                missing += len({*replayed} - {*run.ids})
        return missing

    async def _replay(self, url: str, run: ClientRun) -> AsyncIterator[dict[str, Any]]:
        async with self.client.get(f"{url}/runs/{run.id}/events") as response:
            async for frame in read_frames(response):
                yield frame

    async def read_tool_results(self, url: str, run: ClientRun) -> list[str]:
        """Return the texts of the tool results in the thread of a run."""
        async with self.client.get(f"{url}/threads/{run.thread}") as response:
            messages = (await response.json())["messages"]
        return [message["content"] for message in messages if message["role"] == "tool"]

    async def close(self) -> None:
        await self.client.close()


@dataclass(frozen=True)
class Tally:
    """The losses of a load: runs without an end, effects performed twice, effects in the log but not performed."""

    runs: int
    lost: int
    failed: int
    effects: int
    doubled: int
    missing: int


def tally_load(load: Load, ledger: list[dict[str, Any]], recorded: Mapping[str, int]) -> Tally:
    """Compare the runs of a load with the ledger of effects. `recorded` are the effects in the log of each thread."""
    performed = Counter((row["run"], row["number"]) for row in ledger if row["run"] in load.runs)
    per_run = Counter(run for run, _ in performed)
    missing = sum(max(0, recorded.get(run.thread, 0) - per_run[run.name]) for run in load.runs.values())
    ended = [run for run in load.runs.values() if run.ended]
    return Tally(
        runs=len(load.runs),
        lost=len(load.runs) - len(ended),
        failed=sum(run.outcome != "completed" for run in ended),
        effects=len(performed),
        doubled=sum(times > 1 for times in performed.values()),
        missing=missing,
    )
