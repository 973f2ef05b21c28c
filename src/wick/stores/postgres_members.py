"""Membership of servers in the cluster of a Postgres store: a row per server, updated by a heartbeat.

The heartbeat has its own OS thread and its own connection: a blocked event loop does not stop it, the end of the
process does. The leases of a server that was not seen for some seconds lapse.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from threading import Event, Thread
from time import monotonic
from typing import Any

import psycopg
from psycopg import sql

from wick.protocols import ServerInfo
from wick.stores.postgres_pool import Connection
from wick.stores.postgres_queries import NOW, SEEN_SECONDS, fetch_rows
from wick.stores.process_identity import holder_prefix

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
RETRY_SECONDS = 0.5
FORGET_SECONDS = 86_400.0  # after which the row of a dead server is deleted
TIMEOUTS = {"connect_timeout": 2, "tcp_user_timeout": 2000, "keepalives_idle": 1, "keepalives_interval": 1}

BEAT = f"""
INSERT INTO servers (id, host, version, capacity, running, draining, started, seen, place, address)
VALUES (%(id)s, %(host)s, %(version)s, %(capacity)s, %(running)s, %(draining)s, {NOW}, {NOW}, %(place)s, %(address)s)
ON CONFLICT (id) DO UPDATE SET capacity = excluded.capacity, running = excluded.running,
    draining = excluded.draining, seen = excluded.seen
RETURNING (
    SELECT ARRAY[1 + count(*), coalesce(min(seen) + {SEEN_SECONDS} - {NOW}, {SEEN_SECONDS})]
    FROM servers WHERE id <> %(id)s AND seen > {NOW} - {SEEN_SECONDS}
)
"""


@dataclass(frozen=True, slots=True)
class ServerMember:
    """A server as it describes itself. The functions are called from the OS thread of the heartbeat."""

    id: str
    version: str
    capacity: int  # runs at once; 0 for no limit
    count_runs: Callable[[], int]
    is_draining: Callable[[], bool]
    place: str = ""  # of its workspaces
    address: str = ""  # for other servers


class Heartbeat:
    """The heartbeat of a server, from `start` to `stop`."""

    def __init__(self, conninfo: str, schema: str, member: ServerMember) -> None:
        self._conninfo, self._schema, self._member = conninfo, schema, member
        self._seen, self._stopping = Event(), Event()
        self.servers_alive = 0  # this one and the others, counted with the last heartbeat
        self.next_lapse = inf  # monotonic time at which the leases of another server lapse if it is not seen again
        self._beat_at = self._steady_at = 0.0  # monotonic times: of the last heartbeat; when they are steady again
        self._thread = Thread(target=self._run, name="wick heartbeat", daemon=True)

    def start(self, seconds: float) -> bool:
        """Start the thread, and wait for the first heartbeat; return False at the timeout."""
        self._thread.start()
        return self._seen.wait(seconds)

    @property
    def is_steady(self) -> bool:
        """False after a pause of the heartbeat, until the other servers have had time to be seen again.

        If the database was away, no server was seen, and the first one back would take the leases of all others.
        """
        return self._steady_at <= monotonic() < self._beat_at + SEEN_SECONDS

    def stop(self, seconds: float) -> None:
        """Delete the row of this server, and end the thread."""
        self._stopping.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._conninfo, autocommit=True, **TIMEOUTS) as connection:  # type: ignore[arg-type]
                    self._beat(connection)
            except Exception as error:  # also of the functions of the member: peers would see a live server as dead
                is_known = isinstance(error, psycopg.Error)
                logger.warning("the heartbeat of this server failed; trying again: %s", error, exc_info=not is_known)
                self._stopping.wait(RETRY_SECONDS)

    def _beat(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
        connection.execute("SET statement_timeout = 2000")
        connection.execute(f"DELETE FROM servers WHERE seen < {NOW} - %s".encode(), (FORGET_SECONDS,))
        member = self._member
        about = {"id": member.id, "host": holder_prefix(), "version": member.version, "capacity": member.capacity}
        about |= {"place": member.place, "address": member.address}
        while not self._stopping.is_set():
            state = {"running": member.count_runs(), "draining": member.is_draining()}
            for ((alive, left),) in connection.execute(BEAT, {**about, **state}):
                self.servers_alive, self.next_lapse = int(alive), monotonic() + left
            now = monotonic()
            if self._beat_at and now - self._beat_at > SEEN_SECONDS - BEAT_SECONDS:
                self._steady_at = now + SEEN_SECONDS
            self._beat_at = now
            self._seen.set()
            self._stopping.wait(BEAT_SECONDS)
        with suppress(psycopg.Error):
            connection.execute("DELETE FROM servers WHERE id = %s", (member.id,))


async def list_servers(connection: Connection, alive_only: bool = False) -> list[ServerInfo]:
    is_alive = f"seen > {NOW} - {SEEN_SECONDS}"
    columns = f"id, host, version, capacity, running, draining, started, {NOW} - seen, {is_alive}, place, address"
    query = f"SELECT {columns} FROM servers {f'WHERE {is_alive}' if alive_only else ''} ORDER BY started, id"
    return [ServerInfo(*row) for row in await fetch_rows(connection, query, ())]
