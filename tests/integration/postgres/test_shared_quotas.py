"""Quotas and request rates of users on several servers of one Postgres."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from postgres import shared_server
from server_agents import Gate, sample_agents, send_answer, user_message
from server_process import host_server, open_client
from wick.server.errors import ApiError
from wick.server.ops.quotas import QuotaLimiter
from wick.server.records.postgres import PostgresRecords
from wick.server.settings import Quotas

SLOW = {"requests_per_second": 0.001, "burst": 40}  # nothing is refilled during a test


async def count_allowed(limits: QuotaLimiter, requests: int) -> int:
    allowed = 0
    for _ in range(requests):
        try:
            await limits.take_request("ada")
        except ApiError as error:
            assert error.status == 429 and int(error.headers["Retry-After"]) >= 1000
        else:
            allowed += 1
    return allowed


async def test_four_servers_share_one_request_rate(schema: str) -> None:
    records = PostgresRecords(shared_server().conninfo, schema=schema)
    servers = [QuotaLimiter(Quotas(**SLOW), records=records) for _ in range(4)]
    for limits in servers:
        limits.count_servers = lambda: 4
    allowed = await asyncio.gather(*(count_allowed(limits, 40) for limits in servers))
    assert sum(allowed) == 40
    await servers[0].take_request("bob")  # another user has a bucket of its own
    await records.close()


async def test_a_bucket_fills_up_again_and_blocks_are_forgotten(schema: str) -> None:
    now = 0.0
    records = PostgresRecords(shared_server().conninfo, schema=schema)
    limits = QuotaLimiter(Quotas(requests_per_second=1000, burst=64), clock=lambda: now, records=records)
    limits.count_servers = lambda: 2
    await limits.take_request("ada")
    drawn = limits._shared._drawn  # type: ignore[union-attr]
    assert drawn["ada"] == (3, 0.0)  # a block of 4
    now = 5.0  # the rest of the block is forgotten, so that idle servers do not collect requests
    await limits.take_request("ada")
    assert drawn["ada"] == (3, 5.0)
    await records.close()


async def test_servers_share_the_rate_and_the_runs_of_a_user(tmp_path: Path, schema: str) -> None:
    gate = Gate()
    quotas: dict[str, Any] = {"runs": 2, **SLOW}
    options = {"store": "postgres", "store_schema": schema, "agents": sample_agents(gate), "grace": 0.0}
    async with (
        host_server(tmp_path / "a", quotas=quotas, **options) as first,
        host_server(tmp_path / "b", quotas=quotas, **options) as second,
        open_client(first) as here,
        open_client(second) as there,
    ):
        async with asyncio.timeout(30):
            while not (first.service.limits.is_shared and second.service.limits.is_shared):
                await asyncio.sleep(0.05)
        runs = []
        for number, client in enumerate((here, there)):
            runs.append(asyncio.create_task(send_answer(client, "gate", user_message("Wait.", f"th_{number}"))))
            await gate.asked.wait()
            gate.asked.clear()
        async with there.post("/agents/gate/invoke", json=user_message("Wait.", "th_2")) as refused:
            assert refused.status == 429 and "runs: at most 2" in await refused.text()
        gate.answers.put_nowait("Done.")
        gate.answers.put_nowait("Done.")
        assert [answer["response"] for answer in await asyncio.gather(*runs)] == ["Done.", "Done."]
        codes = []
        for client in [here, there] * 40:
            async with client.get("/threads") as response:
                codes.append(response.status)
        assert codes.count(200) <= 40 - 3 and codes[-1] == 429
