"""S6: stored bytes are only data. A flipped byte of a stored thread is an error or changes nothing.

In CI every byte of every stored row, and a sample of the file's; with WICK_FULL every byte of the file. Nothing that is
read is ever run as code: Python says so itself, through its audit events.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from faults.tally import FULL, Tally, Violated
from store_fixtures import read_entries
from wick import Agent, FunctionModel, Thread, ToolCall, assistant, tool
from wick._internal.frozen import digest
from wick.capabilities.sessions import LOCAL, Sessions
from wick.errors import StoreError
from wick.stores import rows
from wick.stores.sqlite import Sqlite

CODE = (
    "exec",
    "compile",
    "pickle.find_class",
    "marshal.loads",
    "subprocess.Popen",
    "os.system",
    "sqlite3.load_extension",
)
LONG = 7200 if FULL else 120
SAID = ("Look.", "And now?", "Thanks.")

_seen: list[str] | None = None


def _listen(event: str, given: tuple[Any, ...]) -> None:
    if _seen is not None and event in CODE:
        _seen.append(f"{event} {given!r}"[:200])


sys.addaudithook(_listen)  # there is no way to take it back: it listens only inside `no_code`


@contextmanager
def no_code() -> Iterator[None]:
    """Check by audit events that no new code runs."""
    global _seen
    _seen = found = []
    try:
        yield
    finally:
        _seen = None
    assert not found, f"stored bytes were run: {found[:3]}"


@tool
def look(where: str) -> str:
    """Read."""
    return f"There is nothing in {where}: __import__('os').system('true') \\u2028 ü"


def looking(request: Any) -> Any:
    if request.messages[-1].text == "Look.":
        return assistant("I look.", ToolCall("c1", "look", {"where": "here"}))
    return "Nothing."


async def stored(path: Path) -> None:
    """A thread with all that a thread has: messages, calls, results, values, something queued and a file."""
    sessions = Sessions(Sqlite(path))
    agent = Agent(FunctionModel(looking), tools=[look], hooks=[sessions])
    for words in SAID:
        await agent.run(words, thread="t")
    await sessions.send("t", "Are you there?")
    await sessions.store.put_blob(LOCAL, "t", b"bytes that are kept")
    await sessions.close()


async def whole(store: Sqlite) -> dict[str, Any]:
    """Return the thread as the next run sees it."""
    thread = Thread("t")
    for row in await read_entries(store, "t", LOCAL):
        thread.replay(row)
    queued = [(row.kind, row.data) for row in await store.inbox(LOCAL, "t")]
    blob = await store.get_blob(LOCAL, "t", digest(b"bytes that are kept"))
    return {"log": thread.to_json(), "messages": thread.messages.to_json(), "queued": queued, "blob": blob}


async def flip_file(folder: Path, places: Sequence[int] | None, planted: bool = False) -> None:
    """Flip a bit of these bytes of the file, one at a time; of all, if none are given."""
    path, damaged, chance = folder / "threads.db", folder / "damaged" / "threads.db", random.Random(5)
    store = Sqlite(path)
    before = await whole(store)
    await store.close()
    original = path.read_bytes()
    damaged.parent.mkdir()
    outcomes = {"equal": 0, "refused": 0}
    with Tally("S6", "flipped bytes of the file", planted=planted) as tally:
        for place in range(len(original)) if places is None else places:
            for leftover in damaged.parent.iterdir():
                leftover.unlink()
            changed = bytearray(original)
            changed[place] ^= 1 << chance.randrange(8)
            damaged.write_bytes(changed)
            with tally.trying(f"byte {place}"):
                outcomes[await _flipped(damaged, before)] += 1
        tally.note(**outcomes)


async def _flipped(path: Path, before: dict[str, Any]) -> str:
    store = Sqlite(path, busy_seconds=0.01)
    try:
        with no_code():
            found = await whole(store)
    except StoreError:
        return "refused"
    finally:
        await store.close()
    assert found == before, "it is read, and is another thread"
    return "equal"


def flip_rows(folder: Path, every: int = 1, planted: bool = False) -> None:
    """Flip every nth bit of every column of every entry, as a store reads them; Postgres reads them so, too."""
    with closing(sqlite3.connect(folder / "threads.db")) as db:
        found = db.execute("SELECT seq, kind, at, data, sum FROM entries ORDER BY seq").fetchall()
    with Tally("S6", "flipped bits of stored rows", planted=planted) as tally, no_code():
        for seq, kind, at, data, sum in found:
            good = rows.entry_from_row("t", seq, (seq, kind, at, data, sum))
            for bit in range(0, 8 * len(data), every):
                _flip(tally, seq, (seq, kind, at, _with(data, bit), sum), good)
            for bit in range(0, 8 * len(kind), every):
                changed = _with(kind.encode(), bit).decode("utf-8", "replace")
                _flip(tally, seq, (seq, changed, at, data, sum), good)
            for bit in range(32):
                _flip(tally, seq, (seq, kind, at, data, sum ^ 1 << bit), good)
                _flip(tally, seq, (seq ^ 1 << bit, kind, at, data, sum), good)


def _with(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _flip(tally: Tally, seq: int, row: Any, good: dict[str, Any]) -> None:
    with tally.trying(f"entry {seq}"):
        try:
            found = rows.entry_from_row("t", seq, row)
        except StoreError as error:
            assert error.code == "corrupt", error
            return
        assert found == good, f"it reads {found!r}"[:300]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(stored(tmp_path / "threads.db"))
    return tmp_path


def test_every_bit_of_every_row(folder: Path) -> None:
    flip_rows(folder)


@pytest.mark.timeout(LONG)
def test_bytes_of_the_file(folder: Path) -> None:
    size = (folder / "threads.db").stat().st_size
    asyncio.run(flip_file(folder, None if FULL else random.Random(1).sample(range(size), 200)))


def test_flips_find_a_missing_checksum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(id: str, expected: int, row: Sequence[Any]) -> dict[str, Any]:
        try:
            return {"seq": row[0], "kind": row[1], "at": row[2], "data": rows.decode_json(row[3])}
        except ValueError as error:
            raise rows.corrupt_error(id, expected, str(error)) from error

    monkeypatch.setattr(rows, "entry_from_row", unchecked)
    with pytest.raises(Violated, match="it reads"):
        flip_rows(folder, every=7, planted=True)
    said = (folder / "threads.db").read_bytes().find(b"Thanks.")
    with pytest.raises(Violated, match="another thread"):
        asyncio.run(flip_file(folder, range(said, said + 7), planted=True))


def test_code_that_runs_is_found() -> None:
    with pytest.raises(AssertionError, match="stored bytes were run"), no_code():
        eval("1 + 1")
