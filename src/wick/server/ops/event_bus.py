"""What changes beside the runs: agents, hooks, tools, containers; told to whoever listens.

    bus.publish("agent_created", {"agent_id": "coder"}, owner=user.id)     to one user; without an owner to everyone
    with bus.subscribe(user.id) as reader:
        for news in await reader.receive(): ...

Nothing is kept: a reader that is too slow is told to look for itself (`resync`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MAX_PENDING = 256  # news that wait for a reader


@dataclass(frozen=True, slots=True)
class BusEvent:
    """Something that has changed."""

    kind: str
    data: Mapping[str, Any]


class EventBus:
    """Brings news to those who listen at the moment. It belongs to one event loop."""

    def __init__(self) -> None:
        self._readers: set[BusSubscription] = set()
        self._closed = False

    def publish(self, kind: str, data: Mapping[str, Any], owner: str | None = None, *, operators: bool = False) -> None:
        """Tell it: to one user, or to all of them, or to all `operators`."""
        for reader in self._readers:
            if (owner is None or owner == reader.owner) and (reader.operator or not operators):
                reader.put(BusEvent(kind, data))

    def close(self) -> None:
        """End what is read: the server stops."""
        self._closed = True
        for reader in self._readers:
            reader.close()

    @contextmanager
    def subscribe(self, owner: str, *, operator: bool = False) -> Iterator[BusSubscription]:
        """A reader of what concerns this user, from now on."""
        reader = BusSubscription(owner, operator)
        self._readers.add(reader)
        if self._closed:
            reader.close()
        try:
            yield reader
        finally:
            self._readers.discard(reader)


class BusSubscription:
    """What waits for one who listens."""

    def __init__(self, owner: str, operator: bool) -> None:
        self.owner, self.operator = owner, operator
        self._waiting: deque[BusEvent] = deque()
        self._some = asyncio.Event()
        self._closed = False

    def put(self, news: BusEvent) -> None:
        if len(self._waiting) >= MAX_PENDING:
            self._waiting.clear()
            news = BusEvent("resync", {})
        self._waiting.append(news)
        self._some.set()

    def close(self) -> None:
        self._closed = True
        self._some.set()

    async def receive(self) -> list[BusEvent]:
        """What there is by now, and at least one; none at the end."""
        await self._some.wait()
        if not self._closed:
            self._some.clear()
        found = [*self._waiting]
        self._waiting.clear()
        return found
