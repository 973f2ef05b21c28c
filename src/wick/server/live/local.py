"""LocalLive: the live plane of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wick.constants import LIVE_BYTES
from wick.server.live import Receive
from wick.server.live.subscriptions import Subscriptions


class LocalLive:
    """A live plane within one event loop. It is the default without Postgres; servers in other processes need another.

    `is_shared` is True where several servers in one process use the same object.
    """

    name, problem = "local", ""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._subscriptions = Subscriptions()

    async def start(self, cluster: str) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: each subscriber unsubscribes."""

    def publish(self, subject: str, data: bytes) -> None:
        if subject in self._subscriptions and len(data) <= LIVE_BYTES:
            asyncio.get_running_loop().call_soon(self._subscriptions.deliver, subject, data)

    def subscribe(self, subject: str, receive: Receive) -> Callable[[], None]:
        self._subscriptions.add(subject, receive)
        return lambda: self._subscriptions.remove(subject, receive)

    async def request(self, subject: str, data: bytes, seconds: float) -> bytes | None:
        return self._subscriptions.deliver(subject, data) if len(data) <= LIVE_BYTES else None
