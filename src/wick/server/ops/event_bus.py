"""Event bus: changes of agents, hooks, tools and containers, published to the clients that are subscribed now.

    bus.publish("agent_created", {"agent_id": "coder"}, owner=user.id)     to one user; without an owner to all
    with bus.subscribe(user.id) as reader:
        for event in await reader.receive(): ...

Events are not stored. A subscription that falls behind loses its queue and gets the event `resync`. With a live plane,
events reach the clients of all servers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wick._internal.fast_json import encode_json
from wick.constants import LIVE_BYTES
from wick.server.live import LivePlane

MAX_PENDING = 256  # events queued for one subscription
RESYNC = "resync"  # kind of the event after dropped ones
SUBJECT = "bus"  # on the live plane


@dataclass(frozen=True, slots=True)
class BusEvent:
    """A published change."""

    kind: str
    data: Mapping[str, Any]


class _BusMessage(BaseModel):
    """An event on the live plane. It is validated: another program may be connected there."""

    model_config = ConfigDict(strict=True, frozen=True)

    sender: str  # the bus that published it
    kind: str = Field(pattern=r"^[a-z_]{1,50}$")
    data: dict[str, Any] = {}
    owner: str | None = None
    operators: bool = False


class EventBus:
    """Publishes events to the current subscriptions. It belongs to one event loop."""

    def __init__(self) -> None:
        self._readers: set[BusSubscription] = set()
        self._closed = False
        self._id = token_hex(8)
        self._live: LivePlane | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def connect(self, live: LivePlane) -> None:
        """Exchange events with other servers from now on."""
        self._live, self._unsubscribe = live, live.subscribe(SUBJECT, self._receive)

    def publish(self, kind: str, data: Mapping[str, Any], owner: str | None = None, *, operators: bool = False) -> None:
        """Publish an event to one user, to all users, or to all `operators`."""
        self._deliver(BusEvent(kind, data), owner, operators)
        if self._live is not None:
            message = {"sender": self._id, "kind": kind, "data": data, "owner": owner, "operators": operators}
            encoded = encode_json(message)
            if len(encoded) > LIVE_BYTES:
                encoded = encode_json({**message, "kind": RESYNC, "data": {}})
            self._live.publish(SUBJECT, encoded)

    def _deliver(self, event: BusEvent, owner: str | None, operators: bool) -> None:
        for reader in self._readers:
            if (owner is None or owner == reader.owner) and (reader.operator or not operators):
                reader.put(event)

    def _receive(self, data: bytes) -> None:
        with suppress(ValidationError):
            message = _BusMessage.model_validate_json(data)
            if message.sender != self._id:
                self._deliver(BusEvent(message.kind, message.data), message.owner, message.operators)

    def close(self) -> None:
        """Close all subscriptions: the server stops."""
        self._closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._live = self._unsubscribe = None
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
            event = BusEvent(RESYNC, {})
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
