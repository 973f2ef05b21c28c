"""A decoder for AWS event streams: binary messages with headers, a payload and two checksums.

Each message becomes one event in JSON: an object whose only key is the type of the event.
"""

from __future__ import annotations

import json
from struct import Struct, error
from zlib import crc32

from wick.constants import SSE_LINE_BYTES
from wick.errors import ModelError

_PRELUDE = Struct(">III")  # the length of the message, the length of its headers, and a checksum of both
_CHECKSUM = Struct(">I")
_FRAME_BYTES = 16  # the prelude, and the checksum at the end
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # of header values, by type
_BYTES, _TEXT = 6, 7  # types of header values that begin with their length


class EventStreamDecoder:
    """A decoder for one event stream."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return each event that this chunk completes."""
        self._buffer += chunk
        buffer, events = self._buffer, list[bytes]()
        while len(buffer) >= _PRELUDE.size:
            length, headers_length, checksum = _PRELUDE.unpack_from(buffer)
            if crc32(buffer[:8]) != checksum or headers_length > length - _FRAME_BYTES:
                raise _damaged()
            if length > SSE_LINE_BYTES:
                raise ModelError(f"the model's server sent an event longer than {SSE_LINE_BYTES:,} bytes")
            if len(buffer) < length:
                break
            message = bytes(buffer[:length])
            del buffer[:length]
            if crc32(message[:-4]) != _CHECKSUM.unpack(message[-4:])[0]:
                raise _damaged()
            start = _PRELUDE.size + headers_length
            events.append(_to_json(_read_headers(message[_PRELUDE.size : start]), message[start:-4]))
        return events

    def close(self) -> list[bytes]:
        """Return no events: a message without its end is lost."""
        return []


def _damaged() -> ModelError:
    return ModelError("the model's server sent a stream that was damaged on the way", retryable=True)


def _read_headers(data: bytes) -> dict[str, str]:
    """Return the headers of a message that are texts."""
    headers: dict[str, str] = {}
    place = 0
    try:
        while place < len(data):
            size = data[place]
            name, kind = data[place + 1 : place + 1 + size].decode(), data[place + 1 + size]
            place += size + 2
            if kind in (_BYTES, _TEXT):
                length = int.from_bytes(data[place : place + 2], "big")
                place += 2
                if kind == _TEXT:
                    headers[name] = data[place : place + length].decode()
            else:
                length = _SIZES[kind]
            place += length
    except (LookupError, ValueError, error):
        raise _damaged() from None
    return headers


def _to_json(headers: dict[str, str], payload: bytes) -> bytes:
    """Return a message as an event. An exception becomes an event with the type `error`."""
    if headers.get(":message-type", "event") == "event":
        return b"{%s:%s}" % (json.dumps(headers.get(":event-type", "")).encode(), payload or b"{}")
    kind = headers.get(":exception-type") or headers.get(":error-code", "")
    reason = headers.get(":error-message", "")
    try:
        reason = reason or str(json.loads(payload)["message"])
    except (KeyError, TypeError, ValueError, RecursionError):
        reason = reason or payload.decode(errors="replace")[:500]
    return json.dumps({"error": {"type": kind, "message": reason}}, separators=(",", ":")).encode()
