"""The queries of the SQLite store. Each runs inside a transaction of its caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from wick.errors import StoreError
from wick.protocols import Lease, News, Queued, Summary
from wick.stores import rows
from wick.stores.process_identity import holder_prefix
from wick.stores.sqlite_file import FENCE_BITS
from wick.stores.sqlite_search import drop_index
from wick.stores.sqlite_writer import Transaction

_UNLAPSED = "FROM questions q WHERE q.thread = key AND q.state = 'open' AND q.expires"
# The first value of its query is the time.
SUMMARY = (
    "owner, id, title, meta, created, updated, last, run, "
    f"iif(asking > 0 AND expires <= ?1, (SELECT count(*) {_UNLAPSED} > ?1), asking), queued, "
    "iif(until > ?1, holder, '')"
)
HAS_UNLAPSED = f"(expires > ? OR EXISTS (SELECT 1 {_UNLAPSED} > ?))"
FENCED = "owner = ? AND id = ? AND fence = ? AND holder != ''"
FIRST_EXPIRY = "coalesce((SELECT min(q.expires) FROM questions q WHERE q.thread = key AND q.state = 'open'), 9e999)"
# Threads that need a server. A thread that waits for an answer is one only after its question has expired.
RESUMABLE = f"""
SELECT {SUMMARY}, created, key FROM threads WHERE (holder != '' OR queued > 0 OR (run != '' AND asking = 0))
    AND (run != '' OR queued > 0) AND NOT (until > ? AND substr(holder, 1, length(?)) = ?)
    AND (asking = 0 OR expires <= ?
        OR EXISTS (SELECT 1 FROM inbox WHERE inbox.thread = threads.key AND inbox.kind = 'answer'))
UNION ALL
SELECT {SUMMARY}, created, key FROM threads WHERE asking > 0 AND expires <= ?
    AND NOT (holder != '' OR queued > 0) AND run != ''
ORDER BY created, key
"""


def find_thread(db: sqlite3.Connection, owner: str, id: str, columns: str, *before: Any) -> Any:
    if not rows.are_valid_names(owner, id):
        raise rows.not_found_error(str(id)[: rows.NAME_CHARS])
    found = db.execute(f"SELECT {columns} FROM threads WHERE owner = ? AND id = ?", (*before, owner, id)).fetchone()
    if found is None:
        raise rows.not_found_error(id)
    return found


def summary_from_row(row: Sequence[Any]) -> Summary:
    owner, id, title, meta, created, updated, last, run, asking, queued, holder = row
    try:
        about = rows.decode_json(meta.encode())
        return Summary(
            owner, id, title, about, created, updated, last, run, asking, queued, rows.is_live_holder(holder)
        )
    except ValueError as error:
        raise StoreError(f"thread {id}: its meta is damaged: {error}", "corrupt") from error


def create_thread(do: Transaction, owner: str, id: str, title: str, meta: str, now: float) -> Summary:
    if do.db.execute("SELECT 1 FROM threads WHERE owner = ? AND id = ?", (owner, id)).fetchone():
        raise rows.exists_error(id)
    inserted = do.db.execute(
        "INSERT INTO threads (owner, id, title, meta, created, updated) VALUES (?, ?, ?, ?, ?, ?)",
        (owner, id, title, meta, now, now),
    )
    do.db.execute(f"UPDATE threads SET fence = key << {FENCE_BITS} WHERE key = ?", (inserted.lastrowid,))
    return summary_from_row(find_thread(do.db, owner, id, SUMMARY, now))


def start_thread(
    do: Transaction, owner: str, id: str, meta: str, bodies: Sequence[bytes], holder: str, seconds: float, now: float
) -> Lease:
    """Create a thread with messages in its inbox, and acquire its lease."""
    count = len(bodies)
    added = do.db.execute(
        "INSERT INTO threads (owner, id, title, meta, created, updated, inbox, queued, holder, until) "
        "VALUES (?, ?, '', ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, id) DO NOTHING",
        (owner, id, meta, now, now, count, count, holder, now + seconds),
    )
    if added.rowcount != 1:
        raise rows.exists_error(id)
    key = added.lastrowid or 0
    fence = (key << FENCE_BITS) + 1
    do.db.execute("UPDATE threads SET fence = ? WHERE key = ?", (fence, key))
    items = [(n, "message", now, body, rows.inbox_checksum("message", body)) for n, body in enumerate(bodies, 1)]
    query = "INSERT INTO inbox (thread, position, kind, at, data, sum) VALUES (?, ?, ?, ?, ?, ?)"
    do.db.executemany(query, [(key, *item) for item in items])
    do.notify((owner, id), News(0, count))
    head = summary_from_row((owner, id, "", meta, now, now, 0, "", 0, count, holder))
    inbox = [rows.inbox_item_from_row(id, item) for item in items]
    return Lease(fence, holder, now + seconds, head, inbox)


def append_entries(
    do: Transaction,
    owner: str,
    id: str,
    prepared: rows.PreparedAppend,
    *,
    expect: int,
    fence: int,
    took: Sequence[int],
    now: float,
    released: bool = False,
) -> int:
    """Append entries. With `released`, release the lease, too; a retry may find it released."""
    query = f"SELECT key, asking, inbox FROM threads WHERE {FENCED} AND last = ?"
    found = do.db.execute(query, (owner, id, fence, expect)).fetchone()
    if found is None:
        stored = explain_failed_append(do.db, owner, id, prepared, expect, fence, released)
        if released:
            release_lease(do.db, owner, id, fence)
        return stored
    key, asking, inbox = found
    do.db.executemany(
        "INSERT INTO entries (thread, seq, kind, at, data, sum) VALUES (?, ?, ?, ?, ?, ?)",
        [(key, *row) for row in prepared.rows],
    )
    consume_inbox_items(do.db, key, id, took)
    if asking or any(step != "over" for step, _ in prepared.questions):
        update_questions(do.db, key, id, prepared, took)
    # Only columns that change: SQLite writes each index that contains a given column.
    changes: dict[str, Any] = {"last = ?": prepared.last, "updated = ?": now}
    if prepared.run is not None:
        changes["run = ?"] = prepared.run
    if prepared.title:
        changes["title = CASE title WHEN '' THEN ? ELSE title END"] = prepared.title
    if took:
        changes["queued = queued - ?"] = len(took)
    if released:
        changes |= {"holder = ?": "", "until = ?": 0}
    do.db.execute(f"UPDATE threads SET {', '.join(changes)} WHERE key = ?", (*changes.values(), key))
    do.notify((owner, id), News(prepared.last, inbox))
    return prepared.last


def release_lease(db: sqlite3.Connection, owner: str, id: str, fence: int) -> None:
    db.execute(f"UPDATE threads SET holder = '', until = 0 WHERE {FENCED}", (owner, id, fence))


def acquire_lease(db: sqlite3.Connection, owner: str, id: str, holder: str, seconds: float, now: float) -> Lease:
    fence, other, until = find_thread(db, owner, id, "fence, holder, until")
    if until > now and rows.is_live_holder(other):
        raise rows.held_error(id, other, until - now)
    mine = Lease(fence + 1, holder, now + seconds)
    db.execute(
        "UPDATE threads SET fence = ?, holder = ?, until = ? WHERE owner = ? AND id = ?",
        (mine.fence, holder, mine.until, owner, id),
    )
    return mine


def list_resumable(db: sqlite3.Connection, now: float, capacity: int, skip: Sequence[Summary]) -> list[Summary]:
    """Return threads that a server can resume, the oldest first."""
    mine, unchanged, found = holder_prefix(), rows.unchanged_states(skip), list[Summary]()
    for row in db.execute(RESUMABLE, (now, now, mine, mine, now, now)):
        head = summary_from_row(row[:-2])
        if len(found) == capacity:
            break
        if not head.leased and rows.can_claim(head, unchanged):
            found.append(head)
    return found


def answer_question(do: Transaction, owner: str, id: str, question: str, body: bytes, now: float) -> int:
    (key,) = find_thread(do.db, owner, id, "key")
    given = (key, question)
    query = "SELECT state FROM questions WHERE thread = ? AND id = ?"
    found = do.db.execute(query, given).fetchone() if rows.is_valid_name(question) else None
    if found is None:
        raise rows.no_question_error(id, question)
    if found[0] != "open":
        raise rows.answered_error(id, question)
    position = enqueue_item(do, owner, id, "answer", body, now)
    do.db.execute(
        "UPDATE questions SET state = 'answered', position = ? WHERE thread = ? AND id = ?", (position, *given)
    )
    do.db.execute(f"UPDATE threads SET asking = asking - 1, expires = {FIRST_EXPIRY} WHERE key = ?", (key,))
    return position


def enqueue_item(do: Transaction, owner: str, id: str, kind: str, body: bytes, now: float) -> int:
    key, last, inbox = find_thread(do.db, owner, id, "key, last, inbox")
    position: int = inbox + 1
    do.db.execute(
        "INSERT INTO inbox (thread, position, kind, at, data, sum) VALUES (?, ?, ?, ?, ?, ?)",
        (key, position, kind, now, body, rows.inbox_checksum(kind, body)),
    )
    do.db.execute("UPDATE threads SET inbox = ?, queued = queued + 1, updated = ? WHERE key = ?", (position, now, key))
    do.notify((owner, id), News(last, position))
    return position


def enqueue_messages(do: Transaction, owner: str, id: str, bodies: Sequence[bytes], key: str, now: float) -> int:
    """Enqueue messages; under an idempotency key, only once."""
    (thread,) = find_thread(do.db, owner, id, "key")
    query = "SELECT position FROM keyed WHERE thread = ? AND key = ?"
    before = do.db.execute(query, (thread, key)).fetchone() if key else None
    if before is not None:
        return int(before[0])
    position = [enqueue_item(do, owner, id, "message", body, now) for body in bodies][-1]
    if key:
        do.db.execute("INSERT INTO keyed (thread, key, position) VALUES (?, ?, ?)", (thread, key, position))
    return position


def describe_thread(do: Transaction, owner: str, id: str, title: str | None, meta: str | None) -> None:
    find_thread(do.db, owner, id, "key")
    do.db.execute(
        "UPDATE threads SET title = coalesce(?, title), meta = coalesce(?, meta) WHERE owner = ? AND id = ?",
        (title, meta, owner, id),
    )


def delete_thread(do: Transaction, owner: str, id: str) -> None:
    (key,) = find_thread(do.db, owner, id, "key")
    drop_index(do.db, key)
    do.db.execute("DELETE FROM threads WHERE key = ?", (key,))
    do.notify((owner, id), None)


IDLE = """t.updated <= ? AND t.run = '' AND t.asking = 0 AND t.queued = 0 AND NOT (t.holder != '' AND t.until > ?)
    AND NOT EXISTS (SELECT 1 FROM threads above WHERE above.owner = t.owner
        AND above.id = CASE WHEN json_valid(t.meta) THEN json_extract(t.meta, '$.parent') END)"""


def idle_threads(db: sqlite3.Connection, now: float, idle: float, owner: str, limit: int) -> list[tuple[str, str]]:
    """Return the owners and ids of threads that are idle, the longest idle first."""
    query = f"SELECT owner, id FROM threads t WHERE {IDLE} {'AND owner = ?' if owner else ''} ORDER BY updated LIMIT ?"
    given = (now - idle, now, *([owner] if owner else []), limit)
    return db.execute(query, given).fetchall()


def delete_idle(do: Transaction, found: Sequence[tuple[str, str]], now: float, idle: float) -> list[tuple[str, str]]:
    """Delete those of the threads that are still idle, and return them."""
    query = f"SELECT 1 FROM threads t WHERE owner = ? AND id = ? AND {IDLE}"
    expired = [(owner, id) for owner, id in found if do.db.execute(query, (owner, id, now - idle, now)).fetchone()]
    for owner, id in expired:
        delete_thread(do, owner, id)
    return expired


def read_fork_source(db: sqlite3.Connection, owner: str, id: str, at: int) -> tuple[int, str, str, rows.PreparedAppend]:
    """Return the key, title and meta of a thread, and its columns as of an entry."""
    key, title, meta, last = find_thread(db, owner, id, "key, title, meta, last")
    if type(at) is not int or not 0 <= at <= last:
        raise rows.no_entry_error(id, at, last)
    history = rows.PreparedAppend()
    query = "SELECT seq, kind, at, data, sum FROM entries WHERE thread = ? AND seq <= ? ORDER BY seq"
    for seq, row in enumerate(db.execute(query, (key, at)), 1):
        rows.note_entry(history, row[1], rows.entry_from_row(id, seq, row)["data"])
    return key, title, meta, history


def copy_thread(db: sqlite3.Connection, key: int, new_key: int, at: int, history: rows.PreparedAppend) -> None:
    db.execute(
        "INSERT INTO entries (thread, seq, kind, at, data, sum) "
        "SELECT ?, seq, kind, at, data, sum FROM entries WHERE thread = ? AND seq <= ? ORDER BY seq",
        (new_key, key, at),
    )
    db.execute(
        "INSERT INTO blobs (thread, sha256, data) SELECT ?, sha256, data FROM blobs WHERE thread = ?", (new_key, key)
    )
    asked = rows.find_open_questions(history.questions)
    db.executemany(
        "INSERT INTO questions (thread, id, state, expires) VALUES (?, ?, 'open', ?)",
        [(new_key, question, history.expires[question]) for question in asked],
    )
    db.execute(
        f"UPDATE threads SET last = ?, run = ?, asking = ?, expires = {FIRST_EXPIRY} WHERE key = ?",
        (at, history.run or "", len(asked), new_key),
    )


def explain_failed_append(
    db: sqlite3.Connection,
    owner: str,
    id: str,
    prepared: rows.PreparedAppend,
    expect: int,
    fence: int,
    released: bool,
) -> int:
    """Raise the reason of a failed append; return its last entry if it is a retry that is stored already."""
    key, last, its_fence, holder = find_thread(db, owner, id, "key, last, fence, holder")
    if its_fence != fence or not (holder or (released and last == prepared.last)):
        raise rows.fenced_error(id)
    query = "SELECT seq, kind, at, data, sum FROM entries WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?"
    if last == prepared.last and db.execute(query, (key, expect, len(prepared.rows))).fetchall() == prepared.rows:
        return prepared.last
    raise rows.conflict_error(id, expect, last)


def consume_inbox_items(db: sqlite3.Connection, key: int, id: str, took: Sequence[int]) -> None:
    for position in took:
        if db.execute("DELETE FROM inbox WHERE thread = ? AND position = ?", (key, position)).rowcount != 1:
            raise rows.not_queued_error(id, position)


def update_questions(
    db: sqlite3.Connection, key: int, id: str, prepared: rows.PreparedAppend, took: Sequence[int]
) -> None:
    """Update the states of questions."""
    for step, question in prepared.questions:
        if step == "asked":
            db.execute(
                "INSERT INTO questions (thread, id, state, expires) VALUES (?, ?, 'open', ?) ON CONFLICT (thread, id) "
                "DO UPDATE SET state = 'open', position = NULL, expires = excluded.expires "
                f"WHERE {rows.UNANSWERED}",
                (key, question, prepared.expires[question]),
            )
        elif step == "over":
            db.execute("UPDATE questions SET state = 'over' WHERE thread = ? AND state = 'open'", (key,))
        else:  # answered by the holder or by a queued answer; the first answer counts
            query = "SELECT state, position FROM questions WHERE thread = ? AND id = ?"
            state, answered_by = db.execute(query, (key, question)).fetchone() or ("over", None)
            if state == "answered" and answered_by not in took:
                raise rows.answered_error(id, question)
            query = "UPDATE questions SET state = 'answered', position = NULL WHERE thread = ? AND id = ?"
            db.execute(query, (key, question))
    db.execute(
        f"UPDATE threads SET expires = {FIRST_EXPIRY}, "
        "asking = (SELECT count(*) FROM questions WHERE thread = key AND state = 'open') WHERE key = ?",
        (key,),
    )


def read_batch(db: sqlite3.Connection, id: str, key: int, after: int, most: int) -> list[dict[str, Any]]:
    head = db.execute("SELECT last FROM threads WHERE key = ?", (key,)).fetchone()
    if head is None:
        raise rows.not_found_error(id)
    if not isinstance(head[0], int):
        raise rows.corrupt_error(id, after + 1, "the thread has no end position")
    found: list[dict[str, Any]] = []
    query, size = "SELECT seq, kind, at, data, sum FROM entries WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?", 0
    for row in db.execute(query, (key, after, most)):
        found.append(rows.entry_from_row(id, after + len(found) + 1, row))
        size += len(row[3])
        if size >= rows.BATCH_BYTES:
            return found
    if len(found) < most and after + len(found) < head[0]:
        raise rows.corrupt_error(id, after + len(found) + 1, "it is missing")
    if found and found[-1]["seq"] > head[0]:
        raise rows.corrupt_error(id, found[-1]["seq"], f"the thread ends at {head[0]}")
    return found


def list_inbox(db: sqlite3.Connection, owner: str, id: str) -> list[Queued]:
    key, queued = find_thread(db, owner, id, "key, queued")
    query = "SELECT position, kind, at, data, sum FROM inbox WHERE thread = ? ORDER BY position"
    found = [rows.inbox_item_from_row(id, row) for row in db.execute(query, (key,))]
    if len(found) != queued:
        raise StoreError(f"thread {id}: {queued} are queued, and {len(found)} are there: it is damaged", "corrupt")
    return found


def put_blob(db: sqlite3.Connection, owner: str, id: str, name: str, data: bytes) -> None:
    (key,) = find_thread(db, owner, id, "key")
    if db.execute("SELECT 1 FROM blobs WHERE thread = ? AND sha256 = ?", (key, name)).fetchone():
        return
    query = "SELECT coalesce(sum(length(data)), 0) FROM blobs WHERE thread = ?"
    rows.check_blob_size(id, data, db.execute(query, (key,)).fetchone()[0])
    db.execute("INSERT INTO blobs (thread, sha256, data) VALUES (?, ?, ?)", (key, name, data))
