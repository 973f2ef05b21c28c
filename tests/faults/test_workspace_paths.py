"""S2: file operations stay in the workspace. No path escapes, and no valid path is refused.

Each path of a grammar (path_generator) goes through every operation, in a tree that has every kind of link and oddity
(path_model); a model of the tree says what must come of it, and what is outside is looked at after each (path_oracle).
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import aiohttp
import pytest

import engines
from faults.git_plants import PLACED, Plant, plants
from faults.git_plants import Ground as PlantGround
from faults.path_generator import Paths
from faults.path_model import TOKEN, Ground
from faults.path_oracle import OPERATIONS, WRITTEN, done, try_paths
from faults.tally import FULL, Tally, Violated
from local_sandbox import needs_bubblewrap
from server_process import host_server, open_client
from wick import constants
from wick.backends.docker import Docker
from wick.backends.local import Local
from wick.errors import BackendError
from wick.workspace import rooted_folder
from wick.workspace.workspace import Workspace

LOCAL, BY_HAND, SERVED, CONTAINED, BY_SHELL = (50_000, 10_000, 2_000, 10_000, 100) if FULL else (200, 50, 15, 20, 1)
RACES, CONTAINED_RACES = (10_000, 1_000) if FULL else (30, 3)
PLANTS, KILLED = (2_000, 60) if FULL else (len(PLACED), 1)
SEARCHED = 1_000 if FULL else 20  # by ripgrep, in a sandbox

pytestmark = pytest.mark.timeout(14_400 if FULL else 240)
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="a device is made by root only: run the tests as root")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests a daemon may have no processor for seconds; without it a container is another one."""
    if not FULL:
        monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)


def some(ground: Ground, count: int, first: int = 7) -> Iterator[str]:
    return islice(Paths(ground, random.Random(first)), count)


# -- every path, every operation ------------------------------------------------------------------------------------


@needs_root
async def test_paths_of_a_local_backend(tmp_path: Path) -> None:
    ground, backend = Ground(tmp_path / "place"), Local(tmp_path / "place/workspace", sandbox="none")
    with Tally("S2", "paths, local") as tally:
        await try_paths(tally, ground, backend, some(ground, LOCAL))
        _is_real(tally, ground, some(ground, LOCAL))
    await backend.stop()


def _is_real(tally: Tally, ground: Ground, paths: Iterator[str]) -> None:
    """Check the real path of the model against os.path.realpath."""
    for path in paths:
        found = ground.model.find(path)
        if found.where == "there":
            real = os.path.realpath(os.path.join(ground.root, path))
            tally.check(real == ground.path(found.names), f"{path!r}: the model is wrong: {found} is {real}")


@needs_root
async def test_paths_that_are_resolved_by_hand(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "place")
    files = Workspace(str(ground.root), by_hand=True)
    with Tally("S2", "paths, component by component") as tally:
        await try_paths(tally, ground, files, some(ground, BY_HAND, first=8))
    files.close()


@needs_root
@needs_bubblewrap
async def test_paths_that_are_searched_in_a_sandbox(tmp_path: Path) -> None:
    ground, backend = Ground(tmp_path / "place"), Local(tmp_path / "place/workspace", sandbox="bubblewrap")
    with Tally("S2", "paths, searched by ripgrep") as tally:
        await try_paths(tally, ground, backend, some(ground, SEARCHED, first=9), ["grep"])
    await backend.stop()


# -- in a container -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def contained(
    folder: Path, make: Callable[..., Ground] = Ground, **options: Any
) -> AsyncIterator[tuple[Ground, Docker]]:
    """Mount the tree and its surroundings in a container."""
    here, server = engines.find_engine(), f"test-{uuid4().hex[:12]}"
    ground = make(folder / "place", seen="/place", owner=1000)
    volumes = {str(folder / "place"): "/place"}
    made = Docker(
        here.image("python"), engine=here.url, server=server, volumes=volumes, workdir="/place/workspace", **options
    )
    try:
        yield ground, made
    finally:
        await made.stop()
        here.remove(f"wick.server={server}")


@needs_root
async def test_paths_of_a_container(tmp_path: Path) -> None:
    with Tally("S2", "paths, Docker") as tally:
        async with contained(tmp_path) as (ground, backend):
            await try_paths(tally, ground, backend, some(ground, CONTAINED, first=10))
            tally.check(backend.uses_daemon, "the daemon was lost")


@needs_root
async def test_paths_of_a_container_without_its_daemon(tmp_path: Path) -> None:
    with Tally("S2", "paths, Docker without a daemon") as tally:
        async with contained(tmp_path, daemon="none") as (ground, backend):
            await try_paths(tally, ground, backend, some(ground, BY_SHELL, first=11))


# -- over HTTP ------------------------------------------------------------------------------------------------------


class OverHttp:
    """The routes of a server for files, asked as a backend is; refusals are BackendErrors again."""

    operations: ClassVar[dict[str, Callable[[Any, str], Any]]] = {
        "download": lambda files, path: files.download(path),
        "upload": lambda files, path: files.upload(path),
    }

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client

    async def _ask(self, method: str, route: str, **options: Any) -> Any:
        async with self._client.request(method, f"/agents/a/files{route}", **options) as answer:
            text = await answer.text()
            if answer.status >= 500:
                raise AssertionError(f"{answer.status}: {text[:300]}")
            if answer.status >= 400:
                raise BackendError(text, (await answer.json())["error"]["code"])
            is_data = answer.content_type == "application/json"
            return await answer.json() if is_data else text

    def ls(self, path: str) -> Awaitable[Any]:
        return self._ask("GET", "/list", params={"path": path})

    def read(self, path: str) -> Awaitable[Any]:
        return self._ask("GET", "/read", params={"path": path})

    def download(self, path: str) -> Awaitable[Any]:
        return self._ask("GET", "/download", params={"path": path})

    def upload(self, path: str) -> Awaitable[Any]:
        return self._ask("POST", "/upload", params={"path": path}, data=WRITTEN.encode())

    def write(self, path: str, text: str) -> Awaitable[Any]:
        return self._ask("PUT", "/write", json={"path": path, "content": text})

    def move(self, source: str, target: str) -> Awaitable[Any]:
        return self._ask("POST", "/move", json={"source": source, "target": target})

    def delete(self, path: str, recursive: bool = False) -> Awaitable[Any]:
        return self._ask("DELETE", "", params={"path": path, "recursive": str(recursive).lower()})


SERVED_OPERATIONS = ("ls", "read", "download", "write", "upload", "move", "move to", "delete", "purge")


@needs_root
async def test_paths_of_the_servers_routes(tmp_path: Path) -> None:
    options = {"model": "demo", "backend": {"type": "local", "sandbox": "none"}}
    with Tally("S2", "paths, the server's routes") as tally:
        async with host_server(tmp_path, agents={"a": options}) as server, open_client(server) as client:
            files = OverHttp(client)
            await files.write("first", "")
            made = next((tmp_path / "data").rglob("first"))
            made.unlink()
            ground = Ground(made.parent.parent, made.parent.name)
            sayable = (path for path in some(ground, 2 * SERVED, first=12) if path and _is_sayable(path))
            await try_paths(tally, ground, files, islice(sayable, SERVED), SERVED_OPERATIONS)


def _is_sayable(path: str) -> bool:
    """Return True if a URL can contain it."""
    try:
        return bool(path.encode()) and len(path) <= 4_096
    except UnicodeEncodeError:
        return False


# -- a race ---------------------------------------------------------------------------------------------------------

SWAPPING = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
pairs = [(b"d", b"swap"), (b"deep/d/e", b"deep/swap"), (b"lone.txt", b"swap.txt")]
print("ready", flush=True)
while True:
    for one, other in pairs:
        libc.renameat2(-100, one, -100, other, 2)
"""
SWAPPED = {"swap": "../outside", "deep/swap": "{out}", "swap.txt": "../outside/secret.txt"}
RACING = (
    *((operation, "d/file.txt") for operation in ("read", "lines", "write", "edit", "grep", "stat", "delete", "write")),
    *(("ls", "d"), ("glob", "d"), ("grep", "d"), ("mkdir", "d/new/er"), ("write", "d/new/x"), ("purge", "d/new")),
    *(("read", "deep/d/e/file.txt"), ("write", "deep/d/e/file.txt"), ("ls", "deep/d/e"), ("ls", "deep/d/e/../e")),
    *(("read", "lone.txt"), ("edit", "lone.txt"), ("write", "lone.txt"), ("read", "d/e/over/file.txt")),
    *(("move to", "d/new.txt"), ("move", "d/new.txt"), ("delete", "moved-here"), ("read", "d/../lone.txt")),
)


@contextmanager
def swapping(root: Path) -> Iterator[None]:
    """Another process that exchanges folders and files with links to the outside, as fast as it can."""
    command = [sys.executable, "-I", "-c", SWAPPING, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def race_ground(place: Path, **options: Any) -> Ground:
    """A ground on which things are swapped."""
    ground = Ground(place, more=SWAPPED, **options)
    for path in ("deep/d/e/file.txt", "lone.txt"):
        (ground.root / path).parent.mkdir(parents=True, exist_ok=True)
        (ground.root / path).write_text("needle inside\n")
    for path in ("deep", "deep/d", "deep/d/e", "deep/d/e/file.txt", "lone.txt"):
        if ground.owner >= 0:
            os.chown(ground.root / path, ground.owner, ground.owner)
    return ground


async def race(tally: Tally, ground: Ground, files: Any, rounds: int) -> None:
    """Run all operations during swaps; nothing outside may be read or changed."""
    inside = refused = 0
    for number in range(rounds):
        for operation, path in RACING:
            answer = await done(files, operation, path)
            fine = isinstance(answer, BackendError) or TOKEN not in repr(answer)
            tally.check(fine, f"{operation} {path} told of the outside: {repr(answer)[:200]}")
            inside, refused = (
                inside + (not isinstance(answer, BackendError)),
                refused + isinstance(answer, BackendError),
            )
        if number % 20 == 0 and not (ground.root / "movable.txt").exists():
            (ground.root / "movable.txt").write_text("needle\n")
    tally.check(not ground.outside(), ground.outside())
    tally.check(inside and refused, f"nothing was swapped: {inside} done, {refused} refused")
    tally.note(executed=inside, refused=refused)


@needs_root
@pytest.mark.parametrize("way", ["kernel", "component by component"])
async def test_a_race_leaks_nothing(tmp_path: Path, way: str) -> None:
    ground = race_ground(tmp_path / "place")
    files: Any = Local(ground.root, sandbox="none")
    if way == "component by component":
        files = Workspace(str(ground.root), by_hand=True)
    with Tally("S2", f"operations in a rename race, {way}") as tally, swapping(ground.root):
        await race(tally, ground, files, RACES)
    await files.stop() if way == "kernel" else files.close()


@needs_root
async def test_a_race_in_a_container_leaks_nothing(tmp_path: Path) -> None:
    """The swapping process is a job in that container."""
    with Tally("S2", "operations in a rename race, Docker") as tally:
        async with contained(tmp_path, race_ground) as (ground, backend):
            job = await backend.background(f"exec python3 -c '{SWAPPING}' /place/workspace")
            while "ready" not in str(await backend.job_output(job["id"])):
                await asyncio.sleep(0.05)
            await race(tally, ground, backend, CONTAINED_RACES)
            await backend.end_job(job["id"])


# -- that it would be noticed ---------------------------------------------------------------------------------------


class Joined(Workspace):
    """A workspace that joins path strings, limited to the folder of the test."""

    def _joined(self, path: str) -> str:
        joined = os.path.join(self.root, path)
        real = os.path.realpath(joined)
        if not real.startswith(f"{os.path.dirname(self.root)}/") or not (
            os.path.isfile(real) or not os.path.exists(real)
        ):
            raise BackendError("this would be a fault of another kind", "failed")
        return joined

    def read(self, path: str, **options: Any) -> Any:
        try:
            with open(self._joined(path), "rb") as file:
                return {"path": path, "content": file.read(10_000).decode(errors="replace"), "encoding": "utf-8"}
        except (OSError, ValueError) as error:
            raise BackendError(str(error), "failed") from None

    def write(self, path: str, content: str | bytes) -> Any:
        try:
            with open(self._joined(path), "w") as file:
                file.write(str(content))
        except (OSError, ValueError) as error:
            raise BackendError(str(error), "failed") from None
        return {"path": path, "bytes_written": len(content)}


class Anxious(Workspace):
    """A workspace that refuses any path with two dots."""

    def read(self, path: str, **options: Any) -> Any:
        if ".." in path:
            raise BackendError(f"{path} has two dots", "escapes")
        return super().read(path, **options)


@needs_root
@pytest.mark.parametrize(
    ("planted", "operation", "noticed"),
    [(Joined, "read", "ESCAPED"), (Joined, "write", "ESCAPED"), (Anxious, "read", "REFUSED")],
)
async def test_a_faulty_workspace_is_detected(
    tmp_path: Path, planted: type[Workspace], operation: str, noticed: str
) -> None:
    ground = Ground(tmp_path / "place")
    files = planted(str(ground.root))
    tally = Tally("S2", f"{operation}, planted", planted=True)
    with pytest.raises(Violated), tally:
        await try_paths(tally, ground, files, some(ground, 300), [operation])
    assert [why for why in tally.violations if noticed in why]
    files.close()


@needs_root
async def test_a_leaking_race_is_detected(tmp_path: Path) -> None:
    ground = race_ground(tmp_path / "place")
    files = Joined(str(ground.root))
    noticed, tally = pytest.raises(Violated, match="outside"), Tally("S2", "race, planted", planted=True)
    with noticed, tally, swapping(ground.root):
        for _ in range(40):  # the swapping process may get no CPU for a while
            if not any("told of the outside" in why for why in tally.violations):
                await race(tally, ground, files, 50)
    files.close()


def test_a_kernel_that_counts_links_twice_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens when a lookup is repeated because of concurrent renames."""
    ground = Ground(tmp_path / "place")
    files = Workspace(str(ground.root))
    real = rooted_folder._openat2

    def refuses(folder: int, path: str, flags: int, links: bool) -> int:
        if path.startswith("hop"):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return real(folder, path, flags, links)

    monkeypatch.setattr(rooted_folder, "_openat2", refuses)
    assert len(files.ls("hop3")["entries"]) == len(files.ls("d")["entries"])
    with pytest.raises(BackendError, match="too many links"):
        files.ls("hop2")
    files.close()


def test_a_search_reports_only_files_of_the_workspace(tmp_path: Path) -> None:
    """A search program uses paths: its matches count only if the workspace finds them."""
    ground = Ground(tmp_path / "place")
    (ground.root / "long.txt").write_bytes(b"one\r\n" + b"x" * 3_000_000 + b"needle\n" + "caf\u00e9 needle…\n".encode())
    files = Workspace(str(ground.root))
    true = [
        ("long.txt", 1, "one"),
        ("long.txt", 2, "…xneedle"),
        ("long.txt", 3, "caf\u00e9 needle…"),
        ("file.txt", 1, "needle"),
    ]
    false = [
        ("d/file.txt", 1, TOKEN),
        ("out/file.txt", 1, "needle"),
        ("out-file", 1, "needle"),
        ("file.txt", 9, "needle"),
    ]
    false += [("in/file.txt", 1, "needle"), ("missing", 1, "needle"), ("fifo", 1, "needle"), ("long.txt", 1, "needle")]
    told = [{"file": file, "line": line, "text": text} for file, line, text in (*true, *false)]
    assert files.verify_matches(told) == told[: len(true)]  # type: ignore[arg-type, comparison-overlap]
    files.close()


def test_every_operation_of_a_workspace_is_tried() -> None:
    """Every path operation of a workspace is tried, so that a new one cannot be forgotten."""
    public = {name for name, value in vars(Workspace).items() if callable(value) and not name.startswith("_")}
    helpers = {"close", "resolve", "build_search_filter", "list_searchable", "verify_matches"}  # parts of grep
    assert public - helpers == {name.split()[0] for name in OPERATIONS} - {"purge"}


# -- programs that git runs on sight --------------------------------------------------------------------------------


@needs_bubblewrap
async def test_no_command_plants_code_that_git_runs(tmp_path: Path) -> None:
    with Tally("S2", "plants for git") as tally:
        for number, plant in enumerate(islice(plants(12), PLANTS)):
            ground = PlantGround(tmp_path / str(number))
            ran = await (ground.by_job(plant) if number % 2 else ground.by_command(plant))
            tally.check(not ran, f"git ran the program of {plant}")


@needs_bubblewrap
async def test_no_command_plants_code_while_its_program_is_killed(tmp_path: Path) -> None:
    with Tally("S2", "plants for git, program killed") as tally:
        plant = Plant("copied", "sub", "fsmonitor")
        for number in range(KILLED):
            ground = PlantGround(tmp_path / str(number))
            ran = await ground.by_a_program_that_is_killed(plant)
            tally.check(not ran, f"git ran the program of {plant}")


@needs_bubblewrap
@pytest.mark.parametrize("way", ["by_command", "by_job", "by_a_program_that_is_killed"])
async def test_a_plant_that_git_runs_is_detected(tmp_path: Path, way: str) -> None:
    """Without protection most plants work, so that the tests are meaningful."""
    simple = [Plant("copied", "sub", "fsmonitor")]
    tally = Tally("S2", f"plants for git, {way}, planted", planted=True)
    with pytest.raises(Violated), tally:
        for number, plant in enumerate([*simple, *islice(plants(12), 5)] if way == "by_command" else simple):
            ground = PlantGround(tmp_path / str(number), protect=())
            tally.check(not await getattr(ground, way)(plant), f"{plant}")
    assert len(tally.violations) >= tally.tried - 2, tally.violations
