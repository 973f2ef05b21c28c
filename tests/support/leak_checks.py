"""Leak checks: processes, descriptors, temporary files, control groups, containers and memory left by a test.

conftest.py registers this as a plugin. A resource that was created during a test and still exists at its end fails the
test. Resources of a wider scope are not its leaks:

    a fixture of a wider scope    resources created during its setup are compared where its scope ends
    a wider event loop            has descriptors, files and a wickd until it ends: they are compared there
    `with allow_leaks():`         resources that helpers create once and keep until the end of the run

Only a cheap snapshot is taken every time; the rest is read if something is left, after a grace period.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import quote

import pytest

from wick.backends.sandbox import cgroups

GRACE = 30.0  # seconds that something has to go: a busy machine takes its time
MOST_MEMORY = 300_000_000  # bytes that a module may leave in use: caches grow
SCOPES = ("function", "class", "module", "package", "session")
FAILED = pytest.StashKey[bool]()  # for a failed test only its failure is reported: its leaks are part of that
HERE = os.path.isdir("/proc/self/fd")
SHARED_MEMORY = "/dev/shm"


# -- a folder of one's own ------------------------------------------------------------------------------------------


def use_own_temporary_folder() -> None:
    """Temporary files of this process, and of those it starts, are in a folder of its own from now on."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # files that tests keep for people
    folder = tempfile.mkdtemp(prefix="t")
    os.chmod(folder, 0o711)  # some tests start programs as another user
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    atexit.register(rmtree, folder, ignore_errors=True)


# -- snapshots ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Snapshot:
    """A snapshot of resources."""

    open: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    containers: set[str] = field(default_factory=set)

    def since(self, before: Snapshot) -> Snapshot:
        """Return resources that were not in the earlier snapshot."""
        return Snapshot(*(getattr(self, one.name) - getattr(before, one.name) for one in fields(self)))

    def add(self, more: Snapshot) -> None:
        for one in fields(self):
            getattr(self, one.name).update(getattr(more, one.name))

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self))


@dataclass(slots=True)
class _SnapshotCache:
    """The last read state, reused while nothing has changed."""

    last: bytes = b""
    processes: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    at: int = -1
    containers: set[str] = field(default_factory=set)


_seen = _SnapshotCache()


def take_snapshot() -> Snapshot:
    """Return open descriptors, temporary files, processes, control groups and containers."""
    _look_at_processes()
    _look_at_containers()
    files, shared = set(os.listdir(tempfile.gettempdir())), set(_list_files(SHARED_MEMORY))
    return Snapshot(_open_descriptors(), files, shared, _seen.processes, _seen.groups, _seen.containers)


def _open_descriptors() -> set[str]:
    """The numbers of the descriptors, without the one that reads them: that has the lowest that is free."""
    free = os.dup(0)
    os.close(free)
    return set(os.listdir("/proc/self/fd")) - {str(free)}


def _list_files(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _look_at_processes() -> None:
    """The last assigned pid shows if a process was started since."""
    with open("/proc/loadavg", "rb", buffering=0) as file:
        last = file.read().rsplit(b" ", 1)[1]
    if last != _seen.last:
        _seen.last = last
        _seen.processes = set(filter(str.isdigit, os.listdir("/proc")))
        _seen.groups = _control_groups()


def _control_groups() -> set[str]:
    """The control groups of this process's commands; those that it keeps for the next are not counted."""
    if not cgroups.get_controllers.cache_info().currsize:
        return set()
    folders = {controller.folder for controller in cgroups.get_controllers().values()}
    there = {name for folder in folders for name in _list_files(folder) if name.startswith(f"wick-{os.getpid()}-")}
    return there - {group.name for group in cgroups.list_idle_groups()}


def _look_at_containers() -> None:
    """A run that uses the engine checks its containers whenever some were created or removed."""
    engines = sys.modules.get("engines")
    if engines is None or not engines.find_engine.cache_info().currsize:
        return
    try:
        at = os.stat(f"{_engine_root(engines.find_engine())}/containers").st_mtime_ns
    except OSError:
        at = -1  # it is somewhere else: it has to be asked
    if at != _seen.at or at == -1:
        _seen.at, _seen.containers = at, _own_containers(engines.find_engine())


@cache
def _engine_root(engine: Any) -> str:
    """The folder in which an engine keeps everything."""
    return str(engine.ask("GET", "/info")["DockerRootDir"])


def _own_containers(engine: Any) -> set[str]:
    """The containers that share something with the folders of this process: others run tests, too."""
    filters = quote(json.dumps({"label": ["wick.id"]}))
    found = engine.ask("GET", f"/containers/json?all=true&filters={filters}")
    return {one["Id"][:12] for one in found if tempfile.gettempdir() in json.dumps(one["Mounts"])}


# -- ownership ------------------------------------------------------------------------------------------------------


def _list_descriptors(numbers: set[str]) -> list[str]:
    found = []
    for number in sorted(numbers, key=int):
        with suppress(OSError):
            found.append(f"descriptor {number}: {os.readlink(f'/proc/self/fd/{number}')}")
    return found


def _list_processes(pids: set[str], before: set[str]) -> list[str]:
    found = []
    for pid in sorted(pids, key=int):
        with suppress(OSError, IndexError):
            state, parent = _read_stat(pid)
            if state not in "ZX" and (_is_descendant(parent, before) or _is_marked_orphan(pid, parent)):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"process {pid}: {line.strip()}")
    return found


def _read_stat(pid: str) -> tuple[str, str]:
    """The state of a process, and its parent."""
    words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return words[0], words[1]


def _is_descendant(parent: str, before: set[str]) -> bool:
    """Return True if this process started it, and not an earlier one such as a server."""
    while parent not in before:
        parent = _read_stat(parent)[1]
    return parent == str(os.getpid())


def _is_marked_orphan(pid: str, parent: str) -> bool:
    """Return True if an orphan was started from here: it has the folder of this process in its environment."""
    if parent not in _find_reapers():
        return False
    mark = f"TMPDIR={tempfile.gettempdir()}".encode()
    return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _find_reapers() -> list[str]:
    """Return the processes that may adopt orphans of this one: its ancestors."""
    found = [_read_stat(str(os.getpid()))[1]]
    while found[-1] not in "01":
        found.append(_read_stat(found[-1])[1])
    return [*found, "1"]


def is_wickd(line: str) -> bool:
    """Return True if this is wickd, its guard or a waiting supervisor; they end with their event loop."""
    return "wick.wickd.__main__" in line and "--parent" in line


def _shared_memory_files(names: set[str]) -> list[str]:
    """Those files of the shared memory that this process maps or has named after itself: others are there, too."""
    if not names:
        return []
    mapped, there = Path("/proc/self/maps").read_text(errors="replace"), names & set(_list_files(SHARED_MEMORY))
    own = [
        name for name in there if str(os.getpid()) in re.findall(r"\d+", name) or f"{SHARED_MEMORY}/{name}" in mapped
    ]
    return [f"shared memory {name}" for name in sorted(own)]


# -- watching -------------------------------------------------------------------------------------------------------

_watches: list[Watch] = []
_wide_loops: set[str] = set()


class Watch:
    """A snapshot at its creation, and resources since then that belong to a wider scope."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.before = Snapshot()
        self.before.add(take_snapshot())

    def find_leaks(self) -> list[str]:
        """Return new resources that still exist, each with its kind."""
        new = take_snapshot().since(self.before)
        if not new:
            return []
        shares = self.scope == "function" and bool(_wide_loops)
        found = [
            line for line in _list_processes(new.processes, self.before.processes) if not shares or not is_wickd(line)
        ]
        found += [f"control group {name}" for name in sorted(new.groups and new.groups & _control_groups())]
        found += [f"container {id}" for id in sorted(new.containers)]
        found += _shared_memory_files(new.shared)
        if not shares:
            found += [f"temporary file {name}" for name in sorted(new.files)]
            found += _list_descriptors(new.open)
        return found

    def finally_left(self) -> list[str]:
        """Return resources left after a grace period and a garbage collection."""
        until, pause = time.monotonic() + GRACE, 0.001
        while (there := self.find_leaks()) and time.monotonic() < until:
            time.sleep(pause)
            pause *= 2
            if pause > 0.1:
                gc.collect()
                pause = 0.02
        return there


@contextmanager
def watch_leaks(scope: str) -> Iterator[Watch]:
    watch = Watch(scope)
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)


@contextmanager
def allow_leaks(scope: str = "session") -> Iterator[None]:
    """Resources created meanwhile are not leaks of a narrower scope."""
    if not HERE or not _watches:
        yield
        return
    before = Snapshot()
    before.add(take_snapshot())
    try:
        yield
    finally:
        new = take_snapshot().since(before)
        for watch in _watches:
            if SCOPES.index(watch.scope) < SCOPES.index(scope):
                watch.before.add(new)


def report_once(watch: Watch) -> None:
    """A leak reported for a test is not reported again for its module."""
    new = take_snapshot().since(watch.before)
    for other in _watches:
        other.before.add(new)


def memory_bytes() -> int:
    """Return the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- the plugin -----------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Workers have their own temporary folder; the controller has none."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        use_own_temporary_folder()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Resources of a wider fixture are not leaks of the test that uses it first."""
    if fixturedef.scope == "function":
        return (yield)
    if fixturedef.argname.endswith("_scoped_runner"):
        _wide_loops.add(fixturedef.argname)
    with allow_leaks(fixturedef.scope):
        return (yield)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    _wide_loops.discard(fixturedef.argname)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.outcome != "passed":
        item.stash[FAILED] = True
    return report


@pytest.fixture(autouse=True, scope="module")
def _module_leaves_nothing() -> Iterator[None]:
    """A module leaves nothing behind that its fixtures have made, nor much memory."""
    if not HERE:
        yield
        return
    held = memory_bytes()
    with watch_leaks("module") as watch:
        yield
        left = watch.finally_left()
    if memory_bytes() - held > MOST_MEMORY:
        gc.collect()
    if (more := memory_bytes() - held) > MOST_MEMORY:
        left.append(f"{more // 1_000_000} MB of memory")
    assert not left, f"the module left behind: {'; '.join(left)}"


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest, _module_leaves_nothing: None) -> Iterator[None]:
    """A test leaves nothing behind."""
    if not HERE:
        yield
        return
    with watch_leaks("function") as watch:
        yield
        left = [] if request.node.stash.get(FAILED, False) else watch.finally_left()
        if left or FAILED in request.node.stash:
            report_once(watch)
    assert not left, f"the test left behind: {'; '.join(left)}"
