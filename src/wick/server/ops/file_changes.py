"""Reports of changed workspace files to the open windows of a user."""

from __future__ import annotations

import asyncio

from wick.server.ops.event_bus import FILES, EventBus

OUTPUT_SECONDS = 0.5  # after output of a terminal: a command may have written files


class FileChanges:
    """Publishes that files of a workspace may have changed, while a window of the user is open."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def report(self, owner: str, agent: str) -> None:
        """Report a change now."""
        self._bus.publish_change(owner, FILES, {"agent_id": agent, "thread_id": ""})

    def report_output(self, owner: str, agent: str) -> None:
        """Report that a terminal has printed something: one change soon, however often this is called until then."""
        if (owner, agent) not in self._timers and self._bus.is_awaited(owner):
            loop = asyncio.get_running_loop()
            self._timers[owner, agent] = loop.call_later(OUTPUT_SECONDS, self._report_later, owner, agent)

    def _report_later(self, owner: str, agent: str) -> None:
        del self._timers[owner, agent]
        self.report(owner, agent)
