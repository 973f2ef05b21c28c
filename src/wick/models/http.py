"""Asking a model's server: one pooled client for each event loop, a time limit for each part, and plain errors."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from errno import EPIPE
from functools import cache
from json import loads
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from wick import caps
from wick.errors import ModelError
from wick.models.sse import Events, Whole
from wick.protocols import Delta, Finish

RETRYABLE = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds for each part of asking."""

    connect: float = caps.CONNECT_SECONDS
    first_byte: float = caps.FIRST_BYTE_SECONDS
    between: float = caps.CHUNK_SECONDS
    whole: float = caps.REPLY_SECONDS


@dataclass(frozen=True, slots=True)
class Server:
    """Where a model is asked and as whom; and what to do when it cannot be reached, or refuses the key."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: TimeLimits = field(default_factory=TimeLimits)
    unreachable: str = ""
    unauthorized: str = ""


class Reply(Protocol):
    """An answer that is still arriving, as the client of one wire format reads it."""

    finish: str  # why the server finished, once it has said so
    done: bool  # it has said that nothing more will come

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        """What the next events say."""
        ...

    def end(self) -> Finish:
        """How an answer ends after which nothing more came; one that was cut off is an error."""
        ...


async def stream(server: Server, body: bytes, reply: Reply) -> AsyncGenerator[Delta, None]:
    """Post a question and yield what the answer says.

    Some servers answer with one JSON document although a stream was asked for; it counts as one event.
    """
    import aiohttp

    limits, began = server.limits, False
    deadline = asyncio.get_running_loop().time() + limits.whole
    try:
        response = await _post(server, body)
        events = Whole() if _is_json(response.headers.get("content-type", "")) else Events()
        try:
            while chunk := await _next(response.content, limits.between if began else limits.first_byte, deadline):
                began = True
                for delta in reply.deltas(events.feed(chunk)):
                    yield delta
                if reply.done:
                    await _read_to_end(response.content)
                    break
            else:
                for delta in reply.deltas(events.close()):
                    yield delta
        finally:
            response.close()  # gives the connection back when all was read, ends it otherwise
    except (ModelError, aiohttp.ClientError, OSError) as error:
        if not (reply.finish or reply.done):  # else all was said, and only the usage or the last line was lost
            raise _trouble(server, error, began, deadline) from None
    yield reply.end()


def _is_json(kind: str) -> bool:
    return kind.partition(";")[0].strip().lower() == "application/json"


async def _post(server: Server, body: bytes) -> Any:
    import aiohttp

    session = await client()
    async with asyncio.timeout(server.limits.first_byte):
        response = await _answer(session, server, body)
    if response.status == 200:
        return response
    try:
        async with asyncio.timeout(server.limits.between):
            said = await response.content.read(caps.ERROR_BODY_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError):
        said = b""
    finally:
        response.close()
    raise _refusal(server, response.status, response.headers, said)


async def _answer(session: Any, server: Server, body: bytes) -> Any:
    """The head of the answer. Some servers promise to keep a connection and close it; one like that is passed over."""
    import aiohttp

    limit = _connecting(server.limits.connect)
    while True:
        opened: list[bool] = []
        _opened.set(opened)
        try:
            return await session.post(
                server.url, data=body, headers=server.headers, allow_redirects=False, timeout=limit
            )
        except aiohttp.ClientConnectorError:
            raise  # also where no socket was opened, for a name that is not known
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if opened or not _is_unanswered(error):
                raise


def _is_unanswered(error: Any) -> bool:
    """Whether a connection was closed before the question; of one that was reset later, nobody can say."""
    if isinstance(error, OSError):
        return error.errno in (None, EPIPE)  # it could not be sent
    return isinstance(error.message, str)  # else it is the part of the answer that came


@cache
def _connecting(seconds: float) -> Any:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=seconds)


async def _next(content: Any, seconds: float, deadline: float) -> bytes:
    """The next bytes, or none at the end. Only waiting needs a time limit, and one costs more than the bytes."""
    chunk: bytes = content.read_nowait()
    if not chunk and not content.at_eof():
        left = deadline - asyncio.get_running_loop().time()
        async with asyncio.timeout(min(seconds, left)):
            chunk = await content.readany()
    return chunk


async def _read_to_end(content: Any) -> None:
    """All has been said; reading the end of the response as well lets its connection be used again."""
    deadline = asyncio.get_running_loop().time() + caps.LAST_BYTE_SECONDS
    while await _next(content, caps.LAST_BYTE_SECONDS, deadline):
        pass


def _trouble(server: Server, error: Exception, began: bool, deadline: float) -> ModelError:
    """What went wrong, as a sentence."""
    import aiohttp

    if isinstance(error, ModelError):
        return error
    if isinstance(error, TimeoutError):
        return _late(server, began, deadline)
    if isinstance(error, aiohttp.ClientConnectorError):
        where = f"{server.name} cannot be reached at {server.url}: {error.strerror or error}"
        return ModelError(f"{where}; {server.unreachable or 'check the address'}", retryable=True)
    said = " ".join(str(error).split())[:300] or type(error).__name__  # it may hold all that the server sent
    return ModelError(f"the connection to {server.name} broke off: {said}", retryable=True)


def _late(server: Server, began: bool, deadline: float) -> ModelError:
    limits = server.limits
    if asyncio.get_running_loop().time() >= deadline:
        return ModelError(f"{server.name} did not finish its answer within {limits.whole:g} s")
    if began:
        return ModelError(
            f"{server.name} fell silent for {limits.between:g} s in the middle of its answer", retryable=True
        )
    return ModelError(f"{server.name} did not begin to answer within {limits.first_byte:g} s", retryable=True)


def _refusal(server: Server, status: int, headers: Mapping[str, str], said: bytes) -> ModelError:
    text = f"{server.name} answered {status}: {_reason(said)}"
    if status in (401, 403) and server.unauthorized:
        text = f"{text}; {server.unauthorized}"
    return ModelError(text, status=status, retryable=status in RETRYABLE, retry_after=_retry_after(headers))


def _reason(said: bytes) -> str:
    """The sentence in an error's body, whatever shape it has."""
    try:
        found = loads(said)
    except ValueError:
        return " ".join(said.decode(errors="replace").split())[:300] or "no reason was given"
    while isinstance(found, dict):
        found = next((found[key] for key in ("error", "message", "detail", "code", "type") if found.get(key)), None)
    return " ".join(str(found or "no reason was given").split())[:500]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long the server wants to be left alone: seconds, milliseconds or a date."""
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


_opened: ContextVar[list[bool]] = ContextVar("_opened")  # what the question that is being asked has opened
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()


async def client() -> Any:
    """The connections of this event loop, made when first needed and closed when the loop ends."""
    loop = asyncio.get_running_loop()
    session = _clients.get(loop)
    if session is None or session[0].closed:
        keeper = _keep_open()
        session = _clients[loop] = (await anext(keeper), keeper)
    return session[0]


async def _keep_open() -> AsyncGenerator[Any, None]:
    """Holds the connections. A loop that ends closes its async generators, and so the connections."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, socket_factory=_open)
    session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
    try:
        yield session
    finally:
        _clients.pop(asyncio.get_running_loop(), None)  # it refers to its loop, which would never be freed
        await session.close()


def _open(address: Any) -> socket.socket:
    _opened.get([]).append(True)
    return socket.socket(*address[:3])


async def close() -> None:
    """Close the connections of this event loop now."""
    found = _clients.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found[1].aclose()
