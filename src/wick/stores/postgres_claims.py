"""Claims of threads by the servers of a cluster, and the expiry of questions from before it had a column.

A server claims its share of the threads that can be resumed: as many as it lacks to hold as many as the others,
weighted by their capacity. One statement finds, locks and leases them. Threads that another server is claiming are
skipped. Runs follow their files: a server claims all threads whose workspace it has, and no thread whose workspace is
in use elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from wick.protocols import Lease, Summary
from wick.stores import rows
from wick.stores.postgres_pool import Connection
from wick.stores.postgres_queries import HOLDER, NOW, SEEN_SECONDS, SERVER, SUMMARY, fetch_rows, summary_from_row
from wick.stores.postgres_search import like_pattern
from wick.stores.postgres_workspaces import IN_USE
from wick.stores.process_identity import has_ended

START_SECONDS = 0.5  # in which the server that has received a message starts its run
UNLIMITED = 1000  # the weight of a server without a capacity

# `found` are the threads with a lease, and those that need a server. A thread that waits for an answer is only in it
# after its question has expired. `t.fence` is compared again after the row is locked: another server may have
# claimed it since the statement began.
CLAIM = f"""
WITH clock AS MATERIALIZED (
    SELECT {NOW} AS now
), members AS MATERIALIZED (
    SELECT id, CASE capacity WHEN 0 THEN {UNLIMITED} ELSE capacity END AS weight FROM servers, clock
    WHERE seen > now - {SEEN_SECONDS} AND NOT draining
), found AS MATERIALIZED (
    SELECT key, fence, {SERVER} AS server, {HOLDER} AS holder,
        run, asking, queued, expires, owner, id, last, meta, updated
    FROM threads WHERE holder <> '' OR queued > 0 OR (run <> '' AND asking = 0)
    UNION ALL
    SELECT key, fence, NULL, '', run, asking, queued, expires, owner, id, last, meta, updated
    FROM threads, clock WHERE asking > 0 AND expires <= now AND NOT (holder <> '' OR queued > 0)
), held AS MATERIALIZED (
    SELECT server, substring(holder from '^.*:') AS process, holder LIKE ANY (%(ended)s::text[]) AS ended
    FROM found WHERE holder <> ''
), resumable AS MATERIALIZED (
    SELECT key, fence, coalesce(w.place = %(place)s, false) AS is_own
    FROM clock, found LEFT JOIN workspaces w ON w.owner = found.owner AND w.agent = found.meta::json ->> 'agent'
    WHERE (holder = '' OR holder LIKE ANY (%(ended)s::text[])) AND (run <> '' OR queued > 0)
        AND (queued = 0 OR updated <= now - %(delay)s)
        AND (asking = 0 OR expires <= now OR EXISTS (
            SELECT 1 FROM inbox WHERE inbox.thread = found.key AND inbox.kind = 'answer'))
        AND meta::json -> 'agent' IS NOT NULL AND meta::json -> 'parent' IS NULL
        AND NOT EXISTS (
            SELECT 1 FROM unnest(%(owners)s::text[], %(ids)s::text[], %(lasts)s::bigint[], %(queues)s::bigint[])
                AS skipped (owner, id, last, queued)
            WHERE found.owner = skipped.owner AND found.id = skipped.id AND found.last = skipped.last
                AND found.queued = skipped.queued)
        AND (w.place IS NULL OR w.place = %(place)s OR NOT {IN_USE})
), share AS (
    SELECT CASE WHEN mine.weight IS NULL THEN %(capacity)s ELSE least(%(capacity)s, own.number + greatest(0, ceil(
        ((SELECT count(*) FROM held JOIN members ON members.id = held.server WHERE NOT ended)
            + (SELECT count(*) FROM resumable))::numeric
        * mine.weight / (SELECT sum(weight) FROM members)
    ) - (SELECT count(*) FROM held WHERE server = %(server)s AND NOT ended) - own.number)) END::bigint AS size
    FROM (SELECT (SELECT weight FROM members WHERE id = %(server)s) AS weight) AS mine,
        (SELECT count(*) AS number FROM resumable WHERE is_own) AS own
), picked AS (
    SELECT t.key FROM threads t JOIN resumable ON resumable.key = t.key WHERE t.fence = resumable.fence
    ORDER BY resumable.is_own DESC, t.created, t.key LIMIT (SELECT size FROM share) FOR UPDATE OF t SKIP LOCKED
), claimed AS (
    UPDATE threads SET fence = nextval('fences'), holder = %(holder)s, until = {NOW} + %(seconds)s FROM picked
    WHERE threads.key = picked.key RETURNING threads.*
)
SELECT ARRAY(SELECT DISTINCT process FROM held WHERE process IS NOT NULL AND NOT ended) AS processes,
    claimed.fence, claimed.until, {SUMMARY}
FROM (SELECT 1) AS one LEFT JOIN claimed ON true ORDER BY claimed.created, claimed.key
"""


async def claim_threads(
    connection: Connection,
    holder: str,
    server: str,
    place: str,
    capacity: int,
    seconds: float,
    skip: Sequence[Summary],
) -> list[Lease]:
    """Claim threads for a server, also those of processes of this machine that have ended."""
    given: dict[str, Any] = {
        "holder": holder,
        "server": server,
        "place": place,
        "capacity": capacity,
        "seconds": seconds,
        "delay": START_SECONDS if server else 0.0,
        "ended": [],
        "owners": [head.owner for head in skip],
        "ids": [head.id for head in skip],
        "lasts": [head.last for head in skip],
        "queues": [head.queued for head in skip],
    }
    leases: list[Lease] = []
    while True:
        found = await fetch_rows(connection, CLAIM, given)
        for _, fence, until, *row in found:
            if fence is not None:
                head = summary_from_row(row)
                leases.append(Lease(fence, holder, until, head, None if head.queued else ()))
        ended = [like_pattern(process)[1:] for process in found[0][0] if has_ended(f"{process}x")]
        given["capacity"] = capacity - len(leases)
        if not ended or given["capacity"] <= 0:
            return leases
        given["ended"] = given["ended"] + ended


async def fill_expiry(connection: Connection) -> None:
    """Store when open questions expire that a server of an earlier version has asked."""
    for (key,) in await fetch_rows(connection, "SELECT key FROM threads WHERE asking > 0 AND expires IS NULL", ()):
        query = (
            "SELECT q.id, e.data FROM questions q JOIN entries e ON e.thread = q.thread AND e.kind = 'asked' "
            "WHERE q.thread = %s AND q.state = 'open' ORDER BY e.seq"
        )
        expires: dict[str, float] = {}
        for id, data in await fetch_rows(connection, query, (key,)):
            asked = rows.decode_json(data)
            if asked["id"] == id:
                expires[id] = rows.question_expiry(asked)
        async with connection.transaction():
            for id, at in expires.items():
                query = "UPDATE questions SET expires = %s WHERE thread = %s AND id = %s"
                await connection.execute(query, (at, key, id))
            query = "UPDATE threads SET expires = %s WHERE key = %s"
            await connection.execute(query, (min(expires.values(), default=inf), key))
