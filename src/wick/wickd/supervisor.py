"""A supervisor for each command, so that no process outlives the command it came from.

    guard ── wickd ──┬── supervisor ── command ── whatever it starts …
                     ├── supervisor, waiting for a command
                     └── …

A supervisor adopts whatever its command leaves behind (on Linux, as a "subreaper") and ends all of it when the command
ends, is ended, or wickd dies. Who is killed is stood in for by who is above: the orphans of a supervisor come to wickd,
which kills children that it does not know (`end_strangers`); those of wickd come to the guard, which ends everything.
On Linux a process has to kill its supervisor, wickd and the guard in one go to get away; only a PID namespace
(bubblewrap, a container) stops that. Elsewhere there are no subreapers: see `wick.workspace.processes`.
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

LOOK_SECONDS = 2.0  # between two looks of a guard at its parent


def fork_under_guard(parent: int | None = None) -> None:
    """Go on as a child of a guard: when this process ends, however it ends, so does everything it left behind.

    It ends when `parent` does, if one is given; should it not, for somebody stopped it, the guard kills it.
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
        signal.signal(signal.SIGUSR1, lambda *_: _extend_deadline() if parent else None)
        close_from(3)
        if parent:
            signal.signal(signal.SIGALRM, lambda *_: call_quietly(_kill_orphan, pid, parent))
            signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
        while _reap_child() != pid:
            pass
        ProcessTree(0).kill_all(5.0)
    finally:
        os._exit(0)


def _extend_deadline() -> None:
    signal.setitimer(signal.ITIMER_REAL, constants.WATCH_LINGER_SECONDS + LOOK_SECONDS, LOOK_SECONDS)


def ask_guard_for_time() -> None:
    """Have the guard of this process wait for its watchers after the parent has ended; all commands have ended."""
    call_quietly(os.kill, os.getppid(), signal.SIGUSR1)


def _kill_orphan(pid: int, parent: int) -> None:
    if os.getppid() != parent:
        os.kill(pid, signal.SIGKILL)


def _reap_child() -> int:
    return os.waitpid(-1, 0)[0]


# -- the supervisor -------------------------------------------------------------------------------------------------

_CONTROL = 3  # the descriptor of a supervisor
_ORDER = struct.Struct("=qq")  # what, and which command
_START, _END = 1, 2


class _SupervisorProcess:
    """A supervisor's life: wait for a command, start it, wait until it ends, end what it left, report; and again."""

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
                continue  # it ended before it could be ended
            self._number = number
            spec = json.loads(_read_all(descriptors.pop(0)))
            self._outputs = {identify_file(one) for one in descriptors[1:3]} if spec.get("whole") else set()
            self._family = self._start_command(spec, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            self._wait_for_end()
            self._kill_leftovers()

    def _start_command(self, spec: Json, descriptors: list[int]) -> ProcessTree:
        try:
            return ProcessTree(start_command(spec, descriptors, self._perform))
        except CommandNotStarted as error:
            error.write_to(descriptors[FAILED])
            family = ProcessTree(0)
            family.status = error.exit_code << 8
            return family

    def _wait_for_end(self) -> None:
        """Wait until the command has ended, by itself or on wickd's order."""
        family = self._family
        deadline: float | None = None
        while family.status is None and family.reap() and family.status is None:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            for descriptor, _ in self._poller.poll(wait):
                if descriptor == self._wakes:
                    os.read(self._wakes, 4096)
                elif self._is_end_ordered():
                    family.send_signal(signal.SIGTERM)
                    family.send_signal(signal.SIGCONT)  # a stopped process cannot end by itself
                    deadline = time.monotonic() + constants.COMMAND_GRACE_SECONDS
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _kill_leftovers(self) -> None:
        family = self._family
        held = bool(self._outputs) and family.holds_open(self._outputs)
        clean = family.kill_all(constants.END_SECONDS)
        status = signal.SIGKILL if family.status is None else family.status  # one that cannot be killed
        ended = b"ended %d %d %d %d\n" % (self._number, status, family.memory, held)
        self._control.sendall(ended + b"clean %d\n" % self._number if clean else ended)
        if clean:
            return
        while not family.kill_all(1.0):
            if self._control.fileno() in dict(self._poller.poll(0)):
                self._receive_order()
        self._control.sendall(b"clean %d\n" % self._number)

    def _is_end_ordered(self) -> bool:
        what, number, _ = self._receive_order()
        return what == _END and number == self._number

    def _receive_order(self) -> tuple[int, int, list[int]]:
        """The next order. When wickd is gone, everything is."""
        order, descriptors = _receive_message(self._control, _ORDER.size)
        if len(order) < _ORDER.size:
            while not self._family.kill_all(1.0):
                pass
            os._exit(0)
        what, number = _ORDER.unpack(order)
        return what, number, descriptors


def _receive_message(connection: socket.socket, size: int) -> tuple[bytes, list[int]]:
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, rest, _, _ = connection.recvmsg(size, socket.CMSG_SPACE(4 * 250), flags)
    found = array.array("i")
    for _, _, part in rest:
        found.frombytes(part[: len(part) - len(part) % found.itemsize])
    for descriptor in () if flags else found:
        os.set_inheritable(descriptor, False)
    return data, list(found)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb", buffering=0) as file:
        return file.read()


# -- wickd's side ---------------------------------------------------------------------------------------------------


class SupervisorReport(NamedTuple):
    """What a supervisor says of a command: that it `ended`, and that it is `clean`: nothing of it is left."""

    event: str
    number: int
    status: int = 0
    memory: int = 0
    held: int = 0  # what it left behind had its output open


class Supervisor:
    """wickd's end of one supervisor. `reports()` is called when `descriptor` can be read."""

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
        """Have a command started. The descriptors are its stdin, stdout, stderr, `failed`, and those of its data."""
        body = create_data_file(json.dumps(spec).encode())
        try:
            passed = array.array("i", [body, *descriptors])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]
            self._control.sendmsg([_ORDER.pack(_START, number)], rights)
        finally:
            os.close(body)

    def end(self, number: int) -> None:
        """Have a command ended: TERM to all of it, and after a moment KILL."""
        call_quietly(self._control.send, _ORDER.pack(_END, number))

    def read_reports(self) -> list[SupervisorReport]:
        """What the supervisor has to say; `gone` is set when it is dead."""
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.is_gone = not data
        *lines, self._received = (self._received + data).split(b"\n")
        said = [line.decode().split() for line in lines]
        return [SupervisorReport(what, *map(int, numbers)) for what, *numbers in said]

    def dismiss(self) -> None:
        """Let go of it: it ends what it has, and itself; then `gone` is set."""
        call_quietly(self._control.shutdown, socket.SHUT_WR)

    def kill(self) -> None:
        """End the supervisor at once. What it looked after comes to wickd: call `end_strangers`."""
        call_quietly(os.kill, self.pid, signal.SIGKILL)
        call_quietly(os.waitpid, self.pid, 0)
        self._control.close()


def _run_supervisor(control: int, perform: Perform) -> NoReturn:
    """The first moments of a supervisor: nothing of wickd's stays open in it."""
    try:
        if control != _CONTROL:
            os.dup2(control, _CONTROL, inheritable=False)
        close_from(_CONTROL + 1)
        os.chdir("/")
        adopt_orphans()
        prctl(PDEATHSIG, signal.SIGCONT)  # one that was stopped wakes up, finds its pipe closed, and tidies up
        _SupervisorProcess(perform).serve_forever()
    except (BrokenPipeError, ConnectionResetError):
        pass  # wickd is gone
    finally:
        ProcessTree(0).kill_all(5.0)
        os._exit(0)
