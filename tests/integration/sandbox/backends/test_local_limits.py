"""Limits of commands on the host, with and without control groups, as root and as another user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from local_sandbox import (
    MB,
    PYTHON,
    Make,
    control_groups,
    fill_folder,
    folder,
    local,
    needs_bubblewrap,
    run_successfully,
    wait_until_ended,
)
from wick.backends.sandbox import cgroups

pytestmark = needs_bubblewrap
__all__ = ["folder", "local"]  # fixtures


EATER = "data = []\nwhile True: data.append(bytearray(10_000_000))"
BOMB = """
import os, time
for _ in range(1000):
    try:
        if os.fork() == 0:
            time.sleep(35.7)
    except OSError as error:
        print(error.strerror, flush=True)
        time.sleep(0.05)
"""


async def test_a_command_that_eats_memory_is_ended_and_the_cause_named(local: Make) -> None:
    if "memory" not in cgroups.get_controllers():
        pytest.skip("memory control groups cannot be made here: run the tests as root")
    backend = local(limits={"memory": 100 * MB})
    result = await backend.execute(f"{PYTHON} -", stdin=EATER.encode(), timeout=60)
    assert result["exit_code"] == 137, result
    assert result["error"] == "the command reached its memory limit of 100 MB and was ended"
    assert not control_groups()
    for hog in ("head -c 300000000 /dev/zero > /tmp/file", "head -c 300000000 /dev/zero > /dev/shm/file"):
        assert (await backend.execute(hog, timeout=60))["exit_code"] != 0  # both are memory
    assert await run_successfully(backend, "echo fine") == "fine\n"


async def test_a_command_that_forks_without_end_is_held(local: Make) -> None:
    if "pids" not in cgroups.get_controllers():
        pytest.skip("pids control groups cannot be made here: run the tests as root")
    backend = local(limits={"pids": 40})
    result = await backend.execute(f"{PYTHON} -", stdin=BOMB.encode(), timeout=6)
    assert result["exit_code"] == 124
    assert result["error"].startswith(
        "the command reached its limit of 40 processes; the command was stopped after 6 s"
    )
    assert result["seconds"] < 60
    assert "temporarily unavailable" in result["stdout"]
    shell = await backend.execute("bomb() { bomb | bomb & }; bomb; sleep 36.7", timeout=6)
    assert "limit of 40 processes" in shell["error"]
    await wait_until_ended("35.7")
    assert not control_groups()


async def test_limits_without_control_groups_hold_for_each_process(
    local: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "get_controllers", dict)
    backend = local(limits={"memory": 100 * MB, "files": 64, "file_size": 5 * MB, "cpu": 20})
    assert "memory 100 MB for each process" in backend.protection.says
    result = await backend.execute(f"{PYTHON} -", stdin=EATER.encode(), timeout=60)
    assert "MemoryError" in result["stderr"] and result["exit_code"] == 1
    assert await run_successfully(backend, "ulimit -n; ulimit -t") == "64\n20\n"
    assert (await backend.execute("head -c 9000000 /dev/zero > big"))["exit_code"] == 153


async def test_limits_can_be_lifted(local: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = local(limits={"memory": None, "pids": None})
    assert "no limits" in backend.protection.says
    assert await run_successfully(backend, "ulimit -d") == "unlimited\n"


# -- as another user ------------------------------------------------------------------------------------------------

NOBODY = 65534
AS_NOBODY = """
import asyncio, json, os, sys
from wick.backends.local import Local

async def main():
    backend = Local(sys.argv[1], limits={"memory": 100_000_000, "pids": 30})
    results = [await backend.execute(command, timeout=20) for command in json.loads(sys.argv[2])]
    print(json.dumps([os.getuid(), backend.protection.level, backend.protection.says, results]))
    await backend.stop()

asyncio.run(main())
"""


def python_for_others() -> str:
    """A Python with wick's packages that any user can start."""
    trial = "import subprocess, sys, wick; subprocess.run([sys.executable, '-c', ''], check=True)"
    for program in (sys.executable, PYTHON):
        env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program, "-c", trial]
        if subprocess.run(argv, env=env, cwd="/", capture_output=True, check=False).returncode == 0:
            return program
    pytest.skip(f"no other user can start {sys.executable}: install a system-wide Python of this version")


def test_limits_work_for_an_unprivileged_user(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user: run the tests as root")
    program = python_for_others()
    folder = Path(tempfile.mkdtemp())
    try:
        os.chown(folder, NOBODY, NOBODY)
        fill_folder(folder, {".env": "secret"})
        commands = [
            "id -un; echo x > new; cat new",
            "cat .env; cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
            f"{PYTHON} -c 'bytearray(300_000_000)'",
            f"{PYTHON} -c 'import os, time\nfor _ in range(300): os.fork() or time.sleep(9)'",
        ]
        env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "HOME": "/nonexistent"}
        argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program, "-c", AS_NOBODY]
        done = subprocess.run(
            [*argv, str(folder), json.dumps(commands)],
            env=env,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        user, level, says, (world, outside, memory, forks) = json.loads(done.stdout)
        assert (user, level) == (NOBODY, "strong") and "memory 100 MB for each process" in says
        assert world["stdout"] == "wick\nx\n"
        assert outside["stdout"] == "" and outside["exit_code"] != 0
        assert "MemoryError" in memory["stderr"]
        assert forks["exit_code"] == 1 and "BlockingIOError" in forks["stderr"]
    finally:
        shutil.rmtree(folder)
