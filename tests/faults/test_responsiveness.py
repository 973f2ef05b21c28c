"""R4: a server stays responsive under every kind of load and fault.

One process requests `/health` continuously and does nothing else; the server measures its event-loop lag.
Meanwhile each kind of bad input and fault is applied (disturbances.py). CI runs a few kinds with a relaxed limit;
WICK_FULL runs all of them with the promised limits.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep, time

import aiohttp
import pytest

from faults.disturbances import KINDS, QUOTAS, SERVER, Scene, long_thread
from faults.tally import FULL, Tally, Violated
from server_process import ServerProcess, open_client, run_server
from soak_test import health_probe
from soak_test.loop_lag import Buckets, buckets, late_ms, since
from soak_test.model import SoakedServer
from soak_test.server_metrics import part

LAG_MS, HEALTH_MS = 50.0, 100.0
SLACK = 1 if FULL else 30  # a process without CPU time answers late
SECONDS = 6.0 if FULL else 0.6  # for each kind
SETTLE_SECONDS = 0.5 if FULL else 0.0  # between two kinds, so that effects of one do not count for the next
WAIT_SECONDS = 0.0 if FULL else 30.0  # for the first response
PAUSE = 0.01  # between two questions
SAMPLED = ("wide JSON", "many headers", "tokens that are guessed", "tools that sleep", "commands that are slow to read")
DISK_BYTES = 400_000_000

pytestmark = pytest.mark.timeout(1_800 if FULL else 180)


class Watch:
    """Response times and event-loop lag of a server between two samples."""

    def __init__(self, operator: aiohttp.ClientSession, file: Path) -> None:
        self.operator, self.file = operator, file
        self._lag: Buckets = {}
        self._from = 0.0

    async def begin(self) -> None:
        self._lag, self._from = await self._late(), time()

    async def end(self) -> tuple[list[float | None], float | None]:
        """Return the milliseconds of each response, None for a missing one, and the p99 of the lag."""
        until = monotonic() + WAIT_SECONDS
        while True:
            await asyncio.sleep(0.1)  # until the last response is in the file
            rows = [line.split() for line in (await asyncio.to_thread(self.file.read_text)).splitlines()]
            asked = [None if ms == "-" else float(ms) for at, ms in rows if float(at) >= self._from]
            lag = late_ms(since(await self._late(), self._lag))
            if (asked and lag is not None) or monotonic() > until:
                return asked, lag

    async def _late(self) -> Buckets:
        async with self.operator.get("/metrics") as answer:
            return buckets(await answer.text())


@contextmanager
def _asking(port: int, file: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, health_probe.__file__, str(port), str(file), str(PAUSE)])
    _first(process.pid)
    try:
        while not file.exists():
            sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _first(pid: int) -> None:
    """Give the measuring process a higher priority, where permitted."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, min(0, os.getpriority(os.PRIO_PROCESS, 0)))


@asynccontextmanager
async def watched(folder: Path, planted: str = "", *, long: bool = False) -> AsyncIterator[tuple[Scene, Watch]]:
    """A server, a client that disturbs it, and a monitor."""
    async with SoakedServer() as provider:
        model = provider.soaked(lambda turn, fault: None, lambda words: None)
        environment = {"PROVIDER": model.url}
        with (
            _disk(folder / "data"),
            run_server(folder, script=SERVER, environment=environment, planted=planted, quotas=QUOTAS) as server,
        ):
            assert server.process is not None
            _first(server.process.pid)
            async with open_client(server) as client, open_client(server, "root") as operator:
                scene = Scene(server, client, model)
                await scene.do("nap", seconds=0.0)  # lazy loading at the first request is not counted
                await scene.talk(1, 0.0)
                if long:
                    scene.long = await _long(server, client)
                with _asking(scene.port, folder / "health.txt"):
                    yield scene, Watch(operator, folder / "health.txt")


async def _long(server: ServerProcess, client: aiohttp.ClientSession) -> str:
    async with client.get("/auth/me") as answer:
        owner = (await answer.json())["id"]
    return await long_thread(str(server.folder / "data"), owner)


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """A small disk for the data of a server; None without permission to mount."""
    folder.mkdir(parents=True)
    mounted = FULL and not _mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder))
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def _mount(*words: str) -> int:
    with suppress(OSError):
        return subprocess.run(["mount", *words], capture_output=True, timeout=30, check=False).returncode
    return 1


async def disturb(scene: Scene, watch: Watch, name: str, tally: Tally, slack: float) -> None:
    """Apply one kind for a while. Slow or missing responses to other clients are violations."""
    await watch.begin()
    scene.until = monotonic() + SECONDS
    async with asyncio.timeout(SECONDS + 60):
        await KINDS[name](scene)
    asked, lag = await watch.end()
    answered = part([ms for ms in asked if ms is not None], 0.99)
    tally.tried += len(asked)
    said = f"/health p99 {answered} ms of {len(asked)}, event loop lag p99 {lag} ms"
    print(f"  {name}: {said}")
    if None in asked:
        tally.violations.append(f"{name}: {asked.count(None)} of {len(asked)} were not answered")
    elif answered is None or lag is None or answered > HEALTH_MS * slack or lag > LAG_MS * slack:
        tally.violations.append(f"{name}: {said}")
    worst = tally.figures.get("worst_lag_ms", 0.0), tally.figures.get("worst_health_ms", 0.0)
    tally.note(worst_lag_ms=max(worst[0], lag or 0.0), worst_health_ms=max(worst[1], answered or 0.0))
    await asyncio.sleep(SETTLE_SECONDS)


@pytest.mark.long
async def test_the_server_responds_under_every_disturbance(tmp_path: Path) -> None:
    with Tally("R4", f"requests under {len(KINDS)} kinds of disturbance") as tally:
        async with watched(tmp_path, long=True) as (scene, watch):
            for name in KINDS:
                await disturb(scene, watch, name, tally, SLACK)
        tally.note(kinds=len(KINDS), load=round(os.getloadavg()[0], 1))


async def test_the_server_responds(tmp_path: Path) -> None:
    with Tally("R4", f"requests under {len(SAMPLED)} kinds of disturbance") as tally:
        async with watched(tmp_path) as (scene, watch):
            for name in SAMPLED:
                await disturb(scene, watch, name, tally, SLACK)


@pytest.mark.long
async def test_a_blocked_event_loop_is_detected(tmp_path: Path) -> None:
    with pytest.raises(Violated, match="event loop lag"), Tally("R4", "planted", planted=True) as tally:
        async with watched(tmp_path, "blocking") as (scene, watch):
            await disturb(scene, watch, "tokens that are guessed", tally, 1)
