"""The leak checks: a test that leaves something behind fails with a message, others pass."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import engines
import leak_checks
from wick.backends.sandbox import cgroups

ROOT = Path(__file__).parents[3]
LINUX = pytest.mark.skipif(not leak_checks.HERE, reason="only Linux has /proc")

TESTS = """
import asyncio, gc, os, socket, subprocess, tempfile, time
from pathlib import Path
import pytest
import leak_checks
from wick.backends.sandbox import cgroups

leak_checks.GRACE = 0.3
kept = []


def test_descriptor():
    kept.append(socket.socket())

def test_process():
    kept.append(subprocess.Popen(["sleep", "611"]))

def test_orphan():
    said = subprocess.run(["sh", "-c", "sleep 612 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True).stdout
    while not Path(f"/proc/{int(said)}/cmdline").read_bytes().startswith(b"sleep"):
        time.sleep(0.01)

def test_temporary_file():
    os.close(tempfile.mkstemp(prefix="planted")[0])

def test_temporary_file_of_a_child():
    subprocess.run(["mktemp", "-t", "plantedXXXX"], stdout=subprocess.DEVNULL, check=True)

def test_shared_memory(request):
    path = Path(f"/dev/shm/planted-{os.getpid()}")
    path.touch()
    kept.append(path)

def test_control_group():
    subprocess.run(["true"], check=True)
    kept.append(cgroups.create_group({"pids": 64}))

def test_fails():
    kept.append(socket.socket())
    raise AssertionError("of its own")

# what is no leak, or not theirs

def test_nothing():
    leak_checks.GRACE = 30  # from here on all of it goes, and may take its time
    with socket.socket():
        pass

def test_what_is_gone_soon():
    subprocess.Popen(["sleep", "0.1"], stdout=subprocess.DEVNULL).returncode = 0

def test_an_unreferenced_resource(recwarn):
    one = [os.pipe()]
    class Pipe:
        def __init__(self): self.ends, self.me = os.pipe(), self
        def __del__(self): [os.close(end) for end in self.ends]
    [os.close(end) for end in one[0]]
    gc.disable()
    Pipe()
    gc.enable()

@pytest.fixture(scope="module")
def wide():
    with socket.socket(), subprocess.Popen(["sh"], stdin=subprocess.PIPE) as shell:
        yield shell
        shell.communicate(b"kill $!\\n")

def test_wide_fixture(wide):
    pass

def test_child_of_what_was_there(wide, tmp_path):
    wide.stdin.write(f"sleep 613 & touch {tmp_path}/began\\n".encode())
    wide.stdin.flush()
    while not (tmp_path / "began").exists():
        time.sleep(0.01)

def test_lasting():
    with leak_checks.allow_leaks():
        kept.append(socket.socket())

async def test_event_loop():
    await asyncio.to_thread(print)
    await (await asyncio.create_subprocess_exec("true")).wait()

@pytest.mark.asyncio(loop_scope="module")
async def test_wide_event_loop():
    await asyncio.to_thread(print)
    kept.extend(socket.socketpair())

@pytest.mark.asyncio(loop_scope="module")
async def test_what_belongs_to_it_is_closed_later():
    kept.pop().close()
    kept.pop().close()

def test_last():
    for one in kept:
        getattr(one, "unlink", getattr(one, "remove", print))()
"""
LEFT = {  # messages by test
    "test_descriptor": r"descriptor \d+: socket:\[\d+\]",
    "test_process": r"process \d+: sleep 611",
    "test_orphan": r"process \d+: sleep 612",
    "test_temporary_file": r"temporary file planted\w+",
    "test_temporary_file_of_a_child": r"temporary file planted\w+",
    "test_shared_memory": r"shared memory planted-\d+",
    **({"test_control_group": r"control group wick-\d+-\d+"} if cgroups.get_controllers() else {}),
    "test_container": r"container [0-9a-f]{12}",
    "test_module": r"descriptor \d+: .*",
    "test_memory": r"4\d\d MB of memory",
}
CONTAINER = """
import tempfile
import engines
import leak_checks


def test_container():
    leak_checks.GRACE = 0.3
    body = {"Image": engines.find_engine().image("plain"), "Labels": {"wick.id": "planted", "wick.server": "SERVER"}}
    body["Cmd"] = ["true"]
    body["HostConfig"] = {"Binds": [f"{tempfile.gettempdir()}:/planted"]}
    engines.find_engine().ask("POST", "/containers/create", body)

def test_no_container():
    pass
"""

MODULE = """
import os
import pytest
import leak_checks

leak_checks.GRACE = 0.3
kept = []


@pytest.fixture(scope="module")
def wide():
    kept.append(os.dup(0))

def test_module(wide):
    pass
"""
HUNGRY = """
kept = []


def test_memory():
    kept.append(b"x" * 450_000_000)
"""


def tried(folder: Path, **modules: str) -> str:
    """Return pytest's output for these modules, run in another process."""
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "leak_checks", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-rA", "-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests/support'}:{ROOT / 'src'}", "COLUMNS": "1000"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout + done.stderr


def outcomes(said: str) -> dict[str, set[str]]:
    """Return outcomes by test: it may pass and then fail for its leaks."""
    found: dict[str, set[str]] = {}
    for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\w+)", said, re.MULTILINE):
        found.setdefault(name, set()).add(outcome)
    return found


def error_message(said: str, name: str) -> str:
    """Return the message of a test at its end."""
    found = re.search(rf"^ERROR \S*::{name} - AssertionError: (.*)$", said, re.MULTILINE)
    return found[1] if found else ""


@LINUX
def test_leaks_are_reported(tmp_path: Path) -> None:
    server = f"planted-{os.getpid()}"
    try:
        engines.find_engine().image("plain")
        container = CONTAINER.replace("SERVER", server)
        said = tried(tmp_path, by_tests=TESTS, by_a_module=MODULE, in_memory=HUNGRY, in_a_container=container)
    finally:
        engines.find_engine().remove(f"wick.server={server}")
    for pid in re.findall(r"^ERROR .* process (\d+): sleep", said, re.MULTILINE):
        os.kill(int(pid), signal.SIGKILL)
    ended = outcomes(said)
    assert ended.pop("test_fails") == {"FAILED"}, said  # and no other message
    every = {*re.findall(r"def (test_\w+)", TESTS + MODULE + HUNGRY + CONTAINER)} - {"test_fails"}
    assert ended == {name: {"PASSED", "ERROR"} if name in LEFT else {"PASSED"} for name in every}, said
    for name, what in LEFT.items():
        assert re.fullmatch(f"the (test|module) left behind: {what}", error_message(said, name)), said
