"""`wick serve --workers N`: real processes on one port and one Postgres."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server_agents import send_answer, user_message
from server_process import ServerProcess, open_client, run_server, wait_until
from wick.server import workers
from wick.server.workers import WorkerSupervisor

QUICK: dict[str, Any] = {"store": "postgres", "flags": ("--workers", "2"), "grace": 0.0}
WORKER = """
import os, sys, time
from pathlib import Path

folder, pipe = Path(sys.argv[1]), int(sys.argv[3])
is_broken = (folder / "broken").exists()
(folder / f"started-{os.getpid()}").touch()
while (folder / "held").exists():
    time.sleep(0.01)
if is_broken:
    sys.exit(1)
os.write(pipe, b"ready\\n")
(folder / f"serving-{os.getpid()}").touch()
time.sleep(600)
"""


def worker_pids(server: ServerProcess) -> set[int]:
    """The processes that the supervisor has started."""
    assert server.process is not None
    return list_children(server.process.pid)


def list_children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def read_command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def wait_workers(server: ServerProcess, replaced: set[int]) -> set[int]:
    """Return the workers once there are two, none of which is one of those that are replaced."""

    async def started() -> set[int]:
        now = worker_pids(server)
        return now if len(now) == 2 and not now & replaced else set()

    found: set[int] = await wait_until(started)
    return found


def test_workers_are_refused_with_sqlite(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wick.cli", "serve", "--workers", "2", "--data", str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
    assert refused.returncode == 2
    assert "needs a store that several processes can share; set --store postgresql://" in refused.stderr


def test_a_worker_that_cannot_start_ends_the_supervisor(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wick.cli", "serve", "--workers", "2", "--port", "0", "--data", str(tmp_path)]
    command += ["--store", "postgresql://nobody@127.0.0.1:1/nothing"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
    assert refused.returncode == 1 and refused.stderr.count("Postgres does not answer") == 1, refused.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One supervisor with two workers for all tests that leave it serving; the last of them stops it."""
    with run_server(tmp_path_factory.mktemp("workers"), **QUICK | {"grace": 20.0}) as server:
        yield server


async def test_a_scrape_has_the_metrics_of_all_workers(server: ServerProcess) -> None:
    pids = {str(pid) for pid in await wait_workers(server, set())}

    async def scrape() -> dict[str, float]:
        """Return the finished runs by worker, once all workers have replied to the one that is asked."""
        async with open_client(server, "olga") as client, client.get("/metrics") as response:
            families = {each.name: each for each in text_string_to_metric_families(await response.text())}
        if {sample.labels["worker"] for sample in families["wick_memory_bytes"].samples} != pids:
            return {}
        return {sample.labels["worker"]: sample.value for sample in families["wick_runs"].samples}

    for number in range(1, 4):
        async with open_client(server) as client:
            assert (await send_answer(client, "plain", user_message("Hello.")))["outcome"] == "completed"
        found = await wait_until(scrape)
        assert sum(found.values()) == number and {*found} <= pids


async def test_two_workers_serve_one_port_and_a_crashed_one_is_replaced(server: ServerProcess) -> None:
    before = await wait_workers(server, set())
    async with open_client(server) as client:
        assert (await send_answer(client, "plain", user_message("Hello.")))["outcome"] == "completed"
    crashed = min(before)
    os.kill(crashed, signal.SIGKILL)
    after = await wait_workers(server, {crashed})
    assert len(after & before) == 1
    async with open_client(server) as client:
        assert (await send_answer(client, "plain", user_message("Hello.")))["outcome"] == "completed"
    assert f"worker {crashed} ended with -9; another one starts in 0.5 s" in server.log


async def test_sighup_replaces_all_workers_and_refuses_no_request(server: ServerProcess) -> None:
    failures: list[str] = []
    done = 0

    async def send_requests(stopped: asyncio.Event) -> None:
        nonlocal done
        while not stopped.is_set():
            async with aiohttp.ClientSession(server.url, headers=headers) as client:  # a new connection for each
                try:
                    async with client.post("/agents/plain/invoke", json=user_message("Hello.")) as response:
                        if response.status != 200:
                            failures.append(f"{response.status} {await response.text()}")
                except aiohttp.ClientError as error:
                    failures.append(repr(error))
                done += 1
            await asyncio.sleep(0.05)

    headers = {"Authorization": "Bearer ada-token-0123456789abcdef"}
    before, stopped = await wait_workers(server, set()), asyncio.Event()
    loads = [asyncio.create_task(send_requests(stopped)) for _ in range(2)]
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    after = await wait_workers(server, before)

    async def replaced() -> bool:
        return "all 2 workers are replaced" in server.log

    await wait_until(replaced)
    stopped.set()
    await asyncio.gather(*loads)
    assert done > 2 and not failures
    assert server.stop() == 0 and not any(map(is_alive, before | after))


async def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    with run_server(tmp_path, **QUICK) as server:
        workers = await wait_workers(server, set())
        server.kill()

        async def are_stopped() -> bool:
            return not any(map(is_alive, workers))

        await wait_until(are_stopped)
    assert server.process is not None and server.process.returncode == -signal.SIGKILL


@asynccontextmanager
async def supervise_one(folder: Path) -> AsyncIterator[int]:
    """Supervise one worker that is a small program, and yield its process id."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", WORKER, str(folder)]
        supervisor = WorkerSupervisor(command, 1, listener, drain_seconds=1.0, tell=print)
        supervising = asyncio.create_task(supervisor.supervise())
        try:
            (first,) = await wait_pids(folder, "started" if (folder / "held").exists() else "serving", 1)
            yield first
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await supervising == 0


async def wait_pids(folder: Path, state: str, count: int) -> set[int]:
    """Return the processes that have reached a state, once there are enough."""

    async def find_pids() -> set[int]:
        found = {int(name.rpartition("-")[2]) for name in os.listdir(folder) if name.startswith(state)}
        return found if len(found) >= count else set()

    pids: set[int] = await wait_until(find_pids)
    return pids


async def test_a_worker_is_restarted_until_it_serves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_PAUSE", 0.1)
    monkeypatch.setattr(workers, "FIRST_PAUSE", 0.1)
    async with supervise_one(tmp_path) as first:
        (tmp_path / "broken").touch()
        os.kill(first, signal.SIGKILL)
        await wait_pids(tmp_path, "started", 4)  # three of them have not served
        (tmp_path / "broken").unlink()
        await wait_pids(tmp_path, "serving", 2)


async def test_a_crash_during_a_failed_replacement_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_PAUSE", 0.1)
    async with supervise_one(tmp_path) as first:
        for name in ("broken", "held"):
            (tmp_path / name).touch()
        os.kill(os.getpid(), signal.SIGHUP)
        await wait_pids(tmp_path, "started", 2)
        os.kill(first, signal.SIGKILL)

        async def is_reaped() -> bool:
            return not is_alive(first)

        await wait_until(is_reaped)
        for name in ("broken", "held"):
            (tmp_path / name).unlink()
        await wait_pids(tmp_path, "serving", 2)


async def test_workers_that_do_not_serve_yet_are_stopped(tmp_path: Path) -> None:
    (tmp_path / "held").touch()
    async with supervise_one(tmp_path) as first:
        pass
    assert not is_alive(first)


async def test_new_workers_that_do_not_serve_yet_are_stopped(tmp_path: Path) -> None:
    async with supervise_one(tmp_path) as first:
        (tmp_path / "held").touch()
        os.kill(os.getpid(), signal.SIGHUP)
        pids = await wait_pids(tmp_path, "started", 2)
    assert first in pids and not any(map(is_alive, pids))


async def test_a_worker_that_starts_while_the_others_stop_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, stopped = asyncio.create_subprocess_exec, asyncio.Event()

    async def start_late(*command: str, **options: Any) -> asyncio.subprocess.Process:
        if any(name.startswith("serving") for name in os.listdir(tmp_path)):
            stopped.set()
            await asyncio.sleep(0.2)
        return await start(*command, **options)

    monkeypatch.setattr(workers, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_late)
    async with supervise_one(tmp_path) as first:
        os.kill(first, signal.SIGKILL)
        await stopped.wait()
    assert not [pid for pid in list_children(os.getpid()) if str(tmp_path) in read_command(pid)]
