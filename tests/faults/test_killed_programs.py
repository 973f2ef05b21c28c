"""Code mode: a process that is killed while a question inside a program waits repeats no effect and loses none.

With WICK_FULL 300 kills while a question waits and 100 at any time, in pieces: `-k piece_07` is one of ten.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from statistics import median

import pytest

from faults.paying_program import EFFECTS, OUTPUT, THREAD, first_reply, make_agent
from faults.tally import FULL, Tally
from interpreter_runtime import start_runtime
from wick.capabilities import Sessions

PROGRAM = Path(__file__).with_name("paying_program.py")
KILLS, ANYWHERE, PAUSES, PIECES = (300, 100, 300, 10) if FULL else (4, 3, 10, 1)
AT_ONCE = 3  # while one process starts, the lease of another one expires
start_runtime()


async def start(folder: Path, patience: float = 60.0) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(folder), str(patience), stdout=PIPE)


async def kill(process: Process) -> None:
    process.kill()
    await process.communicate()


async def try_each(tally: Tally, piece: int, count: int, work: Callable[[int], Awaitable[None]]) -> None:
    """Run the work for each number of a piece, some of them at once."""
    some, ended = asyncio.Semaphore(AT_ONCE), list[int]()

    async def try_number(number: int) -> None:
        async with some:
            with tally.trying(f"kill {number}"):
                await work(number)
        ended.append(number)
        if len(ended) % 10 == 0:
            tally.show_progress()

    size = count // PIECES
    await asyncio.gather(*map(try_number, range(piece * size, (piece + 1) * size)))


def list_effects(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


async def finish(folder: Path) -> str:
    """Answer each question and resume the run in this process. Return the output of the program."""
    sessions = Sessions(folder / "db", patience=0, lease=1.0)
    agent, _ = make_agent(folder, sessions)
    try:
        for _ in range(4):
            for question in await sessions.questions(THREAD):
                await sessions.answer(THREAD, question["id"], "allow")
            result = await agent.run(thread=THREAD)
            if result.outcome == "completed":
                break
        thread = await sessions.load(THREAD)
        assert not thread.pending and thread.open_run is None
        return next(message.text for message in thread.messages if message.role == "tool")
    finally:
        await sessions.close()


async def kill_while_asking(folder: Path, number: int, *, planted: bool = False) -> None:
    process = await start(folder)
    assert process.stdout is not None and await process.stdout.readline() == b"waiting\n"
    await asyncio.sleep(Random(number).uniform(0.0, 0.15))  # before, while and after the state is stored
    await kill(process)
    if planted:  # a payment that is not in the log
        (folder / "effects").write_text("\n".join([*list_effects(folder), "pay 3", ""]))
    assert await finish(folder) == OUTPUT
    assert Counter(list_effects(folder)) == Counter(EFFECTS)


@pytest.mark.timeout(3600 if FULL else 120)
@pytest.mark.parametrize("piece", range(PIECES), ids="piece_{:02}".format)
async def test_kill_while_a_question_waits(piece: int, tmp_path: Path) -> None:
    with Tally("G2", "programs killed while a question waits") as tally:
        await try_each(tally, piece, KILLS, lambda number: kill_while_asking(tmp_path / str(number), number))


async def test_a_repeated_effect_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError), Tally("G2", "planted", planted=True) as tally, tally.trying("planted"):
        await kill_while_asking(tmp_path / "one", 0, planted=True)


async def kill_anywhere(folder: Path, number: int) -> None:
    process = await start(folder)
    give_up = time.monotonic() + 60
    while not list_effects(folder) and time.monotonic() < give_up:
        await asyncio.sleep(0.002)
    await asyncio.sleep(Random(number).uniform(0.0, 0.02))
    await kill(process)
    output = await finish(folder)
    counted = Counter(list_effects(folder))
    assert counted == Counter(EFFECTS) if output == OUTPUT else max(counted.values()) == 1, (counted, output)
    assert output == OUTPUT or "may have taken effect" in output, output


@pytest.mark.timeout(3600 if FULL else 120)
@pytest.mark.parametrize("piece", range(PIECES), ids="piece_{:02}".format)
async def test_kill_anywhere(piece: int, tmp_path: Path) -> None:
    """No effect is repeated. A call that was running is reported to the program as possibly done."""
    with Tally("G2", "programs killed anywhere") as tally:
        await try_each(tally, piece, ANYWHERE, lambda number: kill_anywhere(tmp_path / str(number), number))


@pytest.mark.timeout(3600 if FULL else 120)
async def test_a_paused_program_continues_at_once(tmp_path: Path) -> None:
    """Measure the time from the start of a resumed run to the payment that waited for the answer."""
    times: list[float] = []
    with Tally("G2", "paused programs") as tally:
        for number in range(PAUSES):
            folder = tmp_path / str(number)
            folder.mkdir()
            sessions = Sessions(folder / "db", patience=0)
            agent, paid = make_agent(folder, sessions, first_reply())
            await agent.run("pay", thread=THREAD)
            with tally.trying(f"pause {number}"):
                for _ in range(2):
                    (question,) = await sessions.questions(THREAD)
                    await sessions.answer(THREAD, question["id"], "allow")
                    begun, before = time.perf_counter(), len(paid)
                    await agent.run(thread=THREAD)
                    times.append(paid[before] - begun)
                assert Counter(list_effects(folder)) == Counter(EFFECTS)
            await sessions.close()
        tally.note(p50_ms=round(median(times) * 1000, 1))
