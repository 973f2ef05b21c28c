"""Control groups: limits on memory and processes of a command and its children.

    get_controllers()                        the available controllers: {"memory": …, "pids": …}, or fewer
    group = create_group({"memory": 512_000_000, "pids": 64})
    group.join_files                         files that a process writes itself into before it executes the command
    group.describe_reached_limit()           a sentence about the limit that was reached
    group.release()                          keeps an empty group for reuse, as creating one is slow
    remove_idle_groups()                     removes the groups kept for reuse

cgroups v1 and v2 are supported, also side by side. A group is created below wick's own, so a limit on wick holds for
its commands too.
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

REMOVE_SECONDS = 1.0  # for the last process of a group to end
MAX_IDLE_GROUPS = 8  # kept for reuse

# The files with the limits, by controller and version; all but the first are optional.
LIMIT_FILES = {
    ("memory", 1): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ("memory", 2): ("memory.max", "memory.swap.max=0", "memory.oom.group=1"),
    ("pids", 1): ("pids.max",),
    ("pids", 2): ("pids.max",),
}
# The files in which the kernel counts reached limits, and the key of the number.
EVENT_FILES = {
    ("memory", 1): ("memory.oom_control", "oom_kill"),
    ("memory", 2): ("memory.events", "oom_kill"),
    ("pids", 1): ("pids.events", "max"),
    ("pids", 2): ("pids.events", "max"),
}

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Controller:
    """A resource controller, and the folder in which groups can be created."""

    name: str
    version: int
    folder: str


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The control group of one command."""

    name: str
    limits: Mapping[str, int]
    used: tuple[Controller, ...]
    earlier_counts: Mapping[str, int] = field(default_factory=dict)  # of limits reached by earlier commands

    @property
    def folders(self) -> list[str]:
        return sorted({f"{controller.folder}/{self.name}" for controller in self.used})

    @property
    def join_files(self) -> list[str]:
        """The files to join the group. In v1 a process joins as a thread, which takes no system-wide lock."""
        files = {1: "tasks", 2: "cgroup.procs"}
        return sorted({f"{one.folder}/{self.name}/{files[one.version]}" for one in self.used})

    def describe_reached_limit(self) -> str:
        """Return a sentence about the limit that the command reached, or an empty text."""
        for name, times in self.read_counts().items():
            if times > self.earlier_counts.get(name, 0):
                if name == "memory":
                    return f"the command reached its memory limit of {format_bytes(self.limits[name])} and was ended"
                return f"the command reached its limit of {self.limits[name]} processes"
        return ""

    def read_counts(self) -> dict[str, int]:
        """Return how often each limit was reached since the group was created."""
        counts = {controller.name: 0 for controller in self.used}
        for controller in self.used:
            file, event = EVENT_FILES[controller.name, controller.version]
            with suppress(OSError), open(f"{controller.folder}/{self.name}/{file}") as lines:
                counts[controller.name] = sum(int(count) for name, count in map(str.split, lines) if name == event)
        return counts

    def release(self) -> None:
        """Keep the group for reuse if it is empty, and remove it otherwise."""
        if len(_idle_groups) < MAX_IDLE_GROUPS and all(_read_pids(folder) == [] for folder in self.folders):
            _idle_groups.append(replace(self, earlier_counts=self.read_counts()))
        else:
            self.remove()

    def remove(self) -> None:
        """Kill the remaining processes and remove the group."""
        until = time.monotonic() + REMOVE_SECONDS
        for folder in self.folders:
            while not _remove_folder(folder) and time.monotonic() < until:
                for pid in filter(None, _read_pids(folder) or ()):  # 0 is a process outside of this PID namespace
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.005)


def format_bytes(size: float) -> str:
    """Format a number of bytes: 512 MB, 2 GB."""
    for unit, step in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= step:
            return f"{size / step:.4g} {unit}"
    return f"{size:.0f} bytes"


def create_group(limits: Mapping[str, float], found: Mapping[str, Controller] | None = None) -> ControlGroup | None:
    """Create a group with the limits that can be set here, or reuse an idle one; return None if none can be set."""
    found = get_controllers() if found is None else found
    used = tuple(controller for name, controller in sorted(found.items()) if limits.get(name))
    if not used:
        return None
    wanted = {controller.name: int(limits[controller.name]) for controller in used}
    mine = f"wick-{os.getpid()}-"
    for idle in [*_idle_groups]:
        if idle.limits == wanted and idle.used == used and idle.name.startswith(mine):
            with suppress(ValueError):  # another thread took it
                _idle_groups.remove(idle)
                return idle
    group = ControlGroup(f"{mine}{next(_numbers)}", wanted, used)
    try:
        for folder in group.folders:
            os.mkdir(folder)
        for controller in used:
            folder, limit = f"{controller.folder}/{group.name}", group.limits[controller.name]
            first, *others = LIMIT_FILES[controller.name, controller.version]
            _write_value(f"{folder}/{first}", limit)
            for file, _, value in (other.partition("=") for other in others):
                with suppress(OSError):  # a kernel without swap accounting, or an older one
                    _write_value(f"{folder}/{file}", value or limit)
    except OSError:
        group.remove()
        return None
    return group


_idle_groups: list[ControlGroup] = []


def list_idle_groups() -> list[ControlGroup]:
    """Return the empty groups kept for reuse."""
    return [*_idle_groups]


@atexit.register
def remove_idle_groups() -> None:
    """Remove the groups kept for reuse."""
    while _idle_groups:
        with suppress(IndexError):
            group = _idle_groups.pop()
            if group.name.startswith(f"wick-{os.getpid()}-"):
                group.remove()


# -- detection ------------------------------------------------------------------------------------------------------


@cache
def get_controllers() -> Mapping[str, Controller]:
    """Return the usable controllers, detected by trial; remove the groups of dead processes."""
    with suppress(OSError):
        with open("/proc/self/mounts") as mounts, open("/proc/self/cgroup") as own:
            found = detect_controllers(mounts.read(), own.read())
        folders = {controller.folder for controller in found.values()}
        for group in [f"{folder}/{name}" for folder in folders for name in os.listdir(folder)]:
            word, _, rest = os.path.basename(group).partition("-")
            pid = rest.partition("-")[0]
            if word == "wick" and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                _remove_folder(group)
        return found
    return {}


def detect_controllers(mounts: str, own: str) -> dict[str, Controller]:
    """Return the usable controllers for the contents of /proc/self/mounts and /proc/self/cgroup."""
    groups = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    found: dict[str, Controller] = {}
    for _, point, kind, options, *_ in (line.split(" ") for line in mounts.splitlines()):
        for name in ("memory", "pids"):
            if kind == "cgroup" and name in options.split(","):
                path = next((path for names, path in groups.items() if name in names.split(",")), "/")
                found |= _first_usable(name, 1, [point + path.rstrip("/"), point])
            elif kind == "cgroup2" and name not in found:
                # This group or an ancestor: in v2 a group with processes cannot delegate controllers.
                parts = [part for part in groups.get("", "/").split("/") if part]
                folders = ["/".join([point, *parts[:length]]) for length in range(len(parts), -1, -1)]
                found |= _first_usable(name, 2, folders)
    return found


def _first_usable(name: str, version: int, folders: list[str]) -> dict[str, Controller]:
    """Return the controller in the first folder where a group can be created and joined by a child process."""
    for folder in folders:
        trial = f"{folder}/wick-{os.getpid()}-0"
        if not os.access(f"{folder}/cgroup.procs", os.W_OK):
            continue
        try:
            os.mkdir(trial)
        except OSError:
            continue
        is_usable = os.path.exists(f"{trial}/{LIMIT_FILES[name, version][0]}")
        _remove_folder(trial)
        if is_usable:
            return {name: Controller(name, version, folder)}
    return {}


# -- files ----------------------------------------------------------------------------------------------------------


def _write_value(path: str, value: object) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _read_pids(folder: str) -> list[int] | None:
    """Return the processes of a group, or None if it cannot be read."""
    try:
        with open(f"{folder}/cgroup.procs") as file:
            return [*map(int, file.read().split())]
    except OSError:
        return None


def _remove_folder(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
