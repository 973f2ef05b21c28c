"""Threads that expire: a retention setting, a store in memory, and room at the quota."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api_requests import send_request
from server_agents import Gate, get_json, sample_agents, send_answer, user_message
from server_process import host_server, open_client, wait_until
from wick.errors import ConfigError
from wick.server.settings import Retention, Settings, load_settings
from wick.stores.in_memory import SWEEP_SECONDS, TTL_SECONDS, InMemory


async def _ids(client: aiohttp.ClientSession) -> list[str]:
    return sorted(each["id"] for each in (await get_json(client, "/threads"))["threads"])


@pytest.mark.parametrize("given", ["30d", "12h", "90m", "45s", "2 w", 0, None, False])
def test_a_retention_has_a_unit(given: Any) -> None:
    seconds = {"30d": 2_592_000, "12h": 43_200, "90m": 5_400, "45s": 45, "2 w": 1_209_600}
    assert Retention(threads=given).threads == seconds.get(given, 0)  # type: ignore[call-overload]


@pytest.mark.parametrize("given", [30, "30", "0d", "d", "-1d", "1y", "1e9d", [], {}, True, "9" * 400 + "d"])
def test_a_time_without_a_unit_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ConfigError, match="30d"):
        load_settings({"data": tmp_path, "retention": {"threads": given}}, environment={})


@pytest.mark.parametrize("store", ["sqlite", "memory"])
async def test_idle_threads_expire_and_those_in_use_do_not(tmp_path: Path, store: str) -> None:
    gate = Gate()
    more: dict[str, Any] = {"retention": {"threads": "1s"}, "grace": 0}
    async with (
        host_server(tmp_path, store=store, agents=sample_agents(gate), **more) as server,
        open_client(server) as client,
    ):
        await send_answer(client, "echo", user_message("Hello.", "th_idle"))
        async with client.post("/agents/gate/stream", json=user_message("Hello.", "th_busy")) as going:
            assert going.status == 200

            async def only_busy() -> bool:
                return await _ids(client) == ["th_busy"]

            await wait_until(only_busy)
            assert (await send_request(server, "ada", "GET", "/threads/th_idle"))[0] == 404
            gate.answers.put_nowait("Done.")
            await going.read()
        assert "Done." in str(await get_json(client, "/threads/th_busy"))


async def test_without_a_retention_nothing_expires(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        await send_answer(client, "echo", user_message("Hello.", "th_1"))
        assert server.service._expiry._task is None and await _ids(client) == ["th_1"]


async def test_a_store_in_memory_has_the_usual_numbers_and_no_thread_in_the_file(tmp_path: Path) -> None:
    assert (TTL_SECONDS, SWEEP_SECONDS) == (3600, 300)
    async with (
        host_server(tmp_path, store="memory", agents=sample_agents(Gate())) as server,
        open_client(server) as client,
    ):
        await send_answer(client, "echo", user_message("Hello.", "th_1"))
        assert await _ids(client) == ["th_1"]
        store: Any = server.service.store._store._store  # below those that publish and redact
        assert isinstance(store, InMemory) and store._ttl == TTL_SECONDS
    with closing(sqlite3.connect(tmp_path / "data" / "threads.db")) as db:  # has users and settings only
        assert db.execute("SELECT count(*) FROM threads").fetchone() == (0,)
    with pytest.raises(ConfigError, match="`sqlite`, `memory`, or an address"):
        Settings(store="memroy").check()


@pytest.mark.parametrize("store", ["sqlite", "memory"])
async def test_at_the_quota_the_longest_idle_thread_makes_room(tmp_path: Path, store: str) -> None:
    gate = Gate()
    quotas = {"threads": 2, "requests_per_second": 0}
    async with (
        host_server(tmp_path, store=store, agents=sample_agents(gate), quotas=quotas, grace=0) as server,
        open_client(server) as client,
        open_client(server, "bob") as bob,
    ):
        await send_answer(bob, "echo", user_message("Hello.", "th_bob"))
        for number in range(5):
            await send_answer(client, "echo", user_message("Hello.", f"th_{number}"))
        assert await _ids(client) == ["th_3", "th_4"] and await _ids(bob) == ["th_bob"]
        async with (
            client.post("/agents/gate/stream", json=user_message("Hello.", "th_a")) as first,
            client.post("/agents/gate/stream", json=user_message("Hello.", "th_b")) as second,
        ):
            assert first.status == second.status == 200
            async with client.post("/agents/echo/invoke", json=user_message("Hello.", "th_c")) as refused:
                assert refused.status == 429  # both are in use, so there is nothing to make room with
            assert await _ids(client) == ["th_a", "th_b"]
            gate.answers.put_nowait("One.")
            gate.answers.put_nowait("Two.")
            await first.read()
            await second.read()


async def test_an_expiry_that_ignores_active_threads_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above use a thread with an open run; a store that deletes it fails them."""
    monkeypatch.setattr(InMemory, "_is_idle", lambda self, kept: True)
    async with (
        host_server(tmp_path, store="memory", agents=sample_agents(Gate()), grace=0) as server,
        open_client(server) as client,
        client.post("/agents/gate/stream", json=user_message("Hello.", "th_busy")) as going,
    ):
        assert going.status == 200
        ((_, gone),) = await server.service.store.expire(0.0)
        assert gone == "th_busy"
