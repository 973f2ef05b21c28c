"""The floor: the loop of `bare.py` on aiohttp."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
from bare import HEADERS, Bare
from contract import main


class BareAiohttp(Bare):
    packages = ("aiohttp", "orjson")
    session: aiohttp.ClientSession | None = None

    async def post(self, body: bytes) -> AsyncIterator[bytes]:
        if self.session is None:
            self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        async with self.session.post(self.url, data=body, headers=HEADERS) as response:
            async for chunk in response.content.iter_any():
                yield chunk

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()


if __name__ == "__main__":
    main(BareAiohttp)
