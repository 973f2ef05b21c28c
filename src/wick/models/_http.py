"""HTTP requests to model servers: a connection pool per event loop, time limits, and plain errors."""

from __future__ import annotations

import asyncio
import re
import zlib
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import dumps, loads
from time import monotonic
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit
from weakref import WeakKeyDictionary

from wick import constants
from wick.errors import ConfigError, ModelError
from wick.models._connections import QUOTED_BYTES, Broken, Connection, Place, Pool, Unreachable
from wick.models._sse import SSEDecoder, WholeBody
from wick.protocols import Delta, Finish

RETRYABLE = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
_SAFE = "/?:@!$&'()*+,;=-._~%"  # characters of a URL that are not quoted
_SECRET_NAME = re.compile(r"auth|key|token|secret|passw|cookie|credential|signature|^sig$|^code$", re.IGNORECASE)
_REASON = re.compile(r"[\w.:/ -]{1,64}")  # a finish reason that is passed on


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Time limits for the parts of a request, in seconds."""

    connect: float = constants.CONNECT_SECONDS
    first_byte: float = constants.FIRST_BYTE_SECONDS
    between: float = constants.CHUNK_SECONDS
    whole: float = constants.REPLY_SECONDS


@dataclass(frozen=True, slots=True)
class ModelServer:
    """The address and credentials of a model server, with advice for connection and key errors."""

    name: str
    url: str = field(repr=False)  # it may contain a key
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: TimeLimits = field(default_factory=TimeLimits)
    unreachable: str = ""
    unauthorized: str = ""
    place: Place = field(init=False, repr=False)
    head: bytes = field(init=False, repr=False)  # of every request, without its length
    where: str = field(init=False)  # the address for error messages
    _keys: tuple[str, ...] = field(init=False, repr=False)  # credentials, which are removed from error messages

    def __post_init__(self) -> None:
        parts, host, port = _parse_url(self.name, self.url)
        tls = parts.scheme == "https"
        object.__setattr__(self, "place", Place(host, port or (443 if tls else 80), tls))
        object.__setattr__(self, "head", _build_head(self.name, _format_host(host, port), parts, self.headers))
        object.__setattr__(self, "where", parts._replace(query="", fragment="").geturl())
        object.__setattr__(self, "_keys", tuple(sorted(_find_credentials(parts, self.headers), key=len, reverse=True)))

    def redact(self, text: str, shortest: int = constants.KEY_CHARS) -> str:
        """Return a text of this server without the credentials of the request."""
        keys = [re.escape(key) for key in self._keys if len(key) >= shortest]
        return re.sub("|".join(keys), "[key]", text, flags=re.IGNORECASE) if keys else text


def _find_credentials(parts: SplitResult, headers: Mapping[str, str]) -> set[str]:
    """Return the credentials of headers and of an address, in every spelling that an error may repeat."""
    given = [value for name, value in (*headers.items(), *parse_qsl(parts.query)) if _SECRET_NAME.search(name)]
    found = {word for value in given for word in (value.strip(), *value.split()[-1:]) if word}
    for value in given:
        if value.lower().startswith("basic "):
            found |= {*_decode_basic(value.split()[-1])}
    return {form for key in found for form in (key, quote(key, safe=""), unquote(key), dumps(key)[1:-1])}


def _decode_basic(encoded: str) -> Iterable[str]:
    try:
        pair = b64decode(encoded, validate=True).decode()
    except ValueError:
        return ()
    return pair, pair.partition(":")[2]


def _parse_url(name: str, url: str) -> tuple[SplitResult, str, int | None]:
    try:
        parts = urlsplit(url)
        return parts, (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # an invalid port or host name
        shown = shown_address(url)
        raise ConfigError(f"the address of {name} must be like http://host:port/path, not {shown!r}") from None


def shown_address(url: str) -> str:
    """Return an address for error messages: without user, password and query. It may be malformed."""
    return re.sub(r"^([^/?#]*//)?[^/?#]*@", r"\1", url.partition("?")[0])


def _format_host(host: str, port: int | None) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"{named}:{port}" if port else named


def _build_head(name: str, host: str, parts: SplitResult, headers: Mapping[str, str]) -> bytes:
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    told = {"host": host, "user-agent": "wick", "accept-encoding": "identity"}
    told |= {key.lower(): value for key, value in headers.items()}
    for key, value in told.items():
        if any(sign in key + value for sign in "\r\n\0"):
            raise ConfigError(f"there is a line break in what {name} is sent as {key!r}; check its key and headers")
    lines = [f"{key}: {value}" for key, value in told.items()]
    return "\r\n".join([f"POST {target} HTTP/1.1", *lines, ""]).encode()


class ReplyParser(Protocol):
    """An incremental parser for the reply of one wire format."""

    finish: str  # the finish reason, once it was received
    done: bool  # the server sent its end marker

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        """Yield the deltas of the next events."""
        ...

    def end(self) -> Finish:
        """Return the finish of a reply whose stream has ended; raise ModelError if it was truncated."""
        ...


async def stream(server: ModelServer, body: bytes, reply: ReplyParser) -> AsyncGenerator[Delta, None]:
    """Post a request and yield the deltas of the reply.

    Some servers return one JSON document instead of a stream; it counts as one event.
    """
    limits, began, pool = server.limits, False, await _pool()
    problem: ModelError | None = None
    deadline, patience = monotonic() + limits.whole, limits.first_byte
    try:
        connection = await _send_request(pool, server, body)
        try:
            if connection.status != 200:
                raise await _build_refusal(server, connection)
            answer, headers = _plain(connection), connection.headers
            events = WholeBody() if _is_json(headers.get("content-type", "")) else SSEDecoder()
            while chunk := await answer.read(min(patience, deadline - monotonic())):
                began, patience = True, limits.between
                for delta in reply.deltas(events.feed(chunk)):
                    yield delta
                if reply.done:
                    await _drain(connection)
                    break
            else:
                for delta in reply.deltas(events.close()):
                    yield delta
        finally:
            pool.give_back(connection)
    except (ModelError, OSError) as error:
        if not (reply.finish or reply.done):  # else only the usage or the last line was lost
            problem = _describe_error(server, error, began, deadline)
    if problem is not None:  # raised outside of `except`, as its context may contain the key
        raise problem
    end = reply.end()
    yield end if _REASON.fullmatch(end.reason) else Finish("unknown")


def _is_json(kind: str) -> bool:
    return kind.partition(";")[0].strip().lower() == "application/json"


async def _send_request(pool: Pool, server: ModelServer, body: bytes) -> Connection:
    """Send a request and return the connection. Retry if a server has closed a pooled connection."""
    limits = server.limits
    until = monotonic() + limits.first_byte
    while True:
        connection = await pool.take(server.place, min(limits.connect, until - monotonic()))
        try:
            await connection.ask(server.head, body, until - monotonic())
            return connection
        except BaseException as error:
            pool.give_back(connection)
            if not (isinstance(error, Broken) and connection.unanswered and connection.asked > 1):
                raise


async def _drain(connection: Connection) -> None:
    """Read the end of the response, so that its connection can be reused."""
    until = monotonic() + constants.LAST_BYTE_SECONDS
    while not connection.whole:
        await connection.read(until - monotonic())


class _InflatingReader:
    """A reader that decompresses an unrequested content encoding, one chunk at a time."""

    __slots__ = ("_answer", "_inflate")

    def __init__(self, answer: Connection) -> None:
        self._answer, self._inflate = answer, zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)

    async def read(self, seconds: float) -> bytes:
        while True:
            data = self._inflate.unconsumed_tail or await self._answer.read(seconds)
            try:
                plain = self._inflate.decompress(data, constants.INFLATED_BYTES)
            except zlib.error:
                raise Broken("its compression is broken") from None
            if not data and not self._inflate.eof:
                raise Broken("it was compressed, and cut short")
            if plain or not data:
                return plain


def _plain(connection: Connection) -> Connection | _InflatingReader:
    coding = connection.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return connection
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise Broken(f"it is compressed as {coding[:QUOTED_BYTES]!r}, which was not requested")
    return _InflatingReader(connection)


def _describe_error(server: ModelServer, error: Exception, began: bool, deadline: float) -> ModelError:
    """Return the error as a ModelError without credentials."""
    if isinstance(error, ModelError):
        error.args = (server.redact(str(error)),)
        error.__cause__ = error.__context__ = None
        return error
    if isinstance(error, TimeoutError):
        return _describe_timeout(server, began, deadline)
    if isinstance(error, Unreachable):
        where = f"{server.name} cannot be reached at {server.where}: {server.redact(str(error))}"
        return ModelError(f"{where}; {server.unreachable or 'check the address'}", retryable=True)
    said = (
        " ".join(server.redact(str(error)).split())[:300] or type(error).__name__
    )  # it may contain the whole response
    return ModelError(f"the connection to {server.name} broke off: {said}", retryable=True)


def _describe_timeout(server: ModelServer, began: bool, deadline: float) -> ModelError:
    limits = server.limits
    if monotonic() >= deadline:
        return ModelError(f"{server.name} did not finish its answer within {limits.whole:g} s")
    if began:
        return ModelError(
            f"{server.name} fell silent for {limits.between:g} s in the middle of its answer", retryable=True
        )
    return ModelError(f"{server.name} did not begin to answer within {limits.first_byte:g} s", retryable=True)


async def _build_refusal(server: ModelServer, connection: Connection) -> ModelError:
    status, headers = connection.status, connection.headers
    shortest = constants.KEY_CHARS if status != 401 else constants.REFUSED_KEY_CHARS  # a 401 concerns the key
    said = _extract_reason(await _read_explanation(connection, server.limits.between))
    text = f"{server.name} answered {status}: {server.redact(said, shortest)[:500]}"
    if status in (401, 403) and server.unauthorized:
        text = f"{text}; {server.unauthorized}"
    return ModelError(text, status=status, retryable=status in RETRYABLE, retry_after=_retry_after(headers))


async def _read_explanation(connection: Connection, seconds: float) -> bytes:
    """Read the body of an error response, as far as it arrives."""
    said, until = b"", monotonic() + seconds
    try:
        answer = _plain(connection)
        while len(said) < constants.ERROR_BODY_BYTES and (piece := await answer.read(until - monotonic())):
            said += piece
    except OSError:
        pass
    return said[: constants.ERROR_BODY_BYTES]


def _extract_reason(said: bytes) -> str:
    """Return the message in the body of an error, in any known format."""
    try:
        found = loads(said)
    except ValueError:
        return " ".join(said.decode(errors="replace").split()) or "no reason was given"
    while isinstance(found, dict):
        found = next((found[key] for key in ("error", "message", "detail", "code", "type") if found.get(key)), None)
    return " ".join(str(found or "no reason was given").split())


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the retry delay in seconds, from seconds, milliseconds or a date."""
    from email.utils import parsedate_to_datetime  # imported late, as it is large

    try:
        if (ms := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(ms) / 1000)
        if (value := headers.get("retry-after")) is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Pool, AsyncGenerator[Pool, None]]] = WeakKeyDictionary()


async def _pool() -> Pool:
    """Return the connection pool of this event loop, which is closed with the loop."""
    loop = asyncio.get_running_loop()
    found = _pools.get(loop)
    if found is None:
        keeper = _hold_pool()
        found = _pools[loop] = (await anext(keeper), keeper)
    return found[0]


async def _hold_pool() -> AsyncGenerator[Pool, None]:
    """Close the pool when the event loop shuts down: a closing loop closes its async generators."""
    pool = Pool()
    try:
        yield pool
    finally:
        _pools.pop(asyncio.get_running_loop(), None)  # the pool refers to the loop, which would leak
        await pool.close()


async def close() -> None:
    """Close the connection pool of this event loop now."""
    found = _pools.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found[1].aclose()
