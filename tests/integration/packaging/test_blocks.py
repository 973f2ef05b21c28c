"""Code blocks of the docs and the examples run and print the documented output."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import threading
import tomllib
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from queue import SimpleQueue
from types import FunctionType
from typing import Any

import pytest
import yaml

from doc_pages import CONTINUES, NOT_RUN, PAGES, ROOT, RUN, SERVED, Story, code_blocks, page_name, remove_keys, stories
from leak_checks import allow_leaks
from wick.config import load
from wick.evals import load_suite
from wick.models import scripted
from wick.server import Server
from wick.server.auth.access_table import ACCESS
from wick.server.settings import load_settings
from wick.testing import cassettes

__all__ = ["remove_keys"]  # a fixture that counts for every test here

ADDRESS = "http://127.0.0.1:8000"  # where pages say that a server is
TOKEN = "a-secret-that-is-long-enough"
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
# These run in processes of their own. Two change their environment or run themselves, two start the first server.
FRESH = ("01_hello", "13_workspace", "19_mcp", "23_client", "26_two_agents")


@pytest.mark.parametrize("story", [story for page in RUN for story in stories(page)], ids=str)
def test_the_code_of_a_page_runs(story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cassettes, "session", cassettes.CassetteSession())  # as outside of pytest
    names: dict[str, Any] = {"__name__": "__main__", "token": TOKEN}
    # The first server of a process makes things that stay.
    with allow_leaks(), _server(tmp_path / "data") if story.served else nullcontext(ADDRESS) as url:
        for block in story.blocks:
            padding = "\n" * (block.line - 1)  # so that a traceback names the line of the page
            code = padding + block.code.replace(ADDRESS, url)
            printed = StringIO()
            with redirect_stdout(printed):
                _run(compile(code, story.page, "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True), names)
            if block.output is not None:
                assert _lines(printed.getvalue()) == _lines(block.output), f"{page_name(story.page)}, line {block.line}"


def _run(block: Any, names: dict[str, Any]) -> None:
    """Run a block; one that awaits something, as in a notebook, in an event loop."""
    if block.co_flags & inspect.CO_COROUTINE:
        asyncio.run(FunctionType(block, names)())
    else:
        exec(block, names)


@contextmanager
def _server(data: Path) -> Iterator[str]:
    """A server with the demo model, as `wick serve` starts one, and its address."""
    server = Server(port=0, data=str(data), token=TOKEN).register_agent("default", {"model": "demo"})
    said = SimpleQueue[str]()
    serving = threading.Thread(target=lambda: server.start(tell=said.put))
    serving.start()
    try:
        yield said.get(timeout=60).split()[-1]
    finally:
        server.shutdown()
        serving.join(60)


@pytest.mark.parametrize(
    ("page", "line", "body"),
    [(page, line, body) for page in RUN for about, line, _, body in code_blocks(page, "sh") if not about],
    ids=lambda value: page_name(value) if isinstance(value, Path) else str(value)[:8],
)
def test_the_commands_of_a_page_run(page: Path, line: int, body: str, tmp_path: Path) -> None:
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": programs, "HOME": str(tmp_path)}
    project = tmp_path / "project"
    project.mkdir()
    done = subprocess.run(["bash", "-eu", "-c", body], cwd=project, env=environment, timeout=60,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, f"{page_name(page)}, line {line}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", RUN, ids=page_name)
def test_files_that_a_page_shows_can_be_read(page: Path, tmp_path: Path) -> None:
    for about, line, language, body in code_blocks(page, "yaml", "json", "ini", "toml"):
        if not about.startswith(NOT_RUN):
            _read(language, body, tmp_path, f"{page_name(page)}, line {line}")


def _read(language: str, body: str, folder: Path, where: str) -> None:
    named = re.match(r"# (?:\S*/)?(\S+)\n", body)
    if language == "yaml":
        assert named, f"{where}: the first line of a YAML block names its file: # agents.yaml"
        path = folder / named[1]
        path.write_text(body, encoding="utf-8")
        variables = {name: "demo" if name.endswith("MODEL") else "value" for name in re.findall(r"\$\{(\w+)", body)}
        readers = {
            "agents.yaml": lambda: load(path, environment=variables).agents,
            "server.yaml": lambda: load_settings({"data": str(folder)}, environment={}, file=path),
            "suite.yaml": lambda: load_suite(path).cases,
            "compose.yaml": lambda: yaml.safe_load(body)["services"],
            "kubernetes.yaml": lambda: _read_manifests(body, folder),
        }
        assert readers[named[1]](), where
    elif language == "json":
        assert json.loads(body), where
    elif language == "toml":
        assert tomllib.loads(body), where
    else:
        parser = ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read_string(body)
        assert parser.sections(), where


def _read_manifests(body: str, folder: Path) -> dict[str, Any]:
    """Return the objects of Kubernetes manifests by kind, after reading wick's own files among them."""
    found = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(body)}
    assert all(manifest["apiVersion"] and manifest["metadata"]["name"] for manifest in found.values())
    files = found["ConfigMap"]["data"]
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    load(folder / "agents.yaml", environment={"ANTHROPIC_API_KEY": "value"})
    settings = load_settings({"data": str(folder)}, environment={}, file=folder / "server.yaml")
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {Path(word).name for word in container["args"] if "/" in word} == set(files)
    health = container["startupProbe"]["httpGet"]
    assert health["path"] in {path for _, path, _ in ACCESS}
    assert health["httpHeaders"][0]["value"] in settings.allowed_hosts
    return found


def test_requests_on_a_page_match_the_api() -> None:
    """`POST /replay {…}` is a route of the server with a JSON body."""
    shown = re.findall(
        r"^(GET|POST|PUT|PATCH|DELETE) +(/\S+)((?: +|\n +)\{.*?\})?(?=  |$|\n)", _requests(), re.M | re.S
    )
    assert len(shown) > 5
    for method, path, body in shown:
        patterns = [re.sub(r"\{\w+\}", "[^/]+", known) for verb, known, _ in ACCESS if verb == method]
        assert any(re.fullmatch(pattern, path.partition("?")[0]) for pattern in patterns), f"{method} {path}"
        assert not body or _is_json(body), f"{method} {path} {body}"


def _requests() -> str:
    return "\n".join(body for page in PAGES for _, _, _, body in code_blocks(page, "text"))


def _is_json(text: str) -> bool:
    try:
        json.JSONDecoder().raw_decode(text.strip())
    except ValueError:
        return False
    return True


def test_skipped_blocks_state_a_reason() -> None:
    """All code blocks are run or parsed; these few are skipped, with a reason before them."""
    said = {CONTINUES, SERVED, ""}
    odd = [f"{page_name(page)}, line {line}: {about}" for page in RUN for about, line, _, _ in code_blocks(page)
           if about not in said and not re.match(rf"{NOT_RUN}\w.{{5,}}", about)]  # fmt: skip
    assert not odd, "\n".join(odd)
    skipped = [(page, about) for page in RUN for about, _, _, _ in code_blocks(page) if about.startswith(NOT_RUN)]
    for page in RUN:
        for _, line, _, body in code_blocks(page, "python"):
            compile("\n" * (line - 1) + body, page, "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    theirs = [about for page, about in skipped if page.parent.name == "coming-from"]
    assert len(skipped) - len(theirs) <= 15, "run it, or say more in prose"


def _lines(text: str) -> list[str]:
    """Spaces at the end of a line do not show, and editors remove them."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_every_fence_language_is_known() -> None:
    """A misspelt language would be unchecked code."""
    known = {"", "python", "text", "text output", "sh", "toml", "yaml", "json", "ini", "tsx", "html"}
    odd = [f"{page_name(page)}: {language!r}" for page in RUN for _, _, language, _ in code_blocks(page)
           if language not in known]  # fmt: skip
    assert not odd, "\n".join(odd)


# -- examples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=page_name)
def test_an_example_prints_the_documented_output(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = path.read_text(encoding="utf-8").partition("\n# prints:\n")[2]
    expected = [line.removeprefix("#").removeprefix(" ") for line in said.splitlines()]
    if path.stem in FRESH:
        printed = _run_in_process(path, tmp_path)
    else:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(scripted, "watched", None)  # as outside of pytest
        with redirect_stdout(StringIO()) as output:
            runpy.run_path(str(path), run_name="__main__")
        printed = output.getvalue()
    assert expected, "the example ends with a comment `# prints:` and what it prints"
    assert _lines(printed) == _lines("\n".join(expected))


def _run_in_process(path: Path, folder: Path) -> str:
    """Return the output of a program in a process of its own, where a warning is an error."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-W", "error", str(path)], cwd=folder, env=environment,
                          capture_output=True, encoding="utf-8", timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=page_name)
def test_an_example_is_short_and_listed(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert f"({path.name})" in (path.parent / "README.md").read_text(encoding="utf-8")


def test_the_first_example_is_there() -> None:
    assert EXAMPLES[0].name == "01_hello.py"
