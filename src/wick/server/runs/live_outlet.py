"""Publication of a run on the live plane, by the server that performs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from wick.constants import LIVE_INTEREST_SECONDS
from wick.events import Event
from wick.server.live import LivePlane
from wick.server.runs.live_messages import (
    LiveItem,
    encode_batches,
    encode_event_fields,
    encode_snapshot,
    frames_subject,
    holder_subject,
    parse_request,
)
from wick.server.runs.open_message import OpenMessage


class PublishedRun(Protocol):
    """The hub of a run, as its outlet sees it."""

    run: str
    message: OpenMessage

    @property
    def sent(self) -> int: ...

    def flush(self) -> None: ...


class LiveOutlet:
    """Publishes the transient events of a run while another server asks for them, and takes requests of others."""

    def __init__(
        self,
        live: LivePlane,
        hub: PublishedRun,
        owner: str,
        fence: int,
        *,
        cancel: Callable[[], None],
        read_inbox: Callable[[], None],
    ) -> None:
        self._live, self._hub, self._owner, self._fence = live, hub, owner, fence
        self._cancel, self._read_inbox = cancel, read_inbox
        self._items: list[LiveItem] = []
        self._number = 0  # of the last batch
        self._wanted_until = 0.0
        self._has_skipped = False  # events since then were not published
        self._loop = asyncio.get_running_loop()
        self._unsubscribe = live.subscribe(holder_subject(hub.run), self._receive)

    def is_wanted(self) -> bool:
        """Return True if another server asks for the events; else note that one is not published."""
        if monotonic() < self._wanted_until:
            return True
        self._has_skipped = True
        return False

    def send(self, event: Event | None) -> None:
        """Publish an event, or only the place in the log. All of one loop iteration are sent together."""
        if not self.is_wanted():
            return
        if not self._items:
            self._loop.call_soon(self._flush)
        fields = None if event is None else encode_event_fields(event)
        self._items.append(LiveItem(at=self._hub.sent, is_open=self._hub.message.is_open, event=fields))

    def close(self) -> None:
        """Publish that the run is no longer performed here."""
        self._unsubscribe()
        if monotonic() < self._wanted_until:
            self.send(None)
            self._flush(is_last=True)

    def _flush(self, is_last: bool = False) -> None:
        items, self._items = self._items, []
        if items:
            batches = encode_batches(self._fence, self._number + 1, items, is_last)
            self._number += len(batches)
            for batch in batches:
                self._live.publish(frames_subject(self._hub.run), batch)

    def _receive(self, data: bytes) -> bytes | None:
        request = parse_request(data)
        if request is None or request.owner != self._owner or request.fence > self._fence:
            return None
        if request.action == "cancel":
            self._cancel()
        elif request.action == "read_inbox":
            self._read_inbox()
        else:
            self._number += self._has_skipped  # a server that asked before detects the gap
            self._has_skipped = False
            self._wanted_until = monotonic() + LIVE_INTEREST_SECONDS
            self._hub.flush()
            self._flush()  # the snapshot contains it
            return encode_snapshot(self._fence, self._number, self._hub.sent, self._hub.message)
        return b"{}"
