"""R5: a server killed with open runs is ready within two seconds and resumes them.

In CI once, with time to spare on a busy machine; 20 times with WICK_FULL, and then two seconds are two seconds.
The load itself is in soak.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import aiohttp
import pytest

from faults.tally import FULL, Tally, Violated
from ports import own_port
from server_process import ServerProcess, read_frames, run_server
from soak_test.health_probe import once
from soak_test.model import Soaked, SoakedServer
from soak_test.server_metrics import part
from wick import Thread, user
from wick.stores.held_thread import hold
from wick.stores.sqlite import Sqlite

READY_SECONDS = 2.0
WITHIN = READY_SECONDS if FULL else 10 * READY_SECONDS
PATIENCE = 60.0  # seconds until open runs are resumed
RESTARTS, THREADS, RUNS = (20, 2_000, 40) if FULL else (1, 40, 3)
AGENTS = 30
SAID = "turn-{} talk 10000 0.2"  # streams a word now and then, for longer than any reader

pytestmark = pytest.mark.timeout(1_800 if FULL else 180)


@dataclass
class Restarted:
    """A server that is killed repeatedly, with its restart times."""

    server: ServerProcess
    runs: list[str] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)  # seconds
    busy: list[float] = field(default_factory=list)  # CPU seconds
    going: list[float] = field(default_factory=list)  # seconds until all open runs were resumed

    @property
    def port(self) -> int:
        return int(self.server.url.rsplit(":", 1)[1])

    async def begin(self, count: int) -> None:
        """Start long runs and disconnect."""
        async with self.server.client() as client:
            for number in range(count):
                said = {"messages": [{"role": "user", "content": SAID.format(number)}]}
                async with client.post(f"/agents/talker{number % AGENTS}/stream", json=said) as answer:
                    assert answer.status == 200, await answer.text()
                    self.runs.append(answer.headers["X-Run-Id"])
                    await anext(read_frames(answer))

    async def again(self) -> None:
        """Kill and start it; measure when it answers and when it resumes its runs."""
        await asyncio.to_thread(self.server.kill)
        began = monotonic()
        starting = asyncio.create_task(asyncio.to_thread(self.server.start))
        await asyncio.to_thread(_answers, self.port, starting)
        self.ready.append(monotonic() - began)
        await starting
        self.busy.append(_busy(self.server))
        await asyncio.wait_for(self._goes_on(), PATIENCE)
        self.going.append(monotonic() - began)

    async def _goes_on(self) -> None:
        async with self.server.client() as client:
            for run in self.runs:
                while (await _state(client, run))["state"] != "running":
                    await asyncio.sleep(0.02)


def _answers(port: int, starting: asyncio.Task[None]) -> None:
    """Wait for a response. The server listens before it is ready, so a connection may wait."""
    while once(port) is None and not starting.done():
        sleep(0.005)


async def _state(client: aiohttp.ClientSession, run: str) -> dict[str, Any]:
    async with client.get(f"/runs/{run}") as answer:
        found: dict[str, Any] = await answer.json()
        return found


def _busy(server: ServerProcess) -> float:
    """Return the CPU seconds of the server."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def fill(data: Path, threads: int) -> None:
    """Create old threads."""
    store = Sqlite(data / "threads.db")

    async def leave(number: int) -> None:
        thread = Thread(f"th_{number}")
        async with hold(store, f"u_{number % 50}", thread):
            for words in range(4):
                thread.add(user(f"{words} {'word ' * 50}"))

    await asyncio.gather(*map(leave, range(threads)))
    await store.close()


@asynccontextmanager
async def restarting(folder: Path, planted: str = "") -> AsyncIterator[Restarted]:
    os.mkdir(folder / "data")
    await fill(folder / "data", THREADS)
    async with SoakedServer() as provider:
        model: Soaked = provider.soaked(lambda turn, fault: None, lambda words: None)
        defaults = {"model": {"model": f"gateway:soak@{model.url}", "api_key": "sk-soak"}, "todos": False}
        config = {"defaults": defaults, "agents": {f"talker{number}": {} for number in range(AGENTS)}}
        quotas = {"runs": 0, "streams": 0, "requests_per_second": 0}
        with (
            own_port() as port,
            run_server(
                folder,
                config=config,
                flags=("--port", str(port)),
                planted=planted,
                quotas=quotas,
                grace=0.0,
                fresh=True,
            ) as server,
        ):
            yield Restarted(server)


async def restart_often(folder: Path, restarts: int, within: float, planted: str = "") -> None:
    with Tally("R5", f"restarts of a server with {RUNS} open runs", planted=bool(planted)) as tally:
        async with restarting(folder, planted) as server:
            await server.begin(RUNS)
            for number in range(restarts):
                with tally.trying(f"restart {number}"):
                    await server.again()
                    assert server.ready[-1] <= within, f"it was ready after {server.ready[-1]:.2f} s"
            tally.note(ready_p50=part(server.ready, 0.5), ready_max=part(server.ready, 1.0))
            tally.note(cpu_p50=part(server.busy, 0.5), all_resumed_max=part(server.going, 1.0))
            tally.note(load=round(os.getloadavg()[0], 1))


async def test_a_server_that_was_killed_is_soon_ready(tmp_path: Path) -> None:
    await restart_often(tmp_path, RESTARTS, WITHIN)


@pytest.mark.long
async def test_a_slow_restart_is_detected(tmp_path: Path) -> None:
    with pytest.raises(Violated, match="it was ready after"):
        await restart_often(tmp_path, 1, READY_SECONDS, "late")


@pytest.mark.long
async def test_missing_recovery_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faults.test_restart.PATIENCE", 2.0)
    with pytest.raises(Violated, match="TimeoutError"):
        await restart_often(tmp_path, 1, WITHIN, "idle")
