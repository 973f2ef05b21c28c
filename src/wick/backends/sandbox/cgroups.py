"""Control groups: how much memory and how many processes a command may have, with all that it starts.

    controllers()                            what can be limited here: {"memory": …, "pids": …}, or less, or nothing
    group = make({"memory": 512_000_000, "pids": 64})
    group.join                               files that a process writes itself into before it becomes the command
    group.reached()                          which limit it ran into, as a sentence
    group.release()                          afterwards: an empty one is kept for the next, as making one takes time
    forget()                                 removes those that are kept

Both versions of the kernel's interface are understood, also side by side. A group is made below the one that wick
itself is in, so a limit that somebody has set on wick holds for its commands too.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count

REMOVE_SECONDS = 1.0  # for the last of a group to be gone
MAX_IDLE_GROUPS = 8  # empty groups

# What is written where, by controller and version; what comes after the first may be missing.
LIMIT_FILES = {
    ("memory", 1): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ("memory", 2): ("memory.max", "memory.swap.max=0", "memory.oom.group=1"),
    ("pids", 1): ("pids.max",),
    ("pids", 2): ("pids.max",),
}
# Where the kernel counts how often the limit was reached, and the word before the number.
EVENT_FILES = {
    ("memory", 1): ("memory.oom_control", "oom_kill"),
    ("memory", 2): ("memory.events", "oom_kill"),
    ("pids", 1): ("pids.events", "max"),
    ("pids", 2): ("pids.events", "max"),
}

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Controller:
    """One thing that can be limited, and the folder in which groups for it can be made."""

    name: str
    version: int
    folder: str


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The control group of one command."""

    name: str
    limits: Mapping[str, int]
    used: tuple[Controller, ...]
    earlier_counts: Mapping[str, int] = field(
        default_factory=dict
    )  # how often each limit had been reached by earlier commands

    @property
    def folders(self) -> list[str]:
        return sorted({f"{controller.folder}/{self.name}" for controller in self.used})

    @property
    def join_files(self) -> list[str]:
        """In version 1 a process with one thread joins as a thread: that takes no lock of the whole system."""
        files = {1: "tasks", 2: "cgroup.procs"}
        return sorted({f"{one.folder}/{self.name}/{files[one.version]}" for one in self.used})

    def describe_reached_limit(self) -> str:
        """A sentence about the limit that the command ran into; empty if it did not."""
        for name, times in self.read_counts().items():
            if times > self.earlier_counts.get(name, 0):
                return _describe_limit(name, self.limits[name])
        return ""

    def read_counts(self) -> dict[str, int]:
        """How often each limit was reached, ever."""
        files = {one.name: (one.folder, *EVENT_FILES[one.name, one.version]) for one in self.used}
        return {name: _read_count(f"{folder}/{self.name}/{file}", word) for name, (folder, file, word) in files.items()}

    def release(self) -> None:
        """Keep the group for the next command if nobody is left in it, and remove it otherwise."""
        if len(_idle_groups) < MAX_IDLE_GROUPS and not any(_has_processes(folder) for folder in self.folders):
            _idle_groups.append(replace(self, earlier_counts=self.read_counts()))
        else:
            self.remove()

    def remove(self) -> None:
        """Remove the group; whatever is still in it is killed first."""
        until = time.monotonic() + REMOVE_SECONDS
        for folder in self.folders:
            while not _remove_folder(folder) and time.monotonic() < until:
                _kill_processes(folder)
                time.sleep(0.005)


def _describe_limit(name: str, limit: int) -> str:
    if name == "memory":
        return f"the command reached its memory limit of {format_bytes(limit)} and was ended"
    return f"the command reached its limit of {limit} processes"


def format_bytes(size: float) -> str:
    """A number of bytes as people write it: 512 MB, 2 GB."""
    for unit, step in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= step:
            return f"{size / step:.4g} {unit}"
    return f"{size:.0f} bytes"


def create_group(limits: Mapping[str, float], found: Mapping[str, Controller] | None = None) -> ControlGroup | None:
    """A group with these limits, as far as they can be set here; None if none can."""
    found = get_controllers() if found is None else found
    used = tuple(controller for name, controller in sorted(found.items()) if limits.get(name))
    if not used:
        return None
    wanted = {controller.name: int(limits[controller.name]) for controller in used}
    if kept := _reuse_group(wanted, used):
        return kept
    group = ControlGroup(f"wick-{os.getpid()}-{next(_numbers)}", wanted, used)
    try:
        for folder in group.folders:
            os.mkdir(folder)
        for controller in used:
            _write_limits(controller, group)
    except OSError:
        group.remove()
        return None
    return group


_idle_groups: list[ControlGroup] = []


def _reuse_group(wanted: Mapping[str, int], used: tuple[Controller, ...]) -> ControlGroup | None:
    """One of those that are kept, if it is of the right kind and was made by this process."""
    mine = f"wick-{os.getpid()}-"
    for group in [*_idle_groups]:
        if group.limits == wanted and group.used == used and group.name.startswith(mine):
            with suppress(ValueError):  # somebody else was faster
                _idle_groups.remove(group)
                return group
    return None


def list_idle_groups() -> list[ControlGroup]:
    """The empty groups that wait for a command."""
    return [*_idle_groups]


@atexit.register
def remove_idle_groups() -> None:
    """Remove the groups that are kept."""
    while _idle_groups:
        with suppress(IndexError):
            group = _idle_groups.pop()
            if group.name.startswith(f"wick-{os.getpid()}-"):
                group.remove()


def _write_limits(controller: Controller, group: ControlGroup) -> None:
    folder, limit = f"{controller.folder}/{group.name}", group.limits[controller.name]
    first, *others = LIMIT_FILES[controller.name, controller.version]
    _write_value(f"{folder}/{first}", limit)
    for name, _, value in (other.partition("=") for other in others):
        with suppress(OSError):  # a kernel without swap accounting, or an older one
            _write_value(f"{folder}/{name}", value or limit)


# -- what there is --------------------------------------------------------------------------------------------------


@cache
def get_controllers() -> Mapping[str, Controller]:
    """What this process may limit, found by trying; groups that a dead process left behind are removed."""
    with suppress(OSError):
        with open("/proc/self/mounts") as mounts, open("/proc/self/cgroup") as own:
            found = detect_controllers(mounts.read(), own.read())
        _remove_orphaned_groups({controller.folder for controller in found.values()})
        return found
    return {}


def detect_controllers(mounts: str, own: str) -> dict[str, Controller]:
    """The controllers among these mounts for a process in these groups (both as /proc/self has them)."""
    groups = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    found: dict[str, Controller] = {}
    for _, point, kind, options, *_ in (line.split(" ") for line in mounts.splitlines()):
        for name in ("memory", "pids"):
            if kind == "cgroup" and name in options.split(","):
                path = next((path for names, path in groups.items() if name in names.split(",")), "/")
                found |= _first_usable(name, 1, [point + path.rstrip("/"), point])
            elif kind == "cgroup2" and name not in found:
                found |= _first_usable(name, 2, _ancestor_folders(point, groups.get("", "/")))
    return found


def _first_usable(name: str, version: int, folders: list[str]) -> dict[str, Controller]:
    return next(
        ({name: Controller(name, version, folder)} for folder in folders if _can_create_group(name, version, folder)),
        {},
    )


def _ancestor_folders(point: str, path: str) -> list[str]:
    """The group of this process and those above it. One with processes in it cannot give its controllers on."""
    parts = [part for part in path.split("/") if part]
    return ["/".join([point, *parts[:length]]) for length in range(len(parts), -1, -1)]


def _can_create_group(name: str, version: int, folder: str) -> bool:
    """Whether a group can be made there, with this controller, and be joined by a child of this process."""
    if not os.access(f"{folder}/cgroup.procs", os.W_OK):
        return False
    trial = f"{folder}/wick-{os.getpid()}-0"
    try:
        os.mkdir(trial)
    except OSError:
        return False
    try:
        return os.path.exists(f"{trial}/{LIMIT_FILES[name, version][0]}")
    finally:
        _remove_folder(trial)


def _remove_orphaned_groups(folders: set[str]) -> None:
    for folder in folders:
        for name in os.listdir(folder):
            word, _, rest = name.partition("-")
            pid = rest.partition("-")[0]
            if word == "wick" and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                _remove_folder(f"{folder}/{name}")


# -- files ----------------------------------------------------------------------------------------------------------


def _write_value(path: str, value: object) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _read_count(path: str, word: str) -> int:
    with suppress(OSError), open(path) as file:
        return sum(int(number) for name, number in (line.split() for line in file) if name == word)
    return 0


def _has_processes(folder: str) -> bool:
    """Whether somebody is in a group; one that cannot be looked into is not empty."""
    try:
        with open(f"{folder}/cgroup.procs") as file:
            return bool(file.read(1))
    except OSError:
        return True


def _remove_folder(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill_processes(folder: str) -> None:
    with suppress(OSError), open(f"{folder}/cgroup.procs") as file:
        for pid in map(int, file.read().split()):
            if pid > 0:  # 0 is one that this namespace does not see
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
