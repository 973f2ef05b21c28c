"""The SQLite file: permissions, migrations, sharing and diagnostics."""

# ruff: noqa: ASYNC240  # no other task waits in these event loops

from __future__ import annotations

import asyncio
import gc
import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from store_fixtures import (
    HeldLease,
    append_outcome,
    assert_refused,
    entry_numbers,
    hold_thread,
    make_entries,
    make_entry,
    read_entries,
    text_entry,
)
from wick import Agent, Scripted, ToolCall, assistant, tool
from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.protocols import Store
from wick.stores import sqlite, sqlite_file, sqlite_search, sqlite_writer
from wick.stores.sqlite import Sqlite
from wick.stores.sqlite_writer import MAX_BATCH_JOBS, SqliteWriter

FULL = bool(os.environ.get("WICK_FULL"))
CODES = ("corrupt", "incompatible", "not_found", "invalid", "unavailable", "read_only", "locked", "failed")
FIXTURES = Path(__file__).parents[2] / "support" / "stores" / "fixtures"


class Clock:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the size of each transaction."""
    sizes: list[int] = []
    real = SqliteWriter._run_transaction

    def counted(self: SqliteWriter, jobs: Any) -> Any:
        if any(job.future is not None for job in jobs):  # not the work that the writer does for itself
            sizes.append(len(jobs))
        return real(self, jobs)

    monkeypatch.setattr(SqliteWriter, "_run_transaction", counted)
    return sizes


async def test_the_file_is_private(path: Path) -> None:
    before = os.umask(0)
    try:
        store = Sqlite(path)
        await hold_thread(store)
        modes = {found.name: found.stat().st_mode & 0o777 for found in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"threads.db": 0o600, "threads.db-wal": 0o600, "threads.db-shm": 0o600}
    await store.close()
    path.chmod(0o644)
    await store.head("ada", "t")
    assert path.stat().st_mode & 0o777 == 0o600
    await store.close()
    assert [found.name for found in path.parent.iterdir()] == ["threads.db"]


async def test_acknowledged_writes_are_synced(path: Path) -> None:
    store = Sqlite(path)
    await hold_thread(store)
    assert store._writer is not None and store._writer._connection is not None
    db = store._writer._connection.db
    pragmas = {
        name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    await store.close()


async def test_appends_that_wait_share_a_transaction(path: Path, transactions: list[int]) -> None:
    store = Sqlite(path)
    threads = [await hold_thread(store, f"t{n}") for n in range(50)]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        transactions.clear()
        waiting = [asyncio.ensure_future(mine.append(make_entry(1))) for mine in threads]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)  # no acknowledgement before it is on disk
        other.execute("ROLLBACK")
        assert await asyncio.gather(*waiting) == [1] * 50
    assert sum(transactions) == 50 and len(transactions) <= 2
    await store.close()


async def test_entries_of_one_moment_share_a_transaction(path: Path, transactions: list[int]) -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    model = Scripted(assistant("", ToolCall("c1", "work", {})), "done")
    result = await Agent(model, tools=[work], hooks=[Sessions(path.parent)]).run("go", thread="t1")
    # not found; created; leased; input and start; reply and intent; result; reply, end and release
    assert result.text == "done" and len(transactions) == 7
    store = Sqlite(path)
    kinds = [entry["kind"] for entry in await read_entries(store, "t1", owner="local")]
    assert kinds == ["message", "run_start", "message", "intent", "done", "message", "message", "run_end"]
    await store.close()


async def test_a_row_is_read_in_a_thread_if_the_event_loop_would_have_to_wait(path: Path) -> None:
    store = Sqlite(path)
    await store.create("ada", "t")
    readers, threads = store._readers, list[threading.Thread]()
    await store.head("ada", "t")  # leaves an idle connection

    def work(db: sqlite3.Connection) -> int:
        threads.append(threading.current_thread())
        if len(threads) == 2:
            raise sqlite3.OperationalError("database is locked")
        return int(db.execute("SELECT count(*) FROM threads").fetchone()[0])

    assert [await readers.read_row(work), await readers.read_row(work)] == [1, 1]
    assert threads[:2] == [threading.main_thread()] * 2 and threads[2] is not threading.main_thread()
    kept = [*store._readers.idle]
    with assert_refused("not_found"):
        await store.head("ada", "other")
    assert [*store._readers.idle] == kept  # a thread that does not exist costs no connection
    await store.close()


async def test_more_than_fits_into_one_transaction(path: Path, transactions: list[int]) -> None:
    """All waiters are answered, for any number."""
    store = Sqlite(path)
    count = 3 * MAX_BATCH_JOBS + 7
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        await store.create("ada", "first")
        other.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.ensure_future(store.create("ada", f"t{number}")) for number in range(count)]
        await asyncio.sleep(0.1)
        other.execute("ROLLBACK")
        assert len(await asyncio.wait_for(asyncio.gather(*waiting), 60)) == count
    assert max(transactions) == MAX_BATCH_JOBS and sum(transactions) == count + 1
    await store.close()


async def test_a_refusal_affects_only_its_own_append(path: Path, transactions: list[int]) -> None:
    store = Sqlite(path)
    threads = [await hold_thread(store, f"t{n}") for n in range(10)]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        async def attempt(number: int, mine: HeldLease) -> str:
            return await append_outcome(lambda: mine.append(make_entry(1), fence=mine.lease.fence + number % 2))

        tries = [asyncio.ensure_future(attempt(number, mine)) for number, mine in enumerate(threads)]
        await asyncio.sleep(0.1)
        other.execute("ROLLBACK")
        assert await asyncio.gather(*tries) == ["ok", "fenced"] * 5
    assert [len(await read_entries(store, f"t{n}")) for n in range(10)] == [1, 0] * 5
    await store.close()


def test_the_file_is_opened_lazily(path: Path) -> None:
    there = {*threading.enumerate()}
    Sqlite(path)
    assert not path.exists() and {*threading.enumerate()} <= there
    for name in ("", ":memory:"):
        with assert_refused("invalid", "use InMemory"):
            Sqlite(name)


async def test_closing_ends_the_thread(path: Path) -> None:
    store = Sqlite(path)
    await hold_thread(store)
    assert "wick sqlite writer" in {thread.name for thread in threading.enumerate()}
    await store.close()
    assert "wick sqlite writer" not in {thread.name for thread in threading.enumerate()}


async def test_a_write_after_the_writer_has_ended_fails(path: Path) -> None:
    """Another OS thread may have got the writer before `close`."""
    store = Sqlite(path)
    await hold_thread(store)
    assert store._writer is not None
    writer = store._writer
    await store.close()
    async with asyncio.timeout(30):
        with assert_refused("unavailable", "the store was closed"):
            await writer.run(lambda do: None)


async def test_a_thread_that_was_created_again_is_not_forked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = Sqlite(path), sqlite.read_fork_source
    mine = await hold_thread(store)
    await mine.append(make_entry(1))

    def recreate(db: sqlite3.Connection, owner: str, id: str, at: int) -> Any:
        found = read(db, owner, id, at)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("PRAGMA foreign_keys = ON")
            other.execute("DELETE FROM threads")
            other.execute(
                "INSERT INTO threads (owner, id, title, meta, created, updated) VALUES ('ada', ?, '', '{}', 1, 1)",
                (id,),
            )
        return found

    monkeypatch.setattr(sqlite, "read_fork_source", recreate)
    with assert_refused("not_found", "t"):
        await store.fork("ada", "t", 1, "new")
    await store.close()


async def test_a_store_that_is_forgotten_ends_its_thread(path: Path) -> None:
    store = Sqlite(path, retention=1000)
    await hold_thread(store)
    assert store._writer is not None
    writer = store._writer
    del store
    gc.collect()
    await asyncio.to_thread(writer.join, 60)
    assert not writer._thread.is_alive()


async def test_event_loops_at_once(path: Path) -> None:
    store = Sqlite(path)

    async def write(id: str) -> None:
        mine = await hold_thread(store, id)
        for seq in range(1, 6):
            await mine.append(make_entry(seq))

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, write(f"t{n}")) for n in range(4)), write("here"))
    assert len((await store.list("ada")).threads) == 5
    assert (
        entry_numbers(await read_entries(store, "t3"))
        == entry_numbers(await read_entries(store, "here"))
        == [1, 2, 3, 4, 5]
    )
    await store.close()


async def test_reads_continue_during_a_write(path: Path) -> None:
    store = Sqlite(path)
    mine = await hold_thread(store)
    await mine.append(*make_entries(1, 3))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert len(await asyncio.gather(*(read_entries(store) for _ in range(10)))) == 10
        assert (await store.head("ada", "t")).last == 3
        other.execute("ROLLBACK")
    await store.close()


# -- versions -------------------------------------------------------------------------------------------------------


async def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [*db.iterdump()]


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    store = Sqlite(path)
    await hold_thread(store)
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with assert_refused("incompatible", "written by a newer wick .schema 99; this one knows .*; update wick"):
        await store.head("ada", "t")
    with assert_refused("incompatible"):
        await store.create("ada", "t2")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (99,)
    await store.close()


async def test_a_file_of_something_else_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = await dump(path)
    store = Sqlite(path)
    with assert_refused("incompatible", "a database of another program"):
        await store.create("ada", "t")
    assert await dump(path) == before
    path.write_bytes(b"This is not a database, but a letter to my aunt. " * 100)
    with assert_refused("corrupt", "not a SQLite database"):
        await store.create("ada", "t")
    assert path.read_bytes().startswith(b"This is not a database")
    await store.close()


@pytest.mark.parametrize("number", range(6))  # after that no other process can
def test_a_file_created_meanwhile_is_used(path: Path, number: int) -> None:
    file, db = sqlite_file.SqliteFile(path, 5.0), sqlite3.connect(path, isolation_level=None)

    class Slow:
        """Another program makes the file after so many questions."""

        asked = 0
        in_transaction = property(lambda self: db.in_transaction)

        def execute(self, words: str) -> Any:
            if self.asked == number:
                file.open(writes=True).close()
            self.asked += 1
            return db.execute(words)

    slow: Any = Slow()
    with closing(db):
        db.execute("PRAGMA journal_mode = WAL")
        sqlite_file._migrate_schema(slow, path)
        assert db.execute("PRAGMA user_version").fetchone() == (len(sqlite_file.STEPS),)


async def test_an_older_file_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Sqlite(path)
    await (await hold_thread(store)).append(*make_entries(1, 2))
    await store.close()
    step = ("ALTER TABLE threads ADD COLUMN color TEXT NOT NULL DEFAULT 'red'", "CREATE TABLE more (x)")
    monkeypatch.setattr(sqlite_file, "STEPS", (*sqlite_file.STEPS, step))
    stores = [Sqlite(path) for _ in range(4)]
    heads = await asyncio.gather(*(store.head("ada", "t") for store in stores))  # all at once
    assert [head.last for head in heads] == [2] * 4
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT color FROM threads").fetchall() == [("red",)]
        assert db.execute("PRAGMA user_version").fetchone() == (len(sqlite_file.STEPS),)
    for store in stores:
        await store.close()


async def test_a_step_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Sqlite(path)
    await (await hold_thread(store)).append(*make_entries(1, 2))
    await store.close()
    before = await dump(path)
    steps = sqlite_file.STEPS
    bad = ("CREATE TABLE more (x)", "DELETE FROM entries", "ALTER TABLE nowhere ADD COLUMN x")
    monkeypatch.setattr(sqlite_file, "STEPS", (*steps, bad))
    for _ in range(2):
        with pytest.raises(StoreError, match="no such table: nowhere"):
            await store.head("ada", "t")
    assert await dump(path) == before
    monkeypatch.setattr(sqlite_file, "STEPS", steps)
    assert len(await read_entries(store)) == 2
    await store.close()


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("sqlite-*.sql")), ids=lambda path: path.stem)
async def test_threads_of_every_version_open(fixture: Path, path: Path) -> None:
    """wick reads threads of every older version."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(fixture.read_text(encoding="utf-8"))
    store = Sqlite(path)
    log = await read_entries(store, "t", "ada")
    assert [row["kind"] for row in log] == ["run_start", "message", "message", "asked"]
    assert log[1]["data"]["content"] == "Remember: Grüße, 世界 🙂" and log[3]["data"]["big"] == 2**80
    head = await store.head("ada", "t")
    assert (head.title, head.run, head.asking, head.queued, head.meta) == ("Mine", "r1", 1, 1, {"agent": "a"})
    assert [item.data for item in await store.inbox("ada", "t")] == [{"role": "user", "content": "And?"}]
    assert await store.get_blob("ada", "t", sha256(b"kept bytes").hexdigest()) == b"kept bytes"
    await store.close()


# -- damage ---------------------------------------------------------------------------------------------------------


async def broken(path: Path, statement: str) -> Store:
    store = Sqlite(path)
    await (await hold_thread(store)).append(*make_entries(1, 5))
    await store.enqueue("ada", "t", {"n": 1})
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement)
    return store


DAMAGE = [
    ("UPDATE entries SET data = '{\"role\"' WHERE seq = 3", 3),
    ("UPDATE entries SET data = replace(data, 'message 3', 'message 4') WHERE seq = 3", 3),
    ("UPDATE entries SET kind = 'event' WHERE seq = 3", 3),
    ("UPDATE entries SET at = at + 1 WHERE seq = 3", 3),
    ("UPDATE entries SET sum = sum + 1 WHERE seq = 3", 3),
    ("UPDATE entries SET data = 7 WHERE seq = 3", 3),
    ("UPDATE entries SET at = x'00' WHERE seq = 3", 3),
    ("UPDATE entries SET kind = x'ff' WHERE seq = 3", 3),
    ("DELETE FROM entries WHERE seq = 3", 3),
    ("DELETE FROM entries WHERE seq = 5", 5),
    ("UPDATE entries SET seq = 30 WHERE seq = 3", 3),
    ("UPDATE threads SET last = 4", 5),
    ("UPDATE threads SET last = 6", 6),
]


@pytest.mark.parametrize(("statement", "seq"), DAMAGE)
async def test_an_entry_that_was_changed_is_found_out(path: Path, statement: str, seq: int) -> None:
    store = await broken(path, statement)
    with assert_refused("corrupt", f"thread t: entry {seq} is damaged: .*restore the store from a backup"):
        await read_entries(store)
    await store.close()


async def test_queued_and_stored_rows_are_checked(path: Path) -> None:
    store = await broken(path, """UPDATE inbox SET data = replace(data, '1', '2')""")
    with assert_refused("corrupt", "the queued message at 1 is damaged"):
        await store.inbox("ada", "t")
    name = await store.put_blob("ada", "t", b"bytes")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE blobs SET data = x'00'")
        db.execute("UPDATE threads SET meta = '{'")
    with assert_refused("corrupt", "are damaged"):
        await store.get_blob("ada", "t", name)
    with assert_refused("corrupt", "meta is damaged"):
        await store.head("ada", "t")
    await store.close()


async def test_any_byte_that_is_flipped_is_an_error_or_changes_nothing(path: Path, tmp_path: Path) -> None:
    store = Sqlite(path)
    await (await hold_thread(store)).append(*make_entries(1, 8))
    before = await read_entries(store)
    await store.close()
    original = path.read_bytes()
    chance, damaged = random.Random(5), tmp_path / "damaged" / "threads.db"
    damaged.parent.mkdir()
    found = {"equal": 0, "error": 0}
    for place in range(len(original)) if FULL else chance.sample(range(len(original)), 250):
        for leftover in damaged.parent.iterdir():
            leftover.unlink()
        changed = bytearray(original)
        changed[place] ^= 1 << chance.randrange(8)
        damaged.write_bytes(changed)
        again = Sqlite(damaged, busy_seconds=0.01)
        try:
            assert await read_entries(again) == before, f"byte {place}"
            found["equal"] += 1
        except StoreError as error:
            assert error.code in CODES, error
            found["error"] += 1
        await again.close()
    assert found["equal"] and found["error"], found


# -- retention ------------------------------------------------------------------------------------------------------


async def test_old_threads_are_deleted_unless_in_use(path: Path) -> None:
    clock = Clock()
    store = Sqlite(path, retention=100, clock=clock)
    for name in ("old", "asking", "queued", "held", "fresh"):
        mine = await hold_thread(store, name, seconds=1e6 if name == "held" else 1)
        await mine.say("user", f"needle {name}")
        if name == "asking":
            await mine.log("asked", id="q")
    await store.enqueue("ada", "queued", {"n": 1})
    assert len(await store.search("ada", "needle")) == 5
    clock.now += 90
    await store.enqueue("ada", "fresh", {"n": 1})
    fresh = HeldLease(store, await store.lease("ada", "fresh", "me", 1), "fresh", last=1)
    await fresh.append(make_entry(2), took=[1])
    clock.now += 20
    assert len((await store.list("ada")).threads) == 5
    await swept(store)
    assert {thread.id for thread in (await store.list("ada")).threads} == {"asking", "queued", "held", "fresh"}
    assert {hit.thread for hit in await store.search("ada", "needle")} == {"asking", "queued", "held", "fresh"}
    await store.close()


async def swept(store: Sqlite) -> None:
    """Run the periodic work of the writer thread now."""
    assert store._writer is not None
    store._writer._periodic_work_at = 0.0
    await store.create("nobody", f"x{random.random()}")
    await store.create("nobody", f"x{random.random()}")  # it follows the sweep after the first


async def test_without_retention_nothing_is_ever_deleted(path: Path) -> None:
    clock = Clock()
    store = Sqlite(path, clock=clock)
    await hold_thread(store, seconds=1)
    clock.now += 1e9
    await store.create("ada", "other")
    assert len((await store.list("ada")).threads) == 2
    with assert_refused("invalid"):
        Sqlite(path, retention=-1)
    await store.close()


# -- searching ------------------------------------------------------------------------------------------------------


async def test_without_an_index_search_scans(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with an SQLite that has no trigrams."""
    monkeypatch.setattr(sqlite_search, "_has_index", lambda db, make: False)
    store = Sqlite(path)
    mine = await hold_thread(store)
    await mine.append(
        text_entry(1, "user", "Book a FLIGHT."), text_entry(2, "user", "No."), text_entry(3, "assistant", "A flight.")
    )
    assert [hit.seq for hit in await store.search("ada", "flight")] == [3, 1]
    assert [hit.seq for hit in await store.search("ada", "a flight", limit=1)] == [3]
    await store.delete("ada", "t")
    await store.close()


def count_unindexed(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM threads WHERE indexed < last").fetchone()[0])


async def wait_for_index(path: Path) -> None:
    async with asyncio.timeout(30):
        while count_unindexed(path):
            await asyncio.sleep(0.02)


async def test_writer_updates_the_index_in_portions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_search, "MESSAGES_AT_ONCE", 10)
    monkeypatch.setattr(sqlite_writer, "DEFERRED_SECONDS", 0.01)
    portions: list[int] = []
    real = sqlite_search.update_index

    def counted(db: sqlite3.Connection) -> bool:
        before = db.total_changes
        more = real(db)
        portions.append(db.total_changes - before)
        return more

    monkeypatch.setattr(sqlite, "update_index", counted)
    store = Sqlite(path)
    for number in range(3):
        mine = await hold_thread(store, f"t{number}")
        await mine.append(*(text_entry(seq, "user", f"needle {seq}") for seq in range(1, 26)))
    await wait_for_index(path)
    assert len(portions) >= 8 and max(portions) < 200  # each inserted message changes some rows of the index
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM said").fetchone() == (75,)
    assert len(await store.search("ada", "needle", limit=100)) == 75
    await store.close()


@pytest.mark.parametrize("most", [3, 40, 10_000])
async def test_a_search_for_a_frequent_word_returns_the_same_hits(
    path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    store, clock = Sqlite(path, clock=lambda: now), random.Random(7)
    now = 0.0
    for number in range(30):
        thread = await hold_thread(store, f"t{number}", seconds=1e9)
        for seq in (1, 2, 3):
            now += clock.random()
            entry = text_entry(seq, "user", "a needle" if (number + seq) % 3 else "hay")
            await thread.append({**entry, "at": now - clock.choice((0.0, 5.0))})
    other = await hold_thread(store, "other", "bob", seconds=1e9)
    await other.append(text_entry(1, "user", "a needle"))
    await wait_for_index(path)
    monkeypatch.setattr(sqlite_search, "LATEST_MESSAGES", 1)  # searches use the index and scans alone
    wanted = {word: await store.search("ada", word, limit=7) for word in ("needle", "a", "ay")}
    assert all(len(hits) == 7 for hits in wanted.values())
    monkeypatch.setattr(sqlite_search, "MANY_MATCHES", 5)
    monkeypatch.setattr(sqlite_search, "LATEST_MESSAGES", most)
    assert {word: await store.search("ada", word, limit=7) for word in wanted} == wanted
    await store.close()


async def test_search_finds_messages_that_are_not_indexed_yet(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Sqlite(path)
    old = await hold_thread(store, "old")
    await old.append(text_entry(1, "user", "needle one"))
    monkeypatch.setattr(sqlite_writer, "DEFERRED_SECONDS", 0.01)
    await old.append(text_entry(2, "user", "needle two"))
    await wait_for_index(path)
    monkeypatch.setattr(sqlite_writer, "DEFERRED_SECONDS", 3600)
    await old.append(text_entry(3, "user", "needle three"), text_entry(4, "user", "nothing"))
    new = await hold_thread(store, "new")
    await new.append(text_entry(1, "user", "another needle"))
    assert count_unindexed(path) == 2
    hits = [(hit.thread, hit.seq) for hit in await store.search("ada", "needle")]
    assert sorted(hits) == [("new", 1), ("old", 1), ("old", 2), ("old", 3)]
    assert [hit.at for hit in await store.search("ada", "needle")] == sorted(
        (hit.at for hit in await store.search("ada", "needle")), reverse=True
    )
    assert len(await store.search("ada", "needle", limit=2)) == 2
    await store.close()


async def test_index_skips_a_damaged_message(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "DEFERRED_SECONDS", 0.3)
    store = Sqlite(path)
    for name in ("bad", "good"):
        await (await hold_thread(store, name)).append(text_entry(1, "user", f"needle {name}"))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entries SET sum = sum + 1 WHERE thread = (SELECT key FROM threads WHERE id = 'bad')")
    await store.create("ada", "more")
    await wait_for_index(path)
    assert [hit.thread for hit in await store.search("ada", "needle")] == ["good"]
    await store.close()


async def test_searching_a_read_only_file(path: Path) -> None:
    store = Sqlite(path, busy_seconds=0.05)
    await (await hold_thread(store)).say("user", "needle")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert len(await store.search("ada", "needle")) == 1
        other.execute("ROLLBACK")
    await store.close()


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test ends the threads it began."""
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "wick sqlite writer":
            thread.join(60)
            assert not thread.is_alive()


async def test_concurrent_readers_share_a_few_connections(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = sqlite_file.SqliteFile.open
    monkeypatch.setattr(
        sqlite_file.SqliteFile, "open", lambda self, writes: opened.append(writes) or real(self, writes=writes)
    )
    store = Sqlite(path)
    await (await hold_thread(store)).append(*make_entries(1, 3))
    found = await asyncio.gather(*(read_entries(store) for _ in range(200)))
    assert [len(rows) for rows in found] == [3] * 200
    for _ in range(5):
        with assert_refused("not_found"):
            await store.head("ada", "nothing")
    assert opened.count(False) <= 4 and opened.count(True) == 1
    await store.close()


async def test_a_refused_append_is_released_at_once(tmp_path: Path) -> None:
    """An error refers to every frame of its traceback; their data must not wait for garbage collection."""
    store = Sqlite(tmp_path / "threads.db")
    await store.create("ada", "th_1")
    gc.collect()
    gc.disable()
    try:
        try:
            await store.create("ada", "th_1")
        except StoreError as error:
            known = ref(error)
        for _ in range(1_000):
            if known() is None:
                break
            await asyncio.sleep(0.005)
        assert known() is None
    finally:
        gc.enable()
        await store.close()


@pytest.mark.parametrize("order", ["updated", "created"])
@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("filters", [{}, {"running": True}, {"asking": True}, {"prefix": "t1."}])
async def test_pages_of_a_list_are_read_from_an_index(
    path: Path, order: Any, oldest_first: bool, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plans = Sqlite(path), list[str]()
    for n in range(3):
        await store.create("ada", f"t{n}")
    real = store._readers.read

    async def explain(work: Any) -> Any:
        def run(db: sqlite3.Connection) -> Any:
            db.set_trace_callback(queries.append)
            try:
                return work(db)
            finally:
                db.set_trace_callback(None)
                plans.extend(row[3] for query in queries for row in db.execute(f"EXPLAIN QUERY PLAN {query}"))

        queries = list[str]()
        return await real(run)

    monkeypatch.setattr(store._readers, "read", explain)
    first = await store.list("ada", order=order, oldest_first=oldest_first, limit=1)
    await store.list("ada", order=order, oldest_first=oldest_first, limit=1, cursor=first.next, **filters)
    assert await store.count("ada") == 3
    sorted_ones = [plan for plan in plans if "TEMP B-TREE" in plan]
    assert len(plans) >= 3 and not any("SCAN" in plan for plan in plans), plans
    # a filtered list that is usually short may be sorted; the whole list never is
    assert not sorted_ones or filters, plans
    await store.close()
