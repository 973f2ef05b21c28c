"""Request rates of users that the servers of one database share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from wick.errors import StoreError

BLOCK_SECONDS = 1.0  # after which drawn requests are forgotten: the shared bucket has filled up meanwhile
MAX_BLOCKS = 10_000


class RateRecords(Protocol):
    """Records with token buckets."""

    async def draw_requests(self, owner: str, rate: float, burst: int, size: int) -> int: ...


class SharedRate:
    """The request rate of users on all servers together. A server draws requests in blocks from their buckets."""

    def __init__(
        self, records: RateRecords, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._records, self._rate, self._burst, self._clock = records, rate, burst, clock
        self.block = max(1, min(burst // 16, math.ceil(rate / 10)))
        self._drawn: dict[str, tuple[int, float]] = {}  # requests left of the last block of a user, and its time

    async def take(self, user: str) -> bool:
        """Take one request of a user; return False if the bucket is empty.

        While the database is unavailable all requests pass, since they cannot do more than fail.
        """
        if not (left := self._count_left(user)):
            try:
                drawn = await self._records.draw_requests(user, self._rate, self._burst, self.block)
            except StoreError:
                return True
            if not (left := drawn + self._count_left(user)):
                return False
            if len(self._drawn) >= MAX_BLOCKS:
                self._drawn = {user: found for user, found in self._drawn.items() if self._count_left(user)}
            self._drawn[user] = left, self._clock()
        self._drawn[user] = left - 1, self._drawn[user][1]
        return True

    def _count_left(self, user: str) -> int:
        left, at = self._drawn.get(user, (0, -math.inf))
        return left if self._clock() - at < BLOCK_SECONDS else 0
