"""Postgres only: server restarts, broken connections, schemas."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from postgres import PostgresServer, new_server, open_store, shared_server
from store_fixtures import (
    assert_refused,
    entry_numbers,
    hold_thread,
    make_entries,
    make_entry,
    read_entries,
    text_entry,
)
from wick.errors import StoreError
from wick.protocols import News
from wick.stores import postgres_pool, postgres_search, rows
from wick.stores.postgres import Postgres

FIXTURES = Path(__file__).parents[3] / "support" / "stores" / "fixtures"


store = open_store()


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server that may be stopped."""
    made = new_server()
    yield made
    made.remove()


async def ask(query: str, conninfo: str = "") -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(
        conninfo or shared_server().conninfo, autocommit=True
    ) as connection:
        cursor = await connection.execute(query.encode())
        return await cursor.fetchall() if cursor.description else []


# -- trouble --------------------------------------------------------------------------------------------------------


async def test_a_server_that_restarts(own: PostgresServer) -> None:
    store = Postgres(own.conninfo, wait_seconds=60)
    mine = await hold_thread(store)
    await asyncio.gather(*(store.head("ada", "t") for _ in range(10)))  # several connections are open
    for seq in range(1, 4):
        await asyncio.to_thread(own.stop)
        await asyncio.to_thread(own.start)
        assert await mine.append(make_entry(seq)) == seq  # the first that is asked, and no error
    assert entry_numbers(await read_entries(store)) == [1, 2, 3]
    await store.close()


async def test_a_server_restart_is_survived(own: PostgresServer) -> None:
    store = Postgres(own.conninfo, wait_seconds=60)
    mine = await hold_thread(store)
    await mine.append(make_entry(1))
    await asyncio.to_thread(own.stop)
    waits(store, 0.5)
    for _ in range(2):
        with assert_refused("unavailable", "Postgres"):
            await mine.append(make_entry(2))
        with assert_refused("unavailable", "Postgres"):
            await read_entries(store)
    await asyncio.to_thread(own.start)
    waits(store, 60)
    assert await mine.append(make_entry(2)) == 2
    assert entry_numbers(await read_entries(store)) == [1, 2]
    await store.close()


def waits(store: Postgres, seconds: float) -> None:
    """From here on the store waits so long for its server."""
    pool = store._pools.get_current()[0].pool
    assert pool is not None
    pool.timeout = pool.reconnect_timeout = seconds


async def test_an_unreachable_server_is_reported() -> None:
    store = Postgres("host=127.0.0.1 port=1 user=nobody password=sesame", wait_seconds=0.5)
    for _ in range(2):
        with assert_refused("unavailable", "is it running"):
            await store.create("ada", "t")
    assert "sesame" not in repr(store)
    await store.close()


async def test_a_connection_lost_during_a_write(store: Postgres, schema: str) -> None:
    mine = await hold_thread(store)
    row = make_entry(1)
    async with await psycopg.AsyncConnection.connect(shared_server().conninfo) as other:
        await other.execute(f"SELECT 1 FROM {schema}.threads FOR UPDATE".encode())
        waiting = asyncio.ensure_future(mine.append(row))
        behind = f"SELECT pid FROM pg_stat_activity WHERE {other.info.backend_pid} = ANY(pg_blocking_pids(pid))"
        while not (stuck := await ask(behind)):
            assert not waiting.done()
            await asyncio.sleep(0.02)
        for (pid,) in stuck:
            await ask(f"SELECT pg_terminate_backend({pid})")
        with assert_refused("unavailable", "it may have been written or not: append exactly the same again"):
            await waiting
    assert await mine.append(row) == 1
    assert await read_entries(store) == [row]


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A proxy to the server; once `deaf`, replies of the server are lost with the connection."""
    deaf, tasks = asyncio.Event(), set[asyncio.Future[None]]()

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool) -> None:
        try:
            while data := await source.read(65536):
                if answers and deaf.is_set():
                    break
                target.write(data)
                await target.drain()
        finally:
            target.close()
            with suppress(OSError):
                await target.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", shared_server().port)
            tasks.add(asyncio.ensure_future(copy(reader, back, False)))
            await copy(there, writer, True)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()[1], deaf
    listening.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lost_acknowledgement_of_a_write(store: Postgres, schema: str) -> None:
    """It was written without acknowledgement: appending it again finds it and writes nothing twice."""
    mine = await hold_thread(store)
    some = make_entries(1, 3)
    async with proxy() as (port, deaf):
        through = shared_server().conninfo.replace(f"port={shared_server().port}", f"port={port}")
        far = Postgres(through, schema=schema, wait_seconds=60)
        await far.head("ada", "t")
        deaf.set()
        with assert_refused("unavailable", "may have been written or not"):
            await far.append("ada", "t", some, expect=0, fence=mine.lease.fence)
        deaf.clear()
        assert len(await read_entries(store)) == 3
        assert await far.append("ada", "t", some, expect=0, fence=mine.lease.fence) == 3
        await far.close()
    assert await read_entries(store) == some


async def test_a_watcher_receives_changes_made_during_an_outage(own: PostgresServer) -> None:
    store, other = Postgres(own.conninfo, wait_seconds=60), Postgres(own.conninfo, schema="wick", wait_seconds=60)
    mine = await hold_thread(store)
    async with aclosing(other.watch("ada", "t")) as news:
        assert await anext(news) == News(0, 0)
        await asyncio.to_thread(own.stop)
        await asyncio.to_thread(own.start)
        await mine.append(make_entry(1))
        assert await asyncio.wait_for(anext(news), 60) == News(1, 0)
        await mine.append(make_entry(2))
        assert await asyncio.wait_for(anext(news), 60) == News(2, 0)
    await store.close()
    await other.close()


async def test_a_server_that_takes_no_writes(store: Postgres, schema: str) -> None:
    await hold_thread(store)
    standby = Postgres(shared_server().conninfo + " options='-c default_transaction_read_only=on'", schema=schema)
    assert (await standby.head("ada", "t")).last == 0
    with assert_refused("read_only", "it is read-only now"):
        await standby.enqueue("ada", "t", {"n": 1})
    await standby.close()


async def test_damage_is_found_out(store: Postgres, schema: str) -> None:
    mine = await hold_thread(store)
    await mine.append(*make_entries(1, 5))
    await ask(f"UPDATE {schema}.entries SET data = convert_to('{{}}', 'UTF8') WHERE seq = 3")
    with assert_refused("corrupt", "thread t: entry 3 is damaged: its checksum is wrong"):
        await read_entries(store)
    assert entry_numbers(await read_entries(store, limit=2)) == [1, 2]
    await ask(f"DELETE FROM {schema}.entries WHERE seq >= 3")
    with assert_refused("corrupt", "entry 3 is damaged: it is missing"):
        await read_entries(store)


# -- schemas --------------------------------------------------------------------------------------------------------


async def test_stores_can_start_at_once(schema: str) -> None:
    stores = [Postgres(shared_server().conninfo, schema=schema) for _ in range(8)]
    await asyncio.gather(*(store.create("ada", f"t{number}") for number, store in enumerate(stores)))
    assert len((await stores[0].list("ada")).threads) == 8
    for store in stores:
        await store.close()


async def test_a_schema_of_a_newer_version_is_refused(store: Postgres, schema: str) -> None:
    await store.create("ada", "t")
    await store.close()
    await ask(f"UPDATE {schema}.version SET version = 99")
    with assert_refused("incompatible", "written by a newer wick .version 99; this one knows .*; update wick"):
        await store.head("ada", "t")


async def test_a_schema_of_something_else_is_refused(store: Postgres, schema: str) -> None:
    await ask(f"CREATE SCHEMA {schema}")
    await ask(f"CREATE TABLE {schema}.threads (x int)")
    with assert_refused("incompatible", "belongs to something else"):
        await store.create("ada", "t")
    with assert_refused("invalid", "a schema is named by"):
        Postgres(shared_server().conninfo, schema="Robert'); DROP TABLE students;--")


async def test_an_older_schema_is_brought_up_to_date(
    store: Postgres, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await hold_thread(store)).append(*make_entries(1, 2))
    await store.close()
    steps = postgres_pool.STEPS
    bad = ("CREATE TABLE more (x int)", "DELETE FROM entries", "ALTER TABLE nowhere ADD COLUMN x int")
    monkeypatch.setattr(postgres_pool, "STEPS", (*steps, bad))
    with pytest.raises(StoreError, match="nowhere"):
        await store.head("ada", "t")
    assert await ask(f"SELECT steps, to_regclass('{schema}.more') FROM {schema}.version") == [(len(steps), None)]
    monkeypatch.setattr(postgres_pool, "STEPS", (*steps, ("ALTER TABLE threads ADD COLUMN color text DEFAULT 'red'",)))
    assert len(await read_entries(store)) == 2
    assert await ask(f"SELECT steps, color FROM {schema}.version, {schema}.threads") == [(len(steps) + 1, "red")]


def _renamed(fixture: Path, schema: str) -> str:
    return fixture.read_text(encoding="utf-8").replace("wick.", f"{schema}.").replace("SCHEMA wick", f"SCHEMA {schema}")


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("postgres-*.sql")), ids=lambda path: path.stem)
async def test_threads_of_every_version_open(fixture: Path, store: Postgres, schema: str) -> None:
    """wick reads threads of every older version."""
    await ask(_renamed(fixture, schema))
    log = await read_entries(store)
    assert [row["kind"] for row in log] == ["run_start", "message", "message", "asked"]
    assert log[1]["data"]["content"] == "Remember: Grüße, 世界 🙂" and log[3]["data"]["big"] == 2**80
    head = await store.head("ada", "t")
    assert (head.title, head.run, head.asking, head.queued, head.meta) == ("Mine", "r1", 1, 1, {"agent": "a"})
    assert [item.data for item in await store.inbox("ada", "t")] == [{"role": "user", "content": "And?"}]
    assert (await store.lease("ada", "t", "me", 60)).fence > 1


# -- searches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_search_finds_the_messages_that_contain_the_words(
    store: Postgres, schema: str, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random texts of characters that patterns give a meaning to, with and without the index."""
    if not indexed:
        monkeypatch.setattr(postgres_search, "INDEX", "threads_pkey")  # as if it were there
    await store.check()
    made = await ask(
        f"SELECT indexname FROM pg_indexes WHERE schemaname = '{schema}' AND indexdef LIKE '%gin_trgm_ops%'"
    )
    assert made == ([(postgres_search.INDEX,)] if indexed else [])
    draw = random.Random(1)
    texts = ["".join(draw.choices("ab%_\\'ßé ", k=draw.randint(1, 12))) for _ in range(200)]
    mine = await hold_thread(store)
    await mine.append(*(text_entry(seq, "user", text) for seq, text in enumerate(texts, 1)))
    for _ in range(60):
        words = ["".join(draw.choices("ab%_\\'é", k=draw.randint(1, 4))) for _ in range(draw.randint(1, 2))]
        wanted = {seq for seq, text in enumerate(texts, 1) if all(word in rows.fold_text(text) for word in words)}
        assert {hit.seq for hit in await store.search("ada", " ".join(words), limit=500)} == wanted, words


async def test_a_search_uses_the_index(store: Postgres, schema: str) -> None:
    mine = await hold_thread(store)
    await mine.append(*(text_entry(seq, "user", f"message {seq} is long") for seq in range(1, 2001)))
    await store.check()  # the table is not empty: the index is created while others may write
    query = f"EXPLAIN SELECT 1 FROM {schema}.entries WHERE text IS NOT NULL AND text LIKE '%age 1234 is%'"
    plan = await ask(query, f"{shared_server().conninfo} options='-c enable_seqscan=off'")
    assert any("entries_text_trigrams" in str(line) for line in plan), plan


async def test_without_the_extension_searches_scan_and_the_log_says_so(
    store: Postgres, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create("ada", "t")
    user = f"plain_{schema}"
    await ask(f"CREATE ROLE {user} LOGIN; GRANT ALL ON SCHEMA {schema} TO {user}")
    await ask(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}")
    plain = Postgres(shared_server().conninfo.replace("user=postgres", f"user={user}"), schema=schema)
    await plain.check()  # it may not create an index on the table of another user
    assert "searches scan all messages of a user" in caplog.text
    assert await plain.search("ada", "words") == []
    await plain.close()


def test_without_the_client_library_the_error_names_the_package() -> None:
    code = "import sys; sys.modules['psycopg'] = None; import wick.stores.postgres"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'wick-agent[postgres]'" in done.stderr
