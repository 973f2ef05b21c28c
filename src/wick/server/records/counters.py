"""Counters that the servers of one database share."""

from __future__ import annotations

import asyncio

from wick.errors import StoreError
from wick.server.records import Records

COUNTER = "counter"  # kind of records
RETRY_SECONDS = 1.0


class RecordCounters:
    """Counters in the records of a server."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def draw(self, key: str, least: int, most: int, limit: int) -> int:
        """Draw from a counter; wait while the database is unavailable, as runs do.

        A draw with a lost reply is repeated. The first amount stays counted, so the limit is never exceeded.
        """
        while True:
            try:
                return await self._records.draw(COUNTER, "", key, least, most, limit)
            except StoreError as error:
                if error.code not in ("unavailable", "locked"):
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def add(self, key: str, amount: int) -> None:
        await self._records.add(COUNTER, "", key, {"used": amount})

    async def read(self, key: str) -> int:
        """Return the used amount of a counter."""
        found = await self._records.get(COUNTER, "", key) or {}
        return int(found.get("used", 0))
