"""Loading of whole threads for responses, with limited memory."""

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
    """Loads one thread at a time. A user has one place in the queue, so many requests of one user delay no others."""

    def __init__(self, store: Store) -> None:
        self._store, self._turn = store, asyncio.Lock()
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def load(self, owner: str, id: str, request: Request) -> AsyncIterator[Thread]:
        """Load a thread; raise a 499 without reading it if the client disconnected while it waited."""
        mine = self._of.setdefault(owner, asyncio.Lock())
        async with mine, self._turn:
            if await request.is_disconnected():
                raise ApiError(499, "gone", "the client closed the connection")
            yield await load(self._store, owner, id)
