"""The kinds of backends that the conformance cases run on, and the rule that selects the kinds for each case.

The cases are in `file_cases`, `command_cases` and `backend_cases`. Each tier of the tests has a conftest with its own
kinds, and modules that import the cases:

    opened = open_kinds("state")                         in conftest.py
    from conformance.file_cases import *                 in test_backend_files.py

A kind is opened once for a module, and its workspace emptied before each test. A `Place` reaches into the workspace
past the backend: by the host's own file system, or by the mapping of a `State`. `CANNOT` lists the operations that a
kind does not support.

A case does not run on every kind, because most kinds share most of their code (see docs/decisions/0030). The marker
`kinds` names the kinds of a case:

    kinds("state", "docker-exec")                        on both
    kinds("state", in_turn=(LOCAL, DOCKER))              on State, and each row of parameters on one kind of each group

Cases of `wick.testing` do not have this marker; `KINDS_BY_CASE` names the kinds of some of them. The marker
`wick_needs` names the operations of a case; kinds that do not support one are left out:

    needs("grep")                                        not in a container without Python
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import engines
from wick import constants
from wick.backends.docker import Docker
from wick.backends.local import Local
from wick.backends.state import State
from wick.protocols import Backend
from wick.testing.workspace_cases import WorkspaceFiles, assert_refused, needs

__all__ = ["assert_refused", "needs"]

FULL = bool(os.environ.get("WICK_FULL"))
SECRET = "sk-planted-0123456789"  # in wick's own environment, where no command may see it
BESIDE = (
    "by-the-side"  # the name by which tests access a workspace, so that a trace distinguishes them from the backend
)
CONTAINER_USER = 1000  # unless the tests run without root


class WorkspaceAccess:
    """A workspace, its backend, and a way past the backend."""

    def __init__(self, kind: str, backend: Backend) -> None:
        self.kind, self.backend = kind, backend

    def put(self, path: str, content: str | bytes = "") -> None:
        """Create a file past the backend, with its folders."""
        raise NotImplementedError

    def get(self, path: str) -> bytes:
        raise NotImplementedError

    def paths(self) -> set[str]:
        """Every file that there is."""
        raise NotImplementedError

    def empty(self) -> None:
        raise NotImplementedError


class HostFolder(WorkspaceAccess):
    """A workspace that is a folder of this host."""

    def __init__(self, kind: str, backend: Backend, root: Path, owner: int | None = None) -> None:
        super().__init__(kind, backend)
        self.root, self.owner = root, owner

    def at(self, path: str) -> Path:
        """Return the path on this host; create its folders."""
        found = self.root / path
        for folder in reversed(found.relative_to(self.root).parents):
            if not (self.root / folder).is_dir():
                (self.root / folder).mkdir()
                self.own(folder)
        return found

    def own(self, path: str | Path) -> None:
        if self.owner is not None:
            os.chown(self.root / path, self.owner, self.owner, follow_symlinks=False)

    def put(self, path: str, content: str | bytes = "") -> None:
        self.at(path).write_bytes(content.encode() if isinstance(content, str) else content)
        self.own(path)

    def link(self, path: str, target: str | Path) -> None:
        self.at(path).symlink_to(target)
        self.own(path)

    def fifo(self, path: str) -> None:
        os.mkfifo(self.at(path))
        self.own(path)

    def get(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def paths(self) -> set[str]:
        found = self.root.rglob("*")
        return {str(path.relative_to(self.root)) for path in found if path.is_symlink() or not path.is_dir()}

    def empty(self) -> None:
        for path in self.root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


class StateMapping(WorkspaceAccess):
    """A workspace that is a mapping."""

    def __init__(self, kind: str, backend: Backend, files: dict[str, Any]) -> None:
        super().__init__(kind, backend)
        self.files = files

    def put(self, path: str, content: str | bytes = "") -> None:
        data = content.encode() if isinstance(content, str) else content
        try:
            self.files[path] = data.decode()
        except UnicodeDecodeError:
            self.files[path] = {"content": base64.b64encode(data).decode(), "encoding": "base64"}

    def get(self, path: str) -> bytes:
        kept = self.files[path]
        return kept.encode() if isinstance(kept, str) else base64.b64decode(kept["content"])

    def paths(self) -> set[str]:
        return {path for path in self.files if not path.endswith("/")}

    def empty(self) -> None:
        self.files.clear()


# -- the kinds ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_local(kind: str, folder: Path, sandbox: Any) -> AsyncIterator[HostFolder]:
    if sandbox == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    home = {"HOME": str(folder)}  # where no profile of this machine's user is read by a shell
    backend = Local(folder / "workspace", sandbox=sandbox, env=home)
    async with _run_backend(backend):
        yield HostFolder(kind, backend, _side_name(folder / "workspace"))


@asynccontextmanager
async def _open_docker(kind: str, folder: Path, image: str, tcp: bool = False) -> AsyncIterator[HostFolder]:
    """The workspace is a folder of this host, so that a test can reach into it."""
    engine, workspace = engines.find_engine(), folder / "workspace"
    workspace.mkdir()
    user = os.getuid() or CONTAINER_USER
    os.chown(workspace, user, user)
    with engines.relay_port(engine.path) if tcp else nullcontext() as port:
        url = f"tcp://127.0.0.1:{port}" if tcp else engine.url
        backend = Docker(engine.image(image), engine=url, volumes={str(workspace): "/workspace"}, user=str(user))
        async with _run_backend(backend):
            yield HostFolder(kind, backend, _side_name(workspace), user)
            await backend.ls()
            assert backend.uses_daemon is (image == "python"), f"{kind} was not what it says: {backend.status.reason}"


@asynccontextmanager
async def _open_state(kind: str, folder: Path) -> AsyncIterator[StateMapping]:
    files: dict[str, Any] = {}
    backend = State(files)
    async with _run_backend(backend):
        yield StateMapping(kind, backend, files)


def _side_name(workspace: Path) -> Path:
    """Another name for a workspace."""
    link = workspace.parent / BESIDE
    link.symlink_to(workspace)
    return link


@asynccontextmanager
async def _run_backend(backend: Backend) -> AsyncIterator[None]:
    await backend.start()
    try:
        yield
    finally:
        await backend.stop()


Opens = Callable[[Path], AbstractAsyncContextManager[WorkspaceAccess]]

KINDS: dict[str, Opens] = {
    "local-bubblewrap": lambda folder: _open_local("local-bubblewrap", folder, "bubblewrap"),
    "local-landlock": lambda folder: _open_local("local-landlock", folder, "landlock"),
    "local-unsandboxed": lambda folder: _open_local("local-unsandboxed", folder, "none"),
    "docker-daemon": lambda folder: _open_docker("docker-daemon", folder, "python"),
    "docker-exec": lambda folder: _open_docker("docker-exec", folder, "plain"),
    "docker-tcp-engine": lambda folder: _open_docker("docker-tcp-engine", folder, "python", tcp=True),
    "state": lambda folder: _open_state("state", folder),
}

# Operations that a kind does not support, and their codes. All other kinds support everything. `links` stands for file
# operations on a path with a link.
CANNOT = {
    "state": dict.fromkeys(("execute", "background", "terminal"), "unsupported"),
    "docker-exec": dict.fromkeys(("background", "terminal", "glob", "grep"), "unsupported") | {"links": "linked"},
}

# Each of these is an implementation of its own: a mapping, a folder of the host, wickd in a container, a shell there.
# OTHERS differ in how commands are confined and how the engine is reached, and share the code for files.
PRIMARY = ("state", "local-unsandboxed", "docker-daemon", "docker-exec")
OTHERS = ("local-bubblewrap", "docker-tcp-engine", "local-landlock")
LOCAL = ("local-bubblewrap", "local-landlock", "local-unsandboxed")
DOCKER = ("docker-daemon", "docker-exec", "docker-tcp-engine")
ON_HOST = (*LOCAL, *DOCKER)  # links and commands are there

on_primary = pytest.mark.kinds(*PRIMARY)
on_every_kind = pytest.mark.kinds(*KINDS)
on_host = pytest.mark.kinds(*PRIMARY[1:])
on_every_host = pytest.mark.kinds(*ON_HOST)
on_both_greps = pytest.mark.kinds(*PRIMARY, "local-bubblewrap")  # in a sandbox, Local searches with ripgrep
rows_in_turn = pytest.mark.kinds("state", in_turn=(PRIMARY[1:],))
rows_on_both_greps_in_turn = pytest.mark.kinds("state", "local-bubblewrap", in_turn=(PRIMARY[1:],))
rows_on_host_in_turn = pytest.mark.kinds(in_turn=(LOCAL, DOCKER))

# The kinds of cases in `wick.testing`, where they differ from those of the module that runs them.
KINDS_BY_CASE = {
    "test_edit_preserves_line_endings_and_encoding": rows_in_turn,
    "test_glob": rows_in_turn,
    "test_invalid_paths_are_refused": rows_in_turn,
    "test_grep_options": rows_on_both_greps_in_turn,
    **dict.fromkeys(
        (
            "test_grep",
            "test_grep_ignores_files_that_glob_ignores",
            "test_grep_of_an_invalid_pattern",
            "test_grep_skips_binary_files",
            "test_grep_of_a_very_long_line",
            "test_grep_of_too_many_matches",
            "test_grep_of_a_missing_path",
        ),
        on_both_greps,
    ),
    "test_commands": rows_on_host_in_turn,
}
in_module_loop = pytest.mark.asyncio(loop_scope="module")  # a place is opened once for a module


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Select the conformance cases. A conftest with kinds imports this hook."""
    report = yield
    report.result = [node for node in report.result if is_selected(node)]
    return report


def is_selected(item: pytest.Item | pytest.Collector) -> bool:
    """Return True unless this is a conformance case for other kinds of backends than its own."""
    call, mark = getattr(item, "callspec", None), item.get_closest_marker("kinds")
    mark = KINDS_BY_CASE[item.originalname].mark if getattr(item, "originalname", "") in KINDS_BY_CASE else mark
    if call is None or mark is None:
        return True
    kind, needs = call.params["opened"], item.get_closest_marker("wick_needs")
    if FULL and kind != "state":
        return bool(_supporting((kind,), needs))
    return kind in select_kinds(mark, find_row(item.get_closest_marker("parametrize"), call.params), needs)


def select_kinds(mark: pytest.Mark, row: int, needs: pytest.Mark | None = None) -> set[str]:
    """Return the kinds that this row of parameters runs on."""
    groups = [_supporting(group, needs) for group in mark.kwargs.get("in_turn", ())]
    return {*_supporting(mark.args, needs), *(group[row % len(group)] for group in groups)}


def _supporting(kinds: Sequence[str], needs: pytest.Mark | None) -> list[str]:
    """Return the kinds that support all operations of a case."""
    return [kind for kind in kinds if needs is None or not CANNOT.get(kind, {}).keys() & {*needs.args}]


def find_row(mark: pytest.Mark | None, params: dict[str, object]) -> int:
    """Return the number of the row with these parameters."""
    if mark is None:
        return 0
    names, rows = mark.args
    return [*rows].index(params[names] if isinstance(names, str) else tuple(params[name] for name in names))


def open_kinds(*kinds: str) -> Any:
    """Return the fixture `opened`: the workspace of each of these kinds in turn."""

    @pytest_asyncio.fixture(name="opened", scope="module", loop_scope="module", params=kinds)
    async def opened(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[WorkspaceAccess]:
        with _plant_secret(), pytest.MonkeyPatch.context() as patience:
            patience.setattr(constants, "DAEMON_SECONDS", 60.0)  # a busy machine answers late
            patience.setattr(constants, "DAEMON_GRACE_SECONDS", 60.0)
            async with KINDS[request.param](tmp_path_factory.mktemp(request.param)) as place:
                yield place

    return opened


@contextmanager
def _plant_secret() -> Iterator[None]:
    os.environ["WICK_PLANTED"] = SECRET
    try:
        yield
    finally:
        del os.environ["WICK_PLANTED"]


@pytest.fixture
def place(opened: WorkspaceAccess) -> WorkspaceAccess:
    opened.empty()
    return opened


class PlaceFiles(WorkspaceFiles):
    """The files of a place, past its backend."""

    def __init__(self, place: WorkspaceAccess) -> None:
        super().__init__(place.backend)
        self.place = place

    async def put(self, path: str, content: str | bytes = "") -> None:
        self.place.put(path, content)

    async def get(self, path: str) -> bytes:
        return self.place.get(path)

    async def paths(self) -> set[str]:
        return self.place.paths()


class OnPlaces:
    """Fixtures that run the cases of `wick.testing` on the workspace of a place."""

    @pytest.fixture(autouse=True)
    def skip_unsupported(self, place: WorkspaceAccess) -> None:
        self.place = place  # its cases are selected when they are collected

    @pytest.fixture
    def backend(self, place: WorkspaceAccess) -> Backend:
        return place.backend

    @pytest.fixture
    def files(self, place: WorkspaceAccess) -> PlaceFiles:
        return PlaceFiles(place)

    def supports(self, operation: str) -> bool:
        return supports(self.place, operation)


async def still(place: WorkspaceAccess, path: str = "beat") -> None:
    """Wait until a file is not written any more: ending takes a moment on a busy machine."""
    async with asyncio.timeout(60):
        size = -1
        while size != (size := len(place.get(path)) if path in place.paths() else 0):
            await asyncio.sleep(0.5)


def supports(place: WorkspaceAccess, operation: str) -> bool:
    return operation not in CANNOT.get(place.kind, {})


def refusal(place: WorkspaceAccess, operation: str, code: str) -> str:
    """Return the code of a refused operation: this one, unless the kind does not support the operation at all."""
    return CANNOT.get(place.kind, {}).get(operation, code)
