"""Connections to a Postgres server: a pool and a listener per event loop, and schema migration."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any
from weakref import WeakKeyDictionary

from wick.errors import MissingExtra, StoreError
from wick.protocols import News
from wick.stores.postgres_notifier import Notice, ThreadNotifier
from wick.stores.watchers import ThreadKey, ThreadWatchers

try:
    import psycopg
    from psycopg import sql
    from psycopg_pool import AsyncConnectionPool, PoolTimeout
except ImportError:
    raise MissingExtra("postgres", "psycopg", "the Postgres store") from None

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Pool = AsyncConnectionPool[Connection]

CONNECTIONS = 10
RESYNC_SECONDS = 30.0  # interval of rereading watched threads, in case of lost notifications
LISTENER_IDLE_SECONDS = 10.0  # after the last lease or watch, for which the listener stays connected
RECONNECT_SECONDS = (0.1, 5.0)  # first and longest pause before the listener reconnects

# Each step migrates the schema by one version. A released step is never changed.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE SEQUENCE fences",
        """CREATE TABLE threads (
            key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL, title text NOT NULL, meta text NOT NULL,
            created float8 NOT NULL, updated float8 NOT NULL, last bigint NOT NULL DEFAULT 0,
            run text NOT NULL DEFAULT '', asking bigint NOT NULL DEFAULT 0, inbox bigint NOT NULL DEFAULT 0,
            queued bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0, holder text NOT NULL DEFAULT '',
            until float8 NOT NULL DEFAULT 0, UNIQUE (owner, id)) WITH (fillfactor = 80)""",
        "CREATE INDEX ON threads (created, key) WHERE run <> '' OR queued > 0",
        """CREATE TABLE entries (
            thread bigint NOT NULL REFERENCES threads ON DELETE CASCADE, seq bigint NOT NULL, kind text NOT NULL,
            at float8 NOT NULL, data bytea NOT NULL, sum bigint NOT NULL, text text, PRIMARY KEY (thread, seq))""",
        """CREATE TABLE questions (
            thread bigint NOT NULL REFERENCES threads ON DELETE CASCADE, id text COLLATE "C" NOT NULL,
            state text NOT NULL, position bigint, PRIMARY KEY (thread, id))""",
        """CREATE TABLE inbox (
            thread bigint NOT NULL REFERENCES threads ON DELETE CASCADE, position bigint NOT NULL, kind text NOT NULL,
            at float8 NOT NULL, data bytea NOT NULL, sum bigint NOT NULL, PRIMARY KEY (thread, position))""",
        """CREATE TABLE blobs (
            thread bigint NOT NULL REFERENCES threads ON DELETE CASCADE, sha256 text NOT NULL, data bytea NOT NULL,
            PRIMARY KEY (thread, sha256))""",
    ),
    (
        """CREATE TABLE keyed (
            thread bigint NOT NULL REFERENCES threads ON DELETE CASCADE, key text COLLATE "C" NOT NULL,
            position bigint NOT NULL, PRIMARY KEY (thread, key))""",
    ),
    (  # one index for each order of a list of threads, and for the lists that are usually short
        "CREATE INDEX ON threads (owner, updated, key)",
        "CREATE INDEX ON threads (owner, created, key)",
        "CREATE INDEX ON threads (owner, updated, key) WHERE run <> ''",
        "CREATE INDEX ON threads (owner, updated, key) WHERE asking > 0",
    ),
    (  # claims: NULL is the expiry of questions that an earlier version has asked
        "ALTER TABLE questions ADD COLUMN expires float8",
        "ALTER TABLE threads ADD COLUMN expires float8",
        """CREATE TABLE servers (
            id text COLLATE "C" PRIMARY KEY, host text NOT NULL, version text NOT NULL, capacity bigint NOT NULL,
            running bigint NOT NULL, draining boolean NOT NULL, started float8 NOT NULL, seen float8 NOT NULL)""",
        """CREATE INDEX threads_claimable ON threads (created, key)
            WHERE holder <> '' OR queued > 0 OR (run <> '' AND asking = 0)""",
        "CREATE INDEX threads_lapsing ON threads (expires) WHERE asking > 0",
    ),
    (  # workspaces of one machine: where they are, and where its servers are reached
        "ALTER TABLE servers ADD COLUMN place text NOT NULL DEFAULT ''",
        "ALTER TABLE servers ADD COLUMN address text NOT NULL DEFAULT ''",
        """CREATE TABLE workspaces (
            owner text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL, place text NOT NULL,
            snapshot text NOT NULL DEFAULT '', changed boolean NOT NULL DEFAULT false, moved float8 NOT NULL,
            PRIMARY KEY (owner, agent))""",
    ),
    (  # when the recorded snapshot was taken, so that a later one is never replaced by it
        "ALTER TABLE workspaces ADD COLUMN saved float8 NOT NULL DEFAULT 0",
    ),
    (  # to count the running threads of an owner, for the quota of runs
        "CREATE INDEX threads_held ON threads (owner) WHERE holder <> ''",
    ),
)
# Servers that know this version can still work with the schema: later steps only add to it. A server of an earlier
# version runs beside the new ones while they are upgraded.
COMPATIBLE_VERSION = 3


class LoopPool:
    """The pool and the listener of a store in one event loop."""

    def __init__(self, conninfo: str, schema: str, size: int, timeout: float, watchers: ThreadWatchers) -> None:
        self._conninfo, self._schema, self._timeout, self._watchers = conninfo, schema, timeout, watchers
        self._size = size
        self.notifier = ThreadNotifier(channel_name(schema), watchers, self._send_notices)
        self.pool: Pool | None = None
        self.is_closed = False  # a later call of the store has another pool
        self._open_lock = asyncio.Lock()
        self._pool_holder: AsyncGenerator[Pool, None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._idle_timer: asyncio.TimerHandle | None = None

    async def _configure(self, connection: Connection) -> None:
        await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))

    async def ensure_ready(self) -> Pool:
        """Return the open pool, after migrating the schema."""
        if self.pool is not None:
            return self.pool
        async with self._open_lock:
            if self.pool is None:
                holder = self._hold_pool()
                pool = await anext(holder)
                try:
                    async with _take_connection(pool) as connection:
                        await migrate_schema(connection, self._schema)
                except BaseException:
                    await holder.aclose()
                    raise
                self.pool, self._pool_holder = pool, holder
            return self.pool

    async def _hold_pool(self) -> AsyncGenerator[Pool, None]:
        """Hold the pool open. An ending event loop closes its async generators, and so the pool."""
        pool: Pool = AsyncConnectionPool(
            self._conninfo,
            min_size=0,
            max_size=self._size,
            timeout=self._timeout,
            reconnect_timeout=self._timeout,
            open=False,
            configure=self._configure,
            kwargs={"autocommit": True, "connect_timeout": max(2, int(self._timeout))},
        )
        await pool.open()
        try:
            yield pool
        finally:
            await self.notifier.close()
            self.pool = None
            await self.stop_listening()
            await pool.close()

    async def close(self) -> None:
        await self.notifier.close()
        self.is_closed = True
        await self.stop_listening()
        if self._pool_holder is not None:
            await self._pool_holder.aclose()

    # -- news -------------------------------------------------------------------------------------------------------

    async def _send_notices(self, notices: Sequence[Notice]) -> None:
        if self.is_closed:
            return
        channels, payloads = zip(*notices, strict=True)
        query = "SELECT pg_notify(channel, payload) FROM unnest(%s::text[], %s::text[]) AS notice (channel, payload)"
        try:
            pool = await self.ensure_ready()
            connection = await pool.getconn()  # an ending event loop starts no async generators
            try:
                await connection.execute(query, ([*channels], [*payloads]))
            finally:
                await pool.putconn(connection)
        except PoolTimeout as error:
            raise StoreError(f"Postgres does not answer: {error}", "unavailable") from error
        except psycopg.Error as error:
            raise to_store_error(error, False) from error

    async def start_listening(self) -> None:
        """Start the listener and wait until it receives notifications."""
        if self.is_closed:
            return
        self._ensure_listener()
        with suppress(TimeoutError):  # the next query reports the error
            await asyncio.wait_for(self._listening.wait(), self._timeout)

    def listen_for_lease(self) -> None:
        """Start the listener for a new lease, also of a run too short for a watch, and do not wait for it.

        Without it, the changes that other processes ask for are unknown, and each append is sent to all of them.
        """
        if not self.is_closed:
            self._ensure_listener()
            self.stop_listening_if_idle()

    def _ensure_listener(self) -> None:
        if self._listener is None or self._listener.done():
            self._listening.clear()
            self._listener = asyncio.create_task(self._run_listener(), name="wick postgres listener")

    def stop_listening_if_idle(self) -> None:
        """Stop the listener unless there is a watch within a few seconds: each run has one, and connecting is slow."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()

        def stop() -> None:
            if not self._watchers and self._listener is not None:
                self._listener.cancel()
                self._listener = None

        self._idle_timer = asyncio.get_running_loop().call_later(LISTENER_IDLE_SECONDS, stop)

    async def stop_listening(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    async def _run_listener(self) -> None:
        pause, most = RECONNECT_SECONDS
        while True:
            with suppress(psycopg.Error, OSError):
                async with await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
                    await self._configure(connection)
                    try:
                        await self._receive_notifications(connection)
                    finally:
                        self.notifier.set_listening(False)
            await asyncio.sleep(pause)
            pause = min(2 * pause, most)

    async def _receive_notifications(self, connection: Connection) -> None:
        for channel in (self.notifier.channel, self.notifier.interest_channel):
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self.notifier.set_listening(True)
        self._listening.set()
        while True:
            watched = self._watchers.watched_keys()
            self.notifier.request_changes(watched)
            for key in watched:  # changes from before LISTEN, and those whose notification was lost
                self._watchers.notify(key, await fetch_news(connection, key))
            async for notice in connection.notifies(timeout=RESYNC_SECONDS):
                self.notifier.receive(notice.channel, notice.payload)


class LoopPools:
    """A pool for each event loop that uses the store; `run_sync` starts a new loop each time."""

    def __init__(self, conninfo: str, schema: str, size: int, timeout: float) -> None:
        self._options = conninfo, schema, size, timeout
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[LoopPool, ThreadWatchers]] = (
            WeakKeyDictionary()
        )

    def get_current(self) -> tuple[LoopPool, ThreadWatchers]:
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            watchers = ThreadWatchers()
            self._by_loop[loop] = LoopPool(*self._options, watchers), watchers
        return self._by_loop[loop]

    def get_notifier(self) -> ThreadNotifier:
        """Return the notifier of this event loop. If the store was closed since, it sends nothing."""
        found = self._by_loop.get(asyncio.get_running_loop())
        if found is not None:
            return found[0].notifier
        closed = LoopPool(*self._options, ThreadWatchers())
        closed.is_closed = True
        return closed.notifier

    @asynccontextmanager
    async def connection(self, *, writes: bool) -> AsyncIterator[Connection]:
        loop_pool, _ = self.get_current()
        try:
            pool = await loop_pool.ensure_ready()
            async with _take_connection(pool) as connection:
                yield connection
        except PoolTimeout as error:
            raise StoreError(
                f"Postgres does not answer: {error}; is it running, and does the database exist?",
                "unavailable",
                "the server's database does not answer",
            ) from error
        except psycopg.Error as error:
            raise to_store_error(error, writes) from error

    async def close(self) -> None:
        found = self._by_loop.pop(asyncio.get_running_loop(), None)
        if found is not None:
            loop_pool, watchers = found
            watchers.close()
            await loop_pool.close()


INCOMPATIBLE = "the server's database cannot be used by this version; its operator must update wick or restore it"


def pipeline(connection: Connection) -> AbstractAsyncContextManager[object]:
    """Send statements together until a result is fetched, if libpq can do so (version 14)."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()


def channel_name(schema: str) -> str:
    return f"wick_{schema}"


async def fetch_news(connection: Connection, key: ThreadKey) -> News | None:
    found = await connection.execute("SELECT last, inbox FROM threads WHERE owner = %s AND id = %s", key)
    row = await found.fetchone()
    return None if row is None else News(*row)


@asynccontextmanager
async def _take_connection(pool: Pool) -> AsyncIterator[Connection]:
    """Take a live connection from the pool; close those that a server restart has broken."""
    connection = await pool.getconn()
    while not _is_alive(connection):
        await connection.close()
        await pool.putconn(connection)
        connection = await pool.getconn()
    try:
        yield connection
    finally:
        await pool.putconn(connection)


def _is_alive(connection: Connection) -> bool:
    """Return True if the connection seems open, without a round trip to the server."""
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    try:
        for _ in range(10):  # pending messages come before the end of the stream
            if not waiting.poll(0):
                return True
            connection.pgconn.consume_input()
    except psycopg.Error:
        pass
    return False


async def migrate_schema(connection: Connection, schema: str) -> None:
    """Migrate the schema in one transaction, under an advisory lock."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('wick'), hashtext(%s))", (schema,))
        cursor = await connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (f'"{schema}"',))
        if not (await cursor.fetchone() or (False,))[0]:
            await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        cursor = await connection.execute(
            "SELECT to_regclass('version') IS NOT NULL, to_regclass('threads') IS NOT NULL, EXISTS (SELECT 1 FROM "
            "pg_attribute WHERE attrelid = to_regclass('version') AND attname = 'steps' AND NOT attisdropped)"
        )
        is_versioned, has_threads, has_steps = await cursor.fetchone() or (False, False, False)
        if has_threads and not is_versioned:
            message = f"the schema {schema} belongs to something else; name another one"
            raise StoreError(message, "incompatible", INCOMPATIBLE)
        # `version` is the version that a server must know; `steps` is the number of steps, unless it is the same.
        if not is_versioned:
            await connection.execute("CREATE TABLE version (version bigint NOT NULL, steps bigint)")
        elif not has_steps:
            await connection.execute("ALTER TABLE version ADD COLUMN steps bigint")
        cursor = await connection.execute("SELECT max(version), max(coalesce(steps, version)) FROM version")
        needed, version = (int(number or 0) for number in await cursor.fetchone() or (0, 0))
        if needed > len(STEPS):
            raise StoreError(
                f"the schema {schema} was written by a newer wick (version {needed}; this one knows {len(STEPS)}); "
                "update wick",
                "incompatible",
                INCOMPATIBLE,
            )
        if version >= len(STEPS):
            return
        for step in STEPS[version:]:
            for statement in step:
                await connection.execute(statement)
        await connection.execute("DELETE FROM version")
        await connection.execute("INSERT INTO version VALUES (%s, %s)", (COMPATIBLE_VERSION, len(STEPS)))


_ERROR_MEANINGS = {
    "53100": ("full", "its disk is full; free some space, and retry"),
    "25006": ("read_only", "it is read-only now: it may be a replica; connect to the primary"),
    "55P03": ("locked", "a row or table is locked by another transaction; try again"),
    "57014": ("locked", "the statement took longer than its time limit; try again"),
    "40001": ("locked", "other transactions changed the same rows; try again"),
    "40P01": ("locked", "transactions waited for each other (deadlock); try again"),
    "XX001": ("corrupt", "its data is damaged; restore it from a backup"),
    "XX002": ("corrupt", "an index is damaged; rebuild it"),
    "42501": ("read_only", "this user lacks a privilege; grant it to the user of the connection"),
    "23": ("corrupt", "its data is inconsistent; restore it from a backup"),
    "22": ("invalid", "it cannot store such a value"),
}


def to_store_error(error: psycopg.Error, writes: bool) -> StoreError:
    """Return the StoreError for an error of Postgres."""
    state = error.sqlstate or ""
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    unfit = isinstance(error, psycopg.DataError)  # such as a NUL in an id
    other = ("unavailable", "it is not there") if lost else ("invalid" if unfit else "failed", "it refused")
    code, meaning = _ERROR_MEANINGS.get(state) or _ERROR_MEANINGS.get(state[:2]) or other
    detail = " ".join(str(error).split())[:300]
    doubt = "; it may have been written or not: append exactly the same again, which is safe, or read the thread"
    unsure = code == "unavailable" and writes
    message = f"Postgres could not do it: {meaning} ({detail}){doubt if unsure else ''}"
    public = message if code == "invalid" else f"the server's database could not do it: {meaning}"
    return StoreError(message, code, public)
