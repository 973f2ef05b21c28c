"""S3: the command `wick` works in a project that is installed editable, and imports nothing from it.

Each test installs a real project into a real environment with wick, and starts `wick` there as a process of its own. A
file that a plant would write shows that code of the workspace ran outside of the sandbox.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from faults.tally import Tally, Violated
from local_sandbox import needs_bubblewrap
from wick._internal.import_path import excluded
from wick.backends.local import Local
from wick.config.process_files import guard_editable
from wick.errors import BackendError
from wick.workspace.protected import PROTECTED

ROOT = Path(__file__).parent.parent.parent
PACKAGES = sysconfig.get_path("purelib")
SETUP = """[build-system]
requires = ["setuptools>=70"]
build-backend = "setuptools.build_meta"
[project]
name = "hello"
version = "0.1"
[tool.setuptools.packages.find]
where = ["WHERE"]
include = ["hello*"]
"""
HOOK = "from wick import Run, before\nWORD = 'old'\n@before(Run)\ndef hook(run): pass\n"

# The command `wick`, with a line that plants a fault after the launcher has set editable installs aside.
SCRIPT = """
import sys
import wick_launcher
found = wick_launcher.set_aside()
wick_launcher.set_aside = lambda: found
{fault}
wick_launcher.main()
"""
UNPROTECTED = "import wick.config.builder; wick.config.builder.guard_editable = lambda path, protect: {}"
ON_PATH = "sys.path += found[0]"
UNPINNED = "import wick.config.builder; wick.config.builder.pin_config = lambda *args, **options: []"

Kind = Literal["src", "flat", "finder"]
WHERE: dict[Kind, str] = {"src": "src", "flat": ".", "finder": "."}

# Names that Python, or wick, imports before the launcher runs; MARK is a line that leaves a mark.
PLANTS = {
    "sitecustomize": "sitecustomize.py",
    "a package": "sitecustomize/__init__.py",
    "without source": "sitecustomize.pyc",
    "in C": "sitecustomize.abi3.so",
    "usercustomize": "usercustomize.py",
    "Ubuntu's": "apport_python_hook.py",
    "a module of Windows": "nt.py",
    "a module of Jython": "org/python/core.py",
    "wick": "wick/__init__.py",
    "the launcher": "wick_launcher.py",
    "in another case": "SiteCustomize.py",
}


@dataclass
class Project:
    """A project that is installed editable into an environment with wick."""

    folder: Path
    place: Path  # the environment
    imported: Path  # the folder that is imported from
    mark: Path

    def wick(self, *words: str, folder: Path | None = None, fault: str = "") -> subprocess.CompletedProcess[str]:
        script = self.place / "bin/wick"
        script.write_text(SCRIPT.format(fault=fault))
        return self._run([str(self.place / "bin/python"), str(script), *words], folder or self.folder)

    def ask(self, prompt: str, fault: str = "") -> str:
        """Let the demo model act with all permissions; return its answer."""
        rules = [part for rule in ("Write", "Edit", "Bash") for part in ("--allow", rule)]
        done = self.wick("run", "--model", "demo", *rules, prompt, fault=fault)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def start_again(self) -> bool:
        """Start Python and wick again; return True if a plant ran."""
        self._run([str(self.place / "bin/python"), "-c", "import copy, ntpath, pathlib"], self.folder)
        self.wick("run", "--model", "demo", "hello")
        return self.mark.exists()

    def _run(self, command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        home = self.mark.parent / "home"
        home.mkdir(exist_ok=True)
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "OLLAMA_HOST": "127.0.0.1:1"}
        return subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110
        )


def _environment(folder: Path, source: Path) -> Path:
    """An environment that has wick from a source folder, and the packages that these tests have."""
    place = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    (_packages(place) / "0_wick.pth").write_text(f"{PACKAGES}\n{source}\n")
    return place


def _packages(place: Path) -> Path:
    return next(place.glob("lib/python*/site-packages"))


def _install(place: Path, folder: Path, kind: Kind) -> None:
    mode = ["--config-settings", "editable_mode=compat"] if kind == "flat" else []
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", *mode]
    command += ["--python", str(place / "bin/python"), "--editable", str(folder)]
    environment = {**os.environ, "TMPDIR": str(place)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert done.returncode == 0, done.stderr
    finders = list(_packages(place).glob("__editable__*finder*"))
    assert bool(finders) == (kind == "finder"), finders


_installed: dict[Kind, Project] = {}


def _project(folders: pytest.TempPathFactory, kind: Kind) -> Project:
    """The project of a kind as it is when it was installed; each is installed once."""
    if kind not in _installed:
        folder = folders.mktemp(kind)
        place = _environment(folder, ROOT / "src")
        _installed[kind] = Project(folder / "project", place, folder / "project" / WHERE[kind], folder / "ran")
        _write(_installed[kind], kind)
        _install(place, folder / "project", kind)
    _write(_installed[kind], kind)
    return _installed[kind]


def _write(project: Project, kind: Kind) -> None:
    shutil.rmtree(project.folder, ignore_errors=True)
    project.mark.unlink(missing_ok=True)
    (project.imported / "hello").mkdir(parents=True)
    (project.imported / "hello/__init__.py").write_text(HOOK)
    (project.folder / "pyproject.toml").write_text(SETUP.replace("WHERE", WHERE[kind]))


FLAT = pytest.param("flat", marks=pytest.mark.long)


@pytest.fixture(params=["src", FLAT, "finder"])
def project(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Project:
    return _project(tmp_path_factory, request.param)


@pytest.fixture(params=["src", FLAT])
def on_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Project:
    return _project(tmp_path_factory, request.param)


@needs_bubblewrap
def test_the_source_of_an_editable_install_is_edited(project: Project) -> None:
    file = project.imported / "hello/__init__.py"
    name = file.relative_to(project.folder)
    assert "imported" not in project.ask(f'replace "old" with "new" in {name}')
    assert "WORD = 'new'" in file.read_text()
    project.ask(f"run `echo WORD = 1 > {name}; touch {name.parent}/more.py`")
    assert file.read_text() == "WORD = 1\n" and (file.parent / "more.py").exists()
    told = project.wick("run", "--model", "demo", "--verbose", "hello").stderr
    assert ("no module is imported from there" in told) == (not list(_packages(project.place).glob("*finder*")))


def _plant(tally: Tally, project: Project, names: list[str], fault: str = "") -> None:
    """Let an agent plant modules by a file tool and by a command, and start wick again."""
    where, code = project.imported.relative_to(project.folder), f"open({str(project.mark)!r}, 'a')"
    project.ask(f'write "{code}" to {where}/sitecustomize.py', fault)
    tally.check(not (project.imported / "sitecustomize.py").exists(), "a file tool wrote sitecustomize.py")
    (project.imported / "sitecustomize.py").unlink(missing_ok=True)
    paths = {name: where / PLANTS[name] for name in names}
    each = (
        f'mkdir -p {path.parent}; echo "{code}" > x; mv x {path}; echo "{code}" > {path}' for path in paths.values()
    )
    project.ask(f"run `{'; '.join(each)}`", fault)
    for name, path in paths.items():
        tally.check(not (project.folder / path).exists(), f"{name}: a command wrote it")
    tally.check(not project.start_again(), "a planted module was imported")


@needs_bubblewrap
def test_no_module_can_be_planted_for_interpreter_startup(on_path: Project) -> None:
    with Tally("S3", "modules of the start") as tally:
        _plant(tally, on_path, [*PLANTS])


@needs_bubblewrap
def test_an_unprotected_startup_module_is_detected(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        pytest.raises(Violated, match="was imported"),
        Tally("S3", "modules of the start, planted", planted=True) as tally,
    ):
        _plant(tally, _project(tmp_path_factory, "src"), ["sitecustomize", "a module of Windows"], UNPROTECTED)


async def test_no_file_tool_writes_a_module_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "other").symlink_to("src")
    monkeypatch.setattr(excluded, "entries", [str(tmp_path / "src"), str(tmp_path / "missing/src")])
    files = Local(tmp_path, **guard_editable(tmp_path, PROTECTED))  # type: ignore[arg-type]
    with Tally("S3", "modules of the start, file tools") as tally:
        await files.write("free.py", "x")
        for name in ("src/{}", "other/{}", "src/../src/{}", "missing/src/{}"):
            for path in (name.format(plant) for plant in PLANTS.values()):
                for do in (files.write(path, "x"), files.move("free.py", path)):
                    try:
                        await do
                        tally.check(False, f"{path} was written")
                    except BackendError as error:
                        tally.check(error.code in ("protected", "not_found"), f"{path}: {error}")
        for path in ("src/hello/sitecustomize.py", "deep/src/nt.py", "sitecustomize.py", "src/new.py"):
            await files.write(path, "x")


MOVES = {
    "a link": "mkdir other && echo CODE > other/sitecustomize.py && mv src old && ln -s other src",
    "another folder": "mkdir other && echo CODE > other/sitecustomize.py && mv src old && mv other src",
    "without moving": "mkdir other && echo CODE > other/sitecustomize.py && rm -rf src; ln -s other src",
}


def _move(tally: Tally, folders: pytest.TempPathFactory, fault: str = "") -> None:
    for name, script in MOVES.items():
        project = _project(folders, "src")
        code = f"\"open('{project.mark}', 'a')\""
        project.ask(f"run `{script.replace('CODE', code)}`", fault)
        tally.check(not project.start_again(), f"{name}: it was imported")
        if not project.imported.is_dir() or project.imported.is_symlink():
            return


@needs_bubblewrap
def test_the_folder_of_an_editable_install_cannot_be_moved(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Tally("S3", "moved editable installs") as tally:
        _move(tally, tmp_path_factory)


@needs_bubblewrap
def test_a_moved_folder_is_detected(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(Violated), Tally("S3", "moved editable installs, planted", planted=True) as tally:
        _move(tally, tmp_path_factory, UNPROTECTED)


def _shadow(tally: Tally, project: Project, fault: str = "") -> None:
    """Let an agent plant a plugin of pydantic and one of wick, which are found by package metadata."""
    where = project.imported.relative_to(project.folder)
    points = "[pydantic]\\nx = planted\\n[wick.models]\\nx = planted\\n"
    code = f"open('{project.mark}', 'a'); new_schema_validator = None"
    project.ask(
        f"run `cd {where}; mkdir x-1.dist-info; printf 'Name: x\\nVersion: 1\\n' > x-1.dist-info/METADATA; "
        f'printf "{points}" > x-1.dist-info/entry_points.txt; echo "{code}" > planted.py`',
        fault,
    )
    assert (project.imported / "planted.py").read_text().startswith("open(")
    project.wick("run", "--model", "demo", "hello", fault=fault)
    tally.check(not project.mark.exists(), "a plugin of pydantic was imported")
    project.wick("run", "--model", "x:y", "hello", fault=fault)
    tally.check(not project.mark.exists(), "a plugin of wick was imported")


@needs_bubblewrap
def test_no_optional_module_is_imported_from_a_workspace(on_path: Project) -> None:
    with Tally("S3", "optional modules") as tally:
        _shadow(tally, on_path)


@needs_bubblewrap
def test_an_imported_optional_module_is_detected(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(Violated), Tally("S3", "optional modules, planted", planted=True) as tally:
        _shadow(tally, _project(tmp_path_factory, "src"), ON_PATH)


def test_a_finder_leads_to_no_module_that_wick_imports(tmp_path_factory: pytest.TempPathFactory) -> None:
    """wick tries to import a module by the name of the project, which a finder maps into the workspace."""
    project = _project(tmp_path_factory, "finder")
    code = "try: import hello\nexcept ImportError: pass"
    (project.imported / "hello/__init__.py").write_text(f"open({str(project.mark)!r}, 'a')")
    with Tally("S3", "finders") as tally:
        project.wick("run", "--model", "demo", "hello", fault=code)
        tally.check(not project.mark.exists(), "the module was imported")
    with pytest.raises(Violated), Tally("S3", "finders, planted", planted=True) as tally:
        project.wick("run", "--model", "demo", "hello", fault=f"sys.meta_path += found[1]\n{code}")
        tally.check(not project.mark.exists(), "the module was imported")


def test_a_module_that_was_imported_from_a_workspace_is_refused(on_path: Project) -> None:
    (on_path.imported / "sitecustomize.py").touch()
    done = on_path.wick("run", "--model", "demo", "hello")
    assert done.returncode == 0 and "so the agent could change code" in done.stderr, done.stderr  # without a workspace


def test_a_configured_module_is_refused_inside_a_workspace_and_found_outside(project: Project) -> None:
    config = project.folder / "agents.yaml"
    text = "model: demo\nhooks: ['hello:hook']\nbackend: {type: local, workdir: WORKDIR}\n"
    config.write_text(text.replace("WORKDIR", "."))
    done = project.wick("run", "--agent", "agents.yaml", "hello")
    assert done.returncode != 0 and "the module of hello:hook" in done.stderr
    config.write_text(text.replace("WORKDIR", "../elsewhere"))
    done = project.wick("run", "--agent", "agents.yaml", "hello")
    assert done.returncode == 0, done.stderr


def test_a_module_of_one_editable_install_imports_that_of_another(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("two")
    shared = _project(tmp_path_factory, "src")
    project = Project(shared.folder, tmp_path / "environment", shared.imported, tmp_path / "ran")
    shutil.copytree(shared.place, project.place, symlinks=True)
    other = tmp_path / "other"
    (other / "src/helloer").mkdir(parents=True)
    (other / "src/helloer/__init__.py").write_text("from hello import hook\n")
    (other / "pyproject.toml").write_text(SETUP.replace("WHERE", "src").replace('"hello"', '"helloer"'))
    _install(project.place, other, "src")
    (tmp_path / "agents.yaml").write_text(
        "model: demo\nhooks: ['helloer:hook']\nbackend: {type: local, workdir: elsewhere}\n"
    )
    done = project.wick("run", "--agent", "agents.yaml", "hello", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (project.imported / "helloer.py").write_text(f"open({str(project.mark)!r}, 'a')")  # as an earlier agent could
    done = project.wick("run", "--agent", "agents.yaml", "hello", folder=tmp_path)
    assert done.returncode != 0 and "uninstall one of these projects" in done.stderr and not project.mark.exists()


# -- wick itself ------------------------------------------------------------------------------------------------------


def _checkout(folder: Path) -> Project:
    """A checkout of wick in which wick is installed editable, its environment inside."""
    project = folder / "checkout"
    skipped = shutil.ignore_patterns("__pycache__", "ui")
    shutil.copytree(ROOT / "src", project / "src", ignore=skipped)
    (project / "README.md").write_text("old\n")
    return Project(project, _environment(project, project / "src"), project / "src", folder / "ran")


def _change_wick(tally: Tally, project: Project, fault: str = "") -> None:
    file = project.imported / "wick/loop.py"
    before = file.read_text()
    for how in (
        'write "x = 1" to src/wick/loop.py',
        "run `echo x = 1 > src/wick/loop.py`",
        "run `mv src other; mkdir -p src/wick; echo x = 1 > src/wick/loop.py`",
        "run `touch src/sitecustomize.py src/new.py`",
    ):
        project.ask(how, fault)
        is_same = file.is_file() and file.read_text() == before and not (project.imported / "new.py").exists()
        tally.check(is_same, f"{how}: wick has changed")
        if not is_same:
            return


@needs_bubblewrap
def test_wick_works_in_its_own_checkout_and_does_not_change_itself(tmp_path: Path) -> None:
    project = _checkout(tmp_path)
    with Tally("S3", "wick in a workspace") as tally:
        _change_wick(tally, project)
    told = project.ask('replace "old" with "new" in README.md')
    assert told.count("wick is imported from") == 1
    assert (project.folder / "README.md").read_text() == "new\n"
    done = project.wick("run", "--model", "demo", "hello", folder=project.imported)
    assert "so the agent could change code" in done.stderr, done.stderr  # it runs without a workspace


@needs_bubblewrap
def test_an_unpinned_wick_is_detected(tmp_path: Path) -> None:
    with pytest.raises(Violated), Tally("S3", "wick in a workspace, planted", planted=True) as tally:
        _change_wick(tally, _checkout(tmp_path), UNPINNED)


# -- fixed folders ----------------------------------------------------------------------------------------------------


@needs_bubblewrap
@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
async def test_a_fixed_folder_is_written_and_not_moved(tmp_path: Path, sandbox: Literal["bubblewrap"]) -> None:
    (tmp_path / "a/src").mkdir(parents=True)
    (tmp_path / "a/src/.env").write_text("KEY=secret\n")
    before = [(tmp_path / path).stat().st_ino for path in ("a", "a/src")]
    backend = Local(tmp_path, sandbox=sandbox, fixed=["a/src"])
    done = await backend.execute("cat a/src/.env; mv a b; mv a/src b; rm -rf a/src; ln -s b a/src")
    if sandbox == "bubblewrap":  # the mount of the folder does not uncover hidden files
        assert "secret" not in done["stdout"]
    await backend.execute("echo x > a/src/file; echo y > a/other")
    assert (tmp_path / "a/src/file").read_text() == "x\n" and (tmp_path / "a/other").exists()
    assert [(tmp_path / path).lstat().st_ino for path in ("a", "a/src")] == before
    for path in ("a/src", "a"):
        with pytest.raises(BackendError, match="pinned"):
            await backend.move(path, "c")
        with pytest.raises(BackendError, match="pinned"):
            await backend.delete(path, recursive=True)
    await backend.write("a/src/file", "z")
    await backend.stop()
