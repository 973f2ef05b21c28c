"""Connections to model servers: an aiohttp session per event loop, and requests that survive stale connections.

response = await post(endpoint, body)         then `status` and `headers` are known
try:
    while piece := await response.read(seconds):
        ...
finally:
    response.close()                        reuse the connection if the response was read to its end
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from errno import EPIPE
from functools import lru_cache
from io import BytesIO
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
from yarl import URL

from wick import constants
from wick.models._network import Broken, Endpoint, NetworkSettings, Unreachable, find_context, shown_address

PORTION_BYTES = 16_384  # returned by one read: some hundred deltas, then other tasks get a turn
_LARGE_BYTES = 1_000_000  # aiohttp writes larger bodies in pieces if they are files


class Response:
    """An open response."""

    __slots__ = ("_content", "_is_cut", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response, self._content = response, response.content
        self._is_cut = False  # the last portion was a part of the received bytes

    async def read(self, seconds: float) -> bytes:
        """Return the next portion of the body, or no bytes at its end."""
        if seconds <= 0:  # also if a server never pauses
            raise TimeoutError
        if self._is_cut:
            await asyncio.sleep(0)
        content = self._content
        try:
            piece = content.read_nowait(PORTION_BYTES)
            if not piece and not content.at_eof():
                async with asyncio.timeout(seconds):
                    piece = await content.read(PORTION_BYTES)
        except (aiohttp.ClientError, RuntimeError) as error:  # RuntimeError: the connection is closed
            raise Broken(_describe_break(error)) from None
        self._is_cut = len(piece) == PORTION_BYTES
        return piece

    def close(self) -> None:
        """Release the connection if the response was read to its end; else close it."""
        self._response.close()


async def post(endpoint: Endpoint, body: bytes) -> Response:
    """Send a request and return the response; raise Unreachable, Broken or TimeoutError.

    A server may close a pooled connection at any time. The request is sent again if that happened before any answer.
    """
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        holder = _hold_session()
        _sessions[loop] = (await anext(holder), holder)
    session, _ = _sessions[loop]
    options: dict[str, Any] = {"proxy": endpoint.proxy or None}
    options["timeout"] = aiohttp.ClientTimeout(total=None, connect=endpoint.connect)
    if endpoint.url.startswith("https:"):
        options["ssl"] = await find_context(endpoint.network)
    until, url = monotonic() + endpoint.first_byte, _parse_url(endpoint.url)
    while True:
        sockets: list[int] = []
        _opened.set(sockets)
        try:
            async with asyncio.timeout(until - monotonic()):
                data = body if len(body) < _LARGE_BYTES else BytesIO(body)
                return Response(
                    await session.post(url, data=data, headers=endpoint.headers, allow_redirects=False, **options)
                )
        except (aiohttp.ClientError, OSError) as error:
            if type(error) is TimeoutError:
                raise
            failure = _describe_failure(endpoint, error)
            if isinstance(error, OSError):  # a reset may come after a part of the answer, a failed write cannot
                is_unanswered = error.errno in (None, EPIPE)
            else:  # the message is not a text if a part of the answer came
                is_unanswered = isinstance(error, aiohttp.ServerDisconnectedError) and isinstance(error.message, str)
            if isinstance(failure, Unreachable) or sockets or not is_unanswered:
                raise failure from None


@lru_cache(64)
def _parse_url(url: str) -> URL:
    return URL(url, encoded=True)


# -- errors ---------------------------------------------------------------------------------------------------------

_UNKNOWN_CA = (18, 19, 20, 21)  # codes of OpenSSL: self-signed, or the issuer is not known
_ALERT = re.compile(r"alert|certificate required|handshake failure", re.IGNORECASE)


def _describe_failure(endpoint: Endpoint, error: Exception) -> OSError:
    """Return the error of a request that was not answered."""
    scheme, advice = endpoint.url.partition(":")[0], ""
    if endpoint.proxy:
        proxy = f"the proxy {shown_address(endpoint.proxy)} in {scheme.upper()}_PROXY"
        advice = f"check {proxy}, or add the server to NO_PROXY"
    elif scheme == "https" and isinstance(
        error, ConnectionError | aiohttp.ClientOSError | aiohttp.ServerDisconnectedError
    ):
        advice = _advise_certificate(endpoint.network)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Unreachable(f"there is no connection within {endpoint.connect:.3g} s", advice)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        reason, status = f"the proxy answered {error.status} {error.message}", error.status
        return Unreachable(reason, advice, status=status, retryable=status >= 500)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _describe_certificate(endpoint.network, error.certificate_error)
    if isinstance(error, aiohttp.ClientOSError) and _ALERT.search(text := str(error)):
        advice = _advise_certificate(endpoint.network)
        return Unreachable(f"the TLS handshake failed: {text}", advice, retryable=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        is_reset = isinstance(error.os_error, ConnectionResetError) or endpoint.proxy
        reason = error.strerror or str(error.os_error) or type(error.os_error).__name__
        return Unreachable(reason, advice if is_reset else "")
    return Broken("; ".join(filter(None, (_describe_break(error), advice))))


def _advise_certificate(network: NetworkSettings) -> str:
    if network.cert:
        return "if the server refuses the client certificate, check cert"
    return "if the server demands a client certificate, give one as cert"


def _describe_certificate(network: NetworkSettings, error: Exception) -> Unreachable:
    reason = getattr(error, "verify_message", "") or str(error)
    if getattr(error, "verify_code", 0) not in _UNKNOWN_CA:
        advice = "check the address, the clock of this machine, and the certificate of the server"
    elif isinstance(network.verify, str):
        advice = f"add the CA that signed it to {network.verify}"
    else:
        advice = "set SSL_CERT_FILE to the file of the CA that signed it, or give the path as verify"
        for name, exists in (("SSL_CERT_FILE", os.path.isfile), ("SSL_CERT_DIR", os.path.isdir)):
            if (path := os.getenv(name)) and not all(map(exists, path.split(os.pathsep))):
                advice = f"correct {name}: there is no {path}"
    return Unreachable(f"its certificate cannot be verified: {reason}", advice, retryable=False)


def _describe_break(error: Exception) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed it"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the reply is not an HTTP response: {error.message}"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # the text of aiohttp may contain the URL
    return str(error) or type(error).__name__


# -- sessions -------------------------------------------------------------------------------------------------------

_opened: ContextVar[list[int]] = ContextVar("_opened")  # sockets that the current request opened
_Held = tuple[aiohttp.ClientSession, AsyncGenerator[aiohttp.ClientSession, None]]
_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Held] = WeakKeyDictionary()  # each is closed with its loop


async def _hold_session() -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Close the session when the event loop shuts down: a closing loop closes its async generators."""

    def open_socket(address: Any) -> socket.socket:
        opened = socket.socket(*address[:3])
        _opened.get([]).append(opened.fileno())
        return opened

    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=constants.CONNECTION_IDLE_SECONDS, socket_factory=open_socket
    )
    # `trust_env` would read ~/.netrc for each request and send its passwords; `find_proxy` finds the proxy.
    session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
    try:
        yield session
    finally:
        _sessions.pop(asyncio.get_running_loop(), None)  # the session refers to the loop, which would leak
        await session.close()


async def close() -> None:
    """Close the connections of this event loop now."""
    held = _sessions.pop(asyncio.get_running_loop(), None)
    if held is not None:
        await held[1].aclose()
