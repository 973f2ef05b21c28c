"""Lease holders, and the detection of their end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from wick.stores.process_identity import has_ended, holder_name


def test_this_program_has_not_ended() -> None:
    names = {holder_name() for _ in range(3)}
    assert len(names) == 3 and not any(map(has_ended, names))


def test_a_program_that_was_killed_has_ended() -> None:
    code = "from wick.stores.process_identity import holder_name; print(holder_name(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        name = one.stdout.readline().strip()
        assert name.split(":")[-3] == str(one.pid) and not has_ended(name)
        one.kill()
    assert has_ended(name)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the state of a process is read from /proc")
def test_a_killed_child_that_its_parent_has_not_waited_for_has_ended() -> None:
    code = "from wick.stores.process_identity import holder_name; print(holder_name(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        name = one.stdout.readline().strip()
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        assert has_ended(name)


def test_another_program_with_the_same_number_is_another() -> None:
    *first, _, last = holder_name().rsplit(":", 2)
    if os.path.exists("/proc/self/stat"):
        assert has_ended(":".join([*first, "1", last]))


@pytest.mark.parametrize("name", ["", "somebody", "a:b", "::::", "elsewhere:1:999999:5:abc", "a:b:c:d:e", "x" * 200])
def test_an_unknown_process_has_not_ended(name: str) -> None:
    assert not has_ended(name)


def test_another_machine_is_not_judged() -> None:
    assert not has_ended(f"elsewhere-{holder_name()}")
