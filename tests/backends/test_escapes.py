"""The sandbox holds: every way out that is known is tried from inside, and none leads out."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from sandboxed import PYTHON, needs_bubblewrap
from wick.backends.local import Local
from wick.backends.sandbox.seccomp import ARCHITECTURES, DENIED, MISSING

ESCAPES = Path(__file__).parent / "escapes.py"

pytestmark = [
    needs_bubblewrap,
    pytest.mark.skipif(not os.path.exists(PYTHON), reason="the system has no Python: apt-get install python3"),
]

# What must get out where nothing confines it, or the probes would show nothing.
OPEN = (
    "read a file in the home, read a file beside the workspace, follow a link out, link a file in, "
    "read a dot env file, the environment of other processes, signal wick, connect to the host, "
    "an abstract socket of the host, a socket with a path, list the folder above the workspace, "
    "link to a dot env file, see processes of the host, the hosts tmp, the hosts users, rights from a program"
).split(", ")


@dataclass
class Around:
    """What there is to be found around a workspace."""

    workspace: str
    home: str
    beside: str
    pid: int
    port: int
    abstract: str
    socket: str
    calls: dict[str, int]


@pytest.fixture
def token() -> str:
    return f"planted-{os.urandom(8).hex()}"


@pytest.fixture
def around(tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Around]:
    """Secrets and open doors, all of them outside the workspace, or protected in it."""
    monkeypatch.setenv("WICK_PLANTED", token)
    for path in (
        "home/.netrc",
        "beside.txt",
        "workspace/.env",
        "workspace/sub/.env",
        "workspace/.git/hooks/pre-commit",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"# {token}\n")
    (tmp_path / "workspace/.git/config").write_text("[core]\n\tbare = false\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    column = list(ARCHITECTURES).index(os.uname().machine)
    calls = {name: numbers[column] for name, numbers in {**DENIED, **MISSING}.items()}
    door = f"wick-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, _listening(f"\0{door}"), _listening(f"/tmp/{door}.sock"):
        yield Around(
            str(tmp_path / "workspace"),
            str(tmp_path / "home/.netrc"),
            str(tmp_path / "beside.txt"),
            os.getpid(),
            tcp.getsockname()[1],
            door,
            f"/tmp/{door}.sock",  # a path as short as sockets need it
            {name: number for name, number in calls.items() if number is not None},
        )
    os.unlink(f"/tmp/{door}.sock")


def _listening(address: str) -> socket.socket:
    door = socket.socket(socket.AF_UNIX)
    door.bind(address)
    door.listen()
    return door


async def probed(backend: Local, around: Around) -> tuple[dict[str, str], str]:
    command = f"{PYTHON} -I - {shlex.quote(json.dumps(asdict(around)))}"
    result = await backend.execute(command, stdin=ESCAPES.read_bytes(), timeout=60)
    assert result["exit_code"] == 0 and not result["error"], result
    return json.loads(result["stdout"]), result["stdout"] + result["stderr"]


async def test_no_way_leads_out(around: Around, token: str) -> None:
    backend = Local(around.workspace, sandbox="bubblewrap")
    outcomes, said = await probed(backend, around)
    await backend.stop()
    assert len(outcomes) >= 150
    assert not {name: outcome for name, outcome in outcomes.items() if not outcome.startswith("held")}
    assert token not in said
    _untouched(Path(around.workspace), token)


def _untouched(workspace: Path, token: str) -> None:
    for path in (".git/hooks/pre-commit", ".env"):
        assert (workspace / path).read_text() == f"# {token}\n"
    assert "fsmonitor" not in (workspace / ".git/config").read_text()
    assert not list(workspace.rglob("*post-commit*"))


def test_the_same_ways_are_open_where_nothing_confines(around: Around) -> None:
    """Only the harmless ones are tried: what the others would do is better not done."""
    source = ESCAPES.read_text().replace("PROBES.items()}", f"PROBES.items() if name in {OPEN!r}}}")
    done = subprocess.run(
        [sys.executable, "-I", "-", json.dumps(asdict(around))],
        input=source,
        cwd=around.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    outcomes = json.loads(done.stdout)
    assert [name for name, outcome in outcomes.items() if outcome.startswith("held")] == []
    assert outcomes.keys() == set(OPEN)
