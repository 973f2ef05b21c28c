"""The pool of supervisors that run wickd's commands."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Callable, Sequence

from wick import constants
from wick.wickd.command import DaemonCommand
from wick.wickd.disk_quota import DiskQuotaWatch
from wick.wickd.event_loop import EventLoop, Timer
from wick.wickd.supervisor import Supervisor
from wick.workspace.processes import HELD, Perform, kill_unknown_children

SPARE = 2  # idle supervisors to keep


class CommandPool:
    """All commands of a wickd, each run by a supervisor. The pool grows and shrinks with the load."""

    def __init__(self, loop: EventLoop, perform: Perform, others: Callable[[], Sequence[int]] = tuple) -> None:
        self._loop, self._perform = loop, perform
        self._others = others  # children of wickd that are not supervisors
        self._running: dict[Supervisor, DaemonCommand | None] = {}  # None: idle, or cleaning up
        self._ready: deque[Supervisor] = deque()
        self._waiting: deque[DaemonCommand] = deque()
        self._fewest_ready = self._count = 0
        self._closing = False
        self._trimming: Timer | None = None
        with suppress(OSError):
            for _ in range(SPARE):
                self._add_supervisor()

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= constants.COMMANDS_WAITING

    def start(self, command: DaemonCommand) -> None:
        """Start a command with a ready supervisor, or queue it at the limit of concurrent commands."""
        if self._closing:
            command.why = "wickd is ending"
            command.finish(0)
            return
        self._waiting.append(command)
        self._start_waiting()

    def end(self, command: DaemonCommand, why: str) -> None:
        """End a command and all its processes; its `done` callback is called within a second."""
        if command.finished or command.why:
            return
        command.why = why
        if command in self._waiting:
            self._waiting.remove(command)
            command.finish(0)
            return
        supervisor = next(one for one, running in self._running.items() if running is command)
        supervisor.end(command.number)
        patience = constants.COMMAND_GRACE_SECONDS + constants.END_SECONDS + 0.1
        command.timers.append(self._loop.call_later(patience, lambda: self._replace_supervisor(supervisor)))

    def close(self, seconds: float = 2.0) -> None:
        """End all commands and supervisors."""
        self._closing = True
        for supervisor in list(self._running):
            supervisor.dismiss()
        until = time.monotonic() + seconds
        while self._running and time.monotonic() < until:
            self._loop.call_later(0.01, lambda: None)
            self._loop.run_once()
        for supervisor in list(self._running):
            self._discard_supervisor(supervisor)
        while kill_unknown_children(self._others()) and time.monotonic() < until + seconds:
            time.sleep(0.001)

    # -- supervisors ------------------------------------------------------------------------------------------------

    def _add_supervisor(self) -> None:
        supervisor = Supervisor(self._perform)
        self._running[supervisor] = None
        self._ready.append(supervisor)
        self._loop.on_read(supervisor.descriptor, lambda: self._read_reports(supervisor))
        if self._trimming is None and len(self._running) > SPARE:
            self._trimming = self._loop.call_later(2.0, self._trim_supervisors)

    def _trim_supervisors(self) -> None:
        """Dismiss supervisors that were idle for a while."""
        for _ in range(min(self._fewest_ready, len(self._ready)) - SPARE):
            self._ready.popleft().dismiss()
        self._fewest_ready = len(self._ready)
        more = len(self._running) > SPARE
        self._trimming = self._loop.call_later(2.0, self._trim_supervisors) if more else None

    def _start_waiting(self) -> None:
        while self._waiting and (self._ready or self._try_grow()):
            self._start_command(self._waiting.popleft())
        self._fewest_ready = min(self._fewest_ready, len(self._ready))

    def _try_grow(self) -> bool:
        """Add a supervisor unless the pool is full; return True if one is ready."""
        if len(self._running) >= constants.COMMANDS_AT_ONCE + constants.JOBS_AT_ONCE + constants.TERMINALS_AT_ONCE:
            return False
        try:
            self._add_supervisor()
        except OSError as error:  # fork failed: wait for a busy supervisor, if there is one
            if self._running:
                return False
            self._fail_command(self._waiting.popleft(), error)
        return bool(self._ready)

    def _start_command(self, command: DaemonCommand) -> None:
        self._count += 1
        command.number = self._count
        try:
            command.open(self._loop)
            while not command.dispatched:
                if not self._ready:
                    self._add_supervisor()
                supervisor = self._ready.pop()
                try:
                    supervisor.start(command.number, command.spec, command.child_fds)
                    command.dispatched = True
                except OSError:  # it was killed meanwhile: try another one
                    self._discard_supervisor(supervisor)
        except OSError as error:
            self._fail_command(command, error)
            return
        finally:
            command.close_child_fds()
        self._running[supervisor] = command
        if command.spec.get("disk"):
            command.watch = DiskQuotaWatch(self._loop, command.spec["disk"], lambda why: self.end(command, why))
        if command.timeout is not None:
            command.timers.append(self._loop.call_later(command.timeout, lambda: self.end(command, "limit")))

    def _fail_command(self, command: DaemonCommand, error: OSError) -> None:
        command.why = f"it could not be started: {error.strerror}"
        command.finish(0)

    def _read_reports(self, supervisor: Supervisor) -> None:
        for report in supervisor.read_reports():
            command = self._running.get(supervisor)
            if report.event == "ended" and command is not None:
                self._running[supervisor] = None
                note, limit = HELD if report.held else "", command.spec.get("limits", {}).get("memory")
                if limit and report.status != 0 and report.memory >= 0.8 * limit:  # its exit status does not show this
                    note = f"the command ended when it had {report.memory} of its {limit:.0f} bytes of memory"
                    note += "; it may need more"
                command.finish(report.status, note)
            elif report.event == "clean":
                self._ready.append(supervisor)
                self._start_waiting()
        if supervisor.is_gone:
            self._replace_supervisor(supervisor)

    def _discard_supervisor(self, supervisor: Supervisor) -> None:
        """Remove a dead or unresponsive supervisor, and kill its remaining processes."""
        if supervisor not in self._running:
            return
        command = self._running.pop(supervisor)
        if supervisor in self._ready:
            self._ready.remove(supervisor)
        self._loop.unregister(supervisor.descriptor)
        supervisor.kill()
        self._kill_unknown_children()
        if command is not None:
            command.finish(9, "the command was ended, because its supervisor was killed")

    def _replace_supervisor(self, supervisor: Supervisor) -> None:
        self._discard_supervisor(supervisor)
        self._start_waiting()

    def _kill_unknown_children(self) -> None:
        if kill_unknown_children([*(one.pid for one in self._running), *self._others()]):
            self._loop.call_later(0.005, self._kill_unknown_children)
