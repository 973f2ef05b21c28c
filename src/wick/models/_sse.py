"""A strict decoder for server-sent events that copies little.

`feed` takes chunks of bytes and returns the data of every complete event. It accepts comments, other fields, line
endings CRLF, LF and CR, a byte order mark, and data on several lines.
"""

from __future__ import annotations

from codecs import BOM_UTF8

from wick.constants import SSE_LINE_BYTES
from wick.errors import ModelError


class SSEDecoder:
    """A decoder for one stream of server-sent events."""

    __slots__ = ("_after_cr", "_data", "_first", "_held", "_rest")

    def __init__(self) -> None:
        self._first = True  # the first line may begin with a byte order mark
        self._after_cr = False  # the last chunk ended in CR; an LF that follows belongs to it
        self._rest: list[bytes] = []  # pieces of an incomplete line
        self._data: list[bytes] = []  # the data lines of an event that has not ended yet
        self._held = 0  # bytes that came for either

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that this chunk completes."""
        if self._after_cr or b"\r" in chunk:
            # Convert every line ending to LF, also where CRLF was cut between two chunks.
            if self._after_cr and chunk:
                chunk, self._after_cr = chunk.removeprefix(b"\n"), False
            self._after_cr = chunk.endswith(b"\r") or (self._after_cr and not chunk)
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._rest:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest.clear()
        if rest:
            self._rest.append(rest)
        done = self._read(lines)
        self._held = 0 if done or not (self._rest or self._data) else self._held + len(chunk)
        if self._held > SSE_LINE_BYTES:
            raise ModelError(f"the model's server sent an event longer than {SSE_LINE_BYTES:,} bytes")
        return done

    def close(self) -> list[bytes]:
        """Return the last event at the end of the stream, even without its empty line."""
        return self._read([b"".join(self._rest), b""])

    def _read(self, lines: list[bytes]) -> list[bytes]:
        done, data = [], self._data
        if self._first and lines:
            self._first, lines[0] = False, lines[0].removeprefix(BOM_UTF8)
        for line in lines:
            if not line:
                if data:
                    done.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
            elif line.startswith(b"data:"):
                data.append(line[5:].strip())  # JSON ignores the space around a line
            elif not line.isascii() and not line.partition(b":")[0].isascii():
                raise ModelError("the model's server sent a stream that was damaged on the way", retryable=True)
        return done


class WholeBody:
    """A decoder for a response that is not a stream: its body is one event."""

    __slots__ = ("_bytes", "_size")

    def __init__(self) -> None:
        self._bytes: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        self._bytes.append(chunk)
        self._size += len(chunk)
        if self._size > SSE_LINE_BYTES:
            raise ModelError(f"the model's server sent an answer longer than {SSE_LINE_BYTES:,} bytes")
        return []

    def close(self) -> list[bytes]:
        return [b"".join(self._bytes).removeprefix(BOM_UTF8)] if self._bytes else []
