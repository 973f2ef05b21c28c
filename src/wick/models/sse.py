"""Server-sent events, read strictly and without copying more than needed.

`feed` takes bytes as they come off the wire, cut anywhere, and gives back the data of every event
that is complete. Comments, other fields, CRLF and data in several lines are understood.
"""

from __future__ import annotations

from wick.caps import SSE_LINE_BYTES
from wick.errors import ModelError


class Events:
    """The events of one stream."""

    __slots__ = ("_data", "_held", "_rest", "_size")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended yet
        self._size = 0
        self._data: list[bytes] = []  # the data lines of an event that has not ended yet
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that these bytes complete."""
        *lines, rest = chunk.split(b"\n")
        if not lines:
            return self._keep(rest)
        if self._rest:
            lines[0] = b"".join((*self._rest, lines[0]))
        self._rest, self._size = ([rest], len(rest)) if rest else ([], 0)
        return self._read(lines)

    def close(self) -> list[bytes]:
        """The stream has ended; an event that only lacks its empty line counts."""
        return self._read([b"".join(self._rest), b""])

    def _keep(self, rest: bytes) -> list[bytes]:
        self._rest.append(rest)
        self._size += len(rest)
        if self._size > SSE_LINE_BYTES:
            raise ModelError(f"the model's server sent a line longer than {SSE_LINE_BYTES:,} bytes")
        return []

    def _read(self, lines: list[bytes]) -> list[bytes]:
        done, data = [], self._data
        for line in lines:
            if line[-1:] == b"\r":
                line = line[:-1]
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._held += len(line)
                if self._held > SSE_LINE_BYTES:
                    raise ModelError(f"the model's server sent an event longer than {SSE_LINE_BYTES:,} bytes")
            elif data and not line:
                done.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
                self._held = 0
        return done


class Whole:
    """An answer that is no stream: its bytes are one event, when it has ended."""

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
        return [b"".join(self._bytes)] if self._bytes else []
