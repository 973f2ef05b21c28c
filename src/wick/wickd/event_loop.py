"""The event loop of wickd: callbacks for readable and writable descriptors, and timers."""

from __future__ import annotations

import heapq
import selectors
import time
from typing import Any, Callable

Call = Callable[[], Any]


class Timer:
    """A scheduled call that can be cancelled."""

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        self.call = None


class EventLoop:
    """A single-threaded event loop over a selector and a timer heap."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._callbacks: dict[int, dict[int, Call]] = {}  # descriptor -> event -> call
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self.running = True

    def on_read(self, descriptor: int, call: Call | None) -> None:
        """Set the callback for a readable descriptor; None removes it."""
        self._set_callback(descriptor, selectors.EVENT_READ, call)

    def on_write(self, descriptor: int, call: Call | None) -> None:
        """Set the callback for a writable descriptor; None removes it."""
        self._set_callback(descriptor, selectors.EVENT_WRITE, call)

    def unregister(self, descriptor: int) -> None:
        """Remove all callbacks of a descriptor. Call this before closing it."""
        if self._callbacks.pop(descriptor, None):
            self._selector.unregister(descriptor)

    def _set_callback(self, descriptor: int, event: int, call: Call | None) -> None:
        wants = self._callbacks.setdefault(descriptor, {})
        before = sum(wants)
        if call is None:
            wants.pop(event, None)
        else:
            wants[event] = call
        after = sum(wants)
        if not wants:
            del self._callbacks[descriptor]
        if before == after:
            return
        if not before:
            self._selector.register(descriptor, after)
        elif not after:
            self._selector.unregister(descriptor)
        else:
            self._selector.modify(descriptor, after)

    def call_later(self, seconds: float, call: Call) -> Timer:
        timer = Timer(call)
        self._count += 1
        if self._count % 256 == 0:  # most timers are cancelled early
            self._timers = [one for one in self._timers if one[2].call is not None]
            heapq.heapify(self._timers)
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, timer))
        return timer

    def run(self) -> None:
        while self.running:
            self.run_once()

    def run_once(self) -> None:
        """Wait for the next event or timer, and run all callbacks that are due."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, events in self._selector.select(timeout):
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                call = self._callbacks.get(key.fd, {}).get(event) if events & event else None
                if call is not None:  # an earlier callback may have removed it
                    call()
        now = time.monotonic()
        while self._timers and (self._timers[0][2].call is None or self._timers[0][0] <= now):
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                timer.call()
