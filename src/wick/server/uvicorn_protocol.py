"""HTTP on the wire: the head of a request is small and comes soon, or the connection is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from wick.constants import HEAD_BYTES, HEAD_SECONDS

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
HEADER_SIGNS = 4  # of a header: a colon, a blank and the end of its line
INVALID_TEXT = 1007  # why a WebSocket is closed
UNREADABLE = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class HttpProtocol(HttpToolsProtocol):
    """A connection. Whoever says nothing for long, or headers without end, holds it no longer.

    A body comes to the app in pieces, which looks after its size and pace; what is left are heads and trailers.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._heading = True  # headers that come are those of a head
        self._unread = 0  # bytes that came and were no body, since the last head
        self._head = 0  # bytes of the head that is being read
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
        if self._heading and self._head <= HEAD_BYTES:  # trailers are nobody's: they would change what was checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse a head that is too large, also one that arrived with its body in a single read."""
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
        if self.cycle.more_body:  # it was answered before its body came; what is left of that is not waited for
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
    """A WebSocket. A head that it does not take, such as one with a long line, is refused and not waited for."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(UNREADABLE)
            self.transport.close()

    def send_receive_event_to_app(self) -> None:
        """What is said as text and is none ends it, as the protocol has it: the client's fault, and no error here."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            if self.conn.close_sent is None:  # else it was closed at once
                self.conn.send_close(INVALID_TEXT)
                self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # a refusal is an answer, too, and nothing to be logged as an error


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
