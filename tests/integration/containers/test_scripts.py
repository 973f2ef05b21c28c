"""The sh scripts that end processes in containers, by the shells that images have."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from wick.backends.containers.shell_scripts import MARKED, SWEEP

SHELLS = [("dash",), ("busybox", "sh"), ("bash", "--posix")]
SOMEBODY = ("setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups") if os.geteuid() == 0 else ()


def shells(*without: str) -> pytest.MarkDecorator:
    there = [shell for shell in SHELLS if shutil.which(shell[0]) and shell[0] not in without]
    return pytest.mark.parametrize("shell", there, ids=lambda shell: str(shell[0]))


@contextmanager
def marked(mark: str, first: str = ":") -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody's that carries a mark, and waits."""
    program = [*SOMEBODY, "env", f"WICK_CALL={mark}", "sh", "-c", f"{first}; echo; read _"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            yield process
        finally:
            process.kill()


def said(shell: tuple[str, ...], script: str, mark: str) -> str:
    program = [*SOMEBODY, *shell, "-c", script, "wick", mark]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return done.stdout.strip()


@shells()
def test_who_carries_a_mark_is_found(shell: tuple[str, ...]) -> None:
    mark = f"test{uuid4().hex}"
    with marked(f"{mark}-1") as one, marked(f"{mark}-2") as two, marked("another"):
        found = said(shell, f'{MARKED}\nmark=$1; marked CONT; echo "$pids"', mark)
        assert {*found.split()} == {str(one.pid), str(two.pid)}
        assert said(shell, f'{MARKED}\nmark=$1; marked CONT; echo "$pids"', f"{mark}-2") == str(two.pid)
    assert not said(shell, f'{MARKED}\nmark=$1; marked CONT; echo "$pids"', mark)


@shells("bash")  # which waits for a quarter of a minute before it takes it that it cannot fork
def test_who_cannot_fork_finds_them_as_well(shell: tuple[str, ...]) -> None:
    mark = f"test{uuid4().hex}"
    with marked(f"{mark}-1") as one:
        cannot = "ulimit -u 1 2>/dev/null || ulimit -p 1"
        assert said(shell, f'{MARKED}\n{cannot}; mark=$1; marked CONT; echo "$pids"', mark) == str(one.pid)


@shells()
def test_all_who_carry_a_mark_are_killed(shell: tuple[str, ...]) -> None:
    mark = f"test{uuid4().hex}"
    many = "for i in 1 2 3 4 5 6; do (sleep 600 & wait) & done"
    with marked(f"{mark}-1", many) as one, marked(f"{mark}-2") as two:
        said(shell, f"{MARKED}{SWEEP}\nmark=$1; until sweep; do :; done", mark)  # who is killed needs a moment to end
        assert (one.wait(60), two.wait(60)) == (-9, -9)
        assert not said(shell, f'{MARKED}\nmark=$1; marked CONT; echo "$pids"', mark)
