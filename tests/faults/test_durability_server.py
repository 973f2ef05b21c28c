"""R1 on a server: it is killed again and again during conversations, and clients reconnect.

In CI a few times; 2,000 times with WICK_FULL, or as often as WICK_KILLS says. A fault that is planted is found.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from faults.tally import FULL, Tally, Violated
from faults.thread_validity import pieces, valid
from server_process import ServerProcess, read_events, read_frames, run_server
from wick import Thread
from wick.constants import RUN_CRASHES

LONG = 14_400 if FULL else 300
PATIENCE = 120  # seconds for clients to finish
KILLS = int(os.environ.get("WICK_KILLS") or (2_000 if FULL else 2))
NO_QUOTAS = {"runs": 0, "requests_per_second": 0}


SERVER = """
import asyncio, os
from wick import Agent, FunctionModel, ToolCall, assistant, tool
from wick.server.server import Server

@tool(idempotent=True)
async def tick(number: int) -> str:
    "Wait a moment."
    await asyncio.sleep(0.01)
    return f"tick {number}"

def answer(request):
    since = [m.role for m in request.messages][::-1].index("user")
    done = sum(m.role == "tool" for m in request.messages[len(request.messages) - since:])
    return assistant(f"Step {done}.", ToolCall(f"c{done}", "tick", {"number": done})) if done < 4 else "All done."

agent = Agent(FunctionModel(answer), tools=[tick])
Server(settings=os.environ["WICK_SETTINGS"]).register_agent("ticker", agent).start()
"""
PLANTED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import planted_faults
planted_faults.forgetful()
"""


@dataclass
class Person:
    """A client that sends messages in one thread and retries with the same key when the server is down."""

    server: ServerProcess
    name: str
    over: asyncio.Event
    runs: list[tuple[str, str, list[dict[str, Any]]]] = field(default_factory=list)  # text, run, received frames
    kills: list[int] = field(default_factory=list)  # of the server, during each run

    async def speak(self) -> None:
        async with self.server.client(self.name) as client:
            while not self.over.is_set():
                words, before = f"{self.name} {len(self.runs)}", self.server.starts
                seen: list[dict[str, Any]] = []
                run = await self._begin(client, words, seen)
                self.runs.append((words, run, seen))
                await self._follow(client, run, seen)
                self.kills.append(self.server.starts - before)

    async def _begin(self, client: aiohttp.ClientSession, words: str, seen: list[dict[str, Any]]) -> str:
        """Send until the server accepts; the idempotency key makes sure that it is stored once."""
        body = {"messages": [{"role": "user", "content": words}], "thread_id": f"th_{self.name}"}
        while True:
            with suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                url = f"{self.server.url}/agents/ticker/stream"
                async with client.post(url, json=body, headers={"Idempotency-Key": words}) as response:
                    assert response.status in (200, 503), await response.text()
                    if response.status == 200:
                        run = response.headers["X-Run-Id"]
                        with suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                            await _read(response, seen)
                        return run
            await asyncio.sleep(0.05)

    async def _follow(self, client: aiohttp.ClientSession, run: str, seen: list[dict[str, Any]]) -> None:
        while not seen or seen[-1]["event"] not in ("done", "error"):
            with suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                after = {"Last-Event-ID": seen[-1]["id"]} if seen else {}
                async with client.get(f"{self.server.url}/runs/{run}/events", headers=after) as response:
                    assert response.status in (200, 503), f"run {run} was taken, and now: {await response.text()}"
                    await _read(response, seen)
            await asyncio.sleep(0.05)

    async def check(self, client: aiohttp.ClientSession) -> None:
        """Check that streamed frames match the log, each run is complete, and the thread has each message once."""
        for (_, run, seen), kills in zip(self.runs, self.kills, strict=True):
            async with client.get(f"{self.server.url}/runs/{run}/events") as response:
                there = [frame for frame in await read_events(response) if frame["id"]]
            pieces(seen, there)
            end = there[-1]["event"]
            given_up = kills >= RUN_CRASHES and end == "error" and "run_crashed" in str(there[-1]["data"])
            assert seen == there and (end == "done" or given_up), f"run {run} ends with {end} after {kills} kills"
        async with client.get(f"{self.server.url}/threads/th_{self.name}/export") as response:
            thread = Thread.from_json(await response.json())
        valid(thread)
        said = [message.text for message in thread.messages if message.role == "user"]
        assert said == [words for words, _, _ in self.runs], "the thread has other messages than the accepted ones"


async def _read(response: aiohttp.ClientResponse, seen: list[dict[str, Any]]) -> None:
    async for frame in read_frames(response):
        seen += [frame] if frame["id"] else []


async def kill_again_and_again(folder: Path, kills: int, planted: bool = False) -> None:
    chance = random.Random(3)
    script = (PLANTED if planted else "") + SERVER
    with (
        Tally("R1", "kill -9 of a server with four clients", planted=planted) as tally,
        run_server(folder, script=script, quotas=NO_QUOTAS) as server,
    ):
        over = asyncio.Event()
        people = [Person(server, name, over) for name in ("ada", "bob", "olga", "root")]
        speaking = [asyncio.create_task(person.speak()) for person in people]
        for number in range(kills):
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            with tally.trying(f"kill {number}"):
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
        over.set()
        outcomes = await asyncio.wait_for(asyncio.gather(*speaking, return_exceptions=True), PATIENCE)
        tally.violations += [f"{outcome!r}" for outcome in outcomes if outcome is not None]
        await _check_all(people, tally)
        tally.note(runs=sum(len(person.runs) for person in people))


async def _check_all(people: Sequence[Person], tally: Tally) -> None:
    for person in people:
        try:
            async with person.server.client(person.name) as client:
                await person.check(client)
        except Exception as error:
            tally.violations.append(f"{person.name}: {type(error).__name__}: {error}")


@pytest.mark.timeout(LONG)
async def test_a_server_that_is_killed(tmp_path: Path) -> None:
    await kill_again_and_again(tmp_path, KILLS)


@pytest.mark.timeout(LONG)
@pytest.mark.long
async def test_kills_detect_unwritten_data(tmp_path: Path) -> None:
    with pytest.raises(Violated, match="was taken, and now"):
        await kill_again_and_again(tmp_path, 4, planted=True)
