"""`wick serve --workers N`: real processes on one port and one Postgres."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from server_agents import send_answer, user_message
from server_process import ServerProcess, open_client, run_server, wait_until

QUICK: dict[str, Any] = {"store": "postgres", "flags": ("--workers", "2"), "grace": 0.0}


def worker_pids(server: ServerProcess) -> set[int]:
    """The processes that the supervisor has started."""
    assert server.process is not None
    found = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return {int(pid) for pid in found.split()}


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


async def test_two_workers_serve_one_port_and_a_crashed_one_is_replaced(tmp_path: Path) -> None:
    with run_server(tmp_path, **QUICK) as server:
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
        assert server.stop() == 0
        assert not any(map(is_alive, before | after))


async def test_sighup_replaces_all_workers_and_refuses_no_request(tmp_path: Path) -> None:
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

    with run_server(tmp_path, **QUICK | {"grace": 20.0}) as server:
        headers = {"Authorization": "Bearer ada-token-0123456789abcdef"}
        before, stopped = await wait_workers(server, set()), asyncio.Event()
        loads = [asyncio.create_task(send_requests(stopped)) for _ in range(2)]
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        await wait_workers(server, before)

        async def replaced() -> bool:
            return "all 2 workers are replaced" in server.log

        await wait_until(replaced)
        stopped.set()
        await asyncio.gather(*loads)
    assert done > 2 and not failures


async def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    with run_server(tmp_path, **QUICK) as server:
        workers = await wait_workers(server, set())
        server.kill()

        async def are_stopped() -> bool:
            return not any(map(is_alive, workers))

        await wait_until(are_stopped)
    assert server.process is not None and server.process.returncode == -signal.SIGKILL


async def test_a_scrape_has_the_metrics_of_all_workers(tmp_path: Path) -> None:
    with run_server(tmp_path, **QUICK) as server:
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
        assert server.stop() == 0
