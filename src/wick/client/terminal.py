"""A remote shell in an agent's workspace, over a WebSocket."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp
from pydantic_core import to_json

from wick.client.connection import ServerConnection
from wick.client.errors import ServerError

CONTROL = b"\x01"  # prefix of a control message


class TerminalLink:
    """A terminal session that writes input bytes and reads output bytes.

        async with client.terminal("default") as shell:
            await shell.write(b"ls\\n")
            print(await shell.read())

    Closing it ends the processes in it.
    """

    def __init__(self, connection: ServerConnection, path: str, rows: int, columns: int) -> None:
        self._connection, self._path = connection, path
        self._size = (rows, columns)
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def open(self) -> None:
        """Connect; `async with` calls this."""
        rows, columns = self._size
        try:
            self._socket = await self._connection.session().ws_connect(
                self._connection.build_url(self._path, {"rows": rows, "columns": columns}), max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            message = f"the server refused a terminal: {error.message} ({error.status})"
            raise ServerError(message, "refused", error.status) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ServerError(f"{self._connection.url} cannot be reached: {error}", "unreachable") from error

    async def read(self) -> bytes:
        """Return the next output bytes; empty at the end."""
        while True:
            message = await self._require_socket().receive()
            if message.type == aiohttp.WSMsgType.BINARY:
                return bytes(message.data)
            if message.type != aiohttp.WSMsgType.TEXT:
                return b""

    async def write(self, data: bytes) -> None:
        """Send input bytes."""
        await self._send(data)

    async def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        await self._send(CONTROL + to_json({"type": "resize", "rows": rows, "columns": columns}))

    async def _send(self, data: bytes) -> None:
        try:
            await self._require_socket().send_bytes(data)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerError(f"the terminal is closed: {error}", "closed") from error

    def _require_socket(self) -> aiohttp.ClientWebSocketResponse:
        if self._socket is None:
            raise ServerError("the terminal is not open; use `async with client.terminal(…)`", "closed")
        return self._socket

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
