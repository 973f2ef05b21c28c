"""A conversation that is killed repeatedly and resumed loses nothing and repeats no effect.

test_durability kills it at each of its writes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from faults.conversation import check, command, converse, most_writes, strace

FULL = bool(os.environ.get("WICK_FULL"))
LEAST = 100  # a clean run writes at least this often


def test_a_clean_run_finishes(tmp_path: Path) -> None:
    assert converse(tmp_path, *strace(tmp_path))[-1] == "finished"
    assert most_writes(tmp_path) > LEAST
    check(tmp_path, [])


@pytest.mark.parametrize("number", range(500 if FULL else 3))
def test_killed_at_any_moment_again_and_again(tmp_path: Path, number: int) -> None:
    """Several deaths on the way, wherever they come."""
    told: list[str] = []
    chance = random.Random(number)
    for _ in range(6):
        process = subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, text=True)
        try:
            process.communicate(timeout=chance.uniform(0.25, 0.7))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        told += (process.communicate()[0] or "").splitlines()
        time.sleep(0.01)
    assert converse(tmp_path)[-1] == "finished"
    check(tmp_path, told)
