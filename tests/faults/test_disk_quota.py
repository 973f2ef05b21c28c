"""S1: one user does not fill the disk of all. A workspace has a quota, and a part of the disk stays free.

Each way writes without end, by one file or by many; it is ended, and the result names the limit.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from faults.tally import FULL, Tally, Violated
from local_sandbox import needs_bubblewrap
from wick.backends.local import Local
from wick.backends.sandbox.quota import DiskSpace
from wick.errors import BackendError
from wick.workspace.disk_usage import DiskUsage

MB = 1_000_000
QUOTA = 24 * MB
SECONDS = 20.0

ONE = "cat /dev/zero > one"
MANY = "i=0; while :; do head -c 400000 /dev/zero > many-$i || exit 1; i=$((i+1)); done"
DEEP = "i=0; while mkdir -p d$i && cd d$i; do head -c 400000 /dev/zero > f || exit 1; i=$((i+1)); done"
LOOP = "i=0; while :; do head -c 400000 /dev/zero > $0-$i; i=$((i+1)); done"
APART = f"for n in 1 2 3; do (setsid sh -c '{LOOP}' $n &) done; sleep 60"
NAME = "d" * 200
DEEPER = f"i=0; while [ $i -lt 30 ]; do mkdir {NAME} && cd -P {NAME} || exit 1; i=$((i+1)); done; {MANY}"
HIDDEN = f"mkdir hidden && cd hidden && chmod 300 . && {MANY}"
EMPTY = "i=0; while :; do mkdir e-$i && (cd e-$i && seq -f %07.0f 2000 | xargs touch); i=$((i+1)); done"
WAYS = {"one file": ONE, "many files": MANY, "many folders": DEEP, "a session of its own": APART}
WAYS |= {"folders too deep for a path": DEEPER, "a folder that cannot be listed": HIDDEN, "empty files": EMPTY}
NAMED = ("quotas.disk", "larger than it may", "reserved", "File size limit exceeded")  # the last is a shell's

pytestmark = pytest.mark.timeout(600 if FULL else 240)


def used(folder: Path) -> int:
    usage = DiskUsage(str(folder))
    while not usage.step(1.0):
        pass
    return usage.bytes


async def by_command(backend: Local, command: str) -> str:
    result = await backend.execute(command, timeout=SECONDS)
    return str(result["error"] or result["stderr"])


async def by_job(backend: Local, command: str) -> str:
    await backend.background(command)
    for _ in range(int(SECONDS * 20)):
        (job,) = await backend.jobs()
        if not job["running"]:
            return job["error"]
        await asyncio.sleep(0.05)
    return "it still runs"


async def by_terminal(backend: Local, command: str) -> str:
    terminal = await backend.terminal()
    await terminal.write(f"{command}\n".encode())
    try:
        async with asyncio.timeout(SECONDS):
            while await terminal.read():
                pass
    except TimeoutError:
        return "it still runs"
    finally:
        with suppress(BackendError):  # it is closed
            await terminal.close()
    return "quotas.disk"  # a terminal ends without a word


async def filled(tally: Tally, folder: Path, sandbox: Any) -> None:
    ways: list[Any] = [("command", by_command, name) for name in WAYS]
    ways += [("job", by_job, "many files"), ("terminal", by_terminal, "many files")]
    for kind, run, name in ways:
        place = folder / f"{kind}-{name}".replace(" ", "-")
        backend = Local(place, sandbox=sandbox, disk=QUOTA)
        try:
            said = await run(backend, WAYS[name])
            tally.check(any(word in said for word in NAMED), f"{name} by a {kind} in {sandbox}: {said!r}")
            tally.check(used(place) < 20 * QUOTA, f"{name} by a {kind} in {sandbox}: {used(place)} bytes")
        finally:
            await backend.stop()
            await asyncio.to_thread(subprocess.run, ["rm", "-rf", str(place)], check=False)


@needs_bubblewrap
@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
async def test_a_workspace_has_no_more_than_its_quota(tmp_path: Path, sandbox: str) -> None:
    with Tally("S1", f"quota of a workspace, {sandbox}") as tally:
        await filled(tally, tmp_path, sandbox)


@needs_bubblewrap
async def test_a_quota_without_monitoring_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskSpace, "watch_limits", lambda self, scratch: None)
    monkeypatch.setitem(globals(), "WAYS", {"many files": MANY})
    monkeypatch.setitem(globals(), "SECONDS", 0.5)
    with pytest.raises(Violated), Tally("S1", "quota, planted", planted=True) as tally:
        await filled(tally, tmp_path, "bubblewrap")


async def test_file_tools_have_the_same_quota(tmp_path: Path) -> None:
    backend = Local(tmp_path / "ws", sandbox="none", disk=4 * MB)
    for number in range(3):
        await backend.write(f"{number}", b"x" * MB)
    with pytest.raises(BackendError, match=r"quotas\.disk") as caught:
        for number in range(3, 6):
            await backend.write(f"{number}", b"x" * MB)
    assert caught.value.code == "no_space"
    with pytest.raises(BackendError, match=r"quotas\.disk"):
        await backend.write("big", b"x" * 4 * MB)
    await backend.delete("0")
    await backend.delete("1")
    assert (await backend.write("again", b"x" * MB))["bytes_written"] == MB
    (tmp_path / "ws/by-hand").write_bytes(b"x" * 6 * MB)
    with pytest.raises(BackendError, match=r"quotas\.disk"):
        await backend.write("more", b"x" * MB)
    await backend.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MB."""
    if os.geteuid() != 0:
        pytest.skip("a disk of one's own can be mounted by root only: run the tests as root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@needs_bubblewrap
@pytest.mark.parametrize("way", ["one file", "many files"])
async def test_a_part_of_the_disk_stays_free(small_disk: Path, way: str) -> None:
    """Without a quota of its own a workspace takes all but the reserve, which is for the threads."""
    backend = Local(small_disk / "ws", sandbox="bubblewrap", reserve=5 * MB)
    with Tally("S1", f"reserve of a disk, {way}") as tally:
        said = await by_command(backend, WAYS[way])
        tally.check(any(word in said for word in NAMED), said)
        with tally.trying("the threads can be written"):
            (small_disk / "threads.db").write_bytes(b"x" * MB)
        with pytest.raises(BackendError, match="reserved"):
            await backend.write("more", b"x" * 8 * MB)
    await backend.stop()
