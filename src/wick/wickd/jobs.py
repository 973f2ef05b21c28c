"""Background commands: their state and their output buffer."""

from __future__ import annotations

import time
from typing import Callable

from wick import constants
from wick.wickd.command import CommandOutcome, DaemonCommand
from wick.wickd.output_buffers import RingBuffer
from wick.workspace import results


class BackgroundCommand:
    """State of a background command: output, exit code and error, independent of the backend."""

    def __init__(self, id: str, label: str) -> None:
        self.id, self.label, self.started = id, label, time.time()
        self.output = RingBuffer(constants.JOB_OUTPUT_BYTES)
        self.running, self.exit_code, self.error = True, -1, ""

    def describe(self) -> results.JobInfo:
        return {
            "id": self.id,
            "command": self.label,
            "running": self.running,
            "exit_code": self.exit_code,
            "error": self.error,
            "started": self.started,
        }

    def read_since(self, offset: int) -> results.JobOutput:
        start, data = self.output.read_since(offset, ended=not self.running)
        return {
            "id": self.id,
            "output": data.decode("utf-8", "replace"),
            "offset": start,
            "next_offset": start + len(data),
            "running": self.running,
            "exit_code": self.exit_code,
        }


class DaemonJob(BackgroundCommand):
    """A background command of wickd."""

    def __init__(self, id: str, asked_by: str, label: str) -> None:
        super().__init__(id, label)
        self.asked_by, self.has_started = asked_by, False
        self.command: DaemonCommand | None = None
        self.on_end: list[Callable[[], None]] = []

    def finish(self, ended: CommandOutcome) -> None:
        self.running, self.exit_code, self.error, self.command = False, ended.exit_code, ended.error, None
        for call in self.on_end:
            call()
