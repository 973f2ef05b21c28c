"""R1 under concurrency: clients cancel runs at any point and race for one thread.

In CI a sample of each; all of it with WICK_FULL. Each check also finds a fault that is planted.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from faults.tally import FULL, Tally, Violated
from faults.thread_validity import kept, valid
from server_agents import get_json, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_frames
from wick import Agent, FunctionModel, Thread, ToolCall, assistant, tool
from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.events import ToolEnd
from wick.protocols import Request, Store
from wick.stores import sqlite_queries
from wick.stores.held_thread import HeldThread
from wick.stores.sqlite import Sqlite

LONG = 3600 if FULL else 300
NO_QUOTAS = {"runs": 0, "requests_per_second": 0}


@tool
async def work(number: int) -> str:
    """Work for a moment."""
    await asyncio.sleep(0.002 * (number % 3))
    return f"worked {number}"


def two_calls(request: Request) -> Any:
    """Use the tool twice at once and repeat the last message; each result of a thread is different."""
    count = len(request.messages)
    if request.messages[-1].role == "user":
        return assistant("", *(ToolCall(f"c{number}", "work", {"number": number}) for number in (count, count + 1)))
    return "re: " + next(message.text for message in reversed(request.messages) if message.role == "user")


# -- cancelling -----------------------------------------------------------------------------------------------------


async def cancel_often(folder: Path, times: int, planted: bool = False) -> None:
    """Cancel runs at any point: in process and through a server.

    Faults are planted in process only: a server that loses messages would block forever.
    """
    sessions, chance = Sessions(folder / "db"), random.Random(5)
    agent = Agent(FunctionModel(two_calls), tools=[work], hooks=[sessions])
    sample_agents = {"worker": Agent(FunctionModel(two_calls), tools=[work])}
    with Tally("R1", "cancels", planted=planted) as tally:
        async with host_server(folder, agents=sample_agents, quotas=NO_QUOTAS) as server, open_client(server) as client:
            for number in range(times):
                id = f"th_{number // 20}"
                with tally.trying(f"cancel {number}"):
                    if number % 2 and not planted:
                        await _cancel_at_server(client, id, chance)
                    else:
                        await _cancel_here(agent, sessions, id, chance, at_first_word=planted)
    await sessions.close()


async def _cancel_here(agent: Agent, sessions: Sessions, id: str, chance: random.Random, at_first_word: bool) -> None:
    """Cancel at any moment, or right after an event, where a premature event shows."""
    told: list[str] = []
    first = asyncio.Event()

    async def listen() -> None:
        async for event in agent.stream("Work.", thread=id):
            if isinstance(event, ToolEnd) and event.output.startswith("worked"):
                told.append(event.output)
                first.set()

    listening = asyncio.create_task(listen())
    if at_first_word:
        hearing = asyncio.create_task(first.wait())
        await asyncio.wait((listening, hearing), return_when=asyncio.FIRST_COMPLETED)
        hearing.cancel()
    else:
        await asyncio.wait((listening,), timeout=chance.uniform(0, 0.03))
    listening.cancel()
    await asyncio.wait((listening,))
    with suppress(asyncio.CancelledError):
        listening.result()
    try:
        thread = await sessions.load(id)
    except StoreError as error:
        assert error.code == "not_found" and not told
        return
    valid(thread)
    kept(
        sorted(told), sorted(_results(thread))
    )  # results of concurrent tools are sent in any order; server frames have numbers


def _results(thread: Thread) -> list[str]:
    """Return the results in order of arrival; messages have them in call order."""
    said = [entry.data for entry in thread.entries if entry.kind == "message"]
    return [message.text for message in said if message.text.startswith("worked")]


async def _cancel_at_server(client: aiohttp.ClientSession, id: str, chance: random.Random) -> None:
    seen: list[dict[str, Any]] = []
    most, cancelled = chance.randint(0, 12), False
    async with client.post("/agents/worker/stream", json=user_message("Work.", id)) as response:
        run = response.headers["X-Run-Id"]
        async for frame in read_frames(response):
            seen.append(frame)
            if len(seen) > most and not cancelled:
                cancelled = True
                async with client.post(f"/runs/{run}/cancel") as cancelling:
                    assert cancelling.status == 200, await cancelling.text()
    ends = [frame["event"] for frame in seen if frame["event"] in ("done", "error")]
    assert ends == ["done"] and seen[-1]["event"] == "done", f"run {run} ended as {ends}"
    thread = Thread.from_json(await get_json(client, f"/threads/{id}/export"))
    valid(thread)
    told = [frame["data"]["data"]["output"] for frame in seen if frame["event"] == "on_tool_end"]
    kept([text for text in told if text.startswith("worked")], _results(thread))


@pytest.mark.timeout(LONG)
async def test_cancels(tmp_path: Path) -> None:
    await cancel_often(tmp_path, 1_000 if FULL else 60)


async def test_cancels_detect_events_sent_before_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = HeldThread._write_entries

    async def at_once(self: HeldThread) -> None:
        """Send events without waiting for the store."""

    async def late(self: HeldThread) -> None:
        await asyncio.sleep(0.2)
        await write(self)

    async def lose(self: HeldThread, rows: object, took: object) -> None:
        """Release the lease without the entries that were not written in time."""
        self.released_head = await self.store.release(self.owner, self.thread.id, self.lease.fence)

    monkeypatch.setattr(HeldThread, "saved", at_once)
    monkeypatch.setattr(HeldThread, "_write_entries", late)
    monkeypatch.setattr(HeldThread, "_append_and_release", lose)
    with pytest.raises(Violated, match="acknowledged and lost"):
        await cancel_often(tmp_path, 12, planted=True)


# -- racing ---------------------------------------------------------------------------------------------------------


async def race_often(folder: Path, times: int, planted: bool = False) -> None:
    """Let several writers race for one thread: a slow one, two programs, and one that repeats its message."""
    path = folder / "db" / "threads.db"
    stores = [Sqlite(path), Sqlite(path)]
    agents = [Agent(FunctionModel(two_calls), tools=[work], hooks=[Sessions(store)]) for store in stores]
    sample_agents = {"worker": Agent(FunctionModel(two_calls), tools=[work])}
    with Tally("R1", "races for one thread", planted=planted) as tally:
        async with host_server(folder, agents=sample_agents, quotas=NO_QUOTAS) as server:
            for number in range(times):
                with tally.trying(f"race {number}"):
                    if number % 3 == 0:
                        await _too_slow(stores, f"slow_{number}")
                    elif number % 3 == 1:
                        await _at_once(agents, stores[0], f"both_{number // 30}", number)
                    else:
                        await _thrice(server, f"th_{number // 30}", str(number))
    for store in stores:
        await store.close()


async def _too_slow(stores: list[Sqlite], id: str) -> None:
    """A holder with an expired lease writes beside the current holder."""
    first, second = stores
    await first.create("ada", id)
    slow = await first.lease("ada", id, "slow", 0.001)
    await asyncio.sleep(0.002)
    quick = await second.lease("ada", id, "quick", 60)
    wrote: list[str] = []
    await asyncio.gather(_insist(second, id, quick.fence, wrote), _insist(first, id, slow.fence, wrote))
    found = [row async for batch in first.read("ada", id) for row in batch]
    kept(wrote, [row["data"]["text"] for row in found])
    fences = [row["data"]["fence"] for row in found]
    assert len(found) == 4 and fences == sorted(fences), f"written by {fences}: one of them was not to write"


async def _insist(store: Store, id: str, fence: int, wrote: list[str]) -> None:
    """Write four times at the current end of the thread until the lease is lost."""
    done = 0
    while done < 4:
        last = (await store.head("ada", id)).last
        text = f"{fence}/{done}"
        row = {"seq": last + 1, "kind": "event", "at": 1.0, "data": {"text": text, "fence": fence}}
        try:
            await store.append("ada", id, [row], expect=last, fence=fence)
        except StoreError as error:
            if error.code == "fenced":
                return
            assert error.code == "conflict", error
            continue
        wrote.append(text)
        done += 1


async def _at_once(agents: list[Agent], store: Store, id: str, number: int) -> None:
    """Two programs run one thread: one answers after the other, and never in between."""
    words = [f"{number} {name}" for name in "ab"]
    results = await asyncio.gather(*(agent.run(text, thread=id) for agent, text in zip(agents, words, strict=True)))
    assert [result.text for result in results] == [f"re: {text}" for text in words]
    thread = await Sessions(store).load(id)
    valid(thread)
    turns = [message.text for message in thread.messages if message.role == "user" or message.text.startswith("re:")]
    assert turns[1::2] == [f"re: {text}" for text in turns[::2]], "one spoke while the other was answered"
    kept(sorted(words), sorted(turns[::2]))


async def _thrice(server: InProcessServer, id: str, key: str) -> None:
    """Send the same message three times at once with one idempotency key: it is stored once."""
    async with open_client(server, **{"Idempotency-Key": key}) as client:
        said = await asyncio.gather(*(send_answer(client, "worker", user_message(key, id)) for _ in range(3)))
        assert len({one["run_id"] for one in said}) == 1 and {one["response"] for one in said} == {f"re: {key}"}
        thread = Thread.from_json(await get_json(client, f"/threads/{id}/export"))
    valid(thread)
    kept([key], [message.text for message in thread.messages if message.role == "user"])


@pytest.mark.timeout(LONG)
async def test_races(tmp_path: Path) -> None:
    await race_often(tmp_path, 500 if FULL else 45)


@pytest.mark.long
async def test_races_find_a_missing_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_queries, "FENCED", "owner = ? AND id = ? AND ? > 0 AND holder != ''")
    with pytest.raises(Violated, match="one of them was not to write"):
        await race_often(tmp_path, 22, planted=True)
