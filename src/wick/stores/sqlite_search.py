"""Full-text search of a SQLite store by a trigram index.

The writer thread updates the index in small portions after writes, so that neither an append nor a search waits for
it. A search scans the messages that are not yet in the index. A SQLite without FTS5 trigrams (before 3.34) scans all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from heapq import heappush, heappushpop

from wick.errors import StoreError
from wick.protocols import Hit
from wick.stores import rows

MESSAGES_AT_ONCE = 200  # in one portion: about 20 ms
THREADS_AT_ONCE = 100
MANY_MATCHES = 1_000  # of the index; a search then starts with the latest threads
LATEST_MESSAGES = 2_000  # that such a search reads at most: about 20 ms
SEQ_BITS = 32  # the rowid of a message combines the thread's key and its sequence number
TRIGRAM_CHARS = 3  # a trigram

HIT_COLUMNS = "SELECT t.id, t.title, e.seq, e.at, e.data, e.kind, e.sum"


def update_index(db: sqlite3.Connection) -> bool:
    """Add a portion of messages to the index; return True if more are left."""
    behind = db.execute(
        "SELECT key, id, indexed, last FROM threads WHERE indexed < last LIMIT ?", (THREADS_AT_ONCE,)
    ).fetchall()
    if not behind or not _has_index(db, make=True):
        return False
    room = MESSAGES_AT_ONCE
    for key, id, start, last in behind:
        query = (
            "SELECT seq, kind, at, data, sum FROM entries "
            "WHERE thread = ? AND seq > ? AND kind = 'message' ORDER BY seq LIMIT ?"
        )
        found = db.execute(query, (key, start, room)).fetchall()
        for row in found:
            with suppress(StoreError):  # skip a damaged entry; reading its thread reports it
                text = rows.fold_text(rows.message_text(rows.entry_from_row(id, row[0], row)["data"]))
                db.execute("INSERT OR REPLACE INTO said (rowid, text) VALUES (?, ?)", (key << SEQ_BITS | row[0], text))
        room -= len(found)
        done = last if room > 0 else found[-1][0]
        db.execute("UPDATE threads SET indexed = ? WHERE key = ?", (done, key))
        if room <= 0:
            return True
    return len(behind) == THREADS_AT_ONCE


def drop_index(db: sqlite3.Connection, key: int) -> None:
    """Delete the index rows of a thread."""
    if _has_index(db, make=False):
        db.execute("DELETE FROM said WHERE rowid BETWEEN ? AND ?", (key << SEQ_BITS, (key + 1 << SEQ_BITS) - 1))


def search_messages(db: sqlite3.Connection, owner: str, words: Sequence[str], limit: int) -> list[Hit]:
    """Return the newest messages with all words, from the index and from the messages that are not yet in it."""
    long = [word for word in words if len(word) >= TRIGRAM_CHARS]
    match = " AND ".join('"{}"'.format(word.replace('"', '""')) for word in long)
    is_indexed = bool(long) and _has_index(db, make=False)
    has_many_matches = False
    if is_indexed:
        query = "SELECT count(*) FROM (SELECT 1 FROM said WHERE said MATCH ? LIMIT ?)"
        (number,) = db.execute(query, (match, MANY_MATCHES)).fetchone()
        has_many_matches = number == MANY_MATCHES
    if not is_indexed or has_many_matches:
        with suppress(StoreError):  # a damaged entry: the search below skips it, or reports it
            if (latest := _search_latest(db, owner, words, limit)) is not None:
                return latest
    if not is_indexed:
        return _scan_messages(db, owner, words, limit, "")
    query = (
        f"{HIT_COLUMNS}, s.text FROM said s JOIN threads t ON t.key = s.rowid >> {SEQ_BITS} "
        f"JOIN entries e ON e.thread = t.key AND e.seq = s.rowid & {2**SEQ_BITS - 1} "
        "WHERE said MATCH ? AND t.owner = ? ORDER BY e.at DESC, e.seq DESC"
    )
    found = _collect_hits(db.execute(query, (match, owner)), words, limit)  # both queries read the same snapshot
    found += _scan_messages(db, owner, words, limit, "AND t.indexed < t.last AND e.seq > t.indexed")
    return sorted(found, key=lambda hit: (hit.at, hit.seq), reverse=True)[:limit]


def _search_latest(db: sqlite3.Connection, owner: str, words: Sequence[str], limit: int) -> list[Hit] | None:
    """Search the latest threads of an owner; return None if some of the newest hits may be in others.

    Most of these threads contain a frequent word, and the index would return its hits in all threads to be sorted. A
    message is not newer than the last write to its thread.
    """
    query = (
        f"{HIT_COLUMNS}, t.updated FROM threads t INDEXED BY by_updated CROSS JOIN entries e ON e.thread = t.key "
        "WHERE t.owner = ? AND e.kind = 'message' ORDER BY t.updated DESC, t.key DESC, e.seq DESC"
    )
    hits: list[Hit] = []
    newest: list[float] = []  # a heap of the times of the newest hits
    for number, row in enumerate(db.execute(query, (owner,))):
        if number == LATEST_MESSAGES:
            return None
        id, title, seq, at, data, kind, sum, updated = row
        if len(newest) == limit and updated < newest[0]:
            break
        text = rows.message_text(rows.entry_from_row(id, seq, (seq, kind, at, data, sum))["data"])
        if all(word in rows.fold_text(text) for word in words):
            hits.append(Hit(id, title, seq, at, rows.make_excerpt(text, words[0])))
            heappush(newest, at) if len(newest) < limit else heappushpop(newest, at)
    return sorted(hits, key=lambda hit: (hit.at, hit.seq), reverse=True)[:limit]


def _scan_messages(db: sqlite3.Connection, owner: str, words: Sequence[str], limit: int, which: str) -> list[Hit]:
    query = (
        f"{HIT_COLUMNS} FROM threads t JOIN entries e ON e.thread = t.key "
        f"WHERE t.owner = ? AND e.kind = 'message' {which} ORDER BY e.at DESC, e.seq DESC"
    )
    return _collect_hits(db.execute(query, (owner,)), words, limit)


def _collect_hits(found: sqlite3.Cursor, words: Sequence[str], limit: int) -> list[Hit]:
    hits: list[Hit] = []
    for id, title, seq, at, data, kind, sum, *_ in found:
        text = rows.message_text(rows.entry_from_row(id, seq, (seq, kind, at, data, sum))["data"])
        if all(word in rows.fold_text(text) for word in words):
            hits.append(Hit(id, title, seq, at, rows.make_excerpt(text, words[0])))
            if len(hits) == limit:
                break
    return hits


def _has_index(db: sqlite3.Connection, *, make: bool) -> bool:
    """Return True if the index exists and this SQLite can use it; with `make`, create it."""
    try:
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'said'").fetchone():
            db.execute("SELECT rowid FROM said LIMIT 0").fetchone()
        elif make:
            db.execute("CREATE VIRTUAL TABLE said USING fts5 (text, tokenize = 'trigram case_sensitive 1')")
        else:
            return False
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return False  # FTS5 or its trigram tokenizer is missing
    return True
