"""Health checks and draining: what load balancers and clients of a stopping server see."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from postgres import new_server
from postgres import shared_server as postgres_server
from server_agents import Gate, confirm, get_json, list_names, pay, sample_agents, send_answer, user_message
from server_process import TOKENS, InProcessServer, host_server, open_client, read_events, wait_until
from wick import Agent, Scripted, ToolCall, assistant, tool
from wick.cli.commands.drain import drain_server
from wick.server.errors import ApiError
from wick.server.service import Service
from wick.server.settings import Settings

HELLO = user_message("Hello.")


async def status_of(server: InProcessServer, path: str) -> int:
    async with open_client(server, "") as anyone, anyone.get(path) as response:
        return response.status


async def test_a_started_server_is_live_and_ready(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server, "") as anyone:
        assert await get_json(anyone, "/health/live") == {"status": "live"}
        assert await get_json(anyone, "/health/ready") == {"status": "ready"}


async def test_a_draining_server_is_live_but_not_ready(tmp_path: Path) -> None:
    gate = Gate()
    async with host_server(tmp_path, agents=sample_agents(gate), grace=60) as server, open_client(server) as client:
        going = asyncio.create_task(send_answer(client, "gate", HELLO))
        await gate.asked.wait()
        waiting = await drain_server(server.url, TOKENS["root"], wait=False)
        assert (waiting.status, waiting.runs) == ("draining", 1)
        assert await status_of(server, "/health/live") == 200
        async with client.get("/health/ready") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "draining")

        async def refused() -> bool:
            return server.service.runs.stopping

        await wait_until(refused)
        async with client.post("/agents/echo/invoke", json=HELLO) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "stopping")
            assert response.headers["Retry-After"]
        gate.answers.put_nowait("Here.")
        assert (await going)["response"] == "Here."
        done = await drain_server(server.url, TOKENS["root"], wait=True)
        assert (done.status, done.runs) == ("drained", 0)


async def test_a_server_takes_runs_during_the_drain_delay(tmp_path: Path) -> None:
    agents = sample_agents(Gate())
    async with host_server(tmp_path, agents=agents, drain_delay=5) as server, open_client(server) as client:
        server.service.start_drain()
        assert await status_of(server, "/health/ready") == 503
        assert (await send_answer(client, "echo", HELLO))["response"] == "You said: Hello."


async def test_only_an_admin_drains_a_server(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server:
        for user, status in (("", 401), ("ada", 403), ("olga", 403)):
            async with open_client(server, user) as client, client.post("/drain") as response:
                assert response.status == status
        assert not server.service.draining


async def test_a_stopping_server_closes_connections_after_each_response(tmp_path: Path) -> None:
    gate = Gate()
    async with host_server(tmp_path, agents=sample_agents(gate), grace=60) as server, open_client(server) as client:
        going = asyncio.create_task(send_answer(client, "gate", HELLO))
        await gate.asked.wait()
        async with client.get("/health") as response:
            assert "Connection" not in response.headers
        server.server.shutdown()

        async def closes() -> bool:
            async with client.get("/health/live") as response:
                return response.headers.get("Connection") == "close"

        await wait_until(closes)
        gate.answers.put_nowait("Here.")
        await going


async def test_a_request_whose_run_is_released_is_not_to_be_repeated(tmp_path: Path) -> None:
    """The message is stored: the code is not the one of a request that was refused."""
    gate = Gate()
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as server, open_client(server) as client:
        going = asyncio.create_task(client.post("/agents/gate/invoke", json=HELLO))
        await gate.asked.wait()
        server.server.shutdown()
        async with await going as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "still_open")
            assert response.headers["X-Run-Id"].startswith("run_")


async def test_a_drained_server_releases_its_runs_to_another(tmp_path: Path) -> None:
    gate, schema = Gate(), postgres_server().schema()
    options = {"store": "postgres", "store_schema": schema, "agents": sample_agents(gate), "grace": 0.0}
    async with (
        host_server(tmp_path / "a", **options) as first,
        host_server(tmp_path / "b", **options) as second,
        open_client(first) as here,
        open_client(second) as there,
    ):
        async with here.post("/agents/gate/stream", json=user_message("One.", "th_1")) as response:
            await gate.asked.wait()
            run = response.headers["X-Run-Id"]
            await first.service.drain()
            assert "done" not in list_names(await read_events(response))
        gate.answers.put_nowait("There.")
        async with there.get(f"/runs/{run}/events") as following:
            found = await read_events(following)
        assert found[-1]["data"]["data"]["text"] == "There."
        async with here.get(f"/runs/{run}/events") as late:  # a drained server still shows what is in the log
            assert list_names(await read_events(late))[-1] == "done"


async def test_a_server_without_its_database_is_not_ready(tmp_path: Path) -> None:
    postgres = new_server()
    service = Service(Settings(data=tmp_path, store=postgres.conninfo, grace=0))

    async def is_ready() -> bool:
        with suppress(ApiError):
            await service.check_ready()
            return True
        return False

    async def is_not_ready() -> bool:
        return not await is_ready()

    try:
        assert not await is_ready()  # it is not started
        await service.start()
        assert await is_ready()
        postgres.stop(signal.SIGQUIT)
        await wait_until(is_not_ready)
        postgres.start()
        await wait_until(is_ready)
        await service.stop()
    finally:
        postgres.remove()


async def test_a_run_that_waits_for_an_answer_does_not_delay_the_stop(tmp_path: Path) -> None:
    """It is answered after the restart. Its stream has no end, so that clients follow it again."""
    options = {"agents": sample_agents(Gate()), "grace": 3600.0}
    async with host_server(tmp_path, **options) as server, open_client(server) as client:
        stream = await client.post("/agents/payer/stream", json=user_message("Pay.", "th_1"))
        run = stream.headers["X-Run-Id"]
        asked = (await read_events(stream, until="on_approval_request"))[-1]["data"]["data"]
        async with asyncio.timeout(60):
            await server.service.drain()
        assert "done" not in list_names(await read_events(stream))
    async with host_server(tmp_path, **options) as server, open_client(server) as client:
        (pending,) = (await get_json(client, "/approvals"))["approvals"]
        assert (pending["id"], pending["run_id"]) == (asked["id"], run)
        async with client.post(f"/approvals/{asked['id']}", json={"choice": "allow"}) as response:
            assert response.status == 200
        async with client.get(f"/runs/{run}/events") as following:
            assert "paid 500" in (await read_events(following))[-1]["data"]["data"]["text"]


async def test_a_tool_in_progress_ends_before_a_waiting_run_pauses(tmp_path: Path) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        started.set()
        await go.wait()
        return "seen"

    both = assistant("", ToolCall("c1", "pay", {"amount": 5}), ToolCall("c2", "look", {}))
    agents = {"both": Agent(Scripted(both), tools=[pay, look], hooks=[confirm])}
    async with host_server(tmp_path, agents=agents, grace=3600.0) as server, open_client(server) as client:
        stream = await client.post("/agents/both/stream", json=user_message("Go.", "th_1"))
        await read_events(stream, until="on_approval_request")
        await started.wait()
        drained = asyncio.create_task(server.service.drain())
        await asyncio.sleep(0.1)
        assert not drained.done()
        go.set()
        await drained
        stored = await server.service.store.head((await get_json(client, "/auth/me"))["id"], "th_1")
        assert (bool(stored.run), stored.asking) == (True, 1)
        async with client.get("/threads/th_1") as response:
            assert "seen" in await response.text()
