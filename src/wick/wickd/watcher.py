"""Watcher processes, one per workspace, that neutralise code planted by commands.

    wickd ──┬── supervisor ── command …
            └── watcher, one for each workspace

inotify reports each new name, so that no repeated walk is needed. Without inotify, or without free watches, the
watcher walks the workspace before and after each command, and every second in between.

A watcher outlives the client: when the connection ends, wickd ends all commands, then the watcher processes their last
changes. Its protocol is lines of JSON over a socket: `guard` (a command is about to start), `release` (it has ended).

Commands of a container end a moment after the client. A watcher of a workspace that a container shares with this host
(`contained`) therefore runs for some seconds more. No mounts protect such a workspace either: see `ProtectedIndex.arm`.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections import deque
from typing import Callable, NoReturn, Optional, Sequence, Tuple

from wick import constants
from wick.wickd.event_loop import EventLoop
from wick.wickd.supervisor import ask_guard_for_time
from wick.workspace.auto_executed import ProtectedIndex, WatchedFolder
from wick.workspace.processes import call_quietly, close_from
from wick.workspace.results import Json
from wick.workspace.rooted_folder import RootedFolder

_CONTROL = 3
_EVENT = struct.Struct("iIII")
_READ_BYTES = 65_536

_MODIFY, _ATTRIB, _CLOSE_WRITE, _OPEN, _MOVED_FROM, _MOVED_TO, _CREATE = 0x2, 0x4, 0x8, 0x20, 0x40, 0x80, 0x100
_OVERFLOW, _IGNORED, _ONLYDIR, _ISDIR = 0x4000, 0x8000, 0x1000000, 0x40000000
_NAMES = _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _ONLYDIR

Reply = Callable[[Json], None]
Notice = Tuple[Optional[WatchedFolder], int, int, str]
Key = Tuple[str, Tuple[str, ...], bool]  # the workspace, the protected names, and True for contained commands


# -- the watcher's process ------------------------------------------------------------------------------------------


class InotifyReader:
    """Reader of inotify events. `is_complete` is False if some folders could not be watched."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd, self.is_complete = -1, False
        self._folders: dict[int, WatchedFolder] = {}
        if sys.platform.startswith("linux"):
            self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self.is_complete = self.fd >= 0

    def add_watch(self, folder: WatchedFolder, fd: int) -> None:
        """Add an inotify watch for a folder, which is open as `fd`."""
        if self.fd < 0:
            return
        mask = (
            _NAMES | (_MODIFY | _CLOSE_WRITE if folder.deep else 0) | (_OPEN if folder.deep and not folder.quiet else 0)
        )
        path = f"/proc/self/fd/{fd}".encode()
        watch = self._libc.inotify_add_watch(self.fd, path, ctypes.c_uint32(mask))
        if watch < 0:
            self.is_complete = False
            return
        folder.watch = watch
        self._folders[watch] = folder

    def read(self) -> tuple[int, list[Notice]]:
        """Return the size of the next events, and each with folder (None: some were lost), mask, cookie and name."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except OSError:  # no events are pending
            return 0, []
        notices: list[Notice] = []
        at = 0
        while at < len(data):
            watch, mask, cookie, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            at += _EVENT.size + size
            if mask & _OVERFLOW:
                notices.append((None, mask, 0, ""))
            elif mask & _IGNORED:
                self._folders.pop(watch, None)
            elif watch in self._folders:
                notices.append((self._folders[watch], mask, cookie, name))
        return len(data), notices

    @property
    def pending_bytes(self) -> int:
        """Return the size of the pending events in bytes."""
        if self.fd < 0:
            return 0
        size = array.array("i", [0])
        fcntl.ioctl(self.fd, termios.FIONREAD, size)
        return size[0]


class WorkspaceWatch:
    """A watched workspace: its index, and the inotify events that keep it current."""

    def __init__(self, root: str, protect: Sequence[str], contained: bool = False) -> None:
        self._contained = contained
        self._notices = InotifyReader()
        self._index = ProtectedIndex(RootedFolder(root), protect, self._notices.add_watch)
        self._guards: set[str] = set()
        self._since: dict[str, tuple[int, int]] = {}
        self._moving: dict[int, WatchedFolder] = {}
        self._needs_walk = False  # events were lost, or a folder was renamed and possibly replaced
        self._next_walk = 0.0
        self._index.walk()

    @property
    def fd(self) -> int:
        return self._notices.fd

    @property
    def poll_timeout(self) -> float | None:
        """Return the maximum time to wait for events, in seconds."""
        if self._needs_walk:
            return max(0.001, self._next_walk - time.monotonic())
        if self._index.writing:
            return constants.WATCH_PAUSE_SECONDS
        return constants.WATCH_SECONDS if self._guards and not self._notices.is_complete else None

    def process_changes(self, *, asked: bool = False) -> None:
        """Process pending events; with `asked`, all changes made so far, because a request waits."""
        left = self._notices.pending_bytes if asked else 1
        while left > 0:
            size, notices = self._notices.read()
            for folder, mask, cookie, name in notices:
                self._handle_notice(folder, mask, cookie, name)
            left -= size or left
        for folder in self._moving.values():
            self._index.remove_folder(folder)
        self._moving.clear()
        self._index.inspect_open_files()
        if not self._notices.is_complete or (self._needs_walk and (asked or time.monotonic() >= self._next_walk)):
            start, self._needs_walk = time.monotonic(), False
            self._index.walk()
            now = time.monotonic()
            # Delay the next walk, so that a command cannot force continuous walks.
            self._next_walk = now + constants.WATCH_PAUSE_SECONDS + 2 * (now - start)

    def _handle_notice(self, folder: WatchedFolder | None, mask: int, cookie: int, name: str) -> None:
        if folder is None or mask & (_ISDIR | _ATTRIB) == _ISDIR | _ATTRIB:  # a folder may have become readable
            self._needs_walk = True
        elif mask & _ISDIR and mask & _OPEN:
            return
        elif mask & _ISDIR and mask & _MOVED_FROM:
            left = folder.below.pop(name, None)
            if left is not None:
                self._moving[cookie] = left
        elif mask & _ISDIR and mask & (_CREATE | _MOVED_TO):
            self._index.inspect_name(folder, name)
            moved = self._moving.pop(cookie, None) if mask & _MOVED_TO else None
            if moved is None:
                below = folder.below.setdefault(name, WatchedFolder(name, folder))
                if not self._index.walk(below):
                    self._needs_walk = True
                return
            moved.name, moved.above = name, folder
            folder.below[name] = moved
            self._index.inspect_below(moved)  # the index stays, but its names have a new path
            self._needs_walk = True
        elif not mask & _MOVED_FROM:
            self._index.inspect_name(folder, name)
            if mask & _CREATE:
                self._index.inspect_new_link(folder, name)

    def handle_request(self, request: Json) -> Json:
        self.process_changes(asked=True)
        op, guard = request["op"], request.get("guard", "")
        if op == "guard":
            if guard:
                if not self._guards:
                    self._index.arm(mounted=not self._contained)
                self._guards.add(guard)
                self._since[guard] = (len(self._index.moved), len(self._index.stuck))
            return {"entries": [*self._index.list_entries().values()]}
        if op == "release" and guard in self._guards:
            self._guards.discard(guard)
            self._index.restore_links()
            moved, stuck = self._since.pop(guard)
            if not self._guards:
                self._index.armed = False
            return {"moved": self._index.moved[moved:], "stuck": self._index.stuck[stuck:]}
        return {}

    def linger(self) -> None:
        """Process changes for some more seconds, if contained commands ran when the connection ended."""
        seconds = constants.WATCH_LINGER_SECONDS if self._contained and self._guards else 0.0
        poller, until = select.poll(), time.monotonic() + seconds
        if self.fd >= 0:
            poller.register(self.fd, select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            poller.poll(min(left, self.poll_timeout or left) * 1000)
            self.process_changes()
        self.process_changes(asked=True)


def _serve_requests(control: socket.socket, key: Key) -> None:
    watch = WorkspaceWatch(*key)
    control.sendall(b"{}\n")
    poller = select.poll()
    poller.register(control, select.POLLIN)
    if watch.fd >= 0:
        poller.register(watch.fd, select.POLLIN)
    received = b""
    while True:
        pause = watch.poll_timeout
        ready = dict(poller.poll(None if pause is None else pause * 1000))
        if control.fileno() not in ready:
            watch.process_changes()
            continue
        data = control.recv(_READ_BYTES)
        if not data:
            watch.process_changes(asked=True)
            watch.linger()
            return
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            control.sendall(json.dumps(watch.handle_request(json.loads(line))).encode() + b"\n")


def _run_watcher(control: int, key: Key) -> NoReturn:
    """Run a watcher in the forked child, after closing all descriptors of wickd."""
    try:
        signal.set_wakeup_fd(-1)
        # A watcher ends with its socket. SIGIO announces a lease break, and leases are released at once anyway.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGIO):
            signal.signal(number, signal.SIG_IGN)
        if control != _CONTROL:
            os.dup2(control, _CONTROL, inheritable=False)
        close_from(_CONTROL + 1)
        os.chdir("/")
        _serve_requests(socket.socket(fileno=_CONTROL), key)
    except OSError:
        pass
    finally:
        os._exit(0)


# -- wickd's side ---------------------------------------------------------------------------------------------------


class Watcher:
    """wickd's handle of a watcher process. Replies arrive in the order of the requests."""

    def __init__(self, loop: EventLoop, key: Key, lost: Callable[[Watcher], None]) -> None:
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            _run_watcher(theirs.fileno(), key)
        theirs.close()
        ours.setblocking(False)
        self._loop, self._control, self._lost = loop, ours, lost
        self._contained, self.lingers = key[-1], False
        self._received, self._to_send = bytearray(), bytearray()
        self._replies: deque[Reply] = deque([lambda _: None])  # for the line that reports its start
        self.guards: set[str] = set()
        self.used = time.monotonic()
        loop.on_read(ours.fileno(), self._read)

    def send_request(self, request: Json, reply: Reply) -> None:
        self.used = time.monotonic()
        self._replies.append(reply)
        self._to_send += json.dumps(request).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        try:
            while self._to_send:
                del self._to_send[: self._control.send(self._to_send)]
            self._loop.on_write(self._control.fileno(), None)
        except BlockingIOError:
            self._loop.on_write(self._control.fileno(), self._write)
        except OSError:
            self._handle_exit()

    def _read(self) -> None:
        try:
            data = self._control.recv(1_000_000)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._handle_exit()
            return
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self._replies.popleft()(json.loads(bytes(line)))

    def _handle_exit(self) -> None:
        """Handle the end of the process: reply to all pending requests with an error."""
        if self._control.fileno() < 0:
            return
        self._loop.unregister(self._control.fileno())
        self._control.close()
        call_quietly(os.kill, self.pid, signal.SIGKILL)
        call_quietly(os.waitpid, self.pid, 0)
        self._lost(self)
        waiting, self._replies = self._replies, deque()
        for reply in waiting:
            reply({"lost": True})

    def dismiss(self) -> None:
        """Ask the watcher to process the last changes and exit, later if contained commands may still run."""
        self.lingers = self._contained and bool(self.guards)
        call_quietly(self._control.shutdown, socket.SHUT_WR)


class WatcherPool:
    """All watchers of a wickd."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._current: dict[Key, Watcher] = {}
        self._dismissed: set[Watcher] = set()  # that have not ended yet; a command after the dismissal gets a new one
        self._guards: dict[str, Watcher] = {}
        self._results: dict[str, Json | None] = {}  # of guards whose command has ended; None: not known yet
        self._waiting: dict[str, Reply] = {}
        self._count = 0

    @property
    def pids(self) -> Sequence[int]:
        return [one.pid for one in (*self._current.values(), *self._dismissed)]

    def guard(self, key: Key, arm: bool, reply: Callable[[str, Json], None]) -> None:
        """Reply with the protected paths of a workspace, and the name of the guard for `release`."""
        watcher = self._current.get(key)
        if watcher is None:
            watcher = self._current[key] = Watcher(self._loop, key, self._remove_watcher)
            self._dismiss_idle()
        self._count += 1
        guard = f"guard-{self._count}" if arm else ""
        if arm:
            watcher.guards.add(guard)
            self._guards[guard] = watcher
        watcher.send_request({"op": "guard", "guard": guard}, lambda answer: reply(guard, answer))

    def end_guard(self, guard: str) -> None:
        """Process the changes of a guard's command, which has ended."""
        watcher = self._guards.pop(guard, None)
        if watcher is None:
            return
        watcher.guards.discard(guard)
        self._results[guard] = None

        def store_result(result: Json) -> None:
            reply = self._waiting.pop(guard, None)
            if reply is None:
                self._results[guard] = result
            else:
                reply(result)

        watcher.send_request({"op": "release", "guard": guard}, store_result)

    def release(self, guard: str, reply: Reply) -> None:
        """Reply with the planted paths that were neutralised while a command ran."""
        self.end_guard(guard)
        result = self._results.pop(guard, {})
        if result is None:
            self._waiting[guard] = reply
        else:
            reply(result)

    def forget(self, root: str) -> None:
        """Dismiss the watchers of a workspace that no command runs in."""
        for key, watcher in [*self._current.items()]:
            if key[0] == root and not watcher.guards:
                self._dismiss(key)

    def _dismiss_idle(self) -> None:
        until = time.monotonic() - constants.WATCH_IDLE_SECONDS
        for key, watcher in [*self._current.items()]:
            if not watcher.guards and watcher.used < until:
                self._dismiss(key)
        if self._current:
            self._loop.call_later(constants.WATCH_IDLE_SECONDS, self._dismiss_idle)

    def _dismiss(self, key: Key) -> None:
        watcher = self._current.pop(key)
        self._dismissed.add(watcher)
        watcher.dismiss()

    def _remove_watcher(self, watcher: Watcher) -> None:
        self._dismissed.discard(watcher)
        for key in [key for key, one in self._current.items() if one is watcher]:
            del self._current[key]
        for guard in [guard for guard, one in self._guards.items() if one is watcher]:
            del self._guards[guard]

    def close(self, seconds: float = 1.0) -> None:
        """Dismiss all watchers and wait until they have processed the last changes of the commands."""
        for key in [*self._current]:
            self._dismiss(key)
        if any(watcher.lingers for watcher in self._dismissed):
            ask_guard_for_time()
            seconds += constants.WATCH_LINGER_SECONDS
        until = time.monotonic() + seconds
        while self._dismissed and time.monotonic() < until:
            self._loop.call_later(0.01, lambda: None)
            self._loop.run_once()
        for pid in self.pids:
            call_quietly(os.kill, pid, signal.SIGKILL)
