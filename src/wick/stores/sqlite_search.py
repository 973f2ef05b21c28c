"""Full-text search of a SQLite store by a trigram index, which is updated on each search.

So appends do not pay for the index. A SQLite without FTS5 trigrams (before 3.34) scans the messages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from wick.protocols import Hit
from wick.stores import rows

MESSAGES_AT_ONCE = 1_000
SEQ_BITS = 32  # the rowid of a message combines the thread's key and its sequence number
TRIGRAM_CHARS = 3  # a trigram

HIT_COLUMNS = "SELECT t.id, t.title, e.seq, e.at, e.data, e.kind, e.sum"


def update_index(db: sqlite3.Connection, owner: str) -> bool:
    """Add a batch of the owner's messages to the index; return True if more are left."""
    if not _has_index(db, make=True):
        return False
    behind = db.execute(
        "SELECT key, id, indexed, last FROM threads WHERE owner = ? AND indexed < last LIMIT 100", (owner,)
    ).fetchall()
    room = MESSAGES_AT_ONCE
    for key, id, start, last in behind:
        query = (
            "SELECT seq, kind, at, data, sum FROM entries "
            "WHERE thread = ? AND seq > ? AND kind = 'message' ORDER BY seq LIMIT ?"
        )
        found = db.execute(query, (key, start, room)).fetchall()
        messages = [rows.entry_from_row(id, row[0], row) for row in found]
        db.executemany(
            "INSERT OR REPLACE INTO said (rowid, text) VALUES (?, ?)",
            [(key << SEQ_BITS | one["seq"], rows.fold_text(rows.message_text(one["data"]))) for one in messages],
        )
        room -= len(found)
        done = last if room > 0 else found[-1][0]
        db.execute("UPDATE threads SET indexed = ? WHERE key = ?", (done, key))
        if room <= 0:
            return True
    return len(behind) == 100


def drop_index(db: sqlite3.Connection, key: int) -> None:
    """Delete the index rows of a thread."""
    if _has_index(db, make=False):
        db.execute("DELETE FROM said WHERE rowid BETWEEN ? AND ?", (key << SEQ_BITS, (key + 1 << SEQ_BITS) - 1))


def search_messages(db: sqlite3.Connection, owner: str, words: Sequence[str], limit: int) -> list[Hit]:
    long = [word for word in words if len(word) >= TRIGRAM_CHARS]
    if not long or not _has_index(db, make=False):
        return scan_messages(db, owner, words, limit)
    query = (
        f"{HIT_COLUMNS}, s.text FROM said s JOIN threads t ON t.key = s.rowid >> {SEQ_BITS} "
        f"JOIN entries e ON e.thread = t.key AND e.seq = s.rowid & {2**SEQ_BITS - 1} "
        "WHERE said MATCH ? AND t.owner = ? ORDER BY e.at DESC, e.seq DESC"
    )
    match = " AND ".join('"{}"'.format(word.replace('"', '""')) for word in long)
    found = db.execute(query, (match, owner))
    return _collect_hits(found, words, limit)


def scan_messages(db: sqlite3.Connection, owner: str, words: Sequence[str], limit: int) -> list[Hit]:
    query = (
        f"{HIT_COLUMNS} FROM threads t JOIN entries e ON e.thread = t.key "
        "WHERE t.owner = ? AND e.kind = 'message' ORDER BY e.at DESC, e.seq DESC"
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
