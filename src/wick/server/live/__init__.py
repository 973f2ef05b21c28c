"""The live plane: short-lived messages between servers, for what the store does not have to keep.

    stop = live.subscribe("run.run_1", receive)      call receive(data) for each message
    live.publish("run.run_1", b"...")                send to all subscribers, on every server
    await live.request("held.run_1", b"...", 1.0)    return the reply of a subscriber, or None

Token deltas, events of the bus, and requests to the server that performs a run travel over it. Messages may be lost:
everything durable is in the store.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

Receive = Callable[[bytes], bytes | None]  # takes a message; returns the reply, if the message is a request

_SAFE_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,100}")


class LivePlane(Protocol):
    """Publish, subscribe and request between the servers of a cluster. Delivery is best effort, and at most once."""

    def publish(self, subject: str, data: bytes) -> None:
        """Send a message to all subscribers of a subject. Drop it if the plane is disconnected."""

    def subscribe(self, subject: str, receive: Receive) -> Callable[[], None]:
        """Call `receive` for each message of a subject, in the event loop; return a function that unsubscribes."""
        ...

    async def request(self, subject: str, data: bytes, seconds: float) -> bytes | None:
        """Send a request and return the first reply, or None at the timeout."""


class LiveConnection(LivePlane, Protocol):
    """A live plane with the lifecycle and the state that a server needs."""

    @property
    def name(self) -> str:
        """Its kind: local, postgres or nats."""

    @property
    def is_shared(self) -> bool:
        """Return True if other servers can be on it."""

    @property
    def problem(self) -> str:
        """Why it is disconnected, or ""."""

    async def start(self, cluster: str) -> None:
        """Connect, or retry in the background. Subjects are separate for each `cluster`."""

    async def close(self) -> None:
        """Disconnect."""


def subject_token(text: str) -> str:
    """Return a text as one token of a subject: unchanged, or its hash if it has other characters."""
    return text if _SAFE_TOKEN.fullmatch(text) else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
