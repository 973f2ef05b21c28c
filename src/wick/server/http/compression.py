"""Compression of JSON and text responses with gzip. Event streams, files and compressed responses are sent as they are.

Starlette's middleware compresses in the event loop; here a large piece is compressed in a thread.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wick._internal.worker_threads import run_in_thread

TYPES = ("application/json", "text/markdown", "text/plain", "text/html")
SMALL_BYTES = 1_000  # a smaller body is not compressed
THREAD_BYTES = 16_000  # a larger piece is compressed in a thread
LEVEL = 5
GZIP_BITS = 16 + zlib.MAX_WBITS
_REFUSED = re.compile(r"q=0(\.0*)?$")


class CompressionMiddleware:
    """Compresses responses for clients that accept gzip."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            send = _Compressor(send, accepts_gzip(Headers(scope=scope).get("accept-encoding", "")))
        await self._app(scope, receive, send)


class _Compressor:
    """Passes the messages of one response on, compressed if it is large enough text."""

    def __init__(self, send: Send, accepted: bool) -> None:
        self._send, self._accepted = send, accepted
        self._start: Message | None = None  # until the size of the body is known
        self._gzip: Any = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not is_compressible(MutableHeaders(raw=message.setdefault("headers", []))):
                await self._send(message)
                return
            MutableHeaders(raw=message["headers"]).add_vary_header("Accept-Encoding")
            self._start = message
        elif message["type"] == "http.response.body":
            await self._send_body(message)
        else:
            await self._send(message)

    async def _send_body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)

        def compress() -> bytes:
            return bytes(self._gzip.compress(body) + (b"" if more else self._gzip.flush()))

        if self._start is not None:
            start, self._start = self._start, None
            if self._accepted and (more or len(body) >= SMALL_BYTES):
                headers = MutableHeaders(raw=start["headers"])
                headers["Content-Encoding"] = "gzip"
                del headers["Content-Length"]
                self._gzip = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP_BITS)
            await self._send(start)
        if self._gzip is not None:
            in_thread = len(body) > THREAD_BYTES
            packed = await run_in_thread(compress, "compressing a response") if in_thread else compress()
            if not packed and more:  # it is in the buffer of the compressor
                return
            message = {**message, "body": packed}
        await self._send(message)


def accepts_gzip(header: str) -> bool:
    """Return True if the value of an Accept-Encoding header allows gzip."""
    for part in header.lower().split(","):
        name, _, quality = (piece.strip() for piece in part.partition(";"))
        if name == "gzip":
            return not _REFUSED.search(quality.replace(" ", ""))
    return False


def is_compressible(headers: MutableHeaders) -> bool:
    """Return True for a response of text that is not a stream, a download or compressed already."""
    kind = headers.get("content-type", "").partition(";")[0].strip()
    return kind in TYPES and "content-encoding" not in headers and "content-range" not in headers
