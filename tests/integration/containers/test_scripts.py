"""The sh function that kills processes in containers, with the shells that images have."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from wick.backends.containers.exec_commands import KILL

SHELLS = [("dash",), ("busybox", "sh"), ("bash", "--posix")]
SOMEBODY = ("setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups") if os.geteuid() == 0 else ()


def shells(*without: str) -> pytest.MarkDecorator:
    there = [shell for shell in SHELLS if shutil.which(shell[0]) and shell[0] not in without]
    return pytest.mark.parametrize("shell", there, ids=lambda shell: str(shell[0]))


@contextmanager
def marked(mark: str, first: str = ":") -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own that carries a mark, and waits."""
    program = [*SOMEBODY, "env", f"WICK_CALL={mark}", "sh", "-c", f"{first}; echo; read _"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout and (first != ":" or process.stdout.readline() == b"\n")
            yield process
        finally:
            process.kill()


def kill(shell: tuple[str, ...], mark: str) -> int:
    program = [*SOMEBODY, *shell, "-c", f'{KILL}\nend "$1"', "wick", mark]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")
    return done.returncode


@shells()
def test_only_processes_with_the_mark_are_killed(shell: tuple[str, ...]) -> None:
    mark = f"test{uuid4().hex}"
    with marked(f"{mark}-1") as one, marked(f"{mark}-2") as two, marked("another") as other:
        assert kill(shell, f"{mark}-2") == 0
        assert (two.wait(60), one.poll()) == (-9, None)
        assert kill(shell, mark) == 0
        assert (one.wait(60), other.poll()) == (-9, None)


@shells()
def test_a_process_group_is_killed_with_its_leader(shell: tuple[str, ...]) -> None:
    """A member without an environment is killed too; so are many processes that the command started."""
    mark = f"test{uuid4().hex}"
    many = "env -i sleep 600 & hidden=$!; for i in 1 2 3 4 5 6; do (sleep 600 & wait) & done; echo $hidden"
    with marked(f"{mark}-1", many) as one:
        assert one.stdout
        hidden = int(one.stdout.readline())
        kill(shell, mark)
        assert one.wait(60) == -9
        assert _has_ended(hidden)
        assert kill(shell, mark) == 0


def _has_ended(pid: int) -> bool:
    for _ in range(600):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z"):
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False
