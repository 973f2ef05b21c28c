"""R3: memory is bounded for any tool output, provider stream, user input and unread response."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.leaks import MB
from faults.memory_load import KINDS
from faults.tally import FULL, Tally, Violated

MOST = 64 * MB  # more than before
PROGRAM = Path(__file__).parent / "memory_load.py"
SIZES = {"hook output": 100, "archive": 49}  # megabytes; of the rest as much as promised
SIZE = 1_000 if FULL else 120
SAMPLED = ("tool output", "provider text", "archive bomb by bzip2")
# Megabytes that are enough to show that nothing holds them back; zeros take six bytes each on their way.
PLANTED = {"tool output": 15, "archive bomb": 150, "hook output": 15, "provider line": 100}

pytestmark = pytest.mark.timeout(600 if FULL else 120)


def eaten(kind: str, megabytes: int, *fault: str) -> dict[str, Any]:
    """Return the memory growth of a process that handles that much data."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(PROGRAM), kind, str(megabytes), *fault]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def bounded(tally: Tally, kind: str, megabytes: int, *fault: str) -> None:
    found = eaten(kind, megabytes, *fault)
    tally.note(grew_megabytes=round(found["grew"] / MB, 1))
    tally.check(found["grew"] <= MOST, f"{kind}: it grew by {found['grew'] / MB:.0f} MB ({found['said']})")


@pytest.mark.parametrize("kind", KINDS if FULL else SAMPLED)
def test_memory_growth_is_bounded(kind: str) -> None:
    megabytes = SIZES.get(kind, SIZE)
    with Tally("R3", f"{megabytes} MB of {kind}") as tally:
        bounded(tally, kind, megabytes)


@pytest.mark.parametrize("kind", PLANTED if FULL else [*PLANTED][:1])
def test_lifted_caps_are_detected(kind: str) -> None:
    with pytest.raises(Violated, match="it grew by"), Tally("R3", f"{kind}, planted", planted=True) as tally:
        bounded(tally, kind, PLANTED[kind], "lifted")
