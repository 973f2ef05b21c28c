"""Event bus: changes of agents, hooks, tools and containers, published to the clients that are subscribed now.

    bus.publish("agent_created", {"agent_id": "coder"}, owner=user.id)     to one user; without an owner to all
    with bus.subscribe(user.id) as reader:
        for event in await reader.receive(): ...

Events are not stored. A subscription that falls behind loses its queue and gets the event `resync`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MAX_PENDING = 256  # events queued for one subscription


@dataclass(frozen=True, slots=True)
class BusEvent:
    """A published change."""

    kind: str
    data: Mapping[str, Any]


class EventBus:
    """Publishes events to the current subscriptions. It belongs to one event loop."""

    def __init__(self) -> None:
        self._readers: set[BusSubscription] = set()
        self._closed = False

    def publish(self, kind: str, data: Mapping[str, Any], owner: str | None = None, *, operators: bool = False) -> None:
        """Publish an event to one user, to all users, or to all `operators`."""
        for reader in self._readers:
            if (owner is None or owner == reader.owner) and (reader.operator or not operators):
                reader.put(BusEvent(kind, data))

    def close(self) -> None:
        """Close all subscriptions: the server stops."""
        self._closed = True
        for reader in self._readers:
            reader.close()

    @contextmanager
    def subscribe(self, owner: str, *, operator: bool = False) -> Iterator[BusSubscription]:
        """Subscribe to the events of a user, starting now."""
        reader = BusSubscription(owner, operator)
        self._readers.add(reader)
        if self._closed:
            reader.close()
        try:
            yield reader
        finally:
            self._readers.discard(reader)


class BusSubscription:
    """The queue of one subscriber."""

    def __init__(self, owner: str, operator: bool) -> None:
        self.owner, self.operator = owner, operator
        self._waiting: deque[BusEvent] = deque()
        self._some = asyncio.Event()
        self._closed = False

    def put(self, event: BusEvent) -> None:
        """Queue an event. If the queue is full, replace all of it with `resync`."""
        if len(self._waiting) >= MAX_PENDING:
            self._waiting.clear()
            event = BusEvent("resync", {})
        self._waiting.append(event)
        self._some.set()

    def close(self) -> None:
        self._closed = True
        self._some.set()

    async def receive(self) -> list[BusEvent]:
        """Wait for events and return all that are queued, or an empty list once the bus is closed."""
        await self._some.wait()
        if not self._closed:
            self._some.clear()
        events = [*self._waiting]
        self._waiting.clear()
        return events
