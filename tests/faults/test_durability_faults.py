"""R1 while something fails: the store is locked, full or disconnected, or a hook fails, while clients talk.

Clients use every route that acknowledges a message. Afterwards each acknowledged text is in the log, once, and each
end that a client was sent is the end that the log has. In CI one round for each store and fault; more with WICK_FULL.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from faults.tally import FULL, Tally, Violated
from faults.thread_validity import valid
from leak_checks import allow_leaks
from postgres import shared_server as postgres_server
from server_agents import get_json, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_frames, wait_until
from wick import Agent, Block, FunctionModel, Run, Thread, ToolCall, assistant, before, guard, run_log, tool
from wick.errors import StoreError
from wick.protocols import Request
from wick.server import runs as runs_module
from wick.server.runs import executor

NO_QUOTAS = {"runs": 0, "requests_per_second": 0}
ROUTES = ("invoke", "stream", "messages")
ROUNDS = 12 if FULL else 1
PAD = "." * 6_000  # a message that needs pages of its own

Fault = Callable[["Target"], AbstractAsyncContextManager[None]]


@tool(idempotent=True)
async def work(number: int) -> str:
    """Work for a moment."""
    await asyncio.sleep(0.03)
    return f"worked {number}"


def three_steps(request: Request) -> Any:
    """Use the tool twice, one call after the other, and repeat the last message."""
    since = [message.role for message in request.messages][::-1].index("user")
    if since < 4:
        return assistant("", ToolCall(f"c{len(request.messages)}", "work", {"number": since}))
    return "re: " + next(message.text for message in reversed(request.messages) if message.role == "user")[:40]


class Policy:
    """Hooks that fail on demand."""

    def __init__(self) -> None:
        self.before: Exception | None = None
        self.guard: Exception | Block | None = None

    def hooks(self) -> list[Any]:
        @before(Run)
        def look(run: Run) -> None:
            if self.before is not None:
                raise self.before

        @guard(Run)
        def decide(run: Run) -> Block | None:
            if isinstance(self.guard, Exception):
                raise self.guard
            return self.guard

        return [look, decide]


@dataclass
class Target:
    """The server under test, with its faults."""

    server: InProcessServer
    policy: Policy
    folder: Path

    @property
    def store(self) -> Any:
        return self.server.service.store._store  # type: ignore[attr-defined]


# -- faults ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def locked_file(target: Target) -> AsyncIterator[None]:
    """Another program holds the lock of the database, as a slow backup does."""
    with closing(sqlite3.connect(target.folder / "data" / "threads.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@asynccontextmanager
async def full_disk(target: Target) -> AsyncIterator[None]:
    """The database cannot grow: an error of SQLite itself."""

    def limit(pages: str) -> Any:
        return target.store.write(lambda do: do.db.execute(f"PRAGMA max_page_count = {pages}").fetchone())

    await limit("1")  # which is as many as there are
    yield
    await limit("1000000000")


@asynccontextmanager
async def failing_reads(target: Target) -> AsyncIterator[None]:
    """Every third read of the inbox fails, as with a lost connection."""
    real, count = target.store.inbox, 0

    async def inbox(*given: Any) -> Any:
        nonlocal count
        count += 1
        if count % 3 == 0:
            raise StoreError("the connection was closed", "unavailable")
        return await real(*given)

    target.store.inbox = inbox
    yield
    del target.store.inbox


@asynccontextmanager
async def closed_connections(target: Target) -> AsyncIterator[None]:
    """Postgres closes its connections, again and again, as a failover or a proxy does."""
    over = asyncio.Event()

    async def close() -> None:
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND random() < 0.7"
        )
        while not over.is_set():
            async with await psycopg.AsyncConnection.connect(postgres_server().conninfo, autocommit=True) as database:
                await database.execute(query)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 0.15)

    closing_all = asyncio.create_task(close())
    yield
    over.set()
    await closing_all


@asynccontextmanager
async def locked_tables(target: Target) -> AsyncIterator[None]:
    """Another session of Postgres locks the log."""
    schema = target.server.server.settings.store_schema
    async with await psycopg.AsyncConnection.connect(postgres_server().conninfo) as other:
        await other.execute(f"LOCK TABLE {schema}.entries, {schema}.inbox IN ACCESS EXCLUSIVE MODE".encode())
        yield


@asynccontextmanager
async def restarted_database(target: Target) -> AsyncIterator[None]:
    await asyncio.to_thread(postgres_server().stop)
    try:
        yield
    finally:
        with allow_leaks():  # not in a thread: the kernel ends a child when the thread that started it does
            postgres_server().start()


def failing_before(error: Exception) -> Fault:
    @asynccontextmanager
    async def fault(target: Target) -> AsyncIterator[None]:
        target.policy.before = error
        yield
        target.policy.before = None

    return fault


def failing_guard(verdict: Exception | Block) -> Fault:
    @asynccontextmanager
    async def fault(target: Target) -> AsyncIterator[None]:
        target.policy.guard = verdict
        yield
        target.policy.guard = None

    return fault


HOOKS: dict[str, Fault] = {
    "a before hook fails": failing_before(ConnectionError("the policy service is down")),
    "a before hook's own store fails": failing_before(StoreError("another store is down", "unavailable")),
    "a before hook's own store is busy": failing_before(StoreError("another thread is busy", "conflict")),
    "a guard fails": failing_guard(RuntimeError("the policy service is down")),
    "a guard blocks": failing_guard(Block("closed today")),
}
FAULTS: dict[str, dict[str, Fault]] = {
    "sqlite": {"locked": locked_file, "full": full_disk, "failing reads": failing_reads, **HOOKS},
    "postgres": {
        "closed connections": closed_connections,
        "locked": locked_tables,
        "restarted": restarted_database,
        **(HOOKS if FULL else {"a before hook fails": HOOKS["a before hook fails"]}),
    },
}


# -- clients --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Acknowledged:
    """A message that the server has taken, and the end that its client was sent, if any."""

    thread: str
    text: str
    run: str = ""
    end: tuple[str, str] | None = None


async def talk(client: aiohttp.ClientSession, route: str, thread: str, text: str) -> Acknowledged | None:
    body = user_message(text + PAD, thread)
    if route == "messages":
        async with client.post(f"/threads/{thread}/messages", json={"messages": body["messages"]}) as response:
            return Acknowledged(thread, text) if response.status == 202 else _refused(response)
    async with client.post(f"/agents/worker/{route}", json=body) as response:
        run = response.headers.get("X-Run-Id", "")
        if route == "stream" and response.status == 200:
            return Acknowledged(thread, text, run, await _last(response))
        found = await response.json()
        if response.status == 200:
            return Acknowledged(thread, text, found["run_id"], (found["outcome"], found["reason"]))
        if response.status == 502:
            return Acknowledged(thread, text, run, ("failed", "error"))
        return _refused(response)


def _refused(response: aiohttp.ClientResponse) -> None:
    assert response.status in (503, 507), f"a store that fails for now is a 503 or 507, not a {response.status}"


async def _last(response: aiohttp.ClientResponse) -> tuple[str, str] | None:
    """The terminal frame of a stream; it is in the log, so it has an id."""
    end = None
    async for frame in read_frames(response):
        if frame["event"] in ("done", "error"):
            assert frame["id"], f"an end that is not in the log: {frame['data']}"
            said = frame["data"]["data"]
            end = (said["outcome"], said["reason"]) if frame["event"] == "done" else ("failed", "error")
    return end


async def talk_while(
    target: Target, fault: Fault, routes: Sequence[str], seconds: float, name: str
) -> list[Acknowledged]:
    """Talk from before the fault until it is over, each client in a thread of its own; half of them begin in it."""
    failing = asyncio.Event()
    async with open_client(target.server) as client:
        threads = {f"th_{name}_{route}_{number}": route for route in routes for number in range(2)}
        await asyncio.gather(*(send_answer(client, "worker", user_message("First.", thread)) for thread in threads))

        async def speak(thread: str, route: str, number: int) -> list[Acknowledged | None]:
            await failing.wait() if number % 2 else await asyncio.sleep(0.02 * number)
            return [await talk(client, route, thread, f"<{thread} {number}>") for number in range(2)]

        speaking = [
            asyncio.create_task(speak(thread, route, number)) for number, (thread, route) in enumerate(threads.items())
        ]
        await asyncio.sleep(0.1)
        async with fault(target):
            failing.set()
            await asyncio.sleep(seconds)
        told = [said for person in await asyncio.gather(*speaking) for said in person if said is not None]
        # each thread works, and messages of failed runs are answered now
        await asyncio.gather(*(eventually_answer(client, thread) for thread in threads))
        return told


async def eventually_answer(client: aiohttp.ClientSession, thread: str) -> None:
    async def answered() -> bool:
        async with client.post("/agents/worker/invoke", json=user_message("Last.", thread)) as response:
            await response.read()
            return response.status == 200

    await wait_until(answered)


async def check(client: aiohttp.ClientSession, told: list[Acknowledged], tally: Tally, heard: bool) -> None:
    for said in told:
        with tally.trying(said.text):
            thread = await settled(client, said.thread)
            valid(thread)
            log = json.dumps(thread.to_json())
            assert said.text in log, f"acknowledged and lost: {said.text}"
            times = sum(message.text.startswith(said.text) for message in thread.messages if message.role == "user")
            assert times <= 1, f"{said.text} is in the thread {times} times"
            assert times or not heard, f"the next run did not read {said.text}"
            ends = [_end(entry.data) for entry in thread.entries if entry.kind == "run_end"]
            mine = [end for run, end in ends if run == said.run]
            assert said.end is None or said.end in mine, f"the client was sent {said.end}, the log has {mine}"
            assert not said.run or mine, f"run {said.run} has no end"


async def settled(client: aiohttp.ClientSession, id: str) -> Thread:
    """A thread with nothing queued and no open run."""
    found: list[Thread] = []

    async def over() -> bool:
        found[:] = [Thread.from_json(await get_json(client, f"/threads/{id}/export"))]
        return found[0].open_run is None and (await get_json(client, f"/threads/{id}"))["queued"] == 0

    await wait_until(over)
    return found[0]


def _end(data: Any) -> tuple[str, tuple[str, str]]:
    return data["run"], (data["outcome"], data["reason"])


async def try_fault(
    folder: Path,
    store: str,
    name: str,
    *,
    planted: bool = False,
    routes: tuple[str, ...] = ROUTES,
    rounds: int = ROUNDS,
) -> None:
    policy, fault = Policy(), FAULTS[store][name]
    agent = Agent(FunctionModel(three_steps), tools=[work], hooks=policy.hooks())
    refuses = "guard" in name
    with Tally("R1", f"{store}: {name}", planted=planted) as tally:
        async with host_server(folder, store=store, agents={"worker": agent}, quotas=NO_QUOTAS) as server:
            target = Target(server, policy, folder)
            await hurry(target)
            async with open_client(server) as client:
                for number in range(rounds):
                    told = await talk_while(target, fault, routes, 0.7, str(number))
                    await check(client, told, tally, heard=not refuses)


async def hurry(target: Target) -> None:
    """A server that notices sooner that the store is locked, and tries sooner again."""
    if hasattr(target.store, "_file"):
        target.store._file.busy_seconds = 0.1
        await target.store.close()
    resuming = target.server.service._recovery
    await resuming.stop()
    resuming.look = 0.2
    resuming.start()


@pytest.mark.timeout(3_600 if FULL else 300)
@pytest.mark.parametrize(("store", "name"), [(store, name) for store, faults in FAULTS.items() for name in faults])
async def test_nothing_is_lost_while_something_fails(tmp_path: Path, store: str, name: str) -> None:
    await try_fault(tmp_path, store, name)


# -- planted --------------------------------------------------------------------------------------------------------


async def test_a_message_that_is_taken_without_its_text_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(run: Run, result: Any) -> list[Any]:
        run_log._write_run_start(run, {"input": 0})
        run.progress.inbox.release_initial(run.thread)
        return []

    monkeypatch.setattr(run_log, "_log_unstarted_run", forget)
    with pytest.raises(Violated, match="acknowledged and lost"):
        await try_fault(tmp_path, "sqlite", "a before hook fails", planted=True, routes=("messages",), rounds=3)


async def test_an_end_that_the_log_does_not_have_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def left_open(self: Any, running: Any, result: Any, problem: StoreError) -> Any:
        return executor._report_left_open(running, result, problem)

    real = runs_module.Runs.load_outcome

    async def rewound(self: Any, info: Any) -> Any:
        found = await real(self, info)
        return found if found.outcome else replace(found, **runs_module.REWOUND)

    monkeypatch.setattr(executor.RunExecutor, "_mark_stalled", left_open)
    monkeypatch.setattr(runs_module.Runs, "load_outcome", rewound)
    with pytest.raises(Violated, match="the client was sent"):
        await try_fault(tmp_path, "sqlite", "full", planted=True, routes=("invoke",), rounds=4)
