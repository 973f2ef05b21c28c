"""A SQLite store whose file cannot be written reports it, loses nothing, and recovers."""

# ruff: noqa: ASYNC240  # no other task waits in these event loops

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from store_fixtures import HeldLease, assert_refused, entry_numbers, hold_thread, make_entries, make_entry, read_entries
from wick.errors import StoreError
from wick.stores.sqlite import Sqlite

FULL = bool(os.environ.get("WICK_FULL"))
FAULTS = Path(__file__).parents[3] / "support" / "stores" / "faults.py"
SIZES = range(60_000, 460_000, 4_000 if FULL else 57_000)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A real disk of two megabytes; only root can make one."""
    mounted = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    subprocess.run(mounted, check=True, capture_output=True, timeout=30)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def in_trouble(trouble: str, folder: Path, *rest: str) -> list[str]:
    """Return the reports of a process under this fault."""
    command = [sys.executable, "-W", "error", str(FAULTS), trouble, str(folder), *rest]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def recovered(said: list[str], *codes: str) -> None:
    """Check refusals with these codes, complete acknowledged data, and recovery."""
    refusals, last, end = said[:3], said[3].split(), said[4].split()
    assert all(line.split()[0] == "refused" and line.split()[1] in codes for line in refusals), said
    assert last == ["last", last[1], last[1]]
    assert end == ["recovered", str(int(last[1]) + 3), "True"]


@pytest.mark.parametrize("size", SIZES)
def test_files_that_cannot_grow(size: int, tmp_path: Path) -> None:
    recovered(in_trouble("file_size", tmp_path, str(size)), "unavailable", "full")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            stack.enter_context(small_disk(tmp_path))
        except (OSError, subprocess.CalledProcessError):
            return  # mounting a disk needs privileges; the next test has the same error without one
        recovered(in_trouble("disk", tmp_path), "full")


async def test_a_database_that_is_full(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "threads.db")
    mine = await hold_thread(store)
    db = _connection(store)
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages + 3}")
    big = make_entry(1, "event", text="x" * 100_000)
    with assert_refused("full", "the disk is full; free some space"):
        await mine.append(big)
    await mine.append(big)  # the limit of the old connection is gone after reopening
    assert await read_entries(store) == [big]
    await store.close()


async def test_an_oversized_append_fails_alone(tmp_path: Path) -> None:
    """Appends that are committed together fail apart."""
    store = Sqlite(tmp_path / "threads.db")
    threads = [await hold_thread(store, f"t{n}") for n in range(5)]
    db = _connection(store)
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    with closing(sqlite3.connect(tmp_path / "threads.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # so that they wait for each other
        db.execute(f"PRAGMA max_page_count = {pages + 8}")
        rows = [make_entry(1, "event", text="x" * (200_000 if n == 2 else 10)) for n in range(5)]
        tries = [asyncio.ensure_future(mine.append(row)) for mine, row in zip(threads, rows, strict=True)]
        await asyncio.sleep(0.2)
        other.execute("ROLLBACK")
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert [getattr(outcome, "code", outcome) for outcome in outcomes][:2] == [1, 1]
    assert [getattr(outcome, "code", outcome) for outcome in outcomes][3:] == [1, 1]
    for number in (0, 1, 3, 4):
        assert await read_entries(store, f"t{number}") == [rows[number]]
    await store.close()


def test_a_file_that_is_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:  # pytest's folders are closed to others
        if parent.stat().st_mode & 0o001:
            break
        parent.chmod(0o755)
    recovered(in_trouble("read_only", tmp_path), "read_only")


async def test_a_stored_error_does_not_hold_the_file_open(tmp_path: Path) -> None:
    """Its traceback refers to the frame with the connection."""
    store = Sqlite(tmp_path / "threads.db")
    mine = await hold_thread(store)
    await store.put_blob(mine.owner, mine.id, b"x")
    kept = []
    for doing in (
        mine.append(make_entry(9), expect=8),
        store.append(mine.owner, mine.id, [make_entry(1)], expect=0, fence=99),
        store.fork(mine.owner, mine.id, 5, "other"),
        store.get_blob(mine.owner, mine.id, "0" * 64),
        store.head(mine.owner, "nobody"),
    ):
        with pytest.raises(StoreError) as caught:
            await doing
        kept.append(caught.value)
    await store.close()
    opened = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if os.path.exists(path)]
    assert not [path for path in opened if path.startswith(str(tmp_path))] and len(kept) == 5


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_file_that_another_process_has_locked(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "threads.db", busy_seconds=0.1)
    mine = await hold_thread(store)
    await mine.append(make_entry(1))
    command = [sys.executable, "-c", HOLD, str(tmp_path / "threads.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:  # noqa: ASYNC220
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for _ in range(2):
            with assert_refused("locked", "is locked by another process; try again"):
                await mine.append(make_entry(2))
        assert entry_numbers(await read_entries(store)) == [1]  # it can be read meanwhile
        other.stdin.close()
        other.wait(30)
    await mine.append(make_entry(2))
    assert entry_numbers(await read_entries(store)) == [1, 2]
    await store.close()


async def test_a_file_that_is_moved_away_and_back(tmp_path: Path) -> None:
    path, away = tmp_path / "threads.db", tmp_path / "away.db"
    store = Sqlite(path)
    mine = await hold_thread(store)
    await mine.append(make_entry(1))
    path.rename(away)
    with assert_refused("unavailable", "was removed or replaced"):
        await mine.append(make_entry(2))
    with assert_refused("unavailable"):
        await mine.append(make_entry(2))
    with assert_refused("unavailable"):
        await read_entries(store)
    assert not path.exists()  # no empty one is made in its place
    away.rename(path)
    await mine.append(make_entry(2))
    assert entry_numbers(await read_entries(store)) == [1, 2]
    await store.close()


async def test_a_file_that_is_deleted_is_not_written_to(tmp_path: Path) -> None:
    """On Unix a deleted file can be written and the data is lost: such a write must not be acknowledged."""
    store = Sqlite(tmp_path / "threads.db")
    mine = await hold_thread(store)
    await mine.append(make_entry(1))
    for path in tmp_path.iterdir():
        path.unlink()
    for _ in range(3):
        with assert_refused("unavailable"):
            await mine.append(make_entry(2))
    again = Sqlite(tmp_path / "threads.db")
    assert (await again.list("ada")).threads == ()
    with assert_refused("not_found"):  # there is a new file, and the store uses it
        await mine.append(make_entry(2))
    await store.close()
    await again.close()


async def test_a_log_that_is_deleted(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "threads.db")
    mine = await hold_thread(store)
    (tmp_path / "threads.db-wal").unlink()
    with assert_refused("unavailable", "was removed or replaced"):
        await mine.append(make_entry(1))
    await store.close()


async def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    other = Sqlite(tmp_path / "other.db")
    await (await hold_thread(other, "another")).append(*make_entries(1, 2))
    await other.close()
    store = Sqlite(tmp_path / "threads.db")
    mine = await hold_thread(store)
    for left in tmp_path.glob("threads.db-*"):
        left.unlink()
    (tmp_path / "other.db").rename(tmp_path / "threads.db")
    with assert_refused("unavailable"):
        await mine.append(make_entry(1))
    with assert_refused("not_found"):
        await mine.append(make_entry(1))
    assert [thread.id for thread in (await store.list("ada")).threads] == ["another"]
    await store.close()


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Sqlite(tmp_path / "file" / "threads.db")
    with assert_refused("unavailable", "cannot be made"):
        await store.head("ada", "t")
    with assert_refused("unavailable"):
        await store.create("ada", "t")
    (tmp_path / "file").unlink()
    await store.create("ada", "t")
    assert (tmp_path / "file" / "threads.db").stat().st_mode & 0o777 == 0o600
    await store.close()


async def test_a_folder_in_its_place(tmp_path: Path) -> None:
    store = Sqlite(tmp_path)
    with assert_refused("invalid"):
        await store.create("ada", "t")
    await store.close()


def test_a_process_that_forks(tmp_path: Path) -> None:
    assert in_trouble("forked", tmp_path) == ["child 0", "parent 3 [1, 2, 3]"]


def _connection(store: Sqlite) -> Any:
    assert store._writer is not None and store._writer._connection is not None
    return store._writer._connection.db


async def test_all_waiters_on_a_locked_file_get_an_error(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "threads.db", busy_seconds=0.05)
    threads: list[HeldLease] = [await hold_thread(store, f"t{n}") for n in range(30)]
    with closing(sqlite3.connect(tmp_path / "threads.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        outcomes = await asyncio.gather(*(mine.append(make_entry(1)) for mine in threads), return_exceptions=True)
        assert {getattr(outcome, "code", "") for outcome in outcomes} == {"locked"}
        other.execute("ROLLBACK")
    assert await asyncio.gather(*(mine.append(make_entry(1)) for mine in threads)) == [1] * 30
    await store.close()
