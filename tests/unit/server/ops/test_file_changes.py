"""Changes of files are reported to the windows of their user; output of a terminal is reported once for all of it."""

from __future__ import annotations

from wick.server.ops.event_bus import EventBus
from wick.server.ops.file_changes import FileChanges


async def test_output_is_reported_once_and_later() -> None:
    bus = EventBus()
    changes = FileChanges(bus)
    changes.report_output("ada", "coder")  # without a window: no timer
    with bus.subscribe("ada", window=True) as window:
        for _ in range(100):
            changes.report_output("ada", "coder")
        changes.report("ada", "writer")
        assert [event.data["agent_id"] for event in await window.receive()] == ["writer"]
        assert [event.data["agent_id"] for event in await window.receive()] == ["coder"]
