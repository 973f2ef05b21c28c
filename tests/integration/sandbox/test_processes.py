"""Starting processes and killing them with all descendants, on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.workspace import processes
from wick.workspace.processes import (
    DEFAULT_PATH,
    LIMITS,
    clean_environment,
    create_data_file,
    describe_exit,
    find_program,
    landlock_version,
    list_descendants,
)
from wickd_process import becomes_true, marked_environment, marked_processes

TREE = "sleep 100 & (sleep 100 & exec setsid sleep 100) & setsid sh -c 'sleep 100; true' & wait"


def sleeping(mark: str) -> int:
    """Return the number of marked processes that sleep."""
    found = 0
    for pid in marked_processes(mark):
        with suppress(OSError):
            found += Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    return found


@contextmanager
def tree() -> Iterator[tuple[int, str]]:
    """A process with six below it, and the mark that they bear."""
    mark = uuid4().hex
    with subprocess.Popen(["sh", "-c", TREE], env=marked_environment(mark), start_new_session=True) as root:
        try:
            assert becomes_true(lambda: len(marked_processes(mark)) == 6 and sleeping(mark) == 4, 60), marked_processes(
                mark
            )
            yield root.pid, mark
        finally:
            for pid in marked_processes(mark):
                os.kill(pid, signal.SIGKILL)


def test_descendants_are_found_however_deep() -> None:
    with tree() as (root, mark):
        assert {root, *list_descendants(root)} == set(marked_processes(mark))


def test_descendants_are_found_without_the_kernels_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_lists_children", lambda: False)
    with tree() as (root, mark):
        assert {root, *list_descendants(root)} == set(marked_processes(mark))
        assert set(list_descendants(0x7FFFFFFF, group=root)) <= set(marked_processes(mark))
        assert root in list_descendants(0x7FFFFFFF, group=root)


def test_a_missing_process_has_no_descendants() -> None:
    assert list_descendants(0x7FFFFFFF) == []


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in another Python that adopts, forks or kills."""
    command = [
        sys.executable,
        "-c",
        f"import os, signal, subprocess, sys, time\nfrom wick.workspace.processes import *\n{code}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("lists", ["True", "False"])
def test_detached_processes_end_with_their_family(lists: str) -> None:
    done = run(f"""
import wick.workspace.processes
if not {lists}: wick.workspace.processes._lists_children = lambda: False
assert adopt_orphans()
child = subprocess.Popen(["sh", "-c", {TREE.replace("wait", "(setsid sleep 100 &); sleep 0.3; exit 7")!r}]).pid
family = ProcessTree(child)
while family.status is None: family.reap(); time.sleep(0.01)
left = len(list_descendants(os.getpid()))
print(left >= 3, family.kill_all(10), list_descendants(os.getpid()), os.WEXITSTATUS(family.status), family.memory > 0)
""")
    assert done.stdout.split() == ["True", "True", "[]", "7", "True"], done.stderr


def test_unknown_processes_are_killed_and_known_ones_are_not() -> None:
    done = run("""
adopt_orphans()
known = subprocess.Popen(["sleep", "100"]).pid
subprocess.Popen(["sh", "-c", "(setsid sleep 100 &); (sleep 100 & exec sleep 100) &"]).wait()
while len(list_descendants(os.getpid())) < 4: time.sleep(0.01)
while kill_unknown_children([known]): time.sleep(0.001)
print(list_descendants(os.getpid()) == [known], kill_unknown_children([known]))
kill_unknown_children([])
""")
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_close_from_closes_all_above() -> None:
    done = run("""
for _ in range(50): os.dup(1)
close_from(3)
print(sorted(map(int, os.listdir("/proc/self/fd")))[:3], len(os.listdir("/proc/self/fd")) <= 4)
import wick.workspace.processes
wick.workspace.processes._libc = None
os.dup2(1, 500)
close_from(3)
print(len(os.listdir("/proc/self/fd")) <= 4)
""")
    assert done.stdout.splitlines() == ["[0, 1, 2] True", "True"], done.stderr


def test_memory_is_hidden_from_the_same_user() -> None:
    done = run("""
hide_memory()
print(oct(os.stat("/proc/self").st_mode)[-3:], os.stat("/proc/self").st_uid, len(list_descendants(os.getpid())))
""")
    assert done.stdout.split() == ["555", "0", "0"], done.stderr


# -- environments of commands ---------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(min_size=1, max_size=12), st.text(max_size=5)))
def test_only_the_allowed_environment_is_passed_on(env: dict[str, str]) -> None:
    kept = clean_environment({**env, "HOME": "/h", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "planted"})
    assert kept["HOME"] == "/h" and kept["LC_ALL"] == "C" and kept["PATH"] == env.get("PATH", DEFAULT_PATH)
    assert all(name in processes.PASSED_ON or name.startswith("LC_") for name in kept)


def test_a_program_is_found_by_the_commands_own_path(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "folder").mkdir()
    assert find_program("mine", {"PATH": f"/no/such:{tmp_path}"}) == str(tmp_path / "mine")
    assert find_program("/any/where", {}) == "/any/where"
    assert find_program("sh", {}).endswith("/sh")
    for name in ("folder", "no-such-program"):
        with pytest.raises(FileNotFoundError):
            find_program(name, {"PATH": str(tmp_path)})


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_data_can_be_read_from_a_descriptor_once(size: int) -> None:
    descriptor = create_data_file(b"x" * size)
    assert not os.get_inheritable(descriptor)
    with open(descriptor, "rb") as file:
        assert file.read() == b"x" * size


def test_how_a_command_ended() -> None:
    assert describe_exit(0) == (0, "")
    assert describe_exit(3 << 8) == (3, "")
    assert describe_exit(signal.SIGKILL) == (137, "the command was ended by SIGKILL")
    assert "processor time" in describe_exit(signal.SIGXCPU)[1]
    assert describe_exit(40) == (168, "the command was ended by signal 40")


def test_landlock_support_is_detected() -> None:
    assert landlock_version() >= 0
    assert set(LIMITS) == {"memory", "pids", "cpu", "files", "file_size"}
