"""The queries of the Postgres store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wick.protocols import Hit, Queued, Summary
from wick.stores import rows
from wick.stores.postgres_pool import Connection

NOW = "extract(epoch FROM clock_timestamp())::float8"
SEEN_SECONDS = 3.0  # after which a server without a heartbeat counts as dead
SERVER = r"substring(holder from ':([a-z0-9]+)\.[a-z0-9]+$')"  # NULL if the holder is not a server of a cluster
IS_SEEN = f"EXISTS (SELECT 1 FROM servers WHERE servers.id = {SERVER} AND servers.seen > {NOW} - {SEEN_SECONDS})"
HOLDER = f"CASE WHEN until > {NOW} AND ({SERVER} IS NULL OR {IS_SEEN}) THEN holder ELSE '' END"  # of a live lease
FIRST_EXPIRY = (  # of the open questions of a thread; NULL if one is unknown
    "(SELECT CASE WHEN bool_or(q.expires IS NULL) THEN NULL ELSE coalesce(min(q.expires), 'infinity') END "
    "FROM questions q WHERE q.thread = key AND q.state = 'open')"
)
_UNLAPSED = f"FROM questions q WHERE q.thread = key AND q.state = 'open' AND (q.expires IS NULL OR q.expires > {NOW})"
SUMMARY = (
    "owner, id, title, meta, created, updated, last, run, "
    f"CASE WHEN asking > 0 AND expires <= {NOW} THEN (SELECT count(*) {_UNLAPSED}) ELSE asking END, queued, {HOLDER}"
)
HAS_UNLAPSED = f"(expires IS NULL OR expires > {NOW} OR EXISTS (SELECT 1 {_UNLAPSED}))"

APPEND = f"""
WITH t AS (
    UPDATE threads SET last = %(last)s, updated = {NOW}, run = coalesce(%(run)s, run),
        title = CASE title WHEN '' THEN %(title)s ELSE title END, asking = CASE WHEN %(over)s THEN 0 ELSE asking END,
        holder = CASE WHEN %(release)s THEN '' ELSE holder END, until = CASE WHEN %(release)s THEN 0 ELSE until END,
        queued = queued - cardinality(%(took)s::bigint[])
    WHERE owner = %(owner)s AND id = %(id)s AND fence = %(fence)s AND holder <> '' AND last = %(expect)s
        AND (SELECT count(*) FROM inbox i WHERE i.thread = key AND i.position = ANY(%(took)s::bigint[]))
            = cardinality(%(took)s::bigint[])
    RETURNING key, inbox, {SUMMARY}
), e AS (
    INSERT INTO entries (thread, seq, kind, at, data, sum, text)
    SELECT t.key, n.* FROM t, unnest(
        %(seqs)s::bigint[], %(kinds)s::text[], %(ats)s::float8[], %(datas)s::bytea[], %(sums)s::bigint[],
        %(texts)s::text[]) AS n
), q AS (
    UPDATE questions SET state = 'over' FROM t WHERE %(over)s AND thread = t.key AND state = 'open'
), i AS (
    DELETE FROM inbox USING t WHERE inbox.thread = t.key AND inbox.position = ANY(%(took)s::bigint[])
)
SELECT * FROM t
"""

# A new thread with its lease, and messages in its inbox.
START = f"""
WITH t AS (
    INSERT INTO threads (owner, id, title, meta, created, updated, inbox, queued, fence, holder, until)
    SELECT %(owner)s, %(id)s, '', %(meta)s, now, now, %(count)s, %(count)s, nextval('fences'), %(holder)s,
        now + %(seconds)s FROM (SELECT {NOW} AS now) AS clock
    ON CONFLICT (owner, id) DO NOTHING RETURNING key, fence, until, {SUMMARY}
), i AS (
    INSERT INTO inbox (thread, position, kind, at, data, sum)
    SELECT t.key, n.position, 'message', t.created, n.data, n.sum
    FROM t, unnest(%(datas)s::bytea[], %(sums)s::bigint[]) WITH ORDINALITY AS n (data, sum, position)
)
SELECT * FROM t
"""

ENQUEUE = f"""
WITH t AS (
    UPDATE threads SET inbox = inbox + 1, queued = queued + 1, updated = {NOW}
    WHERE owner = %(owner)s AND id = %(id)s RETURNING key, last, inbox, updated, holder <> '' AS held
), i AS (
    INSERT INTO inbox (thread, position, kind, at, data, sum)
    SELECT key, inbox, %(kind)s, updated, %(data)s, %(sum)s FROM t
)
SELECT inbox, last, held FROM t
"""

# A thread that another transaction has locked is left out: it must not delay the renewal of all other leases.
RENEW_ALL = f"""
WITH held AS (
    SELECT t.key FROM threads t
    JOIN unnest(%(owners)s::text[], %(ids)s::text[], %(fences)s::bigint[]) AS mine (owner, id, fence)
        ON t.owner = mine.owner AND t.id = mine.id AND t.fence = mine.fence
    WHERE t.holder <> '' FOR UPDATE OF t SKIP LOCKED
)
UPDATE threads SET until = {NOW} + %(seconds)s FROM held WHERE threads.key = held.key
RETURNING owner, id, fence, holder, until
"""

# One statement returns the thread as it is afterwards, also if the lease was lost.
RELEASE = f"""
UPDATE threads SET holder = CASE fence WHEN %(fence)s THEN '' ELSE holder END,
    until = CASE fence WHEN %(fence)s THEN 0 ELSE until END
WHERE owner = %(owner)s AND id = %(id)s RETURNING {SUMMARY}
"""

EXPIRE = f"""
WITH old AS (
    SELECT key FROM threads t WHERE updated <= {NOW} - %(idle)s AND run = '' AND asking = 0 AND queued = 0
        AND NOT (holder <> '' AND until > {NOW}) AND (%(owner)s::text = '' OR owner = %(owner)s::text)
        AND NOT EXISTS (
            SELECT 1 FROM threads above WHERE above.owner = t.owner AND above.id = t.meta::json ->> 'parent')
    ORDER BY updated LIMIT %(limit)s FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM threads USING old WHERE threads.key = old.key RETURNING owner, id
"""

# The key is given after the first batch: a thread that was deleted and created again is another one.
BATCH = """
SELECT t.key, t.last, e.seq, e.kind, e.at, e.data, e.sum FROM threads t LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT *, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before FROM (
            SELECT seq, kind, at, data, sum FROM entries WHERE thread = t.key AND seq > %(after)s
            ORDER BY seq LIMIT %(most)s) AS next) AS sized
    WHERE before < %(bytes)s) AS e ON true
WHERE t.owner = %(owner)s AND t.id = %(id)s AND t.key = coalesce(%(key)s::bigint, t.key) ORDER BY e.seq
"""
INBOX = ", ".join(  # of a thread, as columns of its row
    f"ARRAY(SELECT i.{column} FROM inbox i WHERE i.thread = key ORDER BY i.position)"
    for column in ("position", "kind", "at", "data", "sum")
)


async def fetch_rows(connection: Connection, query: str, given: Any) -> list[Any]:
    return await (await connection.execute(query, given)).fetchall()


async def find_thread(connection: Connection, owner: str, id: str, columns: str, lock: str = "") -> Any:
    rows.check_names(owner, id)
    query = f"SELECT {columns} FROM threads WHERE owner = %s AND id = %s {lock}"
    for row in await fetch_rows(connection, query, (owner, id)):
        return row
    raise rows.not_found_error(id)


async def fetch_inbox(connection: Connection, owner: str, id: str) -> list[Queued]:
    rows.check_names(owner, id)
    query = (
        "SELECT i.position, i.kind, i.at, i.data, i.sum FROM threads t LEFT JOIN inbox i ON i.thread = t.key "
        "WHERE t.owner = %s AND t.id = %s ORDER BY i.position"
    )
    found = await fetch_rows(connection, query, (owner, id))
    if not found:
        raise rows.not_found_error(id)
    return [rows.inbox_item_from_row(id, row) for row in found if row[0] is not None]


def summary_from_row(row: Sequence[Any]) -> Summary:
    owner, id, title, meta, created, updated, last, run, asking, queued, holder = row
    about = rows.decode_json(meta.encode())
    return Summary(owner, id, title, about, created, updated, last, run, asking, queued, rows.is_live_holder(holder))


async def create_thread(connection: Connection, owner: str, id: str, title: str, meta: str) -> Summary:
    rows.check_thread_id(id)
    query = (
        "INSERT INTO threads (owner, id, title, meta, created, updated) "
        f"SELECT %s, %s, %s, %s, now, now FROM (SELECT {NOW} AS now) AS clock "
        f"ON CONFLICT (owner, id) DO NOTHING RETURNING {SUMMARY}"
    )
    for row in await fetch_rows(connection, query, (owner, id, title, meta)):
        return summary_from_row(row)
    raise rows.exists_error(id)


async def copy_thread(connection: Connection, key: int, new_key: int, at: int, history: rows.PreparedAppend) -> None:
    await connection.execute(
        "INSERT INTO entries (thread, seq, kind, at, data, sum, text) "
        "SELECT %s, seq, kind, at, data, sum, text FROM entries WHERE thread = %s AND seq <= %s",
        (new_key, key, at),
    )
    await connection.execute(
        "INSERT INTO blobs (thread, sha256, data) SELECT %s, sha256, data FROM blobs WHERE thread = %s", (new_key, key)
    )
    asked = rows.find_open_questions(history.questions)
    await connection.execute(
        "INSERT INTO questions (thread, id, state, expires) "
        "SELECT %s, id, 'open', expires FROM unnest(%s::text[], %s::float8[]) AS asked (id, expires)",
        (new_key, asked, [history.expires[question] for question in asked]),
    )
    await connection.execute(
        f"UPDATE threads SET last = %s, run = %s, asking = %s, expires = {FIRST_EXPIRY} WHERE key = %s",
        (at, history.run or "", len(asked), new_key),
    )


async def explain_failed_append(
    connection: Connection,
    owner: str,
    id: str,
    prepared: rows.PreparedAppend,
    expect: int,
    fence: int,
    took: Sequence[int],
    released: bool,
) -> int:
    """Raise the reason of a failed append; return its last entry if it is a retry that is stored already."""
    key, last, its_fence, holder = await find_thread(connection, owner, id, "key, last, fence, holder")
    if its_fence != fence or not (holder or (released and last == prepared.last)):
        raise rows.fenced_error(id)
    query = "SELECT seq, kind, at, data, sum FROM entries WHERE thread = %s AND seq > %s ORDER BY seq LIMIT %s"
    if (
        last == prepared.last
        and await fetch_rows(connection, query, (key, expect, len(prepared.rows))) == prepared.rows
    ):
        return prepared.last
    if last == expect:
        queued = await fetch_rows(connection, "SELECT position FROM inbox WHERE thread = %s", (key,))
        for position in took:
            if (position,) not in queued:
                raise rows.not_queued_error(id, position)
    raise rows.conflict_error(id, expect, last)


async def update_questions(
    connection: Connection, key: int, id: str, prepared: rows.PreparedAppend, took: Sequence[int]
) -> None:
    """Update the states of questions. `took` are the positions of the inbox items that the append consumes."""
    for step, question in prepared.questions:
        if step == "asked":
            await connection.execute(
                "INSERT INTO questions (thread, id, state, expires) VALUES (%s, %s, 'open', %s) "
                "ON CONFLICT (thread, id) DO UPDATE SET state = 'open', position = NULL, expires = excluded.expires "
                f"WHERE {rows.UNANSWERED}",
                (key, question, prepared.expires[question]),
            )
        elif step == "over":
            await connection.execute("UPDATE questions SET state = 'over' WHERE thread = %s AND state = 'open'", (key,))
        else:  # answered by the holder or by a queued answer; the first answer counts
            query = "SELECT state, position FROM questions WHERE thread = %s AND id = %s"
            found = await fetch_rows(connection, query, (key, question))
            if any(state == "answered" and position not in took for state, position in found):
                raise rows.answered_error(id, question)
            query = "UPDATE questions SET state = 'answered', position = NULL WHERE thread = %s AND id = %s"
            await connection.execute(query, (key, question))
    await connection.execute(
        f"UPDATE threads SET expires = {FIRST_EXPIRY}, "
        "asking = (SELECT count(*) FROM questions WHERE thread = key AND state = 'open') WHERE key = %s",
        (key,),
    )


async def read_batch(
    connection: Connection, owner: str, id: str, key: int | None, after: int, most: int
) -> tuple[int, list[dict[str, Any]]]:
    """Return the key of a thread, and some of its entries."""
    rows.check_names(owner, id)
    given = {"owner": owner, "id": id, "key": key, "after": after, "most": most, "bytes": rows.BATCH_BYTES}
    found = await fetch_rows(connection, BATCH, given)
    if not found:
        raise rows.not_found_error(id)
    key, last, some = found[0][0], found[0][1], [row[2:] for row in found if row[2] is not None]
    if not some and after < last:
        raise rows.corrupt_error(id, after + 1, "it is missing")
    return key, [rows.entry_from_row(id, after + number, row) for number, row in enumerate(some, 1)]


def inbox_from_columns(id: str, columns: Sequence[Sequence[Any]]) -> list[Queued]:
    return [rows.inbox_item_from_row(id, row) for row in zip(*columns, strict=True)]


def hit_from_row(row: Sequence[Any], word: str) -> Hit:
    id, title, seq, kind, at, data, sum = row
    text = rows.message_text(rows.entry_from_row(id, seq, (seq, kind, at, data, sum))["data"])
    return Hit(id, title, seq, at, rows.make_excerpt(text, word))
