"""The number of commits that a run costs the database, as Postgres counts them: queries without a transaction count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg._preparing import PrepareManager

import server_process
from postgres import PostgresServer, new_server
from server_agents import user_message
from server_process import host_server, open_client, read_events, wait_until
from wick import Agent, FunctionModel, ToolCall, assistant, tool
from wick.protocols import Request
from wick.stores import postgres_members, postgres_notifier
from wick.stores.postgres import Postgres

STEPS = 10


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
    assert 30 < (many - few) / 5 <= 40, (few, many)
