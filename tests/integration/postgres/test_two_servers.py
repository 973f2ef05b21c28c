"""Two servers on one Postgres: each serves, follows, answers and cancels any run, and resumes abandoned ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from postgres import shared_server as postgres_server
from server_agents import Gate, get_json, list_ids, list_names, sample_agents, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_events, run_server, wait_until
from wick.server.auth.identity import User
from wick.server.runs.executor import RunExecutor
from wick.server.runs.followers import HubDirectory
from wick.stores.postgres import Postgres


def list_durable(found: list[dict[str, Any]]) -> list[str]:
    """The names of the frames from the log; transient frames may come between them."""
    return [frame["event"] for frame in found if frame["id"]]


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def two(tmp_path: Path, gate: Gate) -> AsyncIterator[tuple[InProcessServer, InProcessServer]]:
    schema = postgres_server().schema()
    options = {"store": "postgres", "store_schema": schema, "agents": sample_agents(gate), "grace": 0.0}
    async with host_server(tmp_path / "a", **options) as first, host_server(tmp_path / "b", **options) as second:
        yield first, second


async def test_each_server_serves_runs_of_the_other(two: tuple[InProcessServer, InProcessServer]) -> None:
    async with open_client(two[0]) as here, open_client(two[1]) as there:
        first = await send_answer(here, "echo", user_message("One.", "th_1"))
        second = await send_answer(there, "echo", user_message("Two.", "th_1"))
        assert [message["content"] for message in second["messages"]][::2] == ["One.", "Two."]
        assert (await get_json(there, f"/runs/{first['run_id']}"))["outcome"] == "completed"
        async with there.get(f"/runs/{first['run_id']}/events") as response:
            assert list_names(await read_events(response)) == ["on_chat_model_end", "done"]


async def test_one_server_follows_and_cancels_runs_of_the_other(
    two: tuple[InProcessServer, InProcessServer], gate: Gate
) -> None:
    async with open_client(two[0]) as here, open_client(two[1]) as there:
        async with here.post("/agents/gate/stream", json=user_message("One.", "th_1")) as response:
            await gate.asked.wait()
            run = response.headers["X-Run-Id"]
            assert (await get_json(there, f"/runs/{run}"))["state"] == "running"
            async with there.get(f"/runs/{run}/events") as following:
                async with there.post(f"/runs/{run}/cancel") as cancelling:
                    assert cancelling.status == 200
                found = [await read_events(response), await read_events(following)]
        assert [list_names(each)[-1] for each in found] == ["done", "done"] and list_ids(found[0]) == list_ids(found[1])
        assert found[1][-1]["data"]["data"]["outcome"] == "cancelled"

        async def is_cancelled() -> bool:
            return bool((await get_json(there, f"/runs/{run}"))["outcome"] == "cancelled")

        await wait_until(is_cancelled)


async def follow_where_another_performs(
    two: tuple[InProcessServer, InProcessServer], gate: Gate, seconds: float
) -> list[str]:
    """Both servers start a run and the second has the lease; return the frames that a client of the first sees."""
    async with open_client(two[0]) as here, open_client(two[1]) as there:
        response = await there.post("/agents/gate/stream", json=user_message("One.", "th_1"))
        async with response:
            await gate.asked.wait()
            run, runs = response.headers["X-Run-Id"], two[0].service.runs
            info = await runs.load_info(User((await get_json(here, "/auth/me"))["id"], "ada"), run)
            runs.executor.start(info.user, info, runs._start_next_run)
            async with there.post(
                "/threads/th_1/messages", json={"messages": user_message("Two.")["messages"]}
            ) as said:
                assert said.status == 202
            gate.answers.put_nowait("First.")  # and the run waits for its second answer
            try:
                async with here.get(f"/runs/{run}/events") as following, asyncio.timeout(seconds):
                    return list_durable(await read_events(following, until="on_user_message"))
            finally:
                async with here.post(f"/runs/{run}/cancel") as cancelled:
                    assert (await cancelled.json())["outcome"] == "cancelled"
                assert (await read_events(response))[-1]["data"]["data"]["outcome"] == "cancelled"


async def test_a_client_follows_a_run_that_another_server_took_first(
    two: tuple[InProcessServer, InProcessServer], gate: Gate
) -> None:
    assert await follow_where_another_performs(two, gate, 60) == ["on_chat_model_end", "on_user_message"]


async def test_a_hub_that_is_published_before_its_lease_is_held_is_found(
    two: tuple[InProcessServer, InProcessServer], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HubDirectory, "expect", lambda board, owner, hub, **_: board.publish(owner, hub))
    with pytest.raises(TimeoutError):
        await follow_where_another_performs(two, gate, 2)


async def test_a_message_to_one_server_steers_the_run_of_the_other(
    two: tuple[InProcessServer, InProcessServer], gate: Gate
) -> None:
    async with open_client(two[0]) as here, open_client(two[1]) as there:
        first = asyncio.create_task(send_answer(here, "gate", user_message("One.", "th_1")))
        await gate.asked.wait()
        async with there.post("/agents/gate/stream", json=user_message("Two.", "th_1")) as response:
            gate.answers.put_nowait("First.")
            gate.answers.put_nowait("Second.")
            found = await read_events(response)
        assert list_durable(found) == ["on_chat_model_end", "on_user_message", "on_chat_model_end", "done"]
        assert found[-1]["data"]["data"]["text"] == "Second." == (await first)["response"]


async def test_a_question_of_one_is_answered_at_the_other(two: tuple[InProcessServer, InProcessServer]) -> None:
    async with open_client(two[0]) as here, open_client(two[1]) as there:
        async with here.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response:
            await read_events(response, until="on_approval_request")
            (waiting,) = (await get_json(there, "/approvals"))["approvals"]
            async with there.post(f"/approvals/{waiting['id']}", json={"choice": "allow"}) as answered:
                assert answered.status == 200
            found = await read_events(response)
        assert next(f for f in found if f["event"] == "on_tool_end")["data"]["data"]["output"] == "paid 500"


async def test_both_servers_receive_messages_at_once(two: tuple[InProcessServer, InProcessServer]) -> None:
    async with open_client(two[0]) as here, open_client(two[1]) as there:
        await send_answer(here, "echo", user_message("0", "th_1"))
        said = [
            send_answer(client, "echo", user_message(str(n), "th_1")) for n, client in enumerate((here, there) * 5, 1)
        ]
        await asyncio.gather(*said)
        thread = await get_json(here, "/threads/th_1")
    words = [message["content"] for message in thread["messages"] if message["role"] == "user"]
    assert sorted(words, key=int) == [str(n) for n in range(11)] and thread["queued"] == 0


async def test_a_server_resumes_runs_that_another_released(tmp_path: Path, gate: Gate) -> None:
    schema = postgres_server().schema()
    options = {"store": "postgres", "store_schema": schema, "agents": sample_agents(gate), "grace": 0.0}
    async with host_server(tmp_path / "b", **options) as second, open_client(second) as there:
        async with (
            host_server(tmp_path / "a", **options) as first,
            open_client(first) as here,
            here.post("/agents/gate/stream", json=user_message("One.", "th_1")) as response,
        ):
            await gate.asked.wait()
            following = await there.get(f"/runs/{response.headers['X-Run-Id']}/events")
        gate.answers.put_nowait("Here.")
        found = await read_events(following)
        assert list_names(found)[-2:] == ["on_chat_model_end", "done"] and found[-1]["data"]["data"]["text"] == "Here."


async def test_the_second_server_to_resume_finds_nothing_to_do(two: tuple[InProcessServer, InProcessServer]) -> None:
    """Both start the same run: one executes it, the other streams its log, and it is logged once."""
    async with open_client(two[0]) as here, open_client(two[1]) as there:
        await send_answer(here, "echo", user_message("0", "th_1"))
        owner = (await get_json(here, "/auth/me"))["id"]
        store, runs = two[0].service.store, [server.service.runs for server in two]
        await store.enqueue(owner, "th_1", {"role": "user", "content": "1"})
        head = await store.head(owner, "th_1")
        user = User(owner, "ada")
        await asyncio.gather(*(each.resume_thread(user, head) for each in runs))

        async def settled() -> bool:
            return not any(each.executor.running for each in runs)

        await wait_until(settled)
        log = await get_json(there, "/threads/th_1/export")
    assert [entry["kind"] for entry in log["entries"]].count("run_start") == 2


WAITING = """
import asyncio, os
from wick import Agent
from wick.protocols import Finish
from wick.server.server import Server

class Waiting:
    name = "waiting"

    async def stream(self, request):
        await asyncio.sleep(600)
        yield Finish()

server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("gate", Agent(Waiting(), name="gate"))
server.start()
"""


async def test_runs_of_a_claim_share_a_read_of_the_live_servers(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"store": "postgres", "store_schema": postgres_server().schema(), "grace": 0.0}
    with run_server(tmp_path / "a", script=WAITING, **options) as killed:
        async with open_client(killed) as client, AsyncExitStack() as stack:
            for number in range(5):
                body = user_message("One.", f"th_{number}")
                response = await stack.enter_async_context(client.post("/agents/gate/stream", json=body))
                assert await read_events(response, until="on_chat_model_start")
            killed.kill()
    calls: list[str] = []
    claim, find_live_servers = Postgres.claim, RunExecutor.find_live_servers

    async def recorded_claim(store: Postgres, *args: Any, **given: Any) -> Any:
        leases = await claim(store, *args, **given)
        calls.extend(["claim"] if leases else [])
        return leases

    async def recorded_find(executor: RunExecutor) -> Any:
        calls.append("servers")
        return await find_live_servers(executor)

    monkeypatch.setattr(Postgres, "claim", recorded_claim)
    monkeypatch.setattr(RunExecutor, "find_live_servers", recorded_find)
    async with host_server(tmp_path / "b", agents=sample_agents(gate), **options):

        async def resumed() -> bool:
            return len(gate.requests) == 5

        await wait_until(resumed)
        assert calls == ["claim", "servers"] * calls.count("claim")
