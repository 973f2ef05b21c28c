"""A real HTTP proxy: CONNECT for https, absolute URLs for http, with or without a password, over TCP or TLS."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import urlsplit


class Proxy:
    """A proxy that resolves the given names to ports of this machine, and records the first line of each request.

    `login` is the `user:password` that it demands. `refusal` is the answer to every request instead of forwarding it;
    without bytes, the proxy closes the connection.
    """

    def __init__(
        self,
        names: Mapping[str, int],
        *,
        login: str = "",
        refusal: bytes | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.names, self.login, self.refusal, self.tls = names, login, refusal, tls
        self.lines: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def url(self, login: str = "", scheme: str = "http") -> str:
        """Return the address of the proxy for an environment variable."""
        return f"{scheme}://{f'{login}@' if login else ''}127.0.0.1:{self.port}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            line, *headers = head.decode().rstrip().split("\r\n")
            self.lines.append(line)
            method, target, _ = line.split(" ")
            if self.refusal is not None:
                writer.write(self.refusal)
            elif self.login and f"proxy-authorization: basic {b64encode(self.login.encode()).decode()}".lower() not in (
                header.lower() for header in headers
            ):
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            elif method == "CONNECT":
                await self._tunnel(target.rpartition(":")[0], b"", reader, writer)
            else:
                url = urlsplit(target)
                kept = [each for each in headers if not each.lower().startswith(("proxy-", "connection:"))]
                lines = [f"{method} {url.path} HTTP/1.1", *kept, "connection: close", "", ""]
                await self._tunnel(url.hostname or "", "\r\n".join(lines).encode(), reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _tunnel(self, host: str, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect to a host, send the head or confirm the tunnel, and copy bytes both ways until one side closes."""
        if host not in self.names:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.names[host])
        try:
            (far_writer if head else writer).write(head or b"HTTP/1.1 200 Connection established\r\n\r\n")
            copying = {asyncio.create_task(_copy(*each)) for each in ((reader, far_writer), (far_reader, writer))}
            try:
                await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in copying:
                    task.cancel()
                await asyncio.gather(*copying, return_exceptions=True)
        finally:
            far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
