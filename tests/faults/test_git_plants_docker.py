"""S2 where the workspace is a folder of this host in a real container: no command plants a program that git runs.

Commands, jobs and terminals plant; `git status` on the host is the judge.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import engines
from faults.git_plants import Ground, Plant, is_watched
from faults.tally import Tally, Violated
from wick import constants
from wick.backends.containers.spec import ContainerSpec
from wick.backends.docker import Docker
from wick.workspace.protected import PROTECTED

SIMPLE = Plant("copied", "sub", "fsmonitor")
PLANTS = [  # one after the other in one repository, so each has a place of its own
    ("by_command", SIMPLE),
    ("by_command", Plant("moved with its parent", "a/b/c", "in one line")),
    ("by_command", Plant("a bare repository", "x", "fsmonitor")),
    ("by_job", Plant("copied", "of-a-job", "fsmonitor")),
    ("by_terminal", Plant("copied", "of-a-terminal", "fsmonitor")),
    ("by_a_hook", SIMPLE),
    ("by_a_change_of_its_own_config", SIMPLE),
]
OF_WICKD = ("by_job", "by_terminal")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)
    monkeypatch.setattr(constants, "DAEMON_GRACE_SECONDS", 60.0)


class ContainerGround(Ground):
    """A repository of the user that a container has as its workspace; one container for all plants."""

    backend: Docker | None = None

    def __init__(self, folder: Path, image: str, server: str, protect: tuple[str, ...] = PROTECTED) -> None:
        super().__init__(folder, protect)
        self._image, self._server = engines.find_engine().image(image), server

    def open(self) -> Docker:
        self.mark.unlink(missing_ok=True)
        self.backend = self.backend or Docker(self._image, **self._options())
        return self.backend

    async def close(self, backend: object) -> None:
        """Stop the processes of one plant; the container is kept."""
        assert self.backend is not None
        for job in await self.backend.jobs():
            await self.backend.end_job(job["id"])

    def _options(self) -> dict[str, Any]:
        return {
            "engine": engines.find_engine().url,
            "server": self._server,
            "volumes": {str(self.workspace): "/workspace"},
            "user": f"{os.getuid()}:{os.getgid()}",
            "protect": self._protect,
        }

    @property
    def _program(self) -> str:
        return (
            "import asyncio, sys; from wick.backends.docker import Docker; "
            f"asyncio.run(Docker({self._image!r}, **{self._options()!r}).execute(sys.argv[2]))"
        )

    async def by_terminal(self, plant: Plant) -> bool:
        backend = self.open()
        terminal = await backend.terminal()
        await terminal.write(f"{plant.command(self.mark)}; exit\n".encode())
        async with asyncio.timeout(60):
            while await terminal.read():
                pass
        found = self.runs(plant.place)
        await terminal.close()
        return found

    async def by_a_change_of_its_own_config(self, plant: Plant) -> bool:
        """No mount protects the config that the repository has; it is written in place."""
        backend = self.open()
        await backend.execute(f"printf '[core]\\n\\tfsmonitor = \"touch {self.mark}; false\"\\n' >> .git/config")
        return self.runs(".")

    async def by_a_hook(self, plant: Plant) -> bool:
        backend = self.open()
        hook = ".git/hooks/post-checkout"
        await backend.execute(f"printf '#!/bin/sh\\ntouch {self.mark}\\n' > {hook}; chmod 755 {hook}")
        subprocess.run(["git", "checkout", "-q", "-b", "b"], cwd=self.workspace, check=True)  # noqa: ASYNC221
        return self.mark.exists()


async def plant_all(tally: Tally, ground: ContainerGround, plants: list[tuple[str, Plant]]) -> None:
    try:
        for way, plant in plants:
            ran = await getattr(ground, way)(plant)
            tally.check(not ran, f"git ran the program of {plant}, {way}")
    finally:
        if ground.backend is not None:
            await ground.backend.stop()


@pytest.fixture
def server() -> Iterator[str]:
    """The label of all containers of a test."""
    label = f"test-{uuid4().hex[:12]}"
    yield label
    engines.find_engine().remove(f"wick.server={label}")


@pytest.mark.parametrize("image", ["python", "plain"])
async def test_no_command_in_a_container_plants_code_that_git_runs(tmp_path: Path, image: str, server: str) -> None:
    with Tally("S2", f"plants for git, in a container of {image}") as tally:
        plants = [(way, plant) for way, plant in PLANTS if image == "python" or way not in OF_WICKD]
        await plant_all(tally, ContainerGround(tmp_path, image, server), plants)


@pytest.mark.parametrize("image", ["python", pytest.param("plain", marks=pytest.mark.long)])
async def test_no_container_plants_while_its_program_is_killed(tmp_path: Path, image: str, server: str) -> None:
    with Tally("S2", f"plants for git, in a container of {image}, program killed") as tally:
        ran = await ContainerGround(tmp_path, image, server).by_a_program_that_is_killed(SIMPLE)
        tally.check(not ran, f"git ran the program of {SIMPLE}")


@pytest.mark.long
async def test_an_unwatched_container_is_detected(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plant works where no watcher runs: else they would show nothing."""
    monkeypatch.setattr(ContainerSpec, "shared_folders", lambda self: [])
    tally = Tally("S2", "plants for git, in a container, planted", planted=True)
    with pytest.raises(Violated), tally:
        await plant_all(tally, ContainerGround(tmp_path, "python", server), PLANTS)
    assert len(tally.violations) == len(PLANTS), tally.violations


@pytest.mark.long
async def test_a_kill_that_leaves_a_plant_is_detected(tmp_path: Path, server: str) -> None:
    tally = Tally("S2", "plants for git, in a container, program killed, planted", planted=True)
    with pytest.raises(Violated), tally:
        ground = ContainerGround(tmp_path, "python", server, protect=())
        tally.check(not await ground.by_a_program_that_is_killed(SIMPLE), f"{SIMPLE}")


GUARDED = """
import asyncio, sys
from wick.backends.daemon_client import get_host_daemon
from wick.workspace.protected import PROTECTED

async def main():
    await (await get_host_daemon()).guard(sys.argv[1], PROTECTED, contained=sys.argv[2] == "True")
    print("guarded", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("contained", [True, False])
async def test_a_watcher_of_a_container_outlives_its_program(tmp_path: Path, contained: bool) -> None:
    """A container ends its commands a moment after the program; a watcher that has ended by then is the fault."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    argv = [sys.executable, "-c", GUARDED, str(workspace), str(contained)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:  # noqa: ASYNC220
        assert program.stdout is not None
        assert program.stdout.readline() == "guarded\n"
        program.kill()
    async with asyncio.timeout(60):
        await asyncio.sleep(1.0)
        while not contained and is_watched(workspace):
            await asyncio.sleep(0.05)
        (workspace / ".envrc").touch()
        while is_watched(workspace):
            await asyncio.sleep(0.05)
    assert (workspace / ".envrc").exists() is not contained


async def test_results_name_moved_files(tmp_path: Path, server: str) -> None:
    """Also with a volume above the workspace, and for a job that is not awaited."""
    (tmp_path / "app").mkdir()
    here = engines.find_engine()
    options = {"engine": here.url, "server": server, "user": f"{os.getuid()}:{os.getgid()}"}
    backend = Docker(here.image("python"), workdir="/srv/app", volumes={str(tmp_path): "/srv"}, **options)
    executed = await backend.execute("touch .envrc; mkdir ../beside; touch ../beside/.envrc")
    assert executed["moved"] == [".envrc", "/srv/beside/.envrc"]
    assert not (tmp_path / "app/.envrc").exists() and not (tmp_path / "beside/.envrc").exists()
    assert "is neutralised" in backend.protection.says
    job = await backend.background("touch .envrc; sleep 0.2")
    async with asyncio.timeout(60):
        link = backend._lifecycle.link
        while link is not None and link.guards.open:  # nothing asks for the job
            await asyncio.sleep(0.05)
    (tmp_path / "app/.envrc").touch()  # by the user, while nothing runs
    [found] = [one for one in await backend.jobs() if one["id"] == job["id"]]
    assert found["error"].endswith("were moved aside: .envrc")
    terminal = await backend.terminal()
    await terminal.write(b"touch ../.envrc; exit\n")
    while await terminal.read():
        pass
    assert terminal.moved == ["/srv/.envrc"]  # type: ignore[attr-defined]
    assert (tmp_path / "app/.envrc").exists()
    await backend.stop()


def test_a_read_only_folder_and_a_named_volume_are_not_watched() -> None:
    mounts = ("/a:/workspace", "/b:/workspace/b:ro", "/c:/c", "name:/workspace/n", "/d:/workspace/d")
    assert ContainerSpec("id", "image", binds=mounts).shared_folders() == [
        ("/a", "/workspace"),
        ("/d", "/workspace/d"),
    ]
    remote = Docker("image", engine="ssh://far", volumes={"/a": "/workspace"})
    assert "neutralised" not in remote.protection.says
