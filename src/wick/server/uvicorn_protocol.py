"""uvicorn protocols that limit the size and the time of request heads, and the `Date` of responses."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from wick.constants import HEAD_BYTES, HEAD_SECONDS

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
HEADER_SIGNS = 4  # per header: colon, space and line end
INVALID_TEXT = 1007  # WebSocket close code
UNREADABLE = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class DatedServerState(ServerState):
    """The state of a uvicorn server. It formats the `Date` header when a response needs it, not by a timer."""

    is_draining = False  # responses then close their connection, so that clients reconnect elsewhere
    _second = -1
    _headers: list[tuple[bytes, bytes]]

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        now = int(time.time())
        if now != self._second:
            self._second, self._headers = now, [(b"date", formatdate(now, usegmt=True).encode())]
        return [*self._headers, (b"connection", b"close")] if self.is_draining else self._headers

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Ignore the headers that uvicorn sets: it has no others."""


class HttpProtocol(HttpToolsProtocol):
    """An HTTP connection that is closed if a request head is too large or too slow.

    The app limits the size and the pace of bodies. This class limits heads and trailers.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._heading = True  # the current headers belong to a head, not to trailers
        self._unread = 0  # received bytes since the last head that are not body
        self._head = 0  # bytes of the current head
        self._refused = False
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_received()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEAD_BYTES and not self.transport.is_closing():
            if self._heading:
                self._refuse()
            self.transport.close()

    def on_message_begin(self) -> None:
        if self._refused:
            return
        super().on_message_begin()
        self._head = 0
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + HEADER_SIGNS
        if self._heading and self._head <= HEAD_BYTES:  # ignore trailers: they would change checked headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse a head that is too large, also if it arrived with its body in one read."""
        if self._refused or self._head > HEAD_BYTES:
            self._refuse()
            return
        self._head_received()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        if not self._refused:
            super().handle_websocket_upgrade()

    def _refuse(self) -> None:
        if not self._refused and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()
        self._refused = True

    def on_response_complete(self) -> None:
        if self.cycle.more_body:  # answered before its body arrived: do not wait for the rest
            self._expect_head()
        super().on_response_complete()

    def _expect_head(self) -> None:
        self._heading = True
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_received(self) -> None:
        self._heading, self._unread = False, 0
        if self._late is not None:
            self._late.cancel()
            self._late = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket connection that refuses an invalid handshake at once, such as one with a long line."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(UNREADABLE)
            self.transport.close()

    def send_receive_event_to_app(self) -> None:
        """Close the connection with code 1007 if a text message is not UTF-8, without logging an error."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            if self.conn.close_sent is None:  # else it is closed already
                self.conn.send_close(INVALID_TEXT)
                self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # a refusal is a complete response; otherwise uvicorn logs an error


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
