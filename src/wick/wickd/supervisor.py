"""Supervisor processes, one per command, so that no process outlives its command.

    guard ── wickd ──┬── supervisor ── command ── its descendants …
                     ├── supervisor, idle
                     └── …

A supervisor adopts the orphans of its command (on Linux, as a "subreaper") and kills them all when the command ends, is
ended, or wickd dies. If a process of this chain is killed, its parent takes over: wickd adopts the orphans of a
supervisor and kills unknown children (`kill_unknown_children`); the guard adopts those of wickd and kills everything.
On Linux a process escapes only if it kills its supervisor, wickd and the guard at once; a PID namespace (bubblewrap,
a container) prevents even that. Other systems have no subreapers: see `wick.workspace.processes`.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import struct
import time
from typing import NamedTuple, NoReturn, Sequence

from wick import constants
from wick.workspace.processes import (
    FAILED,
    PDEATHSIG,
    CommandNotStarted,
    Perform,
    ProcessTree,
    adopt_orphans,
    call_quietly,
    close_from,
    create_data_file,
    identify_file,
    prctl,
    start_command,
)
from wick.workspace.results import Json

LOOK_SECONDS = 2.0  # between two checks of a guard that its parent is alive


def fork_under_guard(parent: int | None = None) -> None:
    """Fork and continue as the child of a guard process, which kills all leftovers when this process ends.

    If `parent` is given, wickd ends with it. The guard kills wickd if it does not, for instance because it is stopped.
    """
    adopt_orphans()
    above = os.getpid()
    pid = os.fork()
    if pid == 0:
        prctl(PDEATHSIG, signal.SIGKILL)
        if os.getppid() != above:
            os._exit(1)
        adopt_orphans()
        return
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: call_quietly(os.kill, pid, signal.SIGTERM))
        later = constants.WATCH_LINGER_SECONDS + LOOK_SECONDS
        signal.signal(
            signal.SIGUSR1, lambda *_: signal.setitimer(signal.ITIMER_REAL, later, LOOK_SECONDS) if parent else None
        )
        close_from(3)
        if parent:
            signal.signal(
                signal.SIGALRM,
                lambda *_: call_quietly(os.kill, pid, signal.SIGKILL) if os.getppid() != parent else None,
            )
            signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
        while os.waitpid(-1, 0)[0] != pid:
            pass
        ProcessTree(0).kill_all(5.0)
    finally:
        os._exit(0)


def ask_guard_for_time() -> None:
    """Ask the guard to wait for watchers after the parent's end. Call this when all commands have ended."""
    call_quietly(os.kill, os.getppid(), signal.SIGUSR1)


# -- the supervisor -------------------------------------------------------------------------------------------------

_CONTROL = 3  # the descriptor of a supervisor
_ORDER = struct.Struct("=qq")  # the kind of order, and the number of the command
_START, _END = 1, 2


class _SupervisorProcess:
    """The loop of a supervisor: receive a command, run it, kill its leftovers, report, repeat."""

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._control = socket.socket(fileno=_CONTROL)
        self._wakes, woken = os.pipe()
        for descriptor in (self._wakes, woken):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poller = select.poll()
        self._poller.register(self._control, select.POLLIN)
        self._poller.register(self._wakes, select.POLLIN)
        self._family = ProcessTree(0)
        self._number = 0  # of the command
        self._outputs: set[tuple[int, int]] = set()  # of a command whose output must be whole

    def serve_forever(self) -> NoReturn:
        while True:
            what, number, descriptors = self._receive_order()
            if what != _START:
                continue  # an end order for a command that has already ended
            self._number = number
            with open(descriptors.pop(0), "rb", buffering=0) as file:
                spec = json.loads(file.read())
            self._outputs = {identify_file(one) for one in descriptors[1:3]} if spec.get("whole") else set()
            try:
                self._family = ProcessTree(start_command(spec, descriptors, self._perform))
            except CommandNotStarted as error:
                error.write_to(descriptors[FAILED])
                self._family = ProcessTree(0)
                self._family.status = error.exit_code << 8
            for descriptor in descriptors:
                os.close(descriptor)
            self._wait_for_end()
            self._kill_leftovers()

    def _wait_for_end(self) -> None:
        """Wait until the command ends, by itself or by an end order from wickd."""
        family = self._family
        deadline: float | None = None
        while family.status is None and family.reap() and family.status is None:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            for descriptor, _ in self._poller.poll(wait):
                if descriptor == self._wakes:
                    os.read(self._wakes, 4096)
                elif self._receive_order()[:2] == (_END, self._number):
                    family.send_signal(signal.SIGTERM)
                    family.send_signal(signal.SIGCONT)  # a stopped process cannot end by itself
                    deadline = time.monotonic() + constants.COMMAND_GRACE_SECONDS
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _kill_leftovers(self) -> None:
        """Kill the remaining processes of the command; report its end, and when no process is left."""
        family = self._family
        held = bool(self._outputs) and family.holds_open(self._outputs)
        clean = family.kill_all(constants.END_SECONDS)
        status = signal.SIGKILL if family.status is None else family.status  # None for a process that cannot be killed
        ended = b"ended %d %d %d %d\n" % (self._number, status, family.memory, held)
        self._control.sendall(ended + b"clean %d\n" % self._number if clean else ended)
        if clean:
            return
        while not family.kill_all(1.0):
            if self._control.fileno() in dict(self._poller.poll(0)):
                self._receive_order()
        self._control.sendall(b"clean %d\n" % self._number)

    def _receive_order(self) -> tuple[int, int, list[int]]:
        """Return the next order: kind, number and descriptors. If wickd has died, kill the process tree and exit."""
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        order, rights, _, _ = self._control.recvmsg(_ORDER.size, socket.CMSG_SPACE(4 * 250), flags)
        descriptors = array.array("i")
        for _, _, part in rights:
            descriptors.frombytes(part[: len(part) - len(part) % descriptors.itemsize])
        for descriptor in () if flags else descriptors:
            os.set_inheritable(descriptor, False)
        if len(order) < _ORDER.size:
            while not self._family.kill_all(1.0):
                pass
            os._exit(0)
        what, number = _ORDER.unpack(order)
        return what, number, list(descriptors)


# -- wickd's side ---------------------------------------------------------------------------------------------------


class SupervisorReport(NamedTuple):
    """A report about a command: it `ended`, or it is `clean` when no process of it is left."""

    event: str
    number: int
    status: int = 0
    memory: int = 0
    held: int = 0  # 1 if a leftover process had its output open


class Supervisor:
    """wickd's handle of a supervisor process. Call `read_reports()` when `descriptor` is readable."""

    def __init__(self, perform: Perform) -> None:
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            _run_supervisor(theirs.fileno(), perform)
        theirs.close()
        ours.setblocking(False)
        self._control, self._received = ours, b""
        self.descriptor = ours.fileno()
        self.is_gone = False

    def start(self, number: int, spec: Json, descriptors: Sequence[int]) -> None:
        """Order the start of a command. The descriptors are stdin, stdout, stderr, `failed`, and those of its data."""
        body = create_data_file(json.dumps(spec).encode())
        try:
            passed = array.array("i", [body, *descriptors])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]
            self._control.sendmsg([_ORDER.pack(_START, number)], rights)
        finally:
            os.close(body)

    def end(self, number: int) -> None:
        """Order the end of a command: SIGTERM to all its processes, and SIGKILL after a grace period."""
        call_quietly(self._control.send, _ORDER.pack(_END, number))

    def read_reports(self) -> list[SupervisorReport]:
        """Return the available reports; set `is_gone` if the supervisor is dead."""
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.is_gone = not data
        *lines, self._received = (self._received + data).split(b"\n")
        reports = [line.decode().split() for line in lines]
        return [SupervisorReport(event, *map(int, numbers)) for event, *numbers in reports]

    def dismiss(self) -> None:
        """Ask the supervisor to end its command and exit; `is_gone` is set afterwards."""
        call_quietly(self._control.shutdown, socket.SHUT_WR)

    def kill(self) -> None:
        """Kill the supervisor. wickd adopts its processes, so call `kill_unknown_children` next."""
        call_quietly(os.kill, self.pid, signal.SIGKILL)
        call_quietly(os.waitpid, self.pid, 0)
        self._control.close()


def _run_supervisor(control: int, perform: Perform) -> NoReturn:
    """Run a supervisor in the forked child, after closing all descriptors of wickd."""
    try:
        if control != _CONTROL:
            os.dup2(control, _CONTROL, inheritable=False)
        close_from(_CONTROL + 1)
        os.chdir("/")
        adopt_orphans()
        prctl(PDEATHSIG, signal.SIGCONT)  # a stopped supervisor resumes, sees its socket closed, and cleans up
        _SupervisorProcess(perform).serve_forever()
    except (BrokenPipeError, ConnectionResetError):
        pass  # wickd has died
    finally:
        ProcessTree(0).kill_all(5.0)
        os._exit(0)
