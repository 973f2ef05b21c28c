"""Control groups: detect, create, join and remove them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from wick.backends.sandbox import cgroups
from wick.backends.sandbox.cgroups import (
    ControlGroup,
    Controller,
    create_group,
    detect_controllers,
    format_bytes,
    get_controllers,
)

MB = 1_000_000
EATER = "data = []\nwhile True: data.append(bytearray(10_000_000))"


@pytest.fixture
def real() -> None:
    if get_controllers().keys() != {"memory", "pids"}:
        pytest.skip("control groups cannot be made here: run the tests as root")


def joined(group: ControlGroup, *argv: str) -> subprocess.CompletedProcess[str]:
    """A program that is in a group from its first moment on."""

    def join() -> None:
        for path in group.join_files:
            Path(path).write_text("0")

    return subprocess.run(argv, preexec_fn=join, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.usefixtures("real")
def test_a_group_that_was_not_used_leaves_nothing() -> None:
    group = create_group({"memory": 64 * MB, "pids": 10})
    assert group is not None and len(group.used) == 2
    assert all(map(os.path.exists, group.join_files))
    assert group.describe_reached_limit() == ""
    group.remove()
    assert not any(map(os.path.exists, group.folders))
    group.remove()
    assert group.describe_reached_limit() == ""


@pytest.mark.usefixtures("real")
def test_memory_is_limited() -> None:
    group = create_group({"memory": 64 * MB})
    assert group is not None
    done = joined(group, "/usr/bin/env", "python3", "-c", EATER)
    assert done.returncode == -signal.SIGKILL
    assert group.describe_reached_limit() == "the command reached its memory limit of 64 MB and was ended"
    group.remove()


@pytest.mark.usefixtures("real")
def test_processes_are_limited() -> None:
    group = create_group({"pids": 5, "files": 9})
    assert group is not None and group.limits == {"pids": 5}
    done = joined(group, "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 60 >/dev/null 2>&1 & done; wait")
    assert done.returncode != 0
    assert group.describe_reached_limit() == "the command reached its limit of 5 processes"
    while os.path.exists(group.folders[0]):
        group.remove()


@pytest.mark.usefixtures("real")
def test_removing_a_group_kills_its_processes() -> None:
    group = create_group({"pids": 5})
    assert group is not None
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        Path(group.folders[0], "cgroup.procs").write_text(str(sleeper.pid))
        began = time.monotonic()
        while not group_gone(group, sleeper) and time.monotonic() < began + 60:
            time.sleep(0.01)
        assert sleeper.wait(60) == -signal.SIGKILL
    assert not os.path.exists(group.folders[0])


def group_gone(group: ControlGroup, sleeper: subprocess.Popen[bytes]) -> bool:
    group.remove()
    sleeper.poll()
    return not os.path.exists(group.folders[0])


@pytest.mark.usefixtures("real")
def test_groups_of_dead_processes_are_swept() -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    folder = get_controllers()["pids"].folder
    old, own = f"{folder}/wick-{dead.pid}-1", f"{folder}/wick-{os.getpid()}-77"
    os.mkdir(old)
    os.mkdir(own)
    get_controllers.cache_clear()
    assert get_controllers()
    assert not os.path.exists(old) and os.path.exists(own)
    os.rmdir(own)


def test_without_limits_or_controllers_there_is_no_group() -> None:
    assert create_group({}) is None
    assert create_group({"cpu": 5}) is None
    assert create_group({"memory": 5}, {}) is None


def test_a_group_that_cannot_be_created_is_left_out(tmp_path: Path) -> None:
    assert create_group({"pids": 5}, {"pids": Controller("pids", 2, str(tmp_path / "gone"))}) is None


@pytest.mark.parametrize(
    "size, text",
    [(512 * MB, "512 MB"), (2_000 * MB, "2 GB"), (1_500 * MB, "1.5 GB"), (5_000, "5 kB"), (12, "12 bytes")],
)
def test_amounts_are_parsed(size: int, text: str) -> None:
    assert format_bytes(size) == text


# -- version 2, with imitated files: a kernel has a controller in one version only ------------------------------------


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of groups as version 2 has it: only below `app` are controllers given on."""
    for folder in (".", "app", "app/wick"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "cgroup.procs").write_text("")
    mkdir, remove = os.mkdir, os.rmdir

    def make_folder(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        (Path(path) / "cgroup.procs").write_text("")
        if Path(path).parent == tmp_path / "app":
            for name in ("memory.max", "memory.swap.max", "pids.max"):
                (Path(path) / name).write_text("max")
            (Path(path) / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n")
            (Path(path) / "pids.events").write_text("max 0\n")

    def rmdir(path: str) -> None:
        for file in Path(path).iterdir():
            file.unlink()
        remove(path)

    monkeypatch.setattr(cgroups.os, "mkdir", make_folder)
    monkeypatch.setattr(cgroups.os, "rmdir", rmdir)
    return tmp_path


def test_version_2_uses_the_nearest_delegating_group(unified: Path) -> None:
    mounts = f"proc /proc proc rw 0 0\ncgroup2 {unified} cgroup2 rw,nosuid 0 0\n"
    found = detect_controllers(mounts, "0::/app/wick\n")
    assert found == {name: Controller(name, 2, f"{unified}/app") for name in ("memory", "pids")}
    assert detect_controllers(mounts, "0::/\n") == {}

    group = create_group({"memory": 64 * MB, "pids": 7}, found)
    assert group is not None
    (folder,) = map(Path, group.folders)
    assert group.join_files == [f"{folder}/cgroup.procs"]
    assert (folder / "memory.max").read_text() == "64000000" and (folder / "pids.max").read_text()[:1] == "7"
    assert (folder / "memory.swap.max").read_text()[:1] == "0"
    assert group.describe_reached_limit() == ""
    (folder / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert "memory limit of 64 MB" in group.describe_reached_limit()
    group.remove()
    assert not folder.exists()


def test_version_1_uses_the_own_group_of_each_controller(tmp_path: Path) -> None:
    for path in ("memory/mine", "pids"):
        (tmp_path / path).mkdir(parents=True)
    mounts = "".join(f"cgroup {tmp_path}/{name} cgroup rw,relatime,{name} 0 0\n" for name in ("memory", "pids"))
    assert detect_controllers(mounts, "4:memory:/mine\n3:pids:/\n0::/\n") == {}, "nothing there can be written"
    assert detect_controllers("", "") == {}


def test_an_empty_group_is_reused_with_reset_counters() -> None:
    if not cgroups.get_controllers():
        pytest.skip("no control group can be made here; run the tests as root")
    cgroups.remove_idle_groups()
    limits = {"memory": 64_000_000, "pids": 8}
    first = cgroups.create_group(limits)
    assert first is not None
    first.release()
    assert [group.name for group in cgroups.list_idle_groups()] == [first.name]
    other = cgroups.create_group({"memory": 32_000_000, "pids": 8})
    assert other is not None and other.name != first.name
    other.remove()
    second = cgroups.create_group(limits)
    assert second is not None and second.name == first.name
    assert cgroups.list_idle_groups() == [] and second.describe_reached_limit() == ""
    cgroups.remove_idle_groups()
    second.remove()
    assert not any(map(os.path.exists, second.folders))


def test_a_group_with_processes_is_not_reused() -> None:
    group = cgroups.create_group({"pids": 8})
    if group is None:
        pytest.skip("no control group can be made here; run the tests as root")
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        for file in group.join_files:
            Path(file).write_text(str(sleeper.pid))
        group.release()
        assert group.name not in {kept.name for kept in cgroups.list_idle_groups()}
        assert sleeper.wait(50) == -9
    finally:
        sleeper.kill()
        sleeper.wait()
