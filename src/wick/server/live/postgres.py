"""PostgresLive: the live plane over LISTEN and NOTIFY, where there is no NATS.

All messages of a few milliseconds are sent in one transaction: each transaction with a NOTIFY takes a lock of the
whole Postgres server. They share payloads, so that a server handles few notifications. Every server receives all
messages.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from secrets import token_hex
from typing import Any

from wick._internal.tasks import cancel_and_wait
from wick.constants import LIVE_BYTES, LIVE_OUTBOX_BYTES, LIVE_RECONNECT_SECONDS, LIVE_START_SECONDS
from wick.errors import MissingExtra
from wick.server.live import Receive
from wick.server.live.subscriptions import Subscriptions

try:
    import psycopg
    from psycopg import sql

    from wick.stores.postgres_members import TIMEOUTS
except ImportError:
    raise MissingExtra("postgres", "psycopg", "the live plane over Postgres") from None

logger = logging.getLogger("wick.server")

COALESCE_SECONDS = 0.01  # between two transactions with messages
PART_CHARS = 7_900  # of ASCII text in one NOTIFY, whose payload has at most 8,000 bytes with its head
PACKET_CHARS = 6 * LIVE_OUTBOX_BYTES  # of all parts of a transaction: JSON escapes a byte with up to 6 characters
SEPARATOR = "\x1e"  # of parts in one parameter: psycopg would escape each quote of a text array by itself
NOTIFY = f"SELECT pg_notify(%s, part) FROM unnest(string_to_array(%s, '{SEPARATOR}')) AS part"


class PostgresLive:
    """A live plane over LISTEN and NOTIFY of one database, with two connections."""

    name, is_shared = "postgres", True

    def __init__(self, conninfo: str, *, schema: str = "wick") -> None:
        self._problems = {"listener": "it is not connected yet", "outbox": ""}  # of the two connections
        self._conninfo, self._channel = conninfo, live_channel(schema)
        self._id, self._count = token_hex(8), 0
        self._subscriptions = Subscriptions()
        self._replies: dict[str, asyncio.Future[bytes]] = {}
        self._outbox: deque[tuple[str, str, bytes]] = deque()  # subject, subject of the reply, data
        self._outbox_bytes = 0
        self._filled = asyncio.Event()
        self._parts: list[str] = []  # of a transaction whose last part has not arrived
        self._connected = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def problem(self) -> str:
        """Why it is disconnected, or ""."""
        return self._problems["listener"] or self._problems["outbox"]

    async def start(self, cluster: str) -> None:
        works = {"listener": self._listen, "outbox": self._send_outbox}
        self._tasks = [
            asyncio.create_task(self._stay_connected(name, work), name=f"live plane {name}")
            for name, work in works.items()
        ]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), LIVE_START_SECONDS)

    async def close(self) -> None:
        await cancel_and_wait(self._tasks)
        self._tasks = []

    def publish(self, subject: str, data: bytes) -> None:
        self._put(subject, "", data)

    def subscribe(self, subject: str, receive: Receive) -> Callable[[], None]:
        self._subscriptions.add(subject, receive)
        return lambda: self._subscriptions.remove(subject, receive)

    async def request(self, subject: str, data: bytes, seconds: float) -> bytes | None:
        if self.problem or len(data) > LIVE_BYTES:
            return None
        self._count += 1
        name = f"reply.{self._id}.{self._count}"
        reply = self._replies[name] = asyncio.get_running_loop().create_future()
        try:
            self._put(subject, name, data)
            return await asyncio.wait_for(reply, seconds)
        except TimeoutError:
            return None
        finally:
            del self._replies[name]

    # -- sending ------------------------------------------------------------------------------------------------------

    def _put(self, subject: str, reply: str, data: bytes) -> None:
        if self.problem or len(data) > LIVE_BYTES or self._outbox_bytes + len(data) > LIVE_OUTBOX_BYTES:
            return
        self._outbox.append((subject, reply, data))
        self._outbox_bytes += len(data)
        self._filled.set()

    async def _send_outbox(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("SET synchronous_commit TO off")  # a NOTIFY needs no sync of the disk
        self._report_connected("outbox")
        while True:
            await self._filled.wait()
            self._filled.clear()
            lines = [encode_line(*message) for message in self._outbox]
            self._outbox.clear()
            self._outbox_bytes = 0
            await connection.execute(NOTIFY, (self._channel, SEPARATOR.join(self._split("\n".join(lines)))))
            await asyncio.sleep(COALESCE_SECONDS)

    def _split(self, text: str) -> list[str]:
        """Return the payloads of a transaction. The name makes each unique: Postgres sends equal ones only once."""
        self._count += 1
        starts = range(0, len(text), PART_CHARS)
        return [
            f"{self._id}.{self._count} {part} {len(starts) - 1 - part} {text[at : at + PART_CHARS]}"
            for part, at in enumerate(starts)
        ]

    # -- receiving ----------------------------------------------------------------------------------------------------

    async def _listen(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self._report_connected("listener")
        self._connected.set()
        self._parts = []
        async for notice in connection.notifies():
            self._receive(notice.payload)

    def _receive(self, payload: str) -> None:
        """Handle one part. Postgres delivers the parts of a transaction one after the other."""
        try:
            _, part, left, text = payload.split(" ", 3)
            if int(part) == 0 or len(self._parts) * PART_CHARS > PACKET_CHARS:
                self._parts = []
            self._parts.append(text)
            if int(left) > 0:
                return
            lines, self._parts = "".join(self._parts).split("\n"), []
            for subject, reply, data in map(decode_line, lines):
                if subject in self._subscriptions or subject in self._replies:
                    self._deliver(subject, reply, data)
        except (ValueError, TypeError):  # another program, or a server of another version, has sent it
            return

    def _deliver(self, subject: str, reply: str, data: bytes) -> None:
        waiting = self._replies.get(subject)
        if waiting is not None and not waiting.done():
            waiting.set_result(data)
        answer = self._subscriptions.deliver(subject, data)
        if answer is not None and reply:
            self._put(reply, "", answer)

    # -- connections --------------------------------------------------------------------------------------------------

    async def _stay_connected(self, name: str, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]) -> None:
        pause, longest = LIVE_RECONNECT_SECONDS
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._conninfo,
                    autocommit=True,
                    **TIMEOUTS,  # type: ignore[arg-type]
                ) as connection:
                    pause = LIVE_RECONNECT_SECONDS[0]
                    await work(connection)
            except (psycopg.Error, OSError) as error:
                self._report_problem(name, " ".join(str(error).split()) or "the connection was lost")
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    def _report_connected(self, name: str) -> None:
        was_connected, self._problems[name] = not self.problem, ""
        if not was_connected and not self.problem and self._connected.is_set():
            logger.warning("the live plane is connected to Postgres again")

    def _report_problem(self, name: str, problem: str) -> None:
        """Log that a connection is lost or cannot be opened, once."""
        if not self.problem or not self._connected.is_set():
            logger.warning("the live plane cannot reach Postgres: %s; streams follow the log until it can", problem)
        self._problems[name] = problem
        self._outbox.clear()
        self._outbox_bytes = 0
        self._connected.set()


def encode_line(subject: str, reply: str, data: bytes) -> str:
    """Return a message as one line of ASCII text. Data that is not UTF-8 is in base64."""
    try:
        return json.dumps([subject, reply, data.decode()])
    except UnicodeDecodeError:
        return json.dumps([subject, reply, b64encode(data).decode(), "base64"])


def decode_line(line: str) -> tuple[str, str, bytes]:
    """Return the subject, the subject of the reply and the data of a message; raise a ValueError if it is invalid."""
    subject, reply, text, *encoding = json.loads(line)
    if not (isinstance(subject, str) and isinstance(reply, str) and isinstance(text, str)):
        raise ValueError("the line is not a message")
    data = b64decode(text, validate=True) if encoding else text.encode()
    if len(data) > LIVE_BYTES:
        raise ValueError("the message is too large")
    return subject, reply, data


def live_channel(schema: str) -> str:
    """Return the channel of a schema, in the 63 characters that Postgres allows."""
    name = f"wick_live_{schema}"
    return name if len(name.encode()) < 63 else f"wick_live_{sha256(schema.encode()).hexdigest()[:40]}"
