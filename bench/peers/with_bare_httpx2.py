"""The loop of `bare.py` on httpx2."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
from bare import HEADERS, Bare
from contract import main

AT_ONCE = httpx2.Limits(max_connections=None, max_keepalive_connections=None)


class BareHttpx2(Bare):
    packages = ("httpx2", "orjson")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client = httpx2.AsyncClient(limits=AT_ONCE, timeout=600)

    async def post(self, body: bytes) -> AsyncIterator[bytes]:
        async with self.client.stream("POST", self.url, content=body, headers=HEADERS) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def close(self) -> None:
        await self.client.aclose()


if __name__ == "__main__":
    main(BareHttpx2)
