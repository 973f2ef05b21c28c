"""S3: the sandbox holds. Every way out that is known is tried from inside, and none leads out; and no secret that the
server knows is seen in a child, a log, a trace, an event or an error.

The probes in tests/support/backends/escapes.py run in bubblewrap, in a container and under Landlock; in the last two
without those that these do not promise to stop (NOT_PROMISED in sandbox_probes).
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

import engines
from faults.sandbox_probes import ESCAPES, NOT_PROMISED, Around, probed, source, surroundings
from faults.secret_leaks import HERE, IN_FILE, PROGRAM, Planted, all_told, kept, refusing
from faults.tally import FULL, Tally, Violated
from local_sandbox import PYTHON, needs_bubblewrap
from server_process import run_server
from wick import constants
from wick.backends.docker import Docker
from wick.backends.local import Local
from wick.backends.sandbox import protected_paths
from wick.errors import BackendError

PROBES = 200  # at least so many, or some were lost
WAYS = ["execute", "job", "terminal"] if FULL else ["execute"]

# Probes that must escape without a sandbox, else they would show nothing. Only harmless ones: the others'
# would do is better not done.
OPEN = (
    "read a file in the home, read a file beside the workspace, follow a link out, link a file in, "
    "read a dot env file, signal wick, connect to the host, "
    "an abstract socket of the host, a socket with a path, list the folder above the workspace, "
    "link to a dot env file, see processes of the host, the hosts tmp, the hosts users, rights from a program, "
    "connect to the host by its other address, an abstract datagram, connections of the host, "
    "names of the sockets of the host, memory with a name, a segment of the host, a pipe of the host, "
    "the configuration of wick, the program of wick, the descriptors of wick, the limits of wick, "
    "signal wick by a descriptor, a filter that is missing, a folder above by its descriptor, "
    "the root by its descriptor"
).split(", ")
INHERITED = (  # by an unconfined process
    *("the environment of this process", "the environment of other processes", "the mode of a file of the host"),
    *(["the mode of a device"] if os.geteuid() == 0 else []),  # root's
)

pytestmark = [
    pytest.mark.timeout(900 if FULL else 240),
    pytest.mark.skipif(not os.path.exists(PYTHON), reason="the system has no Python: apt-get install python3"),
]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests a daemon may have no processor for seconds; without it a container is another one."""
    if not FULL:
        monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)


@pytest.fixture
def token() -> str:
    return f"planted-{os.urandom(8).hex()}"


@pytest.fixture
def around(tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Around, socket.socket]]:
    monkeypatch.setenv("WICK_PLANTED", token)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with surroundings(tmp_path, token) as there:
        yield there


def judge(tally: Tally, sandbox: str, outcomes: dict[str, str], arrived: socket.socket) -> None:
    """Each probe that the sandbox promises to hold is a try."""
    excused = NOT_PROMISED[sandbox]
    assert excused <= outcomes.keys(), f"there is no probe {excused - outcomes.keys()}"
    assert len(outcomes) >= PROBES
    for name, outcome in outcomes.items():
        if name not in excused:
            tally.check(outcome.startswith("held"), f"{name}: {outcome}")
    if "a datagram to the host" not in excused:
        tally.check(not _received(arrived), "a datagram came out")


def _received(arrived: socket.socket) -> bytes:
    try:
        return arrived.recv(100)
    except BlockingIOError:
        return b""


def untouched(tally: Tally, folder: Path, token: str, *, covered: bool) -> None:
    """Nothing outside has changed, nothing that is trusted later, and nothing became root's program."""
    paths = ["home/.netrc", "beside.txt", "server.yaml"]
    paths += ["workspace/.git/hooks/pre-commit", "workspace/.env"] if covered else []
    for path in paths:
        tally.check((folder / path).read_text() == f"# {token}\n", f"{path} changed")
    if covered:
        tally.check("fsmonitor" not in (folder / "workspace/.git/config").read_text(), "the config of git changed")
        made = [path for path in (folder / "workspace").rglob("*") if path.lstat().st_mode & 0o6000]
        tally.check(not made, f"programs with root's bit: {made}")


@needs_bubblewrap
@pytest.mark.parametrize("way", WAYS)
async def test_no_way_leads_out_of_bubblewrap(
    around: tuple[Around, socket.socket], token: str, tmp_path: Path, way: str
) -> None:
    there, arrived = around
    backend = Local(there.workspace, sandbox="bubblewrap")
    with Tally("S3", f"probes in bubblewrap, {way}") as tally:
        outcomes = await (probed(backend, there) if way == "execute" else by_file(backend, there, way))
        await backend.stop()
        judge(tally, "bubblewrap", outcomes, arrived)
        tally.check(token not in str(outcomes), "the secret was told")
        untouched(tally, tmp_path, token, covered=True)


async def by_file(backend: Local, around: Around, way: str) -> dict[str, str]:
    """Run it in a job or terminal from a file."""
    workspace = Path(around.workspace)
    (workspace / "escapes.py").write_bytes(ESCAPES.read_bytes())
    told = shlex.quote(json.dumps(asdict(around)))
    command = f"{PYTHON} -I escapes.py {told} >printed; mv printed result"
    if way == "job":
        await backend.background(command)
    else:
        (workspace / "run.sh").write_text(command)
        terminal = await backend.terminal()
        reading = asyncio.create_task(_read_all(terminal))
        await terminal.write(b"sh run.sh\n")
    while not (workspace / "result").exists():
        await asyncio.sleep(0.1)
    if way == "terminal":
        await terminal.close()
        await reading
    outcomes: dict[str, str] = json.loads((workspace / "result").read_text())
    return outcomes


async def _read_all(terminal: Any) -> None:
    while await terminal.read():
        pass


async def test_landlock_holds_as_documented(around: tuple[Around, socket.socket], token: str, tmp_path: Path) -> None:
    there, arrived = around
    backend = Local(there.workspace, sandbox="landlock")
    with Tally("S3", "probes under Landlock") as tally:
        outcomes = await probed(backend, there)
        await backend.stop()
        judge(tally, "landlock", outcomes, arrived)
        untouched(tally, tmp_path, token, covered=False)


@asynccontextmanager
async def contained(around: Around) -> AsyncIterator[Docker]:
    here, server = engines.find_engine(), f"test-{uuid4().hex[:12]}"
    volumes = {around.workspace: "/workspace"}
    made = Docker(here.image("python"), engine=here.url, server=server, volumes=volumes)
    try:
        yield made
    finally:
        await made.stop()
        here.remove(f"wick.server={server}")


async def test_no_way_leads_out_of_a_container(
    around: tuple[Around, socket.socket], token: str, tmp_path: Path
) -> None:
    there, arrived = around
    for path in (tmp_path / "workspace", *(tmp_path / "workspace").rglob("*")):
        os.chown(path, 1000, 1000)
    with Tally("S3", "probes in Docker") as tally:
        async with contained(there) as backend:
            outcomes = await probed(backend, replace(there, workspace="/workspace"))
        judge(tally, "docker", outcomes, arrived)
        untouched(tally, tmp_path, token, covered=False)


@pytest.mark.long
async def test_a_container_without_a_profile_is_detected(
    around: tuple[Around, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, _ = around
    monkeypatch.setattr("wick.backends.containers.spec.profile", lambda: "unconfined")
    calls = tuple(f"system call {name}" for name in there.calls if f"system call {name}" not in NOT_PROMISED["docker"])
    with pytest.raises(Violated), Tally("S3", "probes in Docker, planted", planted=True) as tally:
        async with contained(there) as backend:
            outcomes = await probed(backend, replace(there, workspace="/workspace"))
        for name in calls:
            tally.check(outcomes[name].startswith("held"), f"{name}: {outcomes[name]}")


def started(around: Around) -> dict[str, str]:
    """Some probes in a program that is started without wick, and so with the whole environment."""
    command = [PYTHON, "-I", "-", json.dumps(asdict(around))]
    options: dict[str, Any] = {"cwd": around.workspace, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, input=source(INHERITED), check=True, **options)
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


@needs_bubblewrap
async def test_a_disabled_sandbox_is_detected(around: tuple[Around, socket.socket]) -> None:
    there, _ = around
    backend = Local(there.workspace, sandbox="none")
    outcomes = await probed(backend, there, tuple(OPEN))
    await backend.stop()
    outcomes |= await asyncio.to_thread(started, there)
    assert {name for name, outcome in outcomes.items() if outcome.startswith("held")} == set()
    assert outcomes.keys() == {*OPEN, *INHERITED}
    with pytest.raises(Violated), Tally("S3", "probes, planted", planted=True) as tally:
        for name, outcome in outcomes.items():
            tally.check(outcome.startswith("held"), f"{name}: {outcome}")


# -- secrets --------------------------------------------------------------------------------------------------------


async def tell(tally: Tally, folder: Path, agents: tuple[str, ...] = (*HERE, *IN_FILE), **environment: str) -> None:
    """Print every secret; it must be redacted."""
    planted, told = Planted(), 0
    async with refusing() as url:
        config = folder / "agents.yaml"
        config.write_text(yaml.safe_dump(planted.agents(url)))
        more = {"PLANTED_API_KEY": planted.environment, "UPSTREAM": planted.filled}
        more |= {"AGENTS_FILE": str(config), **environment}
        with run_server(folder, script=PROGRAM, environment=more) as server:
            for agent in agents:
                async for where, text in all_told(server, agent):
                    tally.check(
                        not planted.found(text), f"{agent}: {where} has {planted.found(text)}: {_near(planted, text)}"
                    )
                    told += "[secret]" in text or "[key]" in text
                    reached = agent == "looks" and "[secret]" in text  # redacted, but a command had it
                    tally.check(not reached, f"a command reached a secret, says {where}")
            tally.check(
                not planted.found(server.log), f"the log has {planted.found(server.log)}: {_near(planted, server.log)}"
            )
            assert server.stop() == 0
    tally.check(not planted.found(kept(folder)), f"its files have {planted.found(kept(folder))}")
    tally.check(told >= 20, f"only {told} answers had a secret to hide")
    tally.note(hidden=told)


def _near(planted: Planted, text: str) -> str:
    """Return the text around the first secret."""
    places = [text.find(secret[12:28]) for secret in vars(planted).values() if secret[12:28] in text]
    return text[max(places[0] - 300, 0) : places[0] + 40] if places else ""


# -- more protected names than a sandbox can cover ------------------------------------------------------------------

FLOODS = {
    "dot-env files": "for i in $(seq 1 COUNT); do : > .env.$i; done",
    "dot-env files in folders": "for i in $(seq 1 COUNT); do mkdir -p d/$i; : > d/$i/.env; done",
    "names before and after": "for i in $(seq 1 COUNT); do : > .env$i; : > .env.$i; : > .env.a$i; done",
    "trusted folders": "for i in $(seq 1 COUNT); do mkdir -p a$i/.claude; done",
    "repositories": "for i in $(seq 1 COUNT); do mkdir -p r$i/.git; echo '[core]' > r$i/.git/config; done",
}
SECRETS = (".env", ".env.production", ".envrc", "deep/er/.env.local")
READ_AND_WRITE = f"cat {' '.join(SECRETS)}; echo changed > .claude/settings.json; echo changed >> .git/config"


async def flood(tally: Tally, folder: Path, what: str, count: int) -> None:
    """Secrets and trusted files are unchanged, even if a command creates many files beside them."""
    kept = (*SECRETS, ".claude/settings.json", ".git/config")
    for path in kept:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"# canary of {path}\n")
    backend = Local(folder, timeout=100)
    command = FLOODS[what].replace("COUNT", str(count))
    job = await backend.background(f"{command}; sleep 300")
    for again in ("before", command, "after"):
        try:
            told = await backend.execute(READ_AND_WRITE if again != command else again)
        except BackendError as error:  # or nothing runs at all
            tally.check(error.code == "protected" and "protected paths" in str(error), str(error))
            continue
        tally.check("canary" not in told["stdout"], f"{what}, {again}: read {told['stdout']!r}")
    await backend.end_job(job["id"])
    told = await backend.execute(READ_AND_WRITE)
    tally.check("canary" not in told["stdout"], f"{what}, in the end: read {told['stdout']!r}")
    await backend.stop()
    for path in kept:
        tally.check((folder / path).read_text() == f"# canary of {path}\n", f"{what}: {path} changed")


@needs_bubblewrap
@pytest.mark.parametrize("what", FLOODS if FULL else [*FLOODS][:2])
async def test_no_flood_of_names_uncovers_anything(tmp_path: Path, what: str) -> None:
    with Tally("S3", f"floods, {what}") as tally:
        await flood(tally, tmp_path / "workspace", what, 8_000 if FULL else 320)


@needs_bubblewrap
async def test_a_flood_that_uncovers_files_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: the first covers only, and the rest is left open."""
    real = protected_paths.plan_covers
    monkeypatch.setattr(protected_paths, "plan_covers", lambda *args: real(*args)[:2])
    with pytest.raises(Violated), Tally("S3", "floods, planted", planted=True) as tally:
        await flood(tally, tmp_path / "workspace", "dot-env files", 20)
    assert [why for why in tally.violations if "read" in why] and [why for why in tally.violations if "changed" in why]


@needs_bubblewrap
async def test_no_secret_appears_in_output(tmp_path: Path) -> None:
    with Tally("S3", "secrets in the output of a server") as tally:
        await tell(tally, tmp_path)


@needs_bubblewrap
async def test_a_leaked_secret_is_detected(tmp_path: Path) -> None:
    with pytest.raises(Violated), Tally("S3", "secrets, planted", planted=True) as tally:
        await tell(tally, tmp_path, ("leaks", "refused"), REDACTION="off")
    assert [why for why in tally.violations if "environment" in why]
    assert [why for why in tally.violations if "config" in why]


@needs_bubblewrap
async def test_a_secret_reachable_by_a_command_is_detected(tmp_path: Path) -> None:
    with pytest.raises(Violated), Tally("S3", "secrets in reach, planted", planted=True) as tally:
        await tell(tally, tmp_path, ("looks",), REACH="on")
    assert [why for why in tally.violations if "reached" in why]
