"""Programs that run one thread at the same time answer one message after the other, also when one of them dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wick import Message
from wick.capabilities.sessions import Sessions

PROGRAM = Path(__file__).with_name("thread_program.py")
MOST_SECONDS = 100


def talk(folder: Path, name: str, count: int, lease: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(folder), name, str(count), str(lease)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def heard(program: subprocess.Popen[str]) -> list[str]:
    try:
        return program.communicate(timeout=MOST_SECONDS)[0].splitlines()
    finally:
        program.kill()
        program.wait()


async def turns(folder: Path) -> list[list[Message]]:
    """Return the thread, split before each user message."""
    sessions = Sessions(folder)
    thread = await sessions.load("th_1")
    await sessions.close()
    assert not thread.pending and thread.open_run is None
    found: list[list[Message]] = []
    for message in thread.messages:
        found.append([message]) if message.role == "user" else found[-1].append(message)
    return found


async def test_two_programs_never_interleave(tmp_path: Path) -> None:
    """A process that was not scheduled for a while still holds the lease."""
    programs = [talk(tmp_path, name, 12, 60.0) for name in ("one", "two")]
    told = [heard(program) for program in programs]
    assert told == [[f"re: {name} {number}" for number in range(12)] for name in ("one", "two")]
    found = await turns(tmp_path)
    assert len(found) == 24
    for said, *answer in found:
        assert [message.role for message in answer] == ["assistant", "tool", "tool", "assistant"]
        assert answer[-1].text == f"re: {said.text}"


async def test_when_one_program_is_killed_the_other_continues(tmp_path: Path) -> None:
    dies = talk(tmp_path, "dies", 1000, 1.0)
    assert dies.stdout is not None and dies.stdout.readline() == "re: dies 0\n"
    dies.kill()
    seen = ["re: dies 0", *dies.stdout.read().splitlines()]
    dies.stdout.close()
    dies.wait()
    assert heard(talk(tmp_path, "lives", 3, 1.0)) == [f"re: lives {number}" for number in range(3)]
    answers = [turn[-1].text for turn in await turns(tmp_path)]
    assert answers[: len(seen)] == seen, "what was seen is there"
    assert answers[-3:] == [f"re: lives {number}" for number in range(3)]
