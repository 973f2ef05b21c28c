"""Middleware for all requests: request ids and security headers, unhandled errors, body limits."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wick.constants import BODY_PACE, BODY_SECONDS
from wick.server.errors import ApiError
from wick.server.ops.metrics import Metrics

logger = logging.getLogger("wick.server")
access_logger = logging.getLogger("wick.server.access")

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; frame-src 'self' blob:; worker-src 'self' blob:; manifest-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
TINY_BYTES = 64_000  # body limit of public routes: a token
SMALL_BYTES = 8_000_000  # body limit of JSON routes
LARGE_BYTES = 48_000_000  # body limit of file uploads


async def send_error(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an error response. A WebSocket is refused before it is accepted, with an HTTP status if possible."""
    if scope["type"] == "http":
        await error.response()(scope, receive, send)
        return
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    body = orjson.dumps(error.body())
    given = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


class RequestIdMiddleware:
    """Assigns an id to every request, adds the security headers to every response, counts and logs requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope["wick.request_id"] = id = secrets.token_hex(8)
        began, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            status = 101 if message["type"] == "websocket.accept" else message.get("status", status)
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = _complete_headers(message.get("headers", ()), id)
                route = scope.get("wick.route_access")
                path = route.path if route is not None else "(none)"
                seconds = time.perf_counter() - began
                self._metrics.count_response(scope.get("method", "WS"), path, message["status"], seconds)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            if access_logger.isEnabledFor(logging.INFO):
                log_request(scope, status, time.perf_counter() - began)


_DEFAULT_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_DEFAULT_HEADERS.append((b"cache-control", b"no-store"))


def _complete_headers(headers: Iterable[tuple[bytes, bytes]], id: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response with its request id, and the default of each one that it lacks."""
    own = [(name, value) for name, value in headers if name.lower() != b"x-request-id"]
    names = {name.lower() for name, _ in own}
    return [*own, *(row for row in _DEFAULT_HEADERS if row[0] not in names), (b"x-request-id", id.encode())]


def log_request(scope: Scope, status: int, seconds: float) -> None:
    """Log a request when its response has ended. The query is left out, since it may contain a token."""
    method, path = scope.get("method", "WS"), quote(scope["path"], safe="/:@!$&'()*+,;=~")
    access_logger.info("%s %s %s %.0f ms", method, path, status or "no response", seconds * 1000)


class ErrorMiddleware:
    """Swallows unhandled errors of routes after they were logged, and closes a failed WebSocket with code 1011."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope["type"] == "lifespan":
                raise
            if scope["type"] == "websocket":  # the error of an HTTP request was logged by `handle_error`
                logger.error("connection %s to %s failed", scope["wick.request_id"], scope["path"], exc_info=error)
                with suppress(Exception):  # it may be closed already
                    await send({"type": "websocket.close", "code": 1011})


class BodyLimitMiddleware:
    """Limits the size of request bodies by route, and the time in which a body must arrive."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = body_limit(scope)
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not length.isdigit() or int(length) > most:
            await send_error(_too_large(most), scope, receive, send)
            return
        await self._app(scope, _limit_body(receive, most), send)


def body_limit(scope: Scope) -> int:
    """Return the body limit of the route that matches a request, in bytes."""
    route = scope.get("wick.route_access")
    if route is not None and route.access == "public":
        return TINY_BYTES
    files = route is not None and route.path.endswith(("/files/upload", "/skills"))
    return LARGE_BYTES if files else SMALL_BYTES


def _limit_body(receive: Receive, most: int) -> Receive:
    read, more, began = 0, True, 0.0

    async def bounded() -> Any:
        """Receive the next message. FastAPI passes on no other error than HTTPException from here."""
        nonlocal read, more, began
        if not more:  # the body is complete; only http.disconnect follows
            return await receive()
        began = began or time.monotonic()
        try:
            late = began + BODY_SECONDS + read / BODY_PACE - time.monotonic()
            async with asyncio.timeout(min(late, BODY_SECONDS)):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "the request body arrived too slowly; send it again") from None
        read, more = read + len(message.get("body", b"")), message.get("more_body", False)
        if read > most:
            raise HTTPException(413, _too_large(most).message)
        return message

    return bounded


def _too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"the body of this request may have at most {most:,} bytes")
