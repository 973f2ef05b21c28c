"""A command of wickd: its descriptors, input, output and outcome."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time
from collections import deque
from functools import partial
from typing import Callable, NamedTuple, Sequence

from wick.wickd.disk_quota import DiskQuotaWatch
from wick.wickd.event_loop import EventLoop, Timer
from wick.workspace.processes import UNREAD, create_data_file, describe_exit
from wick.workspace.results import Json

PIECE = 65_536  # read or written at once
TIME_LIMIT = 124  # exit code
Sink = Callable[[bytes], None]


class CommandOutcome(NamedTuple):
    """The outcome of a command; `failed` if it could not be started."""

    exit_code: int
    error: str
    seconds: float
    failed: bool = False


class DaemonCommand:
    """A command with its input, the sinks of its output, and callbacks for its start and end."""

    def __init__(
        self,
        spec: Json,
        *,
        sinks: Sequence[Sink],
        done: Callable[[CommandOutcome], None],
        began: Callable[[], None] | None = None,
        stdin: bytes = b"",
        data: Sequence[bytes] = (),
        timeout: float | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        self.spec, self.sinks, self.done, self.began = spec, sinks, done, began
        self.stdin, self.data, self.timeout, self.size = stdin, data, timeout, size
        self.number, self.started, self.why, self.finished = 0, 0.0, "", False
        self.timers: list[Timer] = []
        self.watch: DiskQuotaWatch | None = None
        self._loop: EventLoop | None = None
        self._outputs: dict[int, Sink] = {}
        self._input = self._failed = self._unread = -1
        self._to_feed: deque[memoryview] = deque()
        self.child_fds: list[int] = []
        self.dispatched = False  # to a supervisor
        self.failure = b""
        self._paused = False

    # -- descriptors ------------------------------------------------------------------------------------------------

    def open(self, loop: EventLoop) -> None:
        """Open the descriptors. `child_fds` are for the command: stdin, stdout, stderr, failed, and those of `data`."""
        self._loop, self.started = loop, time.monotonic()
        if self.size:
            self._input, terminal = os.openpty()
            self.child_fds.append(terminal)
            os.set_blocking(self._input, False)
            self._outputs[self._input] = self.sinks[0]
            self.resize(*self.size)
            self.child_fds += [os.dup(terminal), os.dup(terminal)]
        else:
            self.child_fds.append(self._open_stdin())
            for sink in self.sinks:
                self._outputs[self._open_output_pipe()] = sink
            if len(self.sinks) == 1:  # stderr goes where stdout goes
                self.child_fds.append(os.dup(self.child_fds[-1]))
        self._failed = self._open_output_pipe()
        if self.began is not None:
            loop.on_read(self._failed, self._check_started)
        for data in self.data:
            self.child_fds.append(create_data_file(data))
        if self.began is None:  # else its output is read after `began` was called
            self._register_outputs()

    def _open_output_pipe(self) -> int:
        ours, theirs = os.pipe()
        self.child_fds.append(theirs)
        os.set_blocking(ours, False)
        return ours

    def _open_stdin(self) -> int:
        if not self.stdin:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        theirs, self._input = os.pipe()
        os.set_blocking(self._input, False)
        if self.spec.get("read"):
            self._unread = os.dup(theirs)
        self.feed(self.stdin)
        self.stdin = b""
        return theirs

    def close_child_fds(self) -> None:
        """Close the command's descriptors in this process, after they were passed on."""
        while self.child_fds:
            os.close(self.child_fds.pop())

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal; the kernel sends SIGWINCH to its programs."""
        if self.size and not self.finished and self._input >= 0:
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _check_started(self) -> None:
        """Read the failure pipe: the starter writes an error to it, or closes it on success."""
        assert self._loop is not None
        self.failure = _read_available(self._failed) or b""
        self._loop.on_read(self._failed, None)
        began, self.began = self.began, None
        if began is not None and not self.failure:
            began()
        if not self.finished:
            self._register_outputs()

    # -- output -----------------------------------------------------------------------------------------------------

    def _register_outputs(self) -> None:
        assert self._loop is not None
        for descriptor in self._outputs:
            self._loop.on_read(descriptor, None if self._paused else partial(self._read_output, descriptor))

    def set_paused(self, paused: bool) -> None:
        """Pause or resume reading the output."""
        if paused != self._paused:
            self._paused = paused
            if not self.finished and self._loop is not None and self.began is None:
                self._register_outputs()

    def _read_output(self, descriptor: int) -> bool:
        """Read one chunk of output; return True if there may be more."""
        assert self._loop is not None
        data = _read_available(descriptor)
        if data:
            self._outputs[descriptor](data)
        elif data is not None:
            self._loop.unregister(descriptor)
            self._outputs.pop(descriptor, None)
            if descriptor == self._input:
                self._input = -1
            os.close(descriptor)
        return bool(data)

    def _drain_outputs(self) -> None:
        """Read the remaining output without waiting for EOF, because another process may hold the pipes open."""
        for descriptor in list(self._outputs):
            for _ in range(32):  # two megabytes: more than a pipe holds
                if not self._read_output(descriptor):
                    break

    # -- input ------------------------------------------------------------------------------------------------------

    @property
    def pending_input(self) -> int:
        return sum(map(len, self._to_feed))

    def feed(self, data: bytes) -> None:
        """Write to the command's input without blocking; queue the rest until the pipe is writable."""
        if self._input >= 0 and data:
            self._to_feed.append(memoryview(data))
            self._write_input()

    def _write_input(self) -> None:
        assert self._loop is not None
        try:
            while self._to_feed:
                first = self._to_feed[0]
                written = os.write(self._input, first[:PIECE])
                if written < len(first):
                    self._to_feed[0] = first[written:]
                else:
                    self._to_feed.popleft()
        except BlockingIOError:
            self._loop.on_write(self._input, self._write_input)
            return
        except OSError:  # it closed its stdin
            self._to_feed.clear()
        if self.size:
            self._loop.on_write(self._input, None)
        else:
            self._loop.unregister(self._input)
            os.close(self._input)
            self._input = -1

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish(self, status: int, note: str = "") -> None:
        """Read the remaining output, close all descriptors, and report the outcome."""
        if self.finished:
            return
        if self._loop is not None:
            if self.dispatched and not self.failure:
                self._check_started()
            self._drain_outputs()
            if not note and self._unread >= 0:
                waiting = fcntl.ioctl(self._unread, termios.FIONREAD, b"\0" * 4)
                note = UNREAD if self._to_feed or struct.unpack("i", waiting) != (0,) else ""
        self.finished = True
        for timer in self.timers:
            timer.cancel()
        if self.watch is not None:
            self.watch.stop()
        if self._loop is not None:
            for descriptor in {*self._outputs, self._input, self._failed, self._unread} - {-1}:
                self._loop.unregister(descriptor)
                os.close(descriptor)
            self._outputs.clear()
            self._to_feed.clear()
            self._input = -1
        seconds = time.monotonic() - self.started if self.started else 0.0
        self.done(CommandOutcome(*self._describe_outcome(status, note), seconds, bool(self.failure)))

    def _describe_outcome(self, status: int, note: str) -> tuple[int, str]:
        """Return the exit code, and a sentence if the command failed or was ended."""
        exit_code, error = describe_exit(status)
        if self.why == "limit":
            limit = f"the command was stopped after {self.timeout:g} s, its time limit"
            return TIME_LIMIT, f"{limit}; give it more time, or run it in the background"
        if self.why:
            return 128 + 9, f"the command was ended: {self.why}"
        failure = self.failure.decode("utf-8", "surrogateescape")
        return exit_code, failure or (error if note == UNREAD and error else note or error)


def _read_available(descriptor: int) -> bytes | None:
    """Return the next bytes, an empty value at EOF, or None if no data is available yet."""
    try:
        return os.read(descriptor, PIECE)
    except BlockingIOError:
        return None
    except OSError:  # the terminal was closed by all its processes
        return b""
