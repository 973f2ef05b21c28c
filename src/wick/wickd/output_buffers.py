"""Bounded output buffers: the head and tail of an output, or its last bytes."""

from __future__ import annotations

from wick.workspace.results import CommandResult


class HeadTailBuffer:
    """A buffer for the first and last bytes of an output; it counts all of them."""

    def __init__(self, head: int, tail: int) -> None:
        self._most_head, self._most_tail = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._most_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._most_tail:  # amortized: moving the bytes is expensive
                self._trim_tail()

    def _trim_tail(self) -> None:
        del self._tail[: len(self._tail) - self._most_tail]

    @property
    def truncated(self) -> bool:
        return self.size > self._most_head + self._most_tail

    def to_text(self) -> str:
        """Return the whole output, or head and tail with a note about the omitted bytes."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        self._trim_tail()
        head, tail = trim_partial_end(bytes(self._head)), trim_partial_start(bytes(self._tail))
        left_out = self.size - len(head) - len(tail)
        middle = f"\n[… {left_out} bytes were left out here …]\n"
        return head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")


def build_command_result(
    stdout: HeadTailBuffer, stderr: HeadTailBuffer, exit_code: int, error: str, seconds: float
) -> CommandResult:
    """Return the result of a command that has ended. `moved` is for the host to fill in."""
    return {
        "stdout": stdout.to_text(),
        "stderr": stderr.to_text(),
        "exit_code": exit_code,
        "error": error,
        "truncated": stdout.truncated or stderr.truncated,
        "stdout_bytes": stdout.size,
        "stderr_bytes": stderr.size,
        "seconds": round(seconds, 6),
        "moved": [],
    }


class RingBuffer:
    """A buffer for the last bytes of an output, addressed by offsets in the whole output."""

    def __init__(self, most: int) -> None:
        self._most, self._kept = most, bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._kept += data
        if len(self._kept) > 2 * self._most:
            del self._kept[: len(self._kept) - self._most]

    def read_since(self, offset: int, *, ended: bool) -> tuple[int, bytes]:
        """Return the real offset and the bytes from there; hold back a partial character unless `ended`."""
        start = self.size - min(len(self._kept), self._most)
        offset = min(max(offset, start), self.size)
        data = bytes(self._kept[len(self._kept) - (self.size - offset) :]) if offset < self.size else b""
        return offset, data if ended else trim_partial_end(data)


def trim_partial_end(data: bytes) -> bytes:
    """Remove an incomplete UTF-8 character at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if needs > back else data
        if byte < 0x80:
            return data
    return data


def trim_partial_start(data: bytes) -> bytes:
    """Remove an incomplete UTF-8 character at the start."""
    for index in range(min(4, len(data))):
        if data[index] & 0xC0 != 0x80:
            return data[index:]
    return data if len(data) > 3 else b""
