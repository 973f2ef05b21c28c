"""Commands in the background: listed, readable, and ended when told.

This module also runs inside containers: the standard library only, Python 3.8.
"""

from __future__ import annotations

import time
from typing import Callable

from wick import caps
from wick.backends.wickd.command import Command, Ended
from wick.backends.wickd.outputs import Ring
from wick.shapes import Json


class Job:
    """One of them."""

    def __init__(self, id: str, asked_by: str, label: str) -> None:
        self.id, self.asked_by, self.label, self.started = id, asked_by, label, time.time()
        self.output = Ring(caps.JOB_OUTPUT_BYTES)
        self.command: Command | None = None
        self.when_ended: list[Callable[[], None]] = []
        self.begun, self.running, self.exit_code, self.error = False, True, -1, ""

    def finish(self, ended: Ended) -> None:
        self.running, self.exit_code, self.error, self.command = False, ended.exit_code, ended.error, None
        for call in self.when_ended:
            call()

    def described(self) -> Json:
        return {
            "id": self.id,
            "command": self.label,
            "running": self.running,
            "exit_code": self.exit_code,
            "error": self.error,
            "started": self.started,
        }

    def since(self, offset: int) -> Json:
        start, data = self.output.since(offset, ended=not self.running)
        return {
            "id": self.id,
            "output": data.decode("utf-8", "replace"),
            "offset": start,
            "next_offset": start + len(data),
            "running": self.running,
            "exit_code": self.exit_code,
        }
