"""R1: acknowledged data is neither lost nor duplicated, and no thread becomes unusable.

Here the process dies or its disk does; test_durability_concurrency has people who cancel and race,
test_durability_server has some who speak to a server that dies.
In CI a sample of each; all of it with WICK_FULL. Each check is also run against a wick with a fault planted into it,
and must then find it.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread as Listening

import pytest

from faults.conversation import announced, check, command, converse, killed_at, look, once, strace, traced, writes
from faults.power_cuts import Disk, Step, disk, grow, left_over, recorded, recording, small
from faults.tally import FULL, Tally, Violated
from faults.thread_validity import valid
from store_fixtures import WRITER, StoreLocation, complete_groups, read_entries
from wick import Thread
from wick.errors import StoreError

LEAST = 100  # a clean run writes at least this often
LONG = 7200 if FULL else 300


# -- each write -----------------------------------------------------------------------------------------------------


# strace counts writes per thread, so each writing thread needs its own start state: no database for the thread that
# writes the conversation, an empty database for the one that opens it, and a complete conversation for the one that
# closes it.
Points = dict[str, Sequence[int]]


def begin(place: Path, where: str) -> None:
    """Create the state before the conversation is killed."""
    place.mkdir()
    if where == "an empty database":
        (place / "db").mkdir()
        _look(place / "db")
    elif where == "a complete conversation":
        (place / "db").mkdir()
        subprocess.run([*command(place), "unclosed"], capture_output=True, timeout=60, check=True)


def die_at(folder: Path, points: Points, fault: str = "") -> None:
    """Kill the conversation at some of its writes, and resume it."""
    with Tally("R1", "crash points of three turns", planted=bool(fault)) as tally:
        deaths = 0
        for where, when in ((where, when) for where, every in points.items() for when in every):
            place = folder / f"{where} {when}".replace(" ", "_")
            with tally.trying(f"write {when}, from {where}"):
                begin(place, where)
                told, killed = killed_at(place, when, fault)
                deaths += killed
                assert converse(place)[-1] == "finished"
                check(place, told)
        tally.note(killed=deaths)
        assert deaths > tally.tried * 0.8, f"it was killed {deaths} times only"  # the last writes may come as one


def every_point(folder: Path) -> Points:
    """Each write of the conversation when nothing kills it."""
    folder.mkdir()
    assert converse(folder, *strace(folder))[-1] == "finished"
    opening, writing, closing = writes(folder)
    assert opening > LEAST / 10 and writing > LEAST * 2, f"only {opening} and {writing} writes were seen"
    numbers = {"nothing": writing, "an empty database": opening, "a complete conversation": closing}
    return {where: range(1, number + 1) for where, number in numbers.items()}


@pytest.mark.timeout(LONG)
def test_every_crash_point(tmp_path: Path) -> None:
    few: Points = {"nothing": (53, 170), "an empty database": (17,), "a complete conversation": (4,)}
    die_at(tmp_path, every_point(tmp_path / "clean") if FULL else few)


@pytest.mark.long  # power cuts and full disks find the same in less time
def test_crash_points_detect_events_sent_before_the_write(tmp_path: Path) -> None:
    with pytest.raises(Violated, match="was announced and is not there"):
        die_at(tmp_path, {"nothing": (60, 90)}, fault="unsaved")


# -- power cuts -----------------------------------------------------------------------------------------------------


def lose_power(folder: Path, cuts: int, fault: str = "") -> None:
    """Record a conversation and check the disk after a power cut at any point."""
    traced()
    (folder / "db").mkdir()
    log = folder / "log"
    done = subprocess.run(
        [*recording(log), *command(folder, fault)], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.endswith("finished\n")
    steps, chance = recorded(log, folder / "db"), random.Random(11)
    assert sum(step.what == "sync" for step in steps) > (0 if fault else LEAST / 4), "it was not recorded"
    with Tally("R1", "power cuts with arbitrary loss of unsynced writes", planted=bool(fault)) as tally:
        for number in range(cuts):
            cut, place = chance.randrange(20, len(steps)), folder / f"cut{number}"
            with tally.trying(f"after {cut} steps"):
                after_a_cut(place, steps[:cut], chance)


def after_a_cut(place: Path, steps: Sequence[Step], chance: random.Random) -> None:
    place.mkdir()
    for name, content in left_over(steps, chance).items():
        (place / name).write_bytes(content)
    told = b"".join(step.data for step in steps if step.what == "said").decode().split("\n")[:-1]
    thread = _look(place)
    announced(thread, told)
    done = [step.data.decode().strip() for step in steps if step.what == "did"]
    meant = {entry.data["call"] for entry in thread.entries if entry.kind == "intent"}
    assert meant >= {line.split(":")[-1] for line in done}, "something was done, and the log does not know of it"
    sound(place)


def _look(place: Path) -> Thread:
    try:
        return look(place)
    except StoreError as error:
        if error.code != "not_found":  # it was not created yet, and not acknowledged
            raise
        return Thread("th_1")


def sound(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "threads.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.timeout(LONG)
def test_power_cuts(tmp_path: Path) -> None:
    lose_power(tmp_path, 2_000 if FULL else 25)


def test_power_cuts_find_a_missing_sync(tmp_path: Path) -> None:
    with pytest.raises(Violated, match="was announced and is not there"):
        lose_power(tmp_path, 20, fault="unsynced")


def shut_down(folder: Path, cuts: int, fault: str = "") -> None:
    """Shut down a real disk under a writing process, repeatedly; the next one continues with the remaining data."""
    chance = random.Random(7)
    with Tally("R1", "power cuts of an ext4 disk", planted=bool(fault)) as tally:
        for first in range(0, cuts, 5):
            acknowledged: Counter[str] = Counter()
            with disk(folder / str(first)) as made:
                for number in range(first, min(first + 5, cuts)):
                    if fault and tally.violations:
                        return  # the kernel may have written it by itself, but not every time
                    with tally.trying(f"cut {number}"):
                        _shut_down_one(made, acknowledged, 0.01 + chance.expovariate(1 / 0.1), fault)


def _shut_down_one(made: Disk, acknowledged: Counter[str], seconds: float, fault: str) -> None:
    place = StoreLocation("sqlite", made.folder)
    planted = [str(Path(__file__).with_name("planted_faults.py")), fault] if fault else []
    given = ["sqlite", str(made.folder / "threads.db"), "-", "load", "6"]
    with subprocess.Popen(
        [sys.executable, *planted, str(WRITER), *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline()]
        listening = Listening(target=lambda: lines.extend(writer.stdout or ()))
        listening.start()
        with suppress(subprocess.TimeoutExpired):
            writer.wait(seconds)
        told = len(lines)  # without power nothing is acknowledged, also not during the shutdown
        made.cut()
        writer.send_signal(signal.SIGKILL)
        listening.join()
    made.unmount()
    made.mount()
    for line in lines[:told]:
        _, id, last = line.split()
        acknowledged[id] = max(acknowledged[id], int(last))
    try:
        asyncio.run(_all_there(place, acknowledged))
        sound(made.folder)
    except BaseException:
        acknowledged.clear()
        raise


async def _all_there(place: StoreLocation, acknowledged: Counter[str]) -> None:
    store = place.open()
    try:
        for id, last in acknowledged.items():
            ends = [0, *complete_groups(await read_entries(store, id))]
            assert last in ends, f"{id} had {last} entries, and now has {ends[-1]}"
    finally:
        await store.close()


@pytest.mark.timeout(LONG)
def test_power_cuts_of_a_real_disk(tmp_path: Path) -> None:
    shut_down(tmp_path, 200 if FULL else 3)


def test_a_real_disk_finds_a_missing_sync(tmp_path: Path) -> None:
    with pytest.raises(Violated, match="entries, and now has|there is no thread"):
        shut_down(tmp_path, 10, fault="unsynced")


# -- a disk that is full --------------------------------------------------------------------------------------------


def fill_up(folder: Path, levels: Sequence[int], fault: str = "") -> None:
    """Converse on a disk of that size until it is full; make room, and continue."""
    with Tally("R1", "levels of a full disk", planted=bool(fault)) as tally:
        full = 0
        for level in levels:
            place = folder / str(level)
            with small(place / "db", level), tally.trying(f"{level} kB"):
                told = converse(place, fault=fault)
                full += "finished" not in told
                grow(place / "db", 4_000)
                announced(_look(place / "db"), told)
                assert converse(place)[-1:] == ["finished"], "it does not continue"
                thread = look(place / "db")
                valid(thread)
                announced(thread, told)
                once(place)
        assert full, "no disk was ever full"


@pytest.mark.timeout(LONG)
def test_full_disks(tmp_path: Path) -> None:
    fill_up(tmp_path, range(8, 808, 8) if FULL else (60, 260))


def test_full_disks_detect_events_sent_before_the_write(tmp_path: Path) -> None:
    with pytest.raises(Violated, match="was announced and is not there"):
        fill_up(tmp_path, (260,), fault="unsaved")  # less than that holds the tables, and no message
