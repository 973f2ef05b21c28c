"""The build contains exactly the needed files and works with Python alone."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from server_process import ServerProcess
from wheel_install import ROOT, InstalledWheel, install, plain_programs
from wick.server.static_files import BUILT_PAGES

MOST_MB = 6.0
NOT_SHIPPED = re.compile(r"(^|/)(tests?|node_modules|__pycache__|\.git|\.venv|bench|ui/src)/|\.py[co]$|\.test\.|\.map$")


def build(source: Path, folder: Path, programs: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m build` with the programs of a plain machine."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *options, str(source)]
    environment = {**os.environ, "PATH": str(programs)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and the wheel that was made of it without Node.js."""
    if not (BUILT_PAGES / "index.html").is_file():
        pytest.skip("the interface is not built: make ui")
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, plain_programs(folder / "programs"))
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


# -- content ----------------------------------------------------------------------------------------------------------


def test_the_wheel_has_all_of_wick_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        shipped = {name for name in opened.namelist() if not name.endswith("/")}
    source = {path for path in (ROOT / "src" / "wick").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    wanted = {path.relative_to(ROOT / "src").as_posix() for path in source}
    assert {"wick/py.typed", "wick/server/ui/index.html", "wick/server/static/index.html"} <= wanted
    assert {f"wick/skills/{name}/SKILL.md" for name in ("slides", "research")} <= wanted
    assert wanted <= shipped
    assert {name.partition("/")[0] for name in shipped} == {"wick", "wick_launcher.py", "wick_agent-0.1.0.dist-info"}
    assert [name for name in shipped if NOT_SHIPPED.search(name)] == []


def test_the_sdist_contains_the_sources_of_the_wheel(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"src/wick/server/ui/index.html", "ui/package.json", "Makefile", "LICENSE", "README.md"} <= names
    assert [name for name in names if NOT_SHIPPED.search(name) and not name.startswith("ui/src/")] == []


def test_neither_is_large(dist: Path) -> None:
    sizes = {path.name: path.stat().st_size / 1e6 for path in dist.iterdir() if path.is_file()}
    print(", ".join(f"{name}: {size:.1f} MB" for name, size in sizes.items()))
    assert len(sizes) == 2
    assert max(sizes.values()) < MOST_MB


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        name = next(name for name in opened.namelist() if name.endswith("/METADATA"))
        return email.message_from_string(opened.read(name).decode())


def test_the_metadata_describes_wick(wheel: Path) -> None:
    told = metadata(wheel)
    assert (told["Name"], told["License-Expression"], told["License-File"]) == ("wick-agent", "MIT", "LICENSE")
    assert told["Requires-Python"] == ">=3.11"
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} <= {*told.get_all("Classifier", [])}
    addresses = dict(line.split(", ") for line in told.get_all("Project-URL", []))
    assert addresses.keys() == {"Repository", "Documentation", "Issues", "Changelog"}
    extras = {*told.get_all("Provides-Extra", [])}
    assert {"cli", "server", "postgres", "mcp", "local"} <= extras
    assert [need for need in told.get_all("Requires-Dist", []) if "@" in need] == [], "needs that no registry has"
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


# -- the page ---------------------------------------------------------------------------------------------------------


def source_without_page(folder: Path) -> Path:
    """The sources of a wheel, as in a fresh clone."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "Makefile", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    kept = shutil.ignore_patterns("node_modules", "__pycache__")
    shutil.copytree(ROOT / "ui", folder / "ui", ignore=kept)
    shutil.copytree(ROOT / "src", folder / "src", ignore=lambda at, names: {"ui", "__pycache__"} & {*names})
    return folder


def test_without_a_page_and_without_node_a_wheel_is_built_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    source = source_without_page(tmp_path / "source")
    programs = plain_programs(tmp_path / "programs")
    (programs / "make").symlink_to(str(shutil.which("make")))
    done = build(source, tmp_path / "dist", programs, "--wheel")
    assert "install Node.js" in done.stdout + done.stderr
    assert "the web interface is not built" in done.stdout + done.stderr
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as opened:
        assert not [name for name in opened.namelist() if name.startswith("wick/server/ui/")]


if os.environ.get("WICK_FULL"):  # npm and vite take their time

    @pytest.mark.timeout(600)
    def test_a_missing_page_is_built(tmp_path: Path) -> None:
        (tmp_path / "source").mkdir()
        source = source_without_page(tmp_path / "source")
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=580)
        assert done.returncode == 0, done.stdout + done.stderr
        with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as opened:
            assert "wick/server/ui/index.html" in opened.namelist()


# -- where there is only Python ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    """The wheel, without any extra."""
    return InstalledWheel(tmp_path_factory.mktemp("bare"), str(wheel))


@pytest.fixture(scope="module")
def with_server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return InstalledWheel(tmp_path_factory.mktemp("server"), f"{wheel}[server]")


def test_there_is_neither_node_nor_a_compiler(bare: InstalledWheel) -> None:
    for name in ("node", "npm", "cc", "gcc", "c++", "make", "cargo", "rustc"):
        assert shutil.which(name, path=bare.environment["PATH"]) is None


@pytest.mark.parametrize("words", [["--help"], ["run", "--model", "demo", "hi"], ["serve"], []])
def test_without_the_extra_the_command_names_the_extra(bare: InstalledWheel, words: list[str]) -> None:
    done = bare.run("wick", *words)
    assert done.returncode == 2
    assert done.stderr.endswith("install it with: pip install 'wick-agent[cli]'\n")
    assert "Traceback" not in done.stderr


def test_without_any_extra_agents_run(bare: InstalledWheel) -> None:
    code = "from wick import Agent; print(Agent('demo').run_sync('What can you do?').text)"
    done = bare.run("python", "-W", "error", "-c", code)
    assert done.returncode == 0 and "Offline demo model" in done.stdout, done.stderr


def test_with_the_extra_cli_the_server_names_its_own(wheel: Path, tmp_path: Path) -> None:
    found = InstalledWheel(tmp_path / "cli", f"{wheel}[cli]")
    done = found.run("wick", "run", "--model", "demo", "What can you do?")
    assert done.returncode == 0 and "Offline demo model" in done.stdout, done.stderr
    done = found.run("wick", "serve")
    assert done.returncode == 2 and "pip install 'wick-agent[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_of_an_error_adds_the_extra(wheel: Path, tmp_path: Path) -> None:
    """`pip install 'wick-agent[files]'` takes the installed wick, although it is in no index."""
    found = InstalledWheel(tmp_path / "core", str(wheel))
    assert found.run("python", "-c", "import re2").returncode == 1
    install(found.place, "wick-agent[files]")
    done = found.run("python", "-c", "import re2, wick; print(wick.__file__)")
    assert done.returncode == 0 and done.stdout.startswith(str(found.place)), done.stderr


ASKED = """
import sys
from urllib.request import urlopen
from wick.client import SyncClient
from wick.events import ChatModelStream

url, token = sys.argv[1:]
page = urlopen(url).read().decode()
script = page.partition('src="')[2].partition('"')[0].removeprefix(".")
print("page", '<div id="root">' in page, len(urlopen(url + script).read()) > 100_000)
with SyncClient(url, token) as client:
    stream = client.stream("default", "What can you do?")
    print("".join(event.delta for event in stream if isinstance(event, ChatModelStream) and event.kind == "text"))
    print([message.role for message in client.thread(stream.thread_id).messages])
"""


def test_the_server_works_with_its_page_and_a_client(with_server: InstalledWheel) -> None:
    data = with_server.folder / "data"
    command = [str(with_server.place / "bin" / "wick"), "serve", "--port", "0", "--data", str(data)]
    server = ServerProcess(with_server.folder, command, with_server.environment | {"PYTHONUNBUFFERED": "1"})
    try:
        server.start()
        token = (data / "token").read_text().strip()
        done = with_server.run("python", "-W", "error", "-c", ASKED, server.url, token)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("page True True\nOffline demo model")
        assert done.stdout.endswith("['user', 'assistant']\n")
        ticket = server.link.partition("#ticket=")[2]
        signed_in = with_server.run("curl", "--silent", "--include", "--json", f'{{"ticket": "{ticket}"}}',
                                    f"{server.url}/auth/session")  # fmt: skip
        assert " 200 " in signed_in.stdout.partition("\n")[0] and "set-cookie:" in signed_in.stdout.lower()
        assert server.stop() == 0
    finally:
        server.kill()
