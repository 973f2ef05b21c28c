"""Snapshots of processes, descriptors, temporary files, control groups, containers and memory, to detect leaks.

    with watching() as watch:
        ...
        watch.clean()       # within a second nothing is left that was not there before, or it is Violated

While it watches, this process adopts the orphans among its descendants, so that no process that was started below it
can get out of sight, whatever it does to its parents, its group, its session, its environment or its name.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faults.tally import Violated
from wick.backends.sandbox import cgroups

CLEAN_SECONDS = 1.0
_SUBREAPER = 36
MB = 1_048_576


# -- processes ------------------------------------------------------------------------------------------------------


def family(pid: int = 0) -> dict[int, str]:
    """Return every descendant of a process by pid, with its command line, without zombies."""
    found: dict[int, str] = {}
    below = _children(pid or os.getpid())
    for one in below:  # grows while it is walked
        below += _children(one)
        if (runs := _running(one)) is not None:
            found[one] = runs
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return found


def _running(pid: int) -> str | None:
    """Its command line; None if it runs no more."""
    try:
        if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZX":
            return None
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None


def is_wickd(line: str) -> bool:
    """Return True if this is wickd, its guard or a waiting supervisor; they run until the end."""
    return "wick.wickd.__main__" in line and "--parent" in line


# -- the rest -------------------------------------------------------------------------------------------------------


def descriptors(pid: int = 0) -> dict[int, str]:
    """Return the open descriptors of a process (default: this one)."""
    folder, found = f"/proc/{pid or os.getpid()}/fd", {}
    for name in os.listdir(folder):
        with suppress(OSError):
            found[int(name)] = os.readlink(f"{folder}/{name}")
    return {number: what for number, what in found.items() if not what.startswith(f"/proc/{pid or os.getpid()}/fd")}


def temporary_files() -> set[str]:
    """Return the entries of the folder for temporary files."""
    return set(os.listdir(tempfile.gettempdir()))


def control_groups(pid: int = 0) -> set[str]:
    """The control groups of a process's (this one's) commands; those that it keeps for the next are not counted."""
    folders = {controller.folder for controller in cgroups.get_controllers().values()}
    there = {
        name for folder in folders for name in os.listdir(folder) if name.startswith(f"wick-{pid or os.getpid()}-")
    }
    return there - {group.name for group in cgroups.list_idle_groups()}


def containers() -> set[str]:
    """The containers of every wick of this machine; none where no engine answers."""
    command = ["docker", "ps", "-aq", "--filter", "name=wick"]
    with suppress(OSError, subprocess.TimeoutExpired):
        return set(subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.split())
    return set()


def memory(pid: int = 0) -> int:
    """Return the memory of a process in bytes (default: this one)."""
    return _status(pid, "VmRSS")


def forget_peak(pid: int = 0) -> int:
    """Reset the peak memory of a process; return its current memory."""
    Path(f"/proc/{pid or os.getpid()}/clear_refs").write_text("5")
    return peak(pid)


def peak(pid: int = 0) -> int:
    """The most that a process (this one) has held since `forget_peak`, in bytes."""
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid or os.getpid()}/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0]) * 1024


# -- watching -------------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """A snapshot taken at its creation."""

    processes: set[int] = field(default_factory=lambda: set(family()))
    open: dict[int, str] = field(default_factory=descriptors)
    files: set[str] = field(default_factory=temporary_files)
    groups: set[str] = field(default_factory=control_groups)

    def running(self, over: bool = False) -> dict[int, str]:
        """Return processes started since; those of wickd count only when all is over."""
        new = {pid: line for pid, line in family().items() if pid not in self.processes}
        return {pid: line for pid, line in new.items() if over or not is_wickd(line)}

    def left(self, over: bool = False) -> list[str]:
        """Return everything left since the snapshot, each with its kind.

        What a backend has until it is stopped, and an event loop until it ends, only counts when all is `over`.
        """
        found = [f"process {pid}: {line}" for pid, line in self.running(over).items()]
        found += [f"control group {name}" for name in control_groups() - self.groups]
        if over:
            found += [f"temporary file {name}" for name in temporary_files() - self.files]
            new = {number: what for number, what in descriptors().items() if number not in self.open}
            found += [f"descriptor {number}: {what}" for number, what in new.items()]
        return found

    def clean(self, seconds: float = CLEAN_SECONDS, *, over: bool = False) -> float:
        """Wait until nothing is left, and for how long that was; it is Violated when it takes longer than that."""
        took, left = until_none(lambda: self.left(over), seconds)
        if left:
            raise Violated(f"after {seconds} s {len(left)} are left: {left[:5]}")
        return took

    def kill(self) -> None:
        """Kill processes that a planted fault has left."""
        while there := self.running(over=True):
            for pid in there:
                with suppress(OSError):
                    os.kill(pid, 9)
            time.sleep(0.01)
        for name in control_groups() - self.groups:
            for controller in cgroups.get_controllers().values():
                with suppress(OSError):
                    os.rmdir(os.path.join(controller.folder, name))


def until_none(look: Callable[[], list[str]], seconds: float) -> tuple[float, list[str]]:
    """Return the seconds until nothing is left, or the leftovers at the deadline.

    It takes a second look: whose parent ends just now is on no list for a moment.
    """
    began = time.monotonic()
    while (there := look() or look()) and time.monotonic() - began < seconds:
        time.sleep(0.005)
    return time.monotonic() - began, there


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch for leaks with a private folder for temporary files."""
    with _adopting(), tempfile.TemporaryDirectory(prefix="f", ignore_cleanup_errors=True) as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield Watch()
        finally:
            tempfile.tempdir = before


@contextmanager
def _adopting() -> Iterator[None]:
    """Adopt and reap orphaned descendants meanwhile."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    own = set(_children(os.getpid()))
    try:
        yield
    finally:
        libc.prctl(_SUBREAPER, 0, 0, 0, 0)
        for pid in set(_children(os.getpid())) - own:
            if _running(pid) is None:
                with suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)


@pytest.fixture
def leaks() -> Iterator[Watch]:
    """A watch that sees to it that nothing is left at the end of the test but wickd, which ends with its loop."""
    with watching() as watch:
        yield watch
        watch.clean(5.0)
