"""A faulty proxy: it delays, throttles, corrupts, cuts, resets or half-closes a response.

    async with Proxy(server.port, Trouble("reset", after=300)) as proxy:
        ...  # ask at proxy.port; after 300 bytes of its answers the connection is reset

Each connection counts its own bytes. Trouble comes to as many connections as `times` says, in the order they come;
those after them are carried as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Literal, get_args

from tcp_listener import Listener

Kind = Literal["fine", "delay", "throttle", "corrupt", "cut", "reset", "half-close", "stall"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault after that many bytes of a response.

    delay: nothing for `seconds`. throttle: from there on `size` bytes at a time, with `seconds` between them.
    corrupt: the next byte is `byte`. cut: both sides see an end. reset: the client sees a reset.
    half-close: the client sees an end, and what it sends is still carried. stall: nothing more comes.
    """

    kind: Kind = "fine"
    after: int = 0
    seconds: float = 0.05
    size: int = 64
    byte: int = 0xFF


FINE = Trouble()


class _Ends(Exception):
    """The answer ends here."""


class Proxy(Listener):
    """Carries connections from a port of its own to another one of this machine, while it is entered."""

    def __init__(self, target: int, trouble: Trouble = FINE, times: int = 1) -> None:
        super().__init__()
        self.target, self.trouble, self.times = target, trouble, times
        self.accepted = 0  # accepted connections
        self.carried = 0  # forwarded bytes of responses
        self.struck = 0  # injected faults

    @property
    def open(self) -> int:
        """Return the number of open connections."""
        return len(self._tasks)

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        trouble = self.trouble if self.accepted < self.times else FINE
        self.accepted += 1
        try:
            await self._between(reader, writer, trouble)
        except (OSError, _Ends, asyncio.CancelledError):
            """A side left, the answer was to end here, or the proxy ends."""
        finally:
            self._tasks.discard(task)

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, trouble: Trouble) -> None:
        there: asyncio.StreamWriter | None = None
        both: list[asyncio.Task[None]] = []
        try:
            answers, there = await asyncio.open_connection("127.0.0.1", self.target)
            both = [
                asyncio.create_task(_carry(reader, there)),
                asyncio.create_task(self._answer(answers, writer, trouble)),
            ]
            await asyncio.gather(*both)
        finally:
            sides = [side for side in (writer, there) if side is not None]
            for side in sides:
                side.close()  # at once: closing the proxy must not wait for the rest
            for task in both:
                task.cancel()
            await asyncio.gather(*both, *map(_closed, sides), return_exceptions=True)

    async def _answer(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, trouble: Trouble) -> None:
        """Carry an answer to the client, up to the place where there is trouble, and then on as it must be."""
        left = trouble.after
        while trouble.kind != "fine" and left > 0:
            data = await answers.read(min(CHUNK, left))
            if not data:
                return _no_more(writer)
            left -= len(data)
            await self._pass(data, writer)
        if trouble.kind != "fine":
            self.struck += 1
            await self._strike(answers, writer, trouble)
        while data := await answers.read(trouble.size if trouble.kind == "throttle" else CHUNK):
            await self._pass(data, writer)
            if trouble.kind == "throttle":
                await asyncio.sleep(trouble.seconds)
        return _no_more(writer)

    async def _strike(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, trouble: Trouble) -> None:
        if trouble.kind == "delay":
            await asyncio.sleep(trouble.seconds)
        elif trouble.kind == "corrupt":
            if await answers.read(1):
                await self._pass(bytes([trouble.byte]), writer)
        elif trouble.kind == "stall":
            await asyncio.Event().wait()
        elif trouble.kind == "half-close":
            _no_more(writer)
            await asyncio.Event().wait()
        elif trouble.kind in ("cut", "reset"):
            _hang_up(writer, trouble.kind == "reset")
            raise _Ends

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        self.carried += len(data)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy the client's bytes; when the client disconnects, so does the proxy."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    raise _Ends


def _no_more(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()


def _hang_up(writer: asyncio.StreamWriter, reset: bool) -> None:
    if not reset:
        return writer.close()
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return writer.transport.abort()


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Wait until the rest was sent; do not wait for a client that does not read."""
    try:
        async with asyncio.timeout(1):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
