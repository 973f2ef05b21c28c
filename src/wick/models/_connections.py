"""Connections to the servers of models: HTTP/1.1, one question at a time on each, kept for the next one.

A model's client posts bytes and reads a stream, and needs no more of HTTP: no redirects, no cookies, no proxies. What a
server sends is read strictly and in one pass, as it arrives; who reads slowly makes the server wait.

    connection = await pool.take(place, seconds)
    try:
        await connection.ask(head, body, seconds)       then `status` and `headers` are there
        while piece := await connection.read(seconds):
            ...
    finally:
        pool.give_back(connection)                      kept if the answer was read to its end, closed otherwise
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from wick.constants import CONNECTION_BUFFER_BYTES, CONNECTION_IDLE_SECONDS, CONNECTION_STAGGER_SECONDS, HTTP_HEAD_BYTES

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_NEXT_SIZE = re.compile(rb"\r\n" + _SIZE.pattern)  # what ends a chunk is read with what begins the next one
_NO_BODY = (204, 304)
PORTION_BYTES = 16_384  # that are handed out at once: some hundred pieces of a reply
QUOTED_BYTES = 2_000  # of what cannot be read; the error cuts it further, once no key is in it


class Place(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    tls: bool


class Unreachable(OSError):
    """There is no connection to be had."""


class Broken(OSError):
    """A connection ended before the answer did, or what came is not HTTP."""


class Connection(asyncio.Protocol):
    """One connection. It belongs to whoever took it from the pool, until it is given back."""

    __slots__ = (
        *("asked", "headers", "idle_since", "lost", "place", "status", "whole"),
        *("_began", "_cut", "_error", "_held", "_keeps", "_left", "_line", "_pieces", "_read", "_rest"),
        *("_loop", "_timer", "_transport", "_until", "_waiter"),
    )
    _transport: asyncio.Transport

    def __init__(self, place: Place, loop: asyncio.AbstractEventLoop) -> None:
        self.place = place
        self.asked = 0  # how often
        self.lost = False
        self.idle_since = 0.0
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._start()

    def _start(self) -> None:
        """Nothing has been answered yet."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.whole = False  # the answer has come to its end
        self._began = False
        self._keeps = False
        self._error: OSError | None = None
        self._pieces: list[bytes] = []
        self._held = 0  # bytes in them
        self._cut = False  # they are the rest of what came at once
        self._rest = b""  # of something that has not ended yet
        self._left = 0  # bytes until the body ends, or the chunk
        self._line = _SIZE
        self._read: Callable[[Connection, bytes], bytes] = Connection._read_head

    # -- for whoever asks -------------------------------------------------------------------------------------------

    @property
    def reusable(self) -> bool:
        return self.whole and self._keeps and not self.lost

    @property
    def unanswered(self) -> bool:
        """It was closed before the question came; of one that was reset, nobody can say."""
        error = self._error
        return self.lost and not self._began and (error is None or isinstance(error.__cause__, BrokenPipeError))

    async def ask(self, head: bytes, body: bytes, seconds: float) -> None:
        """Post a question and wait for the head of the answer."""
        self._start()
        self.asked += 1
        self._transport.writelines((head, b"content-length: %d\r\n\r\n" % len(body), body))
        while not self.status:
            await self._wait(seconds)

    async def read(self, seconds: float) -> bytes:
        """The next bytes of the answer; none at its end. Of what came at once, some; others have a turn in between."""
        if self._cut:
            if seconds <= 0:
                raise TimeoutError
            await asyncio.sleep(0)
        while not self._pieces:
            if self.whole:
                return b""
            await self._wait(seconds)
        data = b"".join(self._pieces)
        self._cut = len(data) > PORTION_BYTES
        self._pieces = [data[PORTION_BYTES:]] if self._cut else []
        was, self._held = self._held, max(0, len(data) - PORTION_BYTES)
        if was > CONNECTION_BUFFER_BYTES >= self._held and not self.lost:
            self._transport.resume_reading()
        return data[:PORTION_BYTES]

    async def _wait(self, seconds: float) -> None:
        """Wait until something comes, but no longer than that."""
        if self.lost:
            raise self._error or Broken("the server closed it")
        if seconds <= 0:  # a server that never pauses is not waited for either
            raise TimeoutError
        self._until = until = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > until:
            self._set_timer(until)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, until: float | None) -> None:
        """The timer stays when the waiting is over: the next time, most often only its time has moved on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if until is None else self._loop.call_at(until, self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._until > self._loop.time():
            self._set_timer(self._until)
        else:
            self._waiter.set_exception(TimeoutError())

    def close(self) -> None:
        self.lost = True
        self._set_timer(None)
        self._transport.abort()

    # -- for the event loop -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._began = True
        try:
            self._rest = self._read_on(self._rest + data)
        except ValueError as error:
            self._error = Broken(f"what came is not an answer: {error}")
            self.close()
        if self._held > CONNECTION_BUFFER_BYTES and not self.lost:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.whole = self.whole or self._read is Connection._read_to_the_end

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._set_timer(None)
        if error is not None and self._error is None:
            self._error = Broken(str(error) or type(error).__name__)
            self._error.__cause__ = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- what comes: each takes what it can, and returns the rest ----------------------------------------------------

    def _read_on(self, data: bytes) -> bytes:
        before = None
        while data and not self.whole and self._read is not before:
            before = self._read
            data = before(self, data)
        if self.whole and data:
            self._keeps = False  # nobody asked for more
        if len(data) > HTTP_HEAD_BYTES:
            raise ValueError("something in it never ends")
        return data

    def _read_head(self, data: bytes) -> bytes:
        while (end := data.find(b"\r\n\r\n")) >= 0:
            first, *lines = data[:end].split(b"\r\n")
            data = data[end + 4 :]
            found = _STATUS.fullmatch(first)
            if found is None or found[2] == b"101" or end > HTTP_HEAD_BYTES:
                raise ValueError(f"it begins with {first[:QUOTED_BYTES]!r}")
            if found[2] >= b"200":  # else it is a hint, and the answer is still to come
                self.headers = _fields(lines)
                self._begin_body(int(found[2]), newer=found[1] == b"1")
                self.status = int(found[2])
                break
        return data

    def _begin_body(self, status: int, newer: bool) -> None:
        """Find out how the end of the body is told."""
        told = self.headers.get("connection", "").lower()
        self._keeps = "close" not in told if newer else "keep-alive" in told
        coding, length = self.headers.get("transfer-encoding", ""), self.headers.get("content-length", "")
        if coding and coding.lower() != "chunked":
            raise ValueError(f"its transfer encoding is {coding[:QUOTED_BYTES]!r}")
        if length and not (length.isascii() and length.isdigit() and len(length) < 16):
            raise ValueError(f"its length is {length[:QUOTED_BYTES]!r}")
        if status in _NO_BODY or length == "0":
            self.whole = True
        elif coding:
            self._read, self._keeps = Connection._read_chunks, self._keeps and not length
        elif length:
            self._read, self._left = Connection._read_sized, int(length)
        else:
            self._read, self._keeps = Connection._read_to_the_end, False

    def _read_chunks(self, data: bytes) -> bytes:
        at = 0
        while True:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._take(piece)
                if self._left:
                    return b""
            line = self._line.match(data, at)
            if line is None:
                break
            at, self._left, self._line = line.end(), int(line[1], 16), _NEXT_SIZE
            if not self._left:
                self._read = Connection._read_trailer
                return data[at - 2 :]
        rest = data[at:]
        if rest.count(b"\n") > (self._line is _NEXT_SIZE):
            raise ValueError(f"a chunk begins with {rest[:QUOTED_BYTES]!r}")
        return rest

    def _read_trailer(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        self.whole = end >= 0
        return data[end + 4 :] if self.whole else data

    def _read_sized(self, data: bytes) -> bytes:
        piece, rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self.whole = not self._left
        self._take(piece)
        return rest

    def _read_to_the_end(self, data: bytes) -> bytes:
        self._take(data)
        return b""

    def _take(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held += len(piece)


def _fields(lines: list[bytes]) -> dict[str, str]:
    """The headers by their names in small letters; of one that came twice, both."""
    headers: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise ValueError(f"a header of it is {line[:QUOTED_BYTES]!r}")
        name, value = found[1].decode().lower(), found[2].decode("latin-1").rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class Pool:
    """The connections of one event loop."""

    __slots__ = ("_idle", "_open", "_sweeper")

    def __init__(self) -> None:
        self._idle: dict[Place, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def take(self, place: Place, seconds: float) -> Connection:
        """A connection that is open, as far as one can know; a new one if there is none."""
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
            self._drop(connection)
        connection = await _connected(place, seconds)
        self._open.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        if not connection.reusable:
            return self._drop(connection)
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.place, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(CONNECTION_IDLE_SECONDS, self._sweep)

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    def _sweep(self) -> None:
        """Close what nobody has needed for a while."""
        loop = asyncio.get_running_loop()
        since = loop.time() - CONNECTION_IDLE_SECONDS
        for place, idle in [*self._idle.items()]:
            fresh = [connection for connection in idle if connection.reusable and connection.idle_since > since]
            for connection in idle:
                if connection not in fresh:
                    self._drop(connection)
            self._idle[place] = fresh
            if not fresh:
                del self._idle[place]
        self._sweeper = loop.call_later(CONNECTION_IDLE_SECONDS, self._sweep) if self._idle else None

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._idle.clear()
        for connection in [*self._open]:
            self._drop(connection)
        await asyncio.sleep(0)  # their sockets are closed in the next turn of the loop


# -- connecting -----------------------------------------------------------------------------------------------------


async def _connected(place: Place, seconds: float) -> Connection:
    loop = asyncio.get_running_loop()
    secured: dict[str, Any] = {"ssl": _trust(), "server_hostname": place.host} if place.tls else {}
    try:
        async with asyncio.timeout(seconds):
            opened = await _first([*_in_turns(await _addresses(place))])
            try:
                _, connection = await loop.create_connection(lambda: Connection(place, loop), sock=opened, **secured)
            except BaseException:
                opened.close()
                raise
    except TimeoutError:
        raise Unreachable(f"there is no connection within {seconds:.3g} s") from None
    except (OSError, UnicodeError) as error:
        raise Unreachable(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None
    return connection


@cache
def _trust() -> ssl.SSLContext:
    """The certificates of this machine; reading them takes a while."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _addresses(place: Place) -> Sequence[Any]:
    try:  # one that is written in numbers need not be looked up
        return socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)


def _in_turns(addresses: Sequence[Any]) -> list[Any]:
    """Addresses of both kinds in turns, beginning with the first one's."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    other = [address for address in addresses if address[0] != addresses[0][0]]
    return [address for address in chain.from_iterable(zip_longest(first, other)) if address is not None]


async def _first(addresses: Sequence[Any]) -> socket.socket:
    """The first of some addresses that answers; while one takes long or has failed, the next one is tried as well."""
    trying: set[asyncio.Task[socket.socket]] = set()
    waiting, error = list(addresses), OSError("it has no address")
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.create_task(_open(waiting.pop(0))))
            wait = CONNECTION_STAGGER_SECONDS if waiting else None
            done, _ = await asyncio.wait(trying, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                trying.discard(task)
                if (failure := task.exception()) is None:
                    return task.result()
                error = failure if isinstance(failure, OSError) else error
        raise error
    finally:
        for task in trying:
            task.add_done_callback(_close_late)
            task.cancel()


async def _open(address: Any) -> socket.socket:
    family, kind, protocol, _, where = address
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, where)
    except BaseException:
        opened.close()
        raise
    return opened


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    """Of two that answered at the same time, one is not needed."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
