"""Event bus: changes of agents, hooks, tools and containers, published to the clients that are subscribed now.

    bus.publish("agent_created", {"agent_id": "coder"}, owner=user.id)     to one user; without an owner to all
    with bus.subscribe(user.id) as reader:
        for event in await reader.receive(): ...

Events are not stored. A subscription that falls behind loses its queue and gets the event `resync`. With a live plane,
events reach the clients of all servers.

Changes of threads are frequent, so they are published only while a window of their owner is open. A server with such
windows reports their users to the other servers every few seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wick._internal.fast_json import encode_json
from wick.constants import LIVE_BYTES, LIVE_INTEREST_SECONDS, LIVE_REFRESH_SECONDS
from wick.server.live import LivePlane

MAX_PENDING = 256  # events queued for one subscription
RESYNC = "resync"  # kind of the event after dropped ones
THREAD_CHANGED, FILES = "thread_changed", "files"
WINDOW_KINDS = (THREAD_CHANGED, FILES)  # frequent events, which only subscriptions of windows get
SUBJECT, INTEREST_SUBJECT = "bus", "bus.interest"  # on the live plane
OWNERS = 5_000  # in one message about open windows


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
    number: int = 0  # of the messages of its sender


class _Interest(BaseModel):
    """Users with open windows at a server. It is validated: another program may be connected there."""

    model_config = ConfigDict(strict=True, frozen=True)

    sender: str
    owners: list[str] = Field(max_length=OWNERS)


class EventBus:
    """Publishes events to the current subscriptions. It belongs to one event loop."""

    def __init__(self) -> None:
        self._readers: set[BusSubscription] = set()
        self._closed = False
        self._id, self._number = token_hex(8), 0
        self._live: LivePlane | None = None
        self._unsubscribe: list[Callable[[], None]] = []
        self._numbers: dict[str, int] = {}  # of the last message, by sender
        self._windows: Counter[str] = Counter()  # open windows here, by user
        self._interest: dict[str, float] = {}  # when the interest of other servers in a user expires
        self._timer: asyncio.TimerHandle | None = None

    def connect(self, live: LivePlane) -> None:
        """Exchange events with other servers from now on."""
        self._live = live
        self._unsubscribe = [
            live.subscribe(SUBJECT, self._receive),
            live.subscribe(INTEREST_SUBJECT, self._receive_interest),
        ]

    def is_awaited(self, owner: str) -> bool:
        """Return True if a window of this user is open at any server."""
        return owner in self._windows or self._interest.get(owner, 0.0) > monotonic()

    def publish_change(self, owner: str, kind: str, data: Mapping[str, Any]) -> None:
        """Publish that a thread or a file of a user has changed, if a window of that user is open."""
        if self.is_awaited(owner):
            self.publish(kind, data, owner)

    def publish(self, kind: str, data: Mapping[str, Any], owner: str | None = None, *, operators: bool = False) -> None:
        """Publish an event to one user, to all users, or to all `operators`."""
        self._deliver(BusEvent(kind, data), owner, operators)
        if self._live is not None:
            self._number += 1
            message = {"sender": self._id, "kind": kind, "data": data, "owner": owner, "operators": operators}
            encoded = encode_json({**message, "number": self._number})
            if len(encoded) > LIVE_BYTES:
                encoded = encode_json({**message, "number": self._number, "kind": RESYNC, "data": {}})
            self._live.publish(SUBJECT, encoded)

    def _deliver(self, event: BusEvent, owner: str | None, operators: bool) -> None:
        for reader in self._readers:
            if event.kind in WINDOW_KINDS and not reader.is_window:
                continue
            if (owner is None or owner == reader.owner) and (reader.operator or not operators):
                reader.put(event)

    def _receive(self, data: bytes) -> None:
        with suppress(ValidationError):
            message = _BusMessage.model_validate_json(data)
            if message.sender == self._id:
                return
            before, self._numbers[message.sender] = self._numbers.get(message.sender), message.number
            if before is not None and message.number > before + 1:
                self.resync()  # messages in between were lost, of any user
            self._deliver(BusEvent(message.kind, message.data), message.owner, message.operators)

    def _receive_interest(self, data: bytes) -> None:
        with suppress(ValidationError):
            message = _Interest.model_validate_json(data)
            if message.sender != self._id:
                until = monotonic() + LIVE_INTEREST_SECONDS
                self._interest.update((owner, until) for owner in message.owners)

    def _report_interest(self) -> None:
        """Tell the other servers which users have windows here, again and again while there are any."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._live is None or not self._windows:
            return
        owners, now = [*self._windows], monotonic()
        for start in range(0, len(owners), OWNERS):
            message = {"sender": self._id, "owners": owners[start : start + OWNERS]}
            self._live.publish(INTEREST_SUBJECT, encode_json(message))
        self._interest = {owner: until for owner, until in self._interest.items() if until > now}
        self._timer = asyncio.get_running_loop().call_later(LIVE_REFRESH_SECONDS, self._report_interest)

    def resync(self) -> None:
        """Send `resync` to all subscriptions, since events were lost."""
        for reader in self._readers:
            reader.put(BusEvent(RESYNC, {}))

    def close(self) -> None:
        """Close all subscriptions: the server stops."""
        self._closed = True
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._live, self._unsubscribe = None, []
        self._report_interest()  # cancels the timer
        for reader in self._readers:
            reader.close()

    @contextmanager
    def subscribe(self, owner: str, *, operator: bool = False, window: bool = False) -> Iterator[BusSubscription]:
        """Subscribe to the events of a user, starting now; a `window` also gets changes of threads and files."""
        reader = BusSubscription(owner, operator, window)
        self._readers.add(reader)
        if window:
            self._windows[owner] += 1
            self._report_interest()
        if self._closed:
            reader.close()
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if window:
                self._windows[owner] -= 1
                self._windows += Counter()  # drops the users without a window


class BusSubscription:
    """The queue of one subscriber."""

    def __init__(self, owner: str, operator: bool, is_window: bool = False) -> None:
        self.owner, self.operator, self.is_window = owner, operator, is_window
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
