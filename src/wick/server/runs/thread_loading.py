"""Threads that are read as a whole to be shown: one may be large, and somebody may ask for many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from starlette.requests import Request

from wick.protocols import Store
from wick.server.errors import ApiError
from wick.stores.held_thread import load
from wick.threads import Thread


class ThreadLoader:
    """One thread is in memory at a time. Of each user one waits for that: who asks for many waits for themselves."""

    def __init__(self, store: Store) -> None:
        self._store, self._turn = store, asyncio.Lock()
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def load(self, owner: str, id: str, request: Request) -> AsyncIterator[Thread]:
        """A thread as it is; nothing is read for somebody who has gone while they waited."""
        mine = self._of.setdefault(owner, asyncio.Lock())
        async with mine, self._turn:
            if await request.is_disconnected():
                raise ApiError(499, "gone", "you have closed the connection, so there is nobody to answer")
            yield await load(self._store, owner, id)
