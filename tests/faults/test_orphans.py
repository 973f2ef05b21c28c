"""R2: no orphans. One second after any tool, hook program or kill, no process is left."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from faults.hostile_commands import PYTHON, Hooks, Tools, plant_group_only
from faults.leaks import Watch, family, is_wickd, watching
from faults.tally import FULL, Tally, Violated
from wick import constants
from wick.backends.local import Local

TOOLS, HOOKS, KILLS = (3_200, 1_800, 100) if FULL else (42, 20, 4)
AT_ONCE = 14
WITHIN = 1.0 if FULL else 30.0  # on a machine that is busy with other tests the promise has more time
BUSY = Path(__file__).parent / "busy_program.py"

pytestmark = pytest.mark.timeout(3_600 if FULL else 300)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine wickd may get no CPU for seconds; only its own delay is limited."""
    if not FULL:
        monkeypatch.setattr(constants, "DAEMON_GRACE_SECONDS", 30.0)


async def leave_nothing(tally: Tally, watch: Watch, run: Callable[[], Awaitable[str]], runs: int) -> None:
    """Run hostile things, some at once; after each batch nothing of them is left."""
    for start in range(0, runs, AT_ONCE):
        names = await asyncio.gather(*(run() for _ in range(min(AT_ONCE, runs - start))), return_exceptions=True)
        for name in names:
            if isinstance(name, BaseException):
                tally.check(False, f"{type(name).__name__}: {name}")
        await asyncio.sleep(0)
        _count(tally, watch, [name for name in names if isinstance(name, str)])


def _count(tally: Tally, watch: Watch, names: list[str]) -> None:
    """Those of a batch were tried; if something is left, one of them is to blame."""
    tally.tried += len(names)
    try:
        took = watch.clean(WITHIN)
    except Violated as left:
        tally.violations.append(f"{left}, after {names}")
        watch.kill()
    else:
        tally.note(slowest=round(max(took, tally.figures.get("slowest", 0.0)), 3))


async def tools(tally: Tally, watch: Watch, folder: Path, runs: int, *sandboxes: str) -> None:
    hostile = Tools(folder, *sandboxes)
    await leave_nothing(tally, watch, hostile.run, runs)
    await hostile.stop()


async def hooks(tally: Tally, watch: Watch, folder: Path, runs: int) -> None:
    await leave_nothing(tally, watch, Hooks(folder).run, runs)


def test_hostile_tools_leave_nothing(tmp_path: Path) -> None:
    with Tally("R2", "hostile tool runs") as tally, watching() as watch:
        asyncio.run(tools(tally, watch, tmp_path, TOOLS))
        with tally.trying("the end of the event loop"):
            watch.clean(WITHIN, over=True)


def test_hostile_hooks_leave_nothing(tmp_path: Path) -> None:
    with Tally("R2", "hostile hook runs") as tally, watching() as watch:
        asyncio.run(hooks(tally, watch, tmp_path, HOOKS))
        with tally.trying("the end of the event loop"):
            watch.clean(WITHIN, over=True)


@pytest.mark.parametrize("kind", ["tools", "hooks"])
def test_killing_only_the_process_group_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    plant_group_only(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "WITHIN", 0.5)
    with watching() as watch:
        with pytest.raises(Violated, match="sleep 600"), Tally("R2", f"{kind}, planted", planted=True) as tally:
            for number in range(20):  # a process killed before it left its group is found, too
                if not any("sleep 600" in why for why in tally.violations):
                    tally.violations.clear()
                    folder = tmp_path / str(number)
                    asyncio.run(
                        tools(tally, watch, folder, 4, "none") if kind == "tools" else hooks(tally, watch, folder, 4)
                    )
        watch.kill()


# -- objects of the kernel that outlive their process ------------------------------------------------------------

OBJECTS = {"shm": "shmget(0, 4096, 0o1600)", "sem": "semget(0, 1, 0o1600)", "msg": "msgget(0, 0o1600)"}
QUEUE = b"wick-r2"  # of POSIX, which has a name


def _listed() -> set[str]:
    """The segments, semaphores and queues of System V in this namespace, by kind and id."""
    rows = {kind: Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:] for kind in OBJECTS}
    return {f"{kind} {row.split()[1]}" for kind, lines in rows.items() for row in lines}


def _remove(made: set[str]) -> None:
    libc = ctypes.CDLL(None)
    remove = {"shm": lambda id: libc.shmctl(id, 0, 0), "msg": lambda id: libc.msgctl(id, 0, 0)}
    remove["sem"] = lambda id: libc.semctl(id, 0, 0, 0)
    for kind, id in map(str.split, made):
        remove[kind](int(id))


async def objects(tally: Tally, folder: Path, sandbox: Any) -> None:
    """Create one object of each kind in a sandbox; none is left when the command has ended."""
    backend, rt = Local(folder, sandbox=sandbox), ctypes.CDLL("librt.so.1")
    try:
        for kind, call in {**OBJECTS, "mqueue": f"mq_open(b'/{QUEUE.decode()}', 0o102, 0o600, None)"}.items():
            before = _listed()
            made = f"import ctypes; print(ctypes.CDLL('librt.so.1').{call})"
            await backend.execute(f'{PYTHON} -c "{made}"')
            left = _listed() - before
            named = ["mqueue"] if rt.mq_unlink(b"/" + QUEUE) == 0 else []
            tally.check(not left and not named, f"{kind} in {sandbox}: {left or named} left")
            _remove(left)
    finally:
        await backend.stop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the objects are those of Linux")
def test_shared_memory_and_queues_do_not_outlive_a_command(tmp_path: Path) -> None:
    with Tally("R2", "objects of IPC") as tally:
        for sandbox in ("bubblewrap", "landlock"):
            asyncio.run(objects(tally, tmp_path / sandbox, sandbox))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the objects are those of Linux")
def test_leftover_shared_memory_is_detected(tmp_path: Path) -> None:
    with pytest.raises(Violated), Tally("R2", "objects of IPC, planted", planted=True) as tally:
        asyncio.run(objects(tally, tmp_path, "none"))
    assert len(tally.violations) == len(OBJECTS) + 1


# -- killed ---------------------------------------------------------------------------------------------------------


def killed(tally: Tally, watch: Watch, folder: Path, kills: int, fault: str = "") -> None:
    """A program with commands, jobs, terminals and hooks is killed, or its wickd, or both at once."""
    chance = random.Random(12)
    for number in range(kills):
        whom = ("wick", "wickd", "guard", "both")[number % 4]
        with tally.trying(f"kill {number}, {whom}"):
            process = _busy(folder / str(number), fault)
            try:
                time.sleep(chance.uniform(0, 0.2))
                _kill(process, whom)
                took = _gone(watch, process, whom)
                tally.note(slowest=round(max(took, tally.figures.get("slowest", 0.0)), 3))
            finally:
                process.kill()
                process.communicate()
                watch.kill()


def _busy(folder: Path, fault: str) -> subprocess.Popen[str]:
    folder.mkdir(parents=True)
    command = [sys.executable, str(BUSY), str(folder), *filter(None, [fault])]
    path = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": path}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout and process.stdout.readline() == "busy\n"
    return process


def _kill(process: subprocess.Popen[str], whom: str) -> None:
    """Kill -9: the program, the process that runs its commands, the guard above that, or the first two in one go."""
    found = [pid for pid, line in family(process.pid).items() if is_wickd(line)]
    guard, wickd = found[0], found[1]
    for pid in {"wick": [process.pid], "wickd": [wickd], "guard": [guard], "both": [process.pid, wickd]}[whom]:
        os.kill(pid, signal.SIGKILL)


def _gone(watch: Watch, process: subprocess.Popen[str], whom: str) -> float:
    """Return the seconds until no process is left, except the program itself if only its helpers were killed."""
    began = time.monotonic()
    while left := {pid: line for pid, line in watch.running(over=True).items() if pid != process.pid}:
        if time.monotonic() - began > WITHIN:
            raise Violated(f"after {WITHIN} s {len(left)} are left: {list(left.items())[:5]}")
        time.sleep(0.005)
    if whom in ("wickd", "guard"):
        assert process.poll() is None, "the program ended with its helper"
    return time.monotonic() - began


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    with Tally("R2", "kills") as tally, watching() as watch:
        killed(tally, watch, tmp_path, KILLS)


def test_a_wickd_that_outlives_its_program_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WITHIN", 0.5)
    with watching() as watch, pytest.raises(Violated), Tally("R2", "kills, planted", planted=True) as tally:
        killed(tally, watch, tmp_path, 1, "group only")
