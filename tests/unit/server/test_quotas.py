"""Limits per user: runs and streams. An excess request gets a retry time and starts nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from server_agents import HELLO, Gate, get_json, sample_agents, send_answer, user_message
from server_process import host_server, open_client, wait_until


async def test_so_many_runs_at_once_and_no_more(tmp_path: Path) -> None:
    gate = Gate()
    quotas = {"runs": 2, "requests_per_second": 0}
    async with (
        host_server(tmp_path, agents=sample_agents(gate), quotas=quotas, grace=0) as server,
        open_client(server) as client,
    ):
        going = [asyncio.create_task(send_answer(client, "gate", HELLO)) for _ in range(2)]

        async def both() -> bool:
            return len(gate.requests) == 2

        await wait_until(both)
        async with client.post("/agents/gate/invoke", json=HELLO) as refused:
            assert refused.status == 429 and int(refused.headers["Retry-After"]) >= 1
        async with open_client(server, "bob") as bob, bob.post("/agents/echo/invoke", json=HELLO) as fine:
            assert fine.status == 200
        gate.answers.put_nowait("One.")
        gate.answers.put_nowait("Two.")
        await asyncio.gather(*going)


async def test_simultaneous_requests_are_counted(tmp_path: Path) -> None:
    gate = Gate()
    quotas = {"runs": 2, "requests_per_second": 0}
    async with (
        host_server(tmp_path, agents=sample_agents(gate), quotas=quotas, grace=0) as server,
        open_client(server) as client,
    ):

        async def begin() -> int:
            async with client.post("/agents/gate/stream", json=HELLO) as response:
                return response.status

        found = await asyncio.gather(*(begin() for _ in range(8)))
        assert sorted(found) == [200] * 2 + [429] * 6
        assert len((await get_json(client, "/threads?running=true"))["threads"]) <= 2


async def test_a_user_with_too_many_streams_cannot_start_a_run(tmp_path: Path) -> None:
    """A refused request has no effect: it can be repeated."""
    quotas = {"streams": 1, "requests_per_second": 0}
    async with (
        host_server(tmp_path, agents=sample_agents(Gate()), quotas=quotas, grace=0) as server,
        open_client(server) as client,
    ):
        async with client.post("/agents/gate/stream", json=user_message("Hello.", "th_1")) as first:
            assert first.status == 200
            chat = {"model": "echo", "messages": HELLO["messages"], "stream": True}
            for path, body in (("/agents/echo/stream", HELLO), ("/v1/chat/completions", chat)):
                async with client.post(path, json=body) as refused:
                    assert refused.status == 429 and int(refused.headers["Retry-After"]) >= 1
            for path in (f"/runs/{first.headers['X-Run-Id']}/events", "/agents/events"):
                async with client.get(path) as refused:
                    assert refused.status == 429 and int(refused.headers["Retry-After"]) >= 1
            assert [each["id"] for each in (await get_json(client, "/threads"))["threads"]] == ["th_1"]

        async def free() -> bool:
            async with client.post("/agents/echo/stream", json=HELLO) as response:
                return response.status == 200

        await wait_until(free)
