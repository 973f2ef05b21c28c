"""The server is killed or stopped, and restarted: acknowledged data is neither lost nor duplicated."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from postgres import shared_server as postgres_server
from server_process import ServerKilled, ServerProcess, open_client, read_events, read_frames, run_server, wait_until

SCRIPT = """
import asyncio, os
from wick import Agent, FunctionModel, ToolCall, assistant, tool
from wick.server.server import Server

@tool(idempotent=True)
async def tick(number: int) -> str:
    "Wait a moment."
    await asyncio.sleep(0.03)
    return f"tick {number}"

def answer(request):
    since = [m.role for m in request.messages][::-1].index("user")
    done = sum(m.role == "tool" for m in request.messages[len(request.messages) - since:])
    most = 1_000 if "without end" in request.messages[len(request.messages) - since - 1].text else 12
    return assistant(f"Step {done}.", ToolCall(f"c{done}", "tick", {"number": done})) if done < most else "All done."

agent = Agent(FunctionModel(answer), tools=[tick])
Server(settings=os.environ["WICK_SETTINGS"]).register_agent("ticker", agent).start()
"""
STEPS = 12
# Postgres is tried below: under load, and with two servers of which one is killed.
MOSTLY_SQLITE = pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)
BODY = {"messages": [{"role": "user", "content": "Tick."}]}


async def read_on(client: aiohttp.ClientSession, run: str, after: str) -> list[dict[str, Any]]:
    async with client.get(f"/runs/{run}/events", headers={"Last-Event-ID": after} if after else {}) as response:
        assert response.status == 200, await response.text()
        return [frame for frame in await read_events(response) if frame["id"]]


async def begin(client: aiohttp.ClientSession, most: int, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    """Ask, and read until there are that many durable frames."""
    seen: list[dict[str, Any]] = []
    async with client.post("/agents/ticker/stream", json=BODY | more) as response:
        async for frame in read_frames(response):
            seen += [frame] if frame["id"] else []
            if len(seen) >= most:
                break
        return response.headers["X-Run-Id"], seen


def check(whole: list[dict[str, Any]], seen: list[dict[str, Any]]) -> None:
    """Check that streamed frames match the log: each durable frame once, and one end."""
    assert seen == whole
    names = [frame["event"] for frame in whole]
    assert names.count("done") == 1 and names[-1] == "done" and "error" not in names
    assert names.count("on_tool_end") == STEPS and names.count("on_tool_start") == STEPS
    assert whole[-1]["data"]["data"]["text"] == "All done."


@MOSTLY_SQLITE
@pytest.mark.parametrize("most", [1, 8, 23] if os.environ.get("WICK_FULL") else [8])
async def test_killed_in_the_middle_of_a_stream(tmp_path: Path, store: str, most: int) -> None:
    with run_server(tmp_path, store=store, script=SCRIPT) as server:
        async with open_client(server) as client:
            run, seen = await begin(client, most)
        server.kill()
        server.start()
        async with open_client(server) as client:
            seen += await read_on(client, run, seen[-1]["id"])
            check(await read_on(client, run, ""), seen)
            async with client.get(f"/runs/{run}") as response:
                assert (await response.json())["outcome"] == "completed"


@pytest.mark.long  # tests/faults/test_durability_server.py samples it
async def test_killed_again_and_again(tmp_path: Path) -> None:
    with run_server(tmp_path, script=SCRIPT) as server:
        async with open_client(server) as client:
            run, seen = await begin(client, 3)
        for _ in range(3):
            server.kill()
            server.start()
            async with open_client(server) as client:
                url, after = f"/runs/{run}/events", {"Last-Event-ID": seen[-1]["id"]}
                async with client.get(url, headers=after) as response:
                    async for frame in read_frames(response):
                        seen += [frame] if frame["id"] else []
                        if frame["event"] == "on_tool_end":
                            break
        async with open_client(server) as client:
            seen += await read_on(client, run, seen[-1]["id"])
            check(await read_on(client, run, ""), seen)


DEADLY = """
import asyncio, os, signal
from wick import Agent, FunctionModel, ToolCall, assistant, tool
from wick.server.server import Server

@tool(idempotent=True)
async def crash(number: int) -> str:
    "End the server."
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

def answer(request):
    if "crash" not in request.messages[-1].text and request.messages[-1].role == "user":
        return "I am well."
    done = sum(m.role == "tool" for m in request.messages)
    return assistant("I try.", ToolCall(f"c{done}", "crash", {"number": done}))

agent = Agent(FunctionModel(answer), tools=[crash])
Server(settings=os.environ["WICK_SETTINGS"]).register_agent("ticker", agent).start()
"""


def restart_crashed(server: ServerProcess) -> None:
    """Wait until the server has killed itself, and start it again. A resumed run may kill it before its first line."""
    assert server.process is not None
    server.process.wait(60)
    with suppress(ServerKilled):
        server.start()


async def crash_twice(folder: Path, store: str, script: str) -> tuple[int, dict[str, Any], Any]:
    """Return how often a run crashed its server, its outcome, and the answer to another message."""
    with run_server(folder, store=store, script=script) as server:
        async with open_client(server) as client:
            said = {"messages": [{"role": "user", "content": "crash"}], "thread_id": "th_1"}
            async with client.post("/agents/ticker/stream", json=said) as response:
                run = response.headers["X-Run-Id"]
        for crashes in range(1, 4):
            restart_crashed(server)
            if crashes < 2:
                continue
            with suppress(aiohttp.ClientError, ConnectionError):
                async with open_client(server) as client:
                    await read_on(client, run, "")
                    async with client.get(f"/runs/{run}") as response:
                        found = await response.json()
                    said = {"messages": [{"role": "user", "content": "Hello."}], "thread_id": "th_1"}
                    async with client.post("/agents/ticker/invoke", json=said) as response:
                        return crashes, found, await response.json()
        return 3, {}, None


@MOSTLY_SQLITE
async def test_a_run_that_ended_its_server_twice_is_not_resumed(tmp_path: Path, store: str) -> None:
    crashes, found, after = await crash_twice(tmp_path, store, DEADLY)
    assert crashes == 2 and found["state"] == "ended" and found["outcome"] == "failed"
    assert found["error"]["code"] == "run_crashed" and "ended 2 times at the same step" in found["error"]["message"]
    assert after["response"] == "I am well.", after  # the thread is valid, and its next message works


@pytest.mark.long
async def test_a_missing_crash_count_is_detected(tmp_path: Path) -> None:
    planted = "import wick.server.runs.executor as p\np._is_crash = lambda *start: False\n" + DEADLY
    assert (await crash_twice(tmp_path, "sqlite", planted))[0] == 3


ASKING = """
import os, signal
from wick import Agent, Ask, FunctionModel, ToolCall, ToolUse, assistant, guard, tool
from wick.server.server import Server

@tool
async def crash() -> str:
    "End the server."
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

@guard(ToolUse, match="crash")
def confirm(use: ToolUse) -> Ask:
    return Ask("crash?")

def answer(request):
    return "All done." if request.messages[-1].role == "tool" else assistant("", ToolCall("c1", "crash", {}))

agent = Agent(FunctionModel(answer), tools=[crash], hooks=[confirm])
Server(settings=os.environ["WICK_SETTINGS"]).register_agent("ticker", agent).start()
"""


async def test_a_kill_while_a_question_waits_is_no_crash_of_its_tool(tmp_path: Path) -> None:
    with run_server(tmp_path, script=ASKING) as server:
        async with open_client(server) as client, client.post("/agents/ticker/stream", json=BODY) as response:
            run = response.headers["X-Run-Id"]
            async for frame in read_frames(response):
                if frame["event"] == "on_approval_request":
                    break
        server.kill()
        server.start()
        async with open_client(server) as client:
            async with client.get("/approvals") as response:
                [question] = (await response.json())["approvals"]
            with suppress(aiohttp.ClientError):  # the tool may end the server before it responds
                async with client.post(f"/approvals/{question['id']}", json={"choice": "allow"}) as response:
                    assert response.status == 200
        restart_crashed(server)
        async with open_client(server) as client:
            assert (await read_on(client, run, ""))[-1]["event"] == "done"
            async with client.get(f"/runs/{run}") as response:
                assert (await response.json())["outcome"] == "completed"


async def test_a_clean_stop_is_not_a_crash(tmp_path: Path) -> None:
    with run_server(tmp_path, script=SCRIPT, grace=0.0) as server:
        async with open_client(server) as client:
            run, seen = await begin(client, 3)
        for _ in range(3):
            assert await asyncio.to_thread(server.stop) in (0, -15)
            server.start()
        async with open_client(server) as client:
            check(await read_on(client, run, ""), seen + await read_on(client, run, seen[-1]["id"]))


async def test_stop_under_load(tmp_path: Path, store: str) -> None:
    """SIGTERM: short runs end, others are resumed; every client gets all frames of its run, once."""
    with run_server(tmp_path, store=store, script=SCRIPT, grace=0.2) as server:
        async with open_client(server) as client:
            begun = await asyncio.gather(*(begin(client, 1 + number) for number in range(8)))
        assert await asyncio.to_thread(server.stop) in (0, -15)
        server.start()
        async with open_client(server) as client:
            for run, seen in begun:
                check(await read_on(client, run, ""), seen + await read_on(client, run, seen[-1]["id"]))


async def test_stop_during_conversations(tmp_path: Path) -> None:
    """An accepted run is stored; a refused client is told to retry."""
    quotas = {"runs": 0, "requests_per_second": 0}
    with run_server(tmp_path, script=SCRIPT, grace=0.2, quotas=quotas) as server:
        taken: list[str] = []
        async with open_client(server) as client:
            speaking = [asyncio.create_task(_speak(client, taken)) for _ in range(6)]
            async with asyncio.timeout(60):
                while len(taken) < 12:
                    await asyncio.sleep(0.01)
            assert await asyncio.to_thread(server.stop) == 0
            refused = sum(await asyncio.gather(*speaking))
        server.start()
        async with open_client(server) as client:
            for run in taken:
                whole = await read_on(client, run, "")
                check(whole, whole)
            heard = await _threads(client)
        assert (
            len(taken) <= heard <= len(taken) + 6 - refused
        )  # a message on a broken connection may have been accepted


async def _threads(client: aiohttp.ClientSession) -> int:
    """Count the threads of all pages."""
    count, cursor = 0, ""
    while True:
        async with client.get("/threads", params={"limit": "200", "cursor": cursor}) as response:
            page = await response.json()
        count, cursor = count + len(page["threads"]), page["next"]
        if not cursor:
            return count


async def _speak(client: aiohttp.ClientSession, taken: list[str]) -> bool:
    """Send messages until the server refuses (True) or disconnects."""
    with suppress(aiohttp.ClientConnectionError):
        while True:
            async with client.post("/agents/ticker/stream", json=BODY) as response:
                if response.status != 200:
                    assert response.status == 503 and response.headers["Retry-After"]
                    return True
                taken.append(response.headers["X-Run-Id"])
            await asyncio.sleep(0.05)
    return False


async def test_of_two_servers_one_is_killed(tmp_path: Path) -> None:
    """On one Postgres: the other resumes its run, streams all of it, and cancels on request."""
    shared = {"store": "postgres", "script": SCRIPT, "store_schema": postgres_server().schema()}
    with run_server(tmp_path / "a", **shared) as first, run_server(tmp_path / "b", **shared) as second:
        async with open_client(first) as here, open_client(second) as there:
            other, _ = await begin(here, 1, messages=[{"role": "user", "content": "Tick without end."}])
            async with there.post(f"/runs/{other}/cancel") as response:
                assert response.status == 200

            async def cancelled() -> bool:
                async with there.get(f"/runs/{other}") as response:
                    return bool((await response.json())["outcome"] == "cancelled")

            await wait_until(cancelled)  # the first one has to notice
            run, seen = await begin(here, 5)
            first.kill()
            seen += await read_on(there, run, seen[-1]["id"])
            check(await read_on(there, run, ""), seen)


async def test_a_key_is_good_after_a_crash(tmp_path: Path) -> None:
    with run_server(tmp_path, script=SCRIPT) as server:
        async with open_client(server, **{"Idempotency-Key": "k1"}) as client:
            run, _ = await begin(client, 2)
        server.kill()
        server.start()
        async with open_client(server, **{"Idempotency-Key": "k1"}) as client:
            assert (await begin(client, 1))[0] == run
            whole = await read_on(client, run, "")
            check(whole, whole)
            async with client.get("/threads") as response:
                assert len((await response.json())["threads"]) == 1
            async with client.post("/agents/ticker/invoke", json=BODY) as response:
                assert response.status == 409 or (await response.json())["run_id"] == run


async def test_acknowledged_messages_are_answered_without_a_reader(tmp_path: Path) -> None:
    """A message that was taken is on disk: killed at once, the server answers it when it is back."""
    with run_server(tmp_path, script=SCRIPT) as server:
        taken: list[str] = []
        for _ in range(2 if os.environ.get("WICK_FULL") else 1):
            async with open_client(server) as client, client.post("/agents/ticker/stream", json=BODY) as response:
                taken.append(response.headers["X-Run-Id"])
            server.kill()
            server.start()
            async with open_client(server) as client:
                await read_on(client, taken[-1], "")  # a run that is killed twice is not resumed
        async with open_client(server) as client:
            for run in taken:
                whole = await read_on(client, run, "")
                check(whole, whole)
