"""The TCP proxy in front of the server; connections can be cut."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress

from tcp_listener import Listener

CHUNK = 65_536


class Door(Listener):
    """Forwards connections to a port and breaks some on demand."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self.target = target
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()

    @property
    def open(self) -> int:
        return len(self._pairs)

    def cut(self, chance: random.Random, share: float) -> int:
        """Break that share of the connections: some are reset, some closed, some half."""
        chosen = [pair for pair in [*self._pairs] if chance.random() < share]
        for client, server in chosen:
            how = chance.choice(("reset", "close", "half"))
            if how == "reset":
                _reset(client)
            elif how == "close":
                client.close()
                server.close()
            else:
                with suppress(OSError, RuntimeError):
                    client.write_eof()
                server.close()
        return len(chosen)

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, onward = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _reset(writer)
            self._tasks.discard(task)
            return
        pair = writer, onward
        self._pairs.add(pair)
        try:
            ways = [asyncio.ensure_future(_pass(reader, onward)), asyncio.ensure_future(_pass(there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except asyncio.CancelledError:
            """The door is shut."""
        finally:
            self._pairs.discard(pair)
            self._tasks.discard(task)
            for end in pair:
                end.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    link = writer.get_extra_info("socket")
    with suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
