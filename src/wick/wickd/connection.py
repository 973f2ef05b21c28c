"""Line-based connections: authentication by token, line length limits, and backpressure."""

from __future__ import annotations

import json
import os
from _operator import _compare_digest  # `hmac` would import OpenSSL
from collections import deque
from typing import Any, Callable

from wick import constants
from wick.wickd.event_loop import EventLoop

READ_BYTES, WRITE_BYTES = 262_144, 1_048_576  # at once
TOKEN_LINE_BYTES, TOKEN_SECONDS = 4_096, 10.0


class LineConnection:
    """A connection of lines. If a token is set, the first line must contain it, or the connection is closed."""

    def __init__(self, loop: EventLoop, ends: tuple[int, int], token: str = "") -> None:
        self._loop, (self._reads, self._writes), self._token = loop, ends, token
        self._received, self._searched, self._skipping = bytearray(), 0, False
        self._replies: deque[memoryview] = deque()
        self._unread = 0
        self.open = True
        self.on_close: Callable[[], None] = lambda: None
        for descriptor in {*ends}:
            os.set_blocking(descriptor, False)
        loop.on_read(self._reads, self._read_lines)
        if token:
            loop.call_later(TOKEN_SECONDS, lambda: self.close() if self._token else None)

    def handle_line(self, line: bytes) -> None:
        """Handle a request line."""
        raise NotImplementedError

    def set_backpressure(self, behind: bool) -> None:
        """Pause output while the client does not read, or resume it."""
        raise NotImplementedError

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        for descriptor in {self._reads, self._writes}:
            self._loop.unregister(descriptor)
            os.close(descriptor)
        self._replies.clear()
        self.on_close()

    # -- in ---------------------------------------------------------------------------------------------------------

    def _read_lines(self) -> None:
        try:
            data = os.read(self._reads, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._received += data
        while self.open:
            line = self._next_line()
            if line is None:
                return
            if not self._token:
                if line.strip():
                    self.handle_line(line)
                continue
            try:
                token = json.loads(line)["token"].encode()
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                token = b""
            if not _compare_digest(token, self._token.encode()):
                self.close()
                return
            self._token = ""

    def _next_line(self) -> bytes | None:
        """Return the next complete line, or None. Discard a line that is too long, and refuse it once."""
        end = self._received.find(b"\n", self._searched)
        if end >= 0:
            line = b"" if self._skipping else bytes(self._received[:end])
            del self._received[: end + 1]
            self._searched, self._skipping = 0, False
            return line
        self._searched = len(self._received)
        if self._searched <= (TOKEN_LINE_BYTES if self._token else constants.WIRE_LINE_BYTES):
            return None
        if self._token:
            self.close()
            return None
        if not self._skipping:
            self.reply_error(
                "", f"a request is longer than {constants.WIRE_LINE_BYTES} bytes; send less at once", "too_large"
            )
        self._skipping = True
        self._received, self._searched = bytearray(), 0
        return None

    # -- out --------------------------------------------------------------------------------------------------------

    def reply(self, id: str, **fields: Any) -> None:
        """Send a line with the id of the request and some fields; drop it if the connection is closed."""
        line = json.dumps({"id": id, **fields}, separators=(",", ":")).encode() + b"\n"
        if not self.open:
            return
        self._replies.append(memoryview(line))
        self._unread += len(line)
        if len(self._replies) == 1:
            self._write()
        else:
            self._apply_backpressure()

    def reply_error(self, id: str, sentence: str, code: str) -> None:
        self.reply(id, error=sentence, code=code)

    def _write(self) -> None:
        try:
            while self._replies:
                first = self._replies[0]
                written = os.write(self._writes, first[:WRITE_BYTES])
                self._unread -= written
                if written < len(first):
                    self._replies[0] = first[written:]
                else:
                    self._replies.popleft()
            self._loop.on_write(self._writes, None)
        except BlockingIOError:
            self._loop.on_write(self._writes, self._write)
        except OSError:
            self.close()
            return
        self._apply_backpressure()

    def _apply_backpressure(self) -> None:
        """Pause output while the client does not read; at 32 times the buffer size, stop reading requests too."""
        self.set_backpressure(self._unread > constants.WIRE_BUFFER_BYTES)
        if self.open:
            self._loop.on_read(
                self._reads, None if self._unread > 32 * constants.WIRE_BUFFER_BYTES else self._read_lines
            )
