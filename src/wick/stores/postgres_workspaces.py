"""Records of the workspaces of a cluster in Postgres: which place has the files, and their last snapshot.

A place is a folder of workspaces, which one server has, or several of one machine. A workspace moves only if no live
server at its place uses it: none takes runs, and none performs a run of it. Then no server of another place can write
the log of one of its runs.
"""

from __future__ import annotations

from wick.protocols import WorkspaceHome
from wick.stores.postgres_pool import Connection
from wick.stores.postgres_queries import NOW, SEEN_SECONDS, SERVER, fetch_rows

# of the row `w` of a workspace; a server that drains still performs runs
IN_USE = f"""EXISTS (
    SELECT 1 FROM servers s WHERE s.place = w.place AND s.seen > {NOW} - {SEEN_SECONDS} AND (NOT s.draining OR EXISTS (
        SELECT 1 FROM threads WHERE threads.owner = w.owner AND holder <> '' AND until > {NOW}
            AND {SERVER} = s.id AND meta::json ->> 'agent' = w.agent)))"""

FIND = f"""
SELECT w.place, w.snapshot, w.changed, {IN_USE}, coalesce(s.host, ''), coalesce(s.address, ''),
    coalesce(s.seen > {NOW} - {SEEN_SECONDS}, false), coalesce(s.draining, false)
FROM workspaces w LEFT JOIN LATERAL (
    SELECT * FROM servers WHERE servers.place = w.place
    ORDER BY seen > {NOW} - {SEEN_SECONDS} DESC, draining, seen DESC LIMIT 1) s ON true
WHERE w.owner = %(owner)s AND w.agent = %(agent)s"""

CREATE = f"""
INSERT INTO workspaces (owner, agent, place, moved) VALUES (%(owner)s, %(agent)s, %(place)s, {NOW})
ON CONFLICT DO NOTHING"""

# The leases of other places end with the move: a server that only seemed to be dead must not continue a run with its
# own copy of the files. `saved` is a time of the machine that has the files, so it starts again.
MOVE = f"""
WITH moved AS (
    UPDATE workspaces w SET place = %(place)s, snapshot = %(snapshot)s, changed = %(snapshot)s <> '', saved = 0,
        moved = {NOW}
    WHERE w.owner = %(owner)s AND w.agent = %(agent)s AND w.place = %(from)s AND w.snapshot = %(seen)s AND NOT {IN_USE}
    RETURNING owner, agent
), fenced AS (
    UPDATE threads t SET fence = nextval('fences'), holder = '', until = 0 FROM moved
    WHERE t.owner = moved.owner AND t.holder <> '' AND t.meta::json ->> 'agent' = moved.agent AND {SERVER} IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM servers s WHERE s.id = {SERVER} AND s.place = %(place)s)
)
SELECT 1 FROM moved"""

# of two snapshots the later one stays, in whichever order they are recorded
RECORD_CHANGE = """
UPDATE workspaces SET changed = true, saved = greatest(saved, %(at)s),
    snapshot = CASE WHEN %(at)s >= saved THEN coalesce(%(snapshot)s, snapshot) ELSE snapshot END
WHERE owner = %(owner)s AND agent = %(agent)s AND place = %(place)s RETURNING 1"""


async def find_workspace(connection: Connection, owner: str, agent: str, place: str) -> WorkspaceHome:
    """Return the record of a workspace; create it for a place if there is none."""
    given = {"owner": owner, "agent": agent, "place": place}
    found = await fetch_rows(connection, FIND, given)
    while not found:
        await connection.execute(CREATE, given)
        found = await fetch_rows(connection, FIND, given)
    return WorkspaceHome(*found[0])
