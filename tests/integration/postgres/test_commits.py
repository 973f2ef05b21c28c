"""The commits and notifications that runs and waiting questions cost the database, as Postgres counts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg._preparing import PrepareManager

import server_process
from postgres import PostgresServer, new_server
from server_agents import Gate, sample_agents, user_message
from server_process import host_server, open_client, read_events, wait_until
from wick import Agent, FunctionModel, ToolCall, assistant, tool
from wick.protocols import Request
from wick.stores import postgres_members, postgres_notifier
from wick.stores.postgres import Postgres
from wick.stores.postgres_pool import channel_name

STEPS = 10
QUESTIONS = 10_000
SECONDS = 5.0  # for which the commits of a server with waiting questions are counted
COPY_THREADS = """
    INSERT INTO wick.threads (owner, id, title, meta, created, updated, last, run, asking, inbox, expires)
    SELECT owner, id || n, title, meta, created, updated, last, run || n, asking, inbox, expires
    FROM wick.threads, generate_series(2, %s) n WHERE asking > 0"""
COPY_QUESTIONS = """
    INSERT INTO wick.questions (thread, id, state, position, expires)
    SELECT t.key, q.id, q.state, q.position, q.expires FROM wick.questions q, wick.threads t
    WHERE t.asking > 0 AND t.key <> q.thread"""


@tool
def step(number: int) -> str:
    """Do one step."""
    return f"did {number}"


def steps_model(request: Request) -> object:
    last = max(n for n, message in enumerate(request.messages) if message.role == "user")
    done = len([message for message in request.messages[last:] if message.role == "tool"])
    return assistant("", ToolCall(f"c{done}", "step", {"number": done})) if done < STEPS - 1 else "Finished."


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A server without other clients, which hosted servers use."""
    made = new_server()
    with psycopg.connect(made.conninfo, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum = off")  # it commits, too
        connection.execute("SELECT pg_reload_conf()")
    monkeypatch.setattr(server_process, "postgres_server", lambda: made)
    monkeypatch.setattr(postgres_members, "BEAT_SECONDS", 600.0)  # heartbeats are counted by time, not by run
    monkeypatch.setattr(postgres_notifier, "SETTLED_SECONDS", 0.0)  # as on a server that has run for a minute
    never = property(lambda self: None, lambda self, value: None)
    monkeypatch.setattr(PrepareManager, "prepare_threshold", never)  # preparing commits, once for each connection
    yield made
    made.remove()


async def count_commits(server: PostgresServer) -> tuple[int, int]:
    """Return the commits so far, and those of this query. A connection reports its own when it is closed."""
    own = 1
    async with await psycopg.AsyncConnection.connect(server.conninfo, autocommit=True) as connection:

        async def is_alone() -> bool:
            nonlocal own
            own += 1
            query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            return await (await connection.execute(query)).fetchone() == (1,)

        await wait_until(is_alone)
        row = await (await connection.execute("SELECT sum(xact_commit) FROM pg_stat_database")).fetchone()
        assert row is not None
        return int(row[0]), own


async def commits_of_runs(server: PostgresServer, folder: Path, runs: int, thread: str) -> int:
    """Return the commits of a server that performs so many runs; it claims no runs meanwhile."""
    before, own = await count_commits(server)
    agents = {"steps": Agent(FunctionModel(steps_model), tools=[step])}
    options = {"store": "postgres", "store_schema": "wick", "agents": agents, "grace": 0.0}
    async with host_server(folder, **options) as hosted, open_client(hosted) as client:
        await hosted.service._recovery.stop()
        for _ in range(runs):
            async with client.post("/agents/steps/stream", json=user_message("Go.", thread)) as response:
                assert (await read_events(response))[-1]["event"] == "done"
    return (await count_commits(server))[0] - before - own


@pytest.mark.parametrize("thread", ["", "th_1"])  # a new thread, and one that is read and locked first
async def test_a_run_of_ten_steps_makes_few_commits(own: PostgresServer, tmp_path: Path, thread: str) -> None:
    store = Postgres(own.conninfo)
    await store.check()
    await store.close()
    few = await commits_of_runs(own, tmp_path, 1, thread)
    many = await commits_of_runs(own, tmp_path, 6, thread)
    least = 2 * (STEPS - 1)  # an intent is saved before its tool runs, and a result before the model sees it
    assert least < (many - few) / 5 <= 30, (few, many)


@asynccontextmanager
async def received_notices(server: PostgresServer) -> AsyncIterator[list[str]]:
    """The channels of all notifications of the schema, as one more listener receives them."""
    found: list[str] = []
    channel = channel_name("wick")
    async with await psycopg.AsyncConnection.connect(server.conninfo, autocommit=True) as connection:
        for name in (channel, f"{channel}_interest"):
            await connection.execute(f'LISTEN "{name}"'.encode())
        connection.add_notify_handler(lambda notice: found.append(notice.channel))

        async def receive() -> None:
            while True:
                await connection.execute("SELECT 1")  # the handler is called when a result arrives
                await asyncio.sleep(0.05)

        receiving = asyncio.create_task(receive())
        try:
            yield found
        finally:
            receiving.cancel()
            await asyncio.wait((receiving,))


async def test_a_run_of_ten_steps_sends_few_notifications(own: PostgresServer, tmp_path: Path) -> None:
    runs, agents = 5, {"steps": Agent(FunctionModel(steps_model), tools=[step])}
    options = {"store": "postgres", "store_schema": "wick", "agents": agents, "grace": 0.0}
    async with host_server(tmp_path, **options) as hosted, open_client(hosted) as client:
        async with client.post("/agents/steps/stream", json=user_message("Go.")) as response:
            await read_events(response)
        async with received_notices(own) as notices:
            for _ in range(runs):
                async with client.post("/agents/steps/stream", json=user_message("Go.")) as response:
                    assert (await read_events(response))[-1]["event"] == "done"
            await asyncio.sleep(0.2)  # the last one is sent after its commit
            assert len(notices) <= 2 * runs, notices

            # a change that other processes must get is received here
            count = len(notices)
            async with await psycopg.AsyncConnection.connect(own.conninfo, autocommit=True) as other:
                await other.execute("SELECT pg_notify(%s, %s)", (channel_name("wick"), '["nobody", "t", 1, 0]'))

            async def is_received() -> bool:
                return len(notices) > count

            await wait_until(is_received)


async def test_waiting_questions_cost_few_commits(
    own: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_members, "BEAT_SECONDS", 1.0)
    options = {"store": "postgres", "store_schema": "wick", "agents": sample_agents(Gate()), "grace": 0.0}
    pay = user_message("Pay.", "t")
    async with (
        host_server(tmp_path, **options) as hosted,
        open_client(hosted, "olga") as client,
        client.post("/agents/payer/stream", json=pay) as response,
    ):
        await read_events(response, until="on_approval_request")
    with psycopg.connect(own.conninfo, autocommit=True) as connection:
        connection.execute(COPY_THREADS.encode(), (QUESTIONS,))
        connection.execute(COPY_QUESTIONS)
        connection.execute("ANALYZE")
        assert connection.execute("SELECT count(*) FROM wick.threads WHERE asking > 0").fetchone() == (QUESTIONS,)

    async def count_of(seconds: float) -> int:
        """Return the commits of a server from its start to its end."""
        before, own_commits = await count_commits(own)
        async with host_server(tmp_path, **options):
            await asyncio.sleep(seconds)
        return (await count_commits(own))[0] - before - own_commits

    short = await count_of(1.0)
    longer = await count_of(1.0 + SECONDS)
    assert 0 < (longer - short) / SECONDS <= 5, (short, longer)
