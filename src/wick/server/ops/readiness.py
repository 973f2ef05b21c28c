"""Readiness: whether a load balancer should send requests to this server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic

from wick.errors import StoreError

PROBE_SECONDS = 2.0  # for the store to respond
REUSE_SECONDS = 1.0  # in which a result is reused: the route is public, and must not load the store


class StoreProbe:
    """A probe of the store: one small query, at most one at a time and one per second."""

    def __init__(self, query: Callable[[], Awaitable[object]], *, clock: Callable[[], float] = monotonic) -> None:
        self._query, self._clock = query, clock
        self._problem, self._probed = "", -inf
        self._lock = asyncio.Lock()

    async def find_problem(self) -> str:
        """Return the error code of the store, or an empty text if it responds."""
        async with self._lock:
            if self._clock() - self._probed >= REUSE_SECONDS:
                self._problem = await self._probe()
                self._probed = self._clock()
        return self._problem

    async def _probe(self) -> str:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._query()
        except TimeoutError:
            return "unavailable"
        except StoreError as error:
            return error.code
        return ""
