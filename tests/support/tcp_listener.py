"""A TCP listener as a context manager: one task per connection, and none left at its end."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

Self = TypeVar("Self", bound="Listener")


class Listener:
    """A base class: `come` handles each connection as a task in `_tasks`."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self._tasks: set[asyncio.Task[Any]] = set()

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle a connection."""

    async def __aenter__(self: Self) -> Self:
        self._server = await asyncio.start_server(self.handle_connection, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()
