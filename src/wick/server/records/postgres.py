"""Records in Postgres, in the schema of the threads, shared by all servers of that database."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import orjson

from wick.server.records import DRAWN_SHARE, VERSION, VERSIONED_KINDS, Record, RecordSum, add_numbers, compute_draw
from wick.stores.postgres_pool import Connection, LoopPools, pipeline

CONNECTIONS = 5
WAIT_SECONDS = 10.0
NOW = "extract(epoch FROM clock_timestamp())"
ALIVE = f"(until = 0 OR until > {NOW})"
CREATE_STATEMENTS = (
    "SELECT pg_advisory_xact_lock(hashtext('wick records'))",
    """CREATE TABLE IF NOT EXISTS records (
        kind text COLLATE "C" NOT NULL, owner text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
        data text NOT NULL, until float8 NOT NULL, PRIMARY KEY (kind, owner, id))""",
    "CREATE INDEX IF NOT EXISTS records_by_id ON records (kind, id)",
    "CREATE INDEX IF NOT EXISTS records_ending ON records (until) WHERE until > 0",
)
PUT = (
    "INSERT INTO records VALUES (%s, %s, %s, %s, %s) ON CONFLICT (kind, owner, id) "
    "DO UPDATE SET data = excluded.data, until = excluded.until"
)
PUT_NEW = f"{PUT} WHERE NOT (records.until = 0 OR records.until > {NOW})"
# Several records, locked until the end of the transaction; those that do not exist are created.
LOCK = (
    "INSERT INTO records SELECT *, '{}', 0 FROM unnest(%s::text[], %s::text[], %s::text[]) "
    "ON CONFLICT (kind, owner, id) DO UPDATE SET kind = excluded.kind RETURNING kind, owner, id, data"
)
PUT_ALL = (
    "INSERT INTO records SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::float8[]) "
    "ON CONFLICT (kind, owner, id) DO UPDATE SET data = excluded.data, until = excluded.until"
)
RATE = "rate"  # kind of the token buckets of users
FILLED = (
    "least(%(burst)s::float8, (records.data::jsonb ->> 'left')::float8 "
    f"+ %(rate)s::float8 * ({NOW} - (records.data::jsonb ->> 'at')::float8))"
)
# One statement draws from a counter: concurrent draws wait for the lock of its row, and each sees the result of the
# one before. It is `compute_draw` in SQL; `drawn` returns the amount.
USED = "coalesce((records.data::jsonb ->> 'used')::bigint, 0)"
DRAW = f"""
    INSERT INTO records VALUES (%s, %s, %s, %s, 0) ON CONFLICT (kind, owner, id) DO UPDATE SET data = (
        SELECT (records.data::jsonb || jsonb_build_object('used', {USED} + amount, 'drawn', amount))::text
        FROM (SELECT greatest(%s::bigint, least(%s::bigint, (%s::bigint - {USED}) / {DRAWN_SHARE})) AS amount) AS draw)
    WHERE {USED} <= %s::bigint - %s::bigint RETURNING data::jsonb ->> 'drawn'"""
# A token bucket: it fills with the rate up to the burst, and one statement draws up to `size` whole tokens from it.
BUCKET = f"""
    INSERT INTO records VALUES ('{RATE}', %(owner)s, '', jsonb_build_object(
        'left', %(burst)s::float8 - %(size)s::float8, 'at', {NOW}, 'drawn', %(size)s::int)::text, {NOW} + %(seconds)s)
    ON CONFLICT (kind, owner, id) DO UPDATE SET until = excluded.until, data = (
        SELECT jsonb_build_object('left', filled - drawn, 'at', {NOW}, 'drawn', drawn)::text
        FROM (SELECT {FILLED} AS filled) AS bucket,
            LATERAL (SELECT least(%(size)s::int, floor(filled)::int) AS drawn) AS draw)
    WHERE {FILLED} >= 1 RETURNING (data::jsonb ->> 'drawn')::int"""


Place = tuple[str, str, str]  # kind, owner and id


class PostgresRecords:
    """Records in a Postgres table, which is created on first use."""

    def __init__(self, conninfo: str, *, schema: str, joins_store: bool = False) -> None:
        self.joins_lease, self.joins_release = False, joins_store  # a lease takes one statement and one round trip
        self._homes = LoopPools(conninfo, schema, CONNECTIONS, WAIT_SECONDS)
        self._schema_ready = False

    async def put(
        self,
        kind: str,
        owner: str,
        id: str,
        data: Mapping[str, Any],
        *,
        new: bool = False,
        until: float = 0.0,
        sums: Sequence[RecordSum] = (),
    ) -> bool:
        if sums:
            async with self._homes.connection(writes=True) as connection:
                await self._ensure_schema(connection)
                async with pipeline(connection):  # the pool rolls back a transaction that has failed
                    await connection.execute("BEGIN")
                    await self._put_with_sums(connection, (kind, owner, id), data, until, sums)
                    await connection.execute("COMMIT")
            return True
        return await self._write(PUT_NEW if new else PUT, (kind, owner, id, _encode(data), until), kind) > 0

    async def put_in(
        self,
        connection: Connection,
        kind: str,
        owner: str,
        id: str,
        data: Mapping[str, Any],
        sums: Sequence[RecordSum] = (),
        *,
        new: bool = False,
    ) -> bool:
        if sums:
            await self._put_with_sums(connection, (kind, owner, id), data, 0.0, sums)
            return True
        query = f"{PUT_NEW} RETURNING true" if new else PUT
        done = await connection.execute(query, (kind, owner, id, _encode(data), 0.0))
        return not new or await done.fetchone() is not None

    async def _put_with_sums(
        self, connection: Connection, place: Place, data: Mapping[str, Any], until: float, sums: Sequence[RecordSum]
    ) -> None:
        """Write a record and add sums, in two statements: one locks all records, the other one writes them."""
        places = sorted({place, *((one.kind, one.owner, one.id) for one in sums)})  # one order for all servers
        found = await connection.execute(LOCK, [[*column] for column in zip(*places, strict=True)])
        known = {(kind, owner, id): orjson.loads(text) for kind, owner, id, text in await found.fetchall()}
        changed = {place: (_encode(data), until)}
        for one in sums if known[place] != orjson.loads(_encode(data)) else ():
            its = one.kind, one.owner, one.id
            known[its] = add_numbers(known[its], one.numbers, one.facts)
            changed[its] = _encode(known[its]), 0.0
        rows = [(*its, *row) for its, row in changed.items()]
        await connection.execute(PUT_ALL, [[*column] for column in zip(*rows, strict=True)])

    async def get(self, kind: str, owner: str, id: str) -> dict[str, Any] | None:
        query = f"SELECT data FROM records WHERE kind = %s AND owner = %s AND id = %s AND {ALIVE}"
        found = await self._read(query, (kind, owner, id))
        return orjson.loads(found[0][0]) if found else None

    async def find(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        query = f"SELECT owner, data FROM records WHERE kind = %s AND id = %s AND {ALIVE} ORDER BY owner LIMIT 1"
        found = await self._read(query, (kind, id))
        return (found[0][0], orjson.loads(found[0][1])) if found else None

    async def list(
        self, kind: str, owner: str | None = None, *, after: str = "", limit: int = 1000
    ) -> builtins.list[Record]:
        first = (owner, after) if owner is not None else tuple(after.split("/", 1)) if after else ("", "")
        mine = "" if owner is None else "AND owner = %s "
        query = (
            f"SELECT owner, id, data FROM records WHERE kind = %s {mine}AND (owner, id) > (%s, %s) AND {ALIVE} "
            "ORDER BY owner, id LIMIT %s"
        )
        given = (kind, *(() if owner is None else (owner,)), *first, limit)
        return [Record(owner, id, orjson.loads(data)) for owner, id, data in await self._read(query, given)]

    async def delete(self, kind: str, owner: str, id: str) -> bool:
        query = f"DELETE FROM records WHERE kind = %s AND owner = %s AND id = %s AND {ALIVE}"
        return await self._write(query, (kind, owner, id), kind) > 0

    async def add(
        self, kind: str, owner: str, id: str, numbers: Mapping[str, float], facts: Mapping[str, Any] | None = None
    ) -> None:
        async with self._homes.connection(writes=True) as connection:
            await self._ensure_schema(connection)
            async with connection.transaction():
                known = await self._lock_record(connection, kind, owner, id)
                data = _encode(add_numbers(known, numbers, facts or {}))
                await connection.execute(PUT, (kind, owner, id, data, 0.0))
                await _change_version(connection, kind)

    async def _lock_record(self, connection: Connection, *place: str) -> dict[str, Any]:
        """Return the data of a record, locked until the end of the transaction; create it if it does not exist."""
        make = "INSERT INTO records VALUES (%s, %s, %s, '{}', 0) ON CONFLICT DO NOTHING"
        await connection.execute(make, place)
        query = "SELECT data FROM records WHERE kind = %s AND owner = %s AND id = %s FOR UPDATE"
        row = await (await connection.execute(query, place)).fetchone()
        known: dict[str, Any] = orjson.loads(row[0]) if row else {}
        return known

    async def _add(self, connection: Connection, given: RecordSum) -> None:
        place = given.kind, given.owner, given.id
        known = await self._lock_record(connection, *place)
        await connection.execute(PUT, (*place, _encode(add_numbers(known, given.numbers, given.facts)), 0.0))

    async def replace(self, kind: str, owner: str, id: str, before: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        query = f"UPDATE records SET data = %s WHERE kind = %s AND owner = %s AND id = %s AND data = %s AND {ALIVE}"
        return await self._write(query, (_encode(data), kind, owner, id, _encode(before)), kind) > 0

    async def draw(self, kind: str, owner: str, id: str, least: int, most: int, limit: int) -> int:
        first = compute_draw(0, least, most, limit)
        if not first:
            return 0
        data = _encode({"used": first, "drawn": first})
        found = await self._read(DRAW, (kind, owner, id, data, least, most, limit, limit, least), kind)
        return int(found[0][0]) if found else 0

    async def draw_requests(self, owner: str, rate: float, burst: int, size: int) -> int:
        """Draw up to `size` requests from the token bucket of a user; return 0 if it is empty."""
        given = {"owner": owner, "rate": rate, "burst": burst, "size": size, "seconds": burst / rate + 60}
        found = await self._read(BUCKET, given, RATE)
        return int(found[0][0]) if found else 0

    async def take(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        query = f"DELETE FROM records WHERE kind = %s AND id = %s AND {ALIVE} RETURNING owner, data"
        found = await self._read(query, (kind, id), kind)
        return (found[0][0], orjson.loads(found[0][1])) if found else None

    async def version(self) -> str:
        found = await self._read("SELECT data FROM records WHERE kind = %s AND owner = %s AND id = %s", VERSION)
        return str(found[0][0]) if found else ""

    async def check(self) -> None:
        """Raise a StoreError if the table cannot be read."""
        await self._read("SELECT kind, owner, id, data, until FROM records LIMIT 1", ())

    async def close(self) -> None:
        """Delete expired records, and close the connections of this event loop."""
        if self._schema_ready:
            await self._write(f"DELETE FROM records WHERE until > 0 AND until <= {NOW}", (), "")
        await self._homes.close()

    async def _read(self, query: str, given: Any, written: str | None = None) -> builtins.list[Any]:
        """Return the rows of a query; `written` is the kind of the records that it changes."""
        async with self._homes.connection(writes=written is not None) as connection:
            await self._ensure_schema(connection)
            async with connection.transaction() if written in VERSIONED_KINDS else nullcontext():
                found = await (await connection.execute(query.encode(), given)).fetchall()
                await _change_version(connection, written)
                return found

    async def _write(self, query: str, given: Any, kind: str) -> int:
        async with self._homes.connection(writes=True) as connection:
            await self._ensure_schema(connection)
            async with connection.transaction() if kind in VERSIONED_KINDS else nullcontext():
                count = (await connection.execute(query.encode(), given)).rowcount
                await _change_version(connection, kind)
                return count

    async def _ensure_schema(self, connection: Connection) -> None:
        if self._schema_ready:
            return
        async with connection.transaction():
            for statement in CREATE_STATEMENTS:
                await connection.execute(statement.encode())
        self._schema_ready = True


async def _change_version(connection: Connection, kind: str | None) -> None:
    if kind in VERSIONED_KINDS:
        await connection.execute(PUT, (*VERSION, f'"{uuid4().hex}"', 0.0))


def _encode(data: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(data)).decode()
