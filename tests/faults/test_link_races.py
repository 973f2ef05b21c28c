"""S4: a rule about a file holds for the opened file, even if a command exchanges links meanwhile.

A process exchanges folders and a file with links into a denied folder, as fast as it can. An agent uses every file
tool on the names that the rules allow. Nothing of the denied folder may be read, listed or changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import engines
from faults.tally import FULL, Tally, Violated
from kit import ScriptedUser, tool_call, tool_calls_reply, tool_result, tool_results
from local_sandbox import needs_bubblewrap
from wick import Agent, Scripted, ToolUse, constants, tool
from wick.backends.docker import Docker
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.permissions import Permissions
from wick.protocols import Backend
from wick.workspace import rooted_folder
from wick.workspace.workspace import Workspace

ROUNDS, SEARCHES, CONTAINED = (2_000, 500, 200) if FULL else (40, 30, 8)
TRIES = 40  # rounds until a planted fault must have shown
TOKEN = "denied-71c2e9"
DENIED = ["kind:read(secrets/**)", "kind:write(secrets/**)"]
SWAPPING = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
pairs = [(b"open", b"swap"), (b"deep/open", b"deep/swap"), (b"lone.txt", b"swap.txt")]
print("ready", flush=True)
while True:
    for one, other in pairs:
        libc.renameat2(-100, one, -100, other, 2)
"""

pytestmark = pytest.mark.timeout(7_200 if FULL else 240)
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="files get another owner: run the tests as root")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests a daemon may have no processor for seconds; without it a container is another one."""
    if not FULL:
        monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)


class Ground:
    """A workspace with a denied folder, and links into it that are exchanged with allowed files."""

    def __init__(self, root: Path, owner: int = -1) -> None:
        self.root = root
        for name, text in (("secrets/key.txt", f"needle {TOKEN}\n"), ("lone.txt", "needle\n")):
            self._put(name, text)
        self._put(f"secrets/{TOKEN}.txt", "needle\n")
        self._put("open/key.txt", "needle\n")
        self._put("deep/open/key.txt", "needle\n")
        for name, target in (("swap", "secrets"), ("deep/swap", "../secrets"), ("swap.txt", "secrets/key.txt")):
            (root / name).symlink_to(target)
        if owner >= 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, owner, owner, follow_symlinks=False)
        self._before = self._denied()

    def _put(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def _denied(self) -> list[tuple[str, int, bytes]]:
        found = sorted((self.root / "secrets").rglob("*"))
        return [(path.name, path.stat().st_ino, path.read_bytes() if path.is_file() else b"") for path in found]

    def changes(self) -> list[str]:
        """Return the names in the denied folder that were created, replaced or removed."""
        return sorted({name for name, *_ in {*self._before} ^ {*self._denied()}})


def uses(number: int) -> list[Any]:
    """Every file tool, on paths that the rules allow."""
    return [
        tool_call("read_file", path="open/key.txt"),
        tool_call("read_file", path="deep/open/key.txt"),
        tool_call("read_file", path="lone.txt"),
        tool_call("ls", path="open"),
        tool_call("glob", pattern="*.txt", path="deep/open"),
        tool_call("grep", pattern="needle", path="lone.txt"),
        tool_call("write_file", path=f"open/new-{number}.txt", content="new\n"),
        tool_call("write_file", path=f"deep/open/made-{number}/new.txt", content="new\n"),
        tool_call("write_file", path="lone.txt", content="needle\n"),
        tool_call("edit_file", path="open/key.txt", old_text="needle", new_text="needle"),
        tool_call("edit_file", path="lone.txt", old_text="needle", new_text="needle"),
    ]


def searches(number: int) -> list[Any]:
    """Searches of folders, which are done by ripgrep where it is there."""
    return [
        tool_call("grep", pattern="needle", path="open"),
        tool_call("grep", pattern=".", path="deep/open", glob="**"),
    ]


@contextmanager
def swapping(root: Path) -> Iterator[None]:
    command = [sys.executable, "-I", "-c", SWAPPING, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


async def race(tally: Tally, ground: Ground, backend: Backend, rounds: int, wanted: Any = uses) -> None:
    """Use the tools; a path that is a link is asked about, and the user denies."""
    permissions = Permissions(deny=DENIED, mode="bypassPermissions", backend=backend)
    done = refused = 0
    for number in range(rounds):
        script = Scripted(*(tool_calls_reply(one) for one in wanted(number)), "done")
        agent = Agent(script, hooks=[Filesystem(backend, execute=False), permissions], ask=ScriptedUser(False))
        result = await agent.run("go")
        assert result.thread is not None
        for one, said in zip(wanted(number), tool_results(result), strict=True):
            tally.check(TOKEN not in said, f"{one.name} {one.args} told: {said[:200]}")
            done, refused = (done, refused + 1) if "link" in said or "user" in said else (done + 1, refused)
        kept = json.dumps([entry.to_json() for entry in result.thread.entries])
        tally.check(TOKEN not in kept, "the thread has stored what was denied")
        tally.check(not ground.changes(), f"changed in the denied folder: {ground.changes()}")
    tally.check(done and refused, f"nothing was swapped: {done} done, {refused} refused")
    tally.note(done=done, refused=refused)


@pytest.mark.parametrize("way", ["kernel", "by hand"])
async def test_a_rule_about_files_is_not_raced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "by hand":
        monkeypatch.setattr(rooted_folder, "supports_openat2", lambda folder: False)
    ground, backend = Ground(tmp_path), Local(tmp_path, sandbox="none")
    with Tally("S4", f"rules about files in a link race, {way}") as tally, swapping(tmp_path):
        await race(tally, ground, backend, ROUNDS)
    await backend.stop()


@needs_bubblewrap
async def test_a_rule_about_files_is_not_raced_by_searches(tmp_path: Path) -> None:
    ground, backend = Ground(tmp_path), Local(tmp_path, sandbox="bubblewrap")
    with Tally("S4", "rules about files in a link race, ripgrep") as tally, swapping(tmp_path):
        await race(tally, ground, backend, SEARCHES, searches)
    await backend.stop()


@asynccontextmanager
async def contained(folder: Path) -> AsyncIterator[tuple[Ground, Docker]]:
    here, server = engines.find_engine(), f"test-{uuid4().hex[:12]}"
    ground = Ground(folder / "place", owner=1000)
    volumes = {str(folder / "place"): "/place"}
    made = Docker(here.image("python"), engine=here.url, server=server, volumes=volumes, workdir="/place")
    try:
        yield ground, made
    finally:
        await made.stop()
        here.remove(f"wick.server={server}")


@needs_root
async def test_a_rule_about_files_is_not_raced_in_a_container(tmp_path: Path) -> None:
    """The process that swaps is a job in that container."""
    with Tally("S4", "rules about files in a link race, Docker") as tally:
        async with contained(tmp_path) as (ground, backend):
            job = await backend.background(f"exec python3 -c '{SWAPPING}' /place")
            while "ready" not in str(await backend.job_output(job["id"])):
                await asyncio.sleep(0.05)
            await race(tally, ground, backend, CONTAINED, lambda number: [*uses(number), *searches(number)])
            await backend.end_job(job["id"])
            tally.check(backend.uses_daemon, "the daemon was lost")


# -- that it would be noticed ---------------------------------------------------------------------------------------


class Swapped(Local):
    """A backend in which links take the place of files and folders after the rules have decided, for one operation."""

    async def read(self, path: str, **options: Any) -> Any:
        with self._exchanged():
            return await super().read(path, **options)

    async def lines(self, path: str, **options: Any) -> Any:
        with self._exchanged():
            return await super().lines(path, **options)

    async def write(self, path: str, content: str | bytes, **options: Any) -> Any:
        with self._exchanged():
            return await super().write(path, content, **options)

    @contextmanager
    def _exchanged(self) -> Iterator[None]:
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for one, other in (("open", "swap"), ("deep/open", "deep/swap"), ("lone.txt", "swap.txt")):
            root = Path(self.workdir)
            (root / one).rename(root / "aside")
            (root / other).rename(root / one)
            (root / "aside").rename(root / other)


@pytest.mark.parametrize("noticed", ["read_file", "changed in the denied folder"])
async def test_a_rule_race_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noticed: str) -> None:
    """The tools follow links as if no rule had decided, and links appear between the decision and the operation."""
    monkeypatch.setattr(ToolUse, "follows_links", lambda self, path: True)
    ground, backend = Ground(tmp_path), Swapped(tmp_path, sandbox="none")
    tally = Tally("S4", "link race, planted", planted=True)
    with pytest.raises(Violated), tally:
        await race(tally, ground, backend, 1)
    assert any(noticed in why for why in tally.violations)
    await backend.stop()


async def test_links_that_appear_after_the_decision_are_refused(tmp_path: Path) -> None:
    ground, backend = Ground(tmp_path), Swapped(tmp_path, sandbox="none")
    script = Scripted(*(tool_calls_reply(one) for one in uses(0)), "done")
    permissions = Permissions(deny=DENIED, mode="bypassPermissions", backend=backend)
    result = await Agent(script, hooks=[Filesystem(backend, execute=False), permissions], ask=ScriptedUser(False)).run(
        "go"
    )
    told = dict(zip(((one.name, one.args["path"]) for one in uses(0)), tool_results(result), strict=True))
    assert "link" in told["read_file", "open/key.txt"] and "link" in told["read_file", "lone.txt"]
    assert TOKEN not in str(told) and not ground.changes()
    await backend.stop()


@needs_bubblewrap
async def test_a_search_that_checks_only_paths_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ripgrep opens files by path; its results are not compared with the files."""
    monkeypatch.setattr(Workspace, "verify_matches", lambda self, matches: list(matches))
    ground, backend = Ground(tmp_path), Local(tmp_path, sandbox="bubblewrap")
    tally = Tally("S4", "link race of searches, planted", planted=True)
    with pytest.raises(Violated), tally, swapping(tmp_path):
        for _ in range(4 * TRIES):  # the process that swaps may have no processor for a while
            if not any("grep" in why for why in tally.violations):
                await race(tally, ground, backend, 4, searches)
    assert any("grep" in why for why in tally.violations)
    await backend.stop()


# -- links that stay ------------------------------------------------------------------------------------------------


async def test_without_a_backend_rules_about_files_cover_no_links(tmp_path: Path) -> None:
    """Permissions without access to the workspace decide by name, so the tools follow no link."""
    Ground(tmp_path)
    backend = Local(tmp_path, sandbox="none")
    cases: list[tuple[dict[str, Any], str]] = [({"deny": DENIED}, "leads over a link"), ({}, TOKEN)]
    for rules, expected in cases:
        hooks = [Filesystem(backend, execute=False), Permissions(mode="bypassPermissions", **rules)]
        result = await Agent(
            Scripted(tool_calls_reply(tool_call("read_file", path="swap/key.txt")), "done"), hooks=hooks
        ).run("go")
        assert expected in tool_result(result), rules
    await backend.stop()


async def test_a_link_that_the_user_agreed_to_is_followed(tmp_path: Path) -> None:
    Ground(tmp_path)
    backend, user = Local(tmp_path, sandbox="none"), ScriptedUser(True)
    hooks = [Filesystem(backend, execute=False), Permissions(deny=DENIED, mode="bypassPermissions", backend=backend)]
    agent = Agent(
        Scripted(tool_calls_reply(tool_call("read_file", path="swap/key.txt")), "done"), hooks=hooks, ask=user
    )
    result = await agent.run("go")
    assert TOKEN in tool_result(result)
    assert "it may be what the rule kind:read(secrets/**) denies" in user.question.question
    await backend.stop()


async def test_an_absolute_glob_pattern_is_denied_from_any_start(tmp_path: Path) -> None:
    Ground(tmp_path)
    backend = Local(tmp_path, sandbox="none")
    hooks = [Filesystem(backend, execute=False), Permissions(deny=DENIED, mode="bypassPermissions", backend=backend)]
    sneaky = tool_call("glob", pattern=f"{backend.workdir}/secrets/*", path="open")
    assert "denies this" in tool_result(await Agent(Scripted(tool_calls_reply(sneaky), "done"), hooks=hooks).run("go"))
    await backend.stop()


async def test_a_large_result_is_not_written_through_a_link(tmp_path: Path) -> None:
    @tool
    async def talk(text: str) -> str:
        """Talk."""
        return text * 20_000

    ground, backend = Ground(tmp_path), Local(tmp_path, sandbox="none")
    (tmp_path / ".results").symlink_to("secrets")
    agent = Agent(
        Scripted(tool_calls_reply(tool_call("talk", text="word ")), "done"),
        tools=[talk],
        hooks=[Filesystem(backend, execute=False)],
    )
    assert "is kept as .results/" in tool_result(await agent.run("go"))
    assert not ground.changes()
    await backend.stop()
