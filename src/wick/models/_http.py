"""HTTP requests to model servers: time limits, redacted credentials, and plain errors."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from json import dumps, loads
from time import monotonic
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit, urlunsplit

from wick import constants
from wick.errors import ConfigError, ModelError
from wick.models._event_stream import EventStreamDecoder
from wick.models._network import Endpoint, NetworkSettings, Unreachable, find_proxy, shown_address
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
    between_chunks: float = constants.CHUNK_SECONDS
    total: float = constants.REPLY_SECONDS


@dataclass(frozen=True, slots=True)
class ModelServer:
    """The address and credentials of a model server, with advice for connection and key errors."""

    name: str
    url: str = field(repr=False)  # it may contain a key
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: TimeLimits = field(default_factory=TimeLimits)
    unreachable: str = ""
    unauthorized: str = ""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    endpoint: Endpoint = field(init=False, repr=False)
    where: str = field(init=False)  # the address for error messages
    _keys: tuple[str, ...] = field(init=False, repr=False)  # credentials, which are removed from error messages

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError:  # an invalid port or host name
            shown = shown_address(self.url)
            raise ConfigError(f"the address of {self.name} must be like http://host:port/path, not {shown!r}") from None
        proxy = ""
        if host and self.network.trust_env:
            proxy = find_proxy(parts.scheme, host, port or (443 if parts.scheme == "https" else 80))
        host = f"[{host}]" if ":" in host else host
        authority = f"{host}:{port}" if port else host
        path, query = quote(parts.path or "/", safe=_SAFE), quote(parts.query, safe=_SAFE)
        url = urlunsplit((parts.scheme, authority, path, query, ""))
        headers = {"user-agent": "wick", "accept-encoding": "identity"}
        headers |= {key.lower(): value for key, value in self.headers.items()}
        for key, value in headers.items():
            if any(sign in key + value for sign in "\r\n\0"):
                raise ConfigError(
                    f"there is a line break in what {self.name} is sent as {key!r}; check its key and headers"
                )
        endpoint = Endpoint(url, headers, self.network, proxy, self.limits.connect, self.limits.first_byte)
        keys = _find_credentials(parts, self.headers, proxy)
        object.__setattr__(self, "endpoint", endpoint)
        object.__setattr__(self, "where", parts._replace(query="", fragment="").geturl())
        object.__setattr__(self, "_keys", tuple(sorted(keys, key=len, reverse=True)))

    def redact(self, text: str, shortest: int = constants.KEY_CHARS) -> str:
        """Return a text of this server without the credentials of the request."""
        keys = [re.escape(key) for key in self._keys if len(key) >= shortest]
        return re.sub("|".join(keys), "[key]", text, flags=re.IGNORECASE) if keys else text


def _find_credentials(parts: SplitResult, headers: Mapping[str, str], proxy: str) -> set[str]:
    """Return the credentials of headers, an address and a proxy, in every spelling that an error may repeat."""
    given = [value for name, value in (*headers.items(), *parse_qsl(parts.query)) if _SECRET_NAME.search(name)]
    given += [urlsplit(proxy).password or ""]
    keys = {word for value in given for word in (value.strip(), *value.split()[-1:]) if word}
    for value in given:
        if value.lower().startswith("basic "):
            with suppress(ValueError):  # not base64
                pair = b64decode(value.split()[-1], validate=True).decode()
                keys |= {pair, pair.partition(":")[2]}
    return {form for key in keys for form in (key, quote(key, safe=""), unquote(key), dumps(key)[1:-1])}


class ResponseReader(Protocol):
    """An open response, as `_connections.post` returns it."""

    status: int
    headers: Mapping[str, str]

    async def read(self, seconds: float) -> bytes: ...


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


_DECODERS: dict[str, type[WholeBody] | type[EventStreamDecoder]] = {
    "application/json": WholeBody,
    "application/vnd.amazon.eventstream": EventStreamDecoder,
}
Authorize = Callable[[ModelServer, bytes], Awaitable[ModelServer]]  # adds the credentials of one request to its server


async def stream(
    server: ModelServer, body: bytes, reply: ReplyParser, authorize: Authorize | None = None
) -> AsyncGenerator[Delta, None]:
    """Post a request and yield the deltas of the reply.

    Some servers return one JSON document instead of a stream; it counts as one event. `authorize` is for credentials
    that expire, or that depend on the body.
    """
    from wick.models import _connections  # imported late, as aiohttp is large

    limits, began = server.limits, False
    problem: ModelError | None = None
    deadline, patience = monotonic() + limits.total, limits.first_byte
    try:
        if authorize is not None:
            server = await _add_credentials(server, body, authorize)
        response = await _connections.post(server.endpoint, body)
        try:
            if response.status != 200:
                raise await _build_refusal(server, response)
            content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            decoder = _DECODERS.get(content_type, SSEDecoder)
            events = decoder()
            while chunk := await response.read(min(patience, deadline - monotonic())):
                began, patience = True, limits.between_chunks
                for delta in reply.deltas(events.feed(chunk)):
                    yield delta
                if reply.done:
                    await _drain(response)
                    break
            else:
                for delta in reply.deltas(events.close()):
                    yield delta
        finally:
            response.close()
    except (ModelError, ConfigError, OSError) as error:
        if not (reply.finish or reply.done):  # else only the usage or the last line was lost
            problem = _describe_error(server, error, began, deadline)
    if problem is not None:  # raised outside of `except`, as its context may contain the key
        raise problem
    end = reply.end()
    yield end if _REASON.fullmatch(end.reason) else replace(end, reason="unknown")


async def _add_credentials(server: ModelServer, body: bytes, authorize: Authorize) -> ModelServer:
    """Return the server with the credentials of one request; raise ModelError if they take too long."""
    seconds = min(server.limits.connect + server.limits.first_byte, server.limits.total)
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await authorize(server, body)
    except TimeoutError:
        if not limit.expired():
            raise
    raise ModelError(f"the credentials of {server.name} were not fetched within {seconds:g} s", retryable=True)


async def post_json(server: ModelServer, body: bytes) -> dict[str, Any]:
    """Post a request and return the JSON object of the response; raise ModelError."""
    from wick.models import _connections  # imported late, as aiohttp is large

    problem: ModelError | None = None
    deadline, data = monotonic() + server.limits.total, b""
    try:
        response = await _connections.post(server.endpoint, body)
        try:
            if response.status != 200:
                raise await _build_refusal(server, response)
            while len(data) <= constants.ERROR_BODY_BYTES and (
                piece := await response.read(min(server.limits.first_byte, deadline - monotonic()))
            ):
                data += piece
        finally:
            response.close()
    except (ModelError, ConfigError, OSError) as error:
        problem = _describe_error(server, error, bool(data), deadline)
    if problem is not None:  # raised outside of `except`, as its context may contain the key
        raise problem
    with suppress(ValueError):
        if isinstance(read := loads(data), dict):
            return read
    raise ModelError(f"{server.name} answered at {server.where} with a body that is not a JSON object", retryable=True)


async def _drain(response: ResponseReader) -> None:
    """Read the end of the response, so that its connection can be reused."""
    until = monotonic() + constants.LAST_BYTE_SECONDS
    while await response.read(until - monotonic()):
        pass


def _describe_error(server: ModelServer, error: Exception, began: bool, deadline: float) -> ModelError:
    """Return the error as a ModelError without credentials."""
    if isinstance(error, ModelError):
        error.args = (server.redact(str(error)),)
        error.__cause__ = error.__context__ = None
        return error
    if isinstance(error, ConfigError):  # a certificate file was changed after the model was created
        return ModelError(server.redact(str(error)))
    if isinstance(error, TimeoutError):
        limits = server.limits
        if monotonic() >= deadline:
            return ModelError(f"{server.name} did not finish its answer within {limits.total:g} s")
        problem = f"did not begin to answer within {limits.first_byte:g} s"
        if began:
            problem = f"sent no data for {limits.between_chunks:g} s in the middle of its answer"
        return ModelError(f"{server.name} {problem}", retryable=True)
    reason = " ".join(server.redact(str(error)).split())[:300] or type(error).__name__  # may contain the whole response
    if isinstance(error, Unreachable):
        advice = error.advice or server.unreachable or "check the address"
        text = f"{server.name} cannot be reached at {server.where}: {reason}; {advice}"
        return ModelError(text, status=error.status, retryable=error.retryable)
    return ModelError(f"the connection to {server.name} broke off: {reason}", retryable=True)


async def _build_refusal(server: ModelServer, response: ResponseReader) -> ModelError:
    """Return the ModelError of an error response, with the reason in its body as far as it arrives."""
    status, body, until = response.status, b"", monotonic() + server.limits.between_chunks
    with suppress(OSError):
        while len(body) < constants.ERROR_BODY_BYTES and (piece := await response.read(until - monotonic())):
            body += piece
    body = body[: constants.ERROR_BODY_BYTES]
    try:
        reason = loads(body)
        while isinstance(reason, dict) or (isinstance(reason, list) and reason):
            known = ("error", "message", "Message", "detail", "code", "type")
            found = reason[0] if isinstance(reason, list) else reason
            reason = next((found[key] for key in known if found.get(key)), None) if isinstance(found, dict) else found
    except ValueError:
        reason = body.decode(errors="replace")
    reason = " ".join(str(reason or "").split()) or "no reason was given"
    shortest = constants.KEY_CHARS if status != 401 else constants.REFUSED_KEY_CHARS  # a 401 concerns the key
    text = f"{server.name} answered {status}: {server.redact(reason, shortest)[:500]}"
    if status == 407 and server.endpoint.proxy:
        proxy = shown_address(server.endpoint.proxy)
        text = f"{text}; check the user and the password of the proxy {proxy} in HTTP_PROXY"
    elif status in (401, 403) and server.unauthorized:
        text = f"{text}; {server.unauthorized}"
    return ModelError(
        text, status=status, retryable=status in RETRYABLE, retry_after=_retry_after(response.headers, body)
    )


def _retry_after(headers: Mapping[str, str], body: bytes) -> float | None:
    """Return the retry delay in seconds, from seconds, milliseconds or a date, or from the body as Google sends it."""
    from email.utils import parsedate_to_datetime  # imported late, as it is large

    try:
        if (ms := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(ms) / 1000)
        if (value := headers.get("retry-after")) is None:
            delay = re.search(rb'"retryDelay":\s*"(\d{1,6}(?:\.\d+)?)s"', body)
            return float(delay[1]) if delay else None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


async def close() -> None:
    """Close the connections of this event loop now."""
    from wick.models import _connections  # imported late, as aiohttp is large

    await _connections.close()
