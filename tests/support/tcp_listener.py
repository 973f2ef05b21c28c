"""Something on a port of this machine, while it is entered: whoever comes has a task, and none is left at its end."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

Self = TypeVar("Self", bound="Listener")


class Listener:
    """`come` is told of each connection, and puts its task into `_tasks` for as long as it goes on."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self._tasks: set[asyncio.Task[Any]] = set()

    async def come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody has connected."""

    async def __aenter__(self: Self) -> Self:
        self._server = await asyncio.start_server(self.come, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()
