"""A plain round-robin proxy: each connection goes to the next server that is ready.

    python proxy_program.py ADDRESS PORT SERVER:PORT…

It asks every server for its readiness five times a second, and tries the next one if a connection is refused.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from itertools import count

CHECK_SECONDS, CONNECT_SECONDS = 0.2, 1.0


class RoundRobinProxy:
    """Forwards connections to the servers that are ready, in turn."""

    def __init__(self, servers: list[tuple[str, int]]) -> None:
        self._servers, self._ready, self._turn = servers, set[tuple[str, int]](), count()

    async def check_server(self, server: tuple[str, int]) -> None:
        """Check the readiness of a server repeatedly."""
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(*server)
                    head = f"GET /health/ready HTTP/1.1\r\nHost: {server[0]}:{server[1]}\r\nConnection: close\r\n\r\n"
                    writer.write(head.encode())
                    status = (await reader.readline()).split()[1:2]
                    writer.close()
                is_ready = status in ([b"200"], [b"401"], [b"404"])  # an older server has no such check
            except (OSError, TimeoutError):
                is_ready = False
            (self._ready.add if is_ready else self._ready.discard)(server)
            await asyncio.sleep(CHECK_SECONDS)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        turn = next(self._turn)
        ready = [server for server in self._servers if server in self._ready]
        for attempt in range(len(ready)):
            server = ready[(turn + attempt) % len(ready)]
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    inner, outer = await asyncio.open_connection(*server)
            except (OSError, TimeoutError):
                continue
            await asyncio.gather(_copy(reader, outer), _copy(inner, writer))
            return
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def serve(address: str, port: int, servers: list[tuple[str, int]]) -> None:
    """Serve until the process is ended."""
    proxy = RoundRobinProxy(servers)
    checks = [asyncio.create_task(proxy.check_server(server)) for server in servers]
    async with await asyncio.start_server(proxy.forward, address, port, backlog=1024) as server:
        await asyncio.gather(server.serve_forever(), *checks)


if __name__ == "__main__":
    given = [(name.partition(":")[0], int(name.partition(":")[2])) for name in sys.argv[3:]]
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), given))
