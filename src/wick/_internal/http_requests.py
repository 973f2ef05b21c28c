"""Guarded HTTP requests: bounded in time and size, and by default limited to public addresses (no SSRF).

The address is checked when its socket is opened, which also defeats DNS rebinding. Redirects are not followed;
proxies and cookies are not used.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from wick._internal.frozen import canonical_json, freeze
from wick.errors import ToolError, Uncertain

EXCERPT_CHARS = 200  # how much of an error page is quoted
SAFE = ("GET", "HEAD", "OPTIONS")  # methods without side effects, which can be retried
GLOBAL_UNICAST = IPv6Network("2000::/3")  # excludes ranges that embed an IPv4 address: mapped, NAT64


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response. `truncated` is set if the body was longer than the limit."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    truncated: bool


async def post_json(
    url: str, body: Any, *, private: bool, seconds: float, most_bytes: int, headers: Mapping[str, str] | None = None
) -> Any:
    """Send JSON and return the JSON reply; raise ToolError if the request fails.

    Unless `private`, only public addresses are allowed. `most_bytes` limits the body before and after decompression.
    """
    where = _format_origin(url)
    try:
        data = canonical_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"the request cannot be sent, for its body is not JSON data: {_shorten(error)}") from None
    fixed = {"Content-Type": "application/json", "Accept": "application/json"}
    async with _send_request("POST", url, where, private, seconds, {**fixed, **(headers or {})}, data) as response:
        status, coding = response.status, _content_encoding(response)
        if 300 <= status < 400:
            raise ToolError(
                f"{where} answered with a redirect ({status}), which is not followed; use the final address"
            )
        if status >= 400:
            page = _decompress(await response.content.read(4 * EXCERPT_CHARS), coding, 4 * EXCERPT_CHARS, where)
            raise ToolError(f"{where} answered with status {status}: {_shorten(page.decode('utf-8', 'replace'))}")
        raw, more = await _read_body(response, most_bytes)
        raw = raw if more else _decompress(raw, coding, most_bytes, where)
    if len(raw) > most_bytes:
        raise ToolError(f"{where} answered with more than {most_bytes:,} bytes; ask it for less")
    try:
        value = from_json(raw, allow_inf_nan=False)
        freeze(value)  # for its check of the depth
    except ValueError as error:
        raise ToolError(f"{where} did not answer with JSON: {_shorten(error)}") from None
    return value


async def fetch(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    private: bool,
    seconds: float,
    most_bytes: int,
) -> HttpResponse:
    """Send a request and return the response with any status. A long body is truncated."""
    where = _format_origin(url)
    async with _send_request(method, url, where, private, seconds, headers or {}, body or None) as response:
        raw, more = await _read_body(response, most_bytes)
        plain = _decompress(raw, _content_encoding(response), most_bytes, where)
        lowered = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(response.status, lowered, bytes(plain[:most_bytes]), more or len(plain) > most_bytes)


@asynccontextmanager
async def _send_request(
    method: str, url: str, where: str, private: bool, seconds: float, headers: Mapping[str, str], data: bytes | None
) -> AsyncIterator[Any]:
    """Send a request and yield the open response; translate connection errors to ToolError."""
    import aiohttp

    refused: list[str] = []
    unsure, hint = (ToolError, "") if method in SAFE else (Uncertain, "; whether it took effect is unknown")

    def open_socket(address: Any) -> socket.socket:
        family, kind, protocol, _, (peer, *_) = address
        if not private and not is_public_address(str(peer)):
            refused.append(str(peer))
            raise PermissionError(f"{peer} is not a public address")
        return socket.socket(family, kind, protocol)

    try:
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(socket_factory=open_socket, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                auto_decompress=False,
            ) as session,
            session.request(
                method, url, data=data, headers={"Accept-Encoding": "identity", **headers}, allow_redirects=False
            ) as response,
        ):
            yield response
    except TimeoutError:
        raise unsure(f"{where} did not answer within {seconds:g} s{hint}") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if refused:
            raise ToolError(f"{where} is at {refused[0]}, which is not a public address; use a public one") from None
        if isinstance(error, aiohttp.ClientConnectorError):
            raise ToolError(f"{where} cannot be reached: {_shorten(error)}; check that it is running") from None
        why = _shorten(error) or type(error).__name__
        raise unsure(f"the request to {where} broke off: {why}{hint}") from None


def is_public_address(ip: str) -> bool:
    """Return True if an IP address is public and does not embed another address."""
    try:
        address = ip_address(ip)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    return address.is_global and address in GLOBAL_UNICAST and address.sixtofour is None


def _format_origin(url: str) -> str:
    """Return scheme, host and port of a URL for error messages, without path, query and password."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise ToolError("the URL to call is not well formed; use one like https://example.com/path") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolError("only http and https URLs with a host can be called; use one like https://example.com/path")
    return f"{parts.scheme}://{parts.hostname}{port}"


async def _read_body(response: Any, most_bytes: int) -> tuple[bytearray, bool]:
    """Read the body up to slightly more than `most_bytes`, and return it with True if it exceeds that limit."""
    raw = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        raw += chunk
        if len(raw) > most_bytes:
            return raw, True
    return raw, False


def _content_encoding(response: Any) -> str:
    return str(response.headers.get("Content-Encoding", "identity")).strip().lower()


def _decompress(raw: bytearray | bytes, coding: str, most_bytes: int, where: str) -> bytearray:
    """Decompress a body, although identity was requested, to at most one byte above the limit."""
    if coding == "identity":
        return bytearray(raw)
    if coding not in ("gzip", "deflate"):
        raise ToolError(
            f"{where} answered compressed as {_shorten(coding)}, which is not understood; answer uncompressed"
        )
    try:
        return bytearray(zlib.decompressobj(wbits=32 + zlib.MAX_WBITS).decompress(raw, most_bytes + 1))
    except zlib.error:
        raise ToolError(f"{where} answered with broken compression; answer uncompressed") from None


def _shorten(text: object) -> str:
    """Return a text on one line, truncated to EXCERPT_CHARS."""
    line = " ".join(str(text).split())
    return line if len(line) <= EXCERPT_CHARS else f"{line[:EXCERPT_CHARS]}…"
