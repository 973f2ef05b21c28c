"""S3: a workspace never contains code or configuration of the process that serves it.

Code that the process imports, runs or trusts is refused with a sentence; plain files that it reads again are pinned:
no file tool and no command changes them, whatever name or link leads there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.tally import Tally, Violated
from local_sandbox import needs_bubblewrap
from wick.backends.local import Local
from wick.config import Config, load
from wick.config.process_files import ProcessFiles, pin_files
from wick.errors import BackendError, ConfigError
from wick.server.agents.config_watcher import ConfigWatcher
from wick.server.agents.overrides import Overrides
from wick.server.agents.templates import templates_from_config
from wick.server.agents.workspaces import Workspaces, private_files
from wick.server.auth.identity import User
from wick.server.service import Service
from wick.server.settings import Settings

HOOK = "from wick import Run, before\n@before(Run)\ndef hook(run): pass\n"
PLAIN = "model: demo\nbackend: {type: local, workdir: WORKDIR}\n"

# Names in agents.yaml and the files they need: each is code of the process inside the workspace.
CODE: dict[str, tuple[str, dict[str, str]]] = {
    "a hook": ("hooks: ['mine_a:hook']\n", {"mine_a.py": HOOK}),
    "a hook with options": ("hooks: [{'mine_b:Hook': {}}]\n", {"mine_b.py": HOOK}),
    "a package": ("hooks: ['mine_c.inner:hook']\n", {"mine_c/__init__.py": "", "mine_c/inner.py": HOOK}),
    "a namespace": ("hooks: ['mine_d.inner:hook']\n", {"mine_d/inner.py": HOOK}),
    "a tool": ("tools: ['mine_e:add']\n", {"mine_e.py": "def add(a: int) -> int:\n    return a\n"}),
    "a subagent's hook": (
        "subagents: {agents: {x: {description: d, prompt: p, hooks: ['mine_f:hook']}}}\n",
        {"mine_f.py": HOOK},
    ),
    "a handler of recipes": ("recipes: {handlers: {x: 'mine_g:hook'}}\n", {"mine_g.py": HOOK}),
    "a folder of programs": ("executables: {dirs: [programs]}\n", {"programs/x": "#!/bin/sh\n"}),
    "a folder of programs with a prefix": ("executables: {dirs: [{dir: programs}]}\n", {"programs/x": "#!/bin/sh\n"}),
    "settings": ("executables: {claude: [s.json]}\n", {"s.json": "{}"}),
    "trust": ("executables: {trust: trust.json}\n", {"trust.json": "{}"}),
    "a command": (
        "hooks: {PreToolUse: [{hooks: [{type: command, command: './check.sh'}]}]}\n",
        {"check.sh": "#!/bin/sh\n"},
    ),
    "a command that is not there yet": (
        "hooks: {PreToolUse: [{hooks: [{type: command, command: 'python3 tools/check.py'}]}]}\n",
        {},
    ),
    "an MCP server": ("mcp: {servers: {x: {command: FOLDER/serve}}}\n", {"serve": "#!/bin/sh\n"}),
    "a script of an MCP server": ("mcp: {servers: {x: {command: python3, args: [FOLDER/s.py]}}}\n", {"s.py": ""}),
    "the folder of an MCP server": ("mcp: {servers: {x: {command: npx, cwd: FOLDER}}}\n", {}),
    "the store": ("sessions: {store: kept}\n", {"kept/x": ""}),
}

# Ways to change agents.yaml by file tools; each names the pinned file, or something that leads to it.
TOOLS: dict[str, Callable[[Local], Any]] = {
    "write": lambda files: files.write("conf/agents.yaml", "x"),
    "write in another case": lambda files: files.write("CONF/Agents.YAML", "x"),
    "write by dots": lambda files: files.write("conf/../conf/./agents.yaml", "x"),
    "write by its whole path": lambda files: files.write(f"{files.workdir}/conf/agents.yaml", "x"),
    "write by a link": lambda files: files.write("link.yaml", "x"),
    "write by a link to the folder": lambda files: files.write("folder/agents.yaml", "x"),
    "edit": lambda files: files.edit("conf/agents.yaml", "demo", "x"),
    "delete": lambda files: files.delete("conf/agents.yaml"),
    "delete the folder": lambda files: files.delete("conf", recursive=True),
    "move": lambda files: files.move("conf/agents.yaml", "other.yaml"),
    "move the folder": lambda files: files.move("conf", "conf-2"),
    "move over it": lambda files: files.move("other.txt", "conf/agents.yaml"),
}
COMMANDS = {
    "write": "echo x > conf/agents.yaml",
    "append": "echo x >> conf/agents.yaml",
    "delete": "rm -f conf/agents.yaml",
    "replace": "echo x > new; mv -f new conf/agents.yaml",
    "move the folder": "mv conf conf-2 && mkdir conf && echo x > conf/agents.yaml",
    "delete the folder": "rm -rf conf; mkdir -p conf; echo x > conf/agents.yaml",
    "a hard link": "ln conf/agents.yaml hard && echo x > hard",
    "a link": "ln -sf conf/agents.yaml soft && echo x > soft",
    "the mode": "chmod 666 conf/agents.yaml && echo x > conf/agents.yaml",
    "truncate": "truncate -s 0 conf/agents.yaml",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ws/conf").mkdir(parents=True)
    (tmp_path / "ws/other.txt").write_text("other\n")
    (tmp_path / "ws/conf/agents.yaml").write_text(PLAIN.replace("WORKDIR", ".."))
    (tmp_path / "ws/link.yaml").symlink_to("conf/agents.yaml")
    (tmp_path / "ws/folder").symlink_to("conf")
    return tmp_path / "ws"


def _written(folder: Path, text: str, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    config = folder / "agents.yaml"
    config.write_text(PLAIN.replace("WORKDIR", ".") + text.replace("FOLDER", str(folder)))
    return config


def _is_refused(config: Path) -> bool:
    part = next(iter(load(config).agents.values()))
    try:
        part.agent()
    except ConfigError as error:
        return "workspace" in str(error) and "workdir" in str(error)
    finally:
        for begun in part.resources:
            asyncio.run(_ended(begun))
    return False


async def _ended(part: Any) -> None:
    if end := getattr(part, "close", None) or getattr(part, "stop", None):
        await end()


def _modules() -> Iterator[str]:
    return (name for name in [*sys.modules] if name.startswith("mine_"))


def test_an_agent_is_refused_if_its_workspace_contains_its_code(tmp_path: Path) -> None:
    with Tally("S3", "code in a workspace") as tally:
        for number, (name, (text, files)) in enumerate(CODE.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            tally.check(_is_refused(_written(folder, text, files)), f"{name}: not refused")
            tally.check(not [*_modules()], f"{name}: it was imported")


def test_missing_code_check_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.config.builder.pin_config", lambda *args, **options: [])
    monkeypatch.setattr("wick.config.builder.pin_files", lambda *args, **options: [])
    monkeypatch.setattr("wick.config.builder.check_loaded", lambda workspace: None)
    text, files = CODE["a hook"]
    try:
        with pytest.raises(Violated), Tally("S3", "code in a workspace, planted", planted=True) as tally:
            tally.check(_is_refused(_written(tmp_path, text, files)), "a hook: not refused")
    finally:
        sys.modules.pop("mine_a", None)


def test_plain_config_beside_its_modules_is_fine(tmp_path: Path) -> None:
    """Modules outside of the workspace are used; plain files inside are pinned."""
    for number, (text, files) in enumerate([*CODE.values()][:1]):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = _written(folder, text, files)
        config.write_text(config.read_text().replace("workdir: .", "workdir: ./workspace"))
        try:
            assert next(iter(load(config).agents.values())).agent()
        finally:
            sys.modules.pop("mine_a", None)
    config = _written(tmp_path, "recipes: {dirs: [recipes]}\n", {"recipes/a.md": "---\nname: a\n---\nx\n"})
    part = next(iter(load(config).agents.values()))
    assert part.agent()
    assert part.resources[0]._pinned == ("agents.yaml", "recipes")


async def _changed(tally: Tally, folder: Path, **options: Any) -> None:
    config, backend = folder / "conf/agents.yaml", Local(folder, **options)
    before = config.read_text()

    def check(name: str) -> None:
        tally.check(config.is_file() and config.read_text() == before, f"{name}: the config changed")
        if not config.is_file() or config.read_text() != before:
            shutil.rmtree(folder / "conf", ignore_errors=True)
            (folder / "conf").mkdir()
            config.write_text(before)

    for name, do in TOOLS.items():
        try:
            await do(backend)
        except BackendError as error:
            tally.check(error.code in ("protected", "not_found"), f"{name}: {error}")
        check(f"tool {name}")
    for name, command in COMMANDS.items():
        await backend.execute(command)
        check(f"command {name}")
        job = await backend.background(command)
        while any(one["running"] for one in await backend.jobs() if one["id"] == job["id"]):
            await asyncio.sleep(0.02)
        check(f"job {name}")
    await backend.stop()


@needs_bubblewrap
@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
async def test_workspace_files_cannot_change_pinned_code(folder: Path, sandbox: str) -> None:
    pinned = pin_files(folder, ProcessFiles(config={str(folder / "conf/agents.yaml"): "the config"}))
    with Tally("S3", f"pinned files, {sandbox}") as tally:
        await _changed(tally, folder, sandbox=sandbox, pinned=pinned)


@needs_bubblewrap
async def test_an_unpinned_file_is_detected(folder: Path) -> None:
    with pytest.raises(Violated), Tally("S3", "pinned files, planted", planted=True) as tally:
        await _changed(tally, folder, sandbox="bubblewrap")


def test_links_and_second_names_are_refused(folder: Path, tmp_path: Path) -> None:
    real = folder / "conf/agents.yaml"
    for name in ("link.yaml", "folder/agents.yaml"):
        with pytest.raises(ConfigError, match="real path"):
            pin_files(folder, ProcessFiles(config={str(folder / name): "the config"}))
    (tmp_path / "outside.yaml").symlink_to(real)
    with pytest.raises(ConfigError, match="real path"):
        (folder / "in.yaml").symlink_to(tmp_path / "outside.yaml")
        pin_files(folder, ProcessFiles(config={str(folder / "in.yaml"): "the config"}))
    assert pin_files(folder, ProcessFiles(config={str(tmp_path / "outside.yaml"): "the config"})) == [
        "conf/agents.yaml"
    ]
    os.link(real, folder / "second")
    with pytest.raises(ConfigError, match="second name"):
        pin_files(folder, ProcessFiles(config={str(real): "the config"}))


@pytest.mark.parametrize("within", ["data", "data/workspaces", ".venv", "static", "server.yaml", "keys.json"])
def test_server_files_are_refused_as_workspace(folder: Path, within: str) -> None:
    named = {"static": "the page", "server.yaml": "settings", "keys.json": "keys", ".venv": "an environment"}
    others = [(folder / name, what) for name, what in named.items()]
    (folder / within).mkdir(parents=True)
    files = private_files(folder / "data", *others)
    wanted = {path: what for path, what in files.code.items() if path == str(folder / within)}
    with pytest.raises(ConfigError, match="move that out of the workspace"):
        pin_files(folder, ProcessFiles(wanted))


def test_a_folder_that_python_imports_from_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = folder / "conf/agents.yaml"
    monkeypatch.syspath_prepend(str(folder / "conf"))
    with pytest.raises(ConfigError, match="imports modules from"):
        next(iter(load(config).agents.values())).agent()


def test_the_environment_of_wick_is_pinned_as_a_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = folder / ".venv/lib/site-packages"
    packages.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(folder / ".venv"))
    monkeypatch.syspath_prepend(str(packages))
    assert pin_files(folder, ProcessFiles()) == [".venv"]
    with pytest.raises(ConfigError, match="Python"):
        pin_files(folder / ".venv", ProcessFiles())
    with pytest.raises(ConfigError, match="Python"):
        pin_files(packages, ProcessFiles())


async def test_a_config_that_was_replaced_is_not_taken(folder: Path) -> None:
    config = folder / "conf/agents.yaml"
    watched = ConfigWatcher(config, lambda found: True)
    await watched.read()
    config.write_text(config.read_text() + "name: same file\n")
    assert next(iter((await watched.read()).agents.values())).name == "same file"
    (folder / "new").write_text(config.read_text())
    (folder / "new").rename(config)
    with pytest.raises(ConfigError, match="was replaced by another file"):
        await watched.read()


@pytest.fixture
async def service(folder: Path, tmp_path: Path) -> AsyncIterator[Service]:
    """A server whose config is in the workspace of its agent."""
    made = Service(Settings(data=tmp_path / "data", config=folder / "conf/agents.yaml"))
    yield made
    await made.stop()


async def test_a_server_refuses_code_in_a_workspace_at_start_at_reload_and_over_http(
    folder: Path, tmp_path: Path, service: Service
) -> None:
    config, user = folder / "conf/agents.yaml", User("root", "root", "admin")
    plain = config.read_text()
    (folder / "conf/mine_h.py").write_text(HOOK)
    config.write_text(plain + "hooks: ['mine_h:hook']\n")
    with pytest.raises(ConfigError, match="the module of mine_h:hook"):
        await service.registry.start()
    config.write_text(plain)
    await service.registry.start()
    watched = service.registry._watcher
    assert watched is not None
    config.write_text(plain + "hooks: ['mine_h:hook']\n")
    with pytest.raises(ConfigError, match="the module of mine_h:hook"):
        await watched.read()
    assert not [*_modules()]
    for workdir in (tmp_path, tmp_path / "data", tmp_path / "data/workspaces"):
        workdir.mkdir(parents=True, exist_ok=True)
        options = {"model": "demo", "backend": {"type": "local", "workdir": str(workdir)}}
        with pytest.raises(ConfigError, match="move that out of the workspace"):
            await service.registry.create(user, "posted", options, shared=False)
    options = {"model": "demo", "backend": {"type": "local", "workdir": str(folder)}}
    made = await service.registry.create(user, "posted", options, shared=False)
    wanted = service.registry.workspaces.backend_options(made, Overrides(), user.id)
    assert wanted is not None and wanted["pinned"] == ["conf/agents.yaml"]


def test_the_code_of_one_agent_is_not_in_the_workspace_of_another(tmp_path: Path) -> None:
    (tmp_path / "mine_i.py").write_text(HOOK)
    (tmp_path / "agents.yaml").write_text(
        "agents:\n  one: {model: demo, hooks: ['mine_i:hook']}\n"
        "  two: {model: demo, backend: {type: local, workdir: .}}\n"
    )
    with pytest.raises(ConfigError, match="the module of mine_i:hook"):
        load(tmp_path / "agents.yaml").agent("two")
    config = Config(tmp_path / "agents.yaml", load(tmp_path / "agents.yaml").agents["one"].file.source)
    places = Workspaces(tmp_path.parent / "data", None)  # type: ignore[arg-type]
    templates = templates_from_config(config)
    places.collect_files(templates.values())
    with pytest.raises(ConfigError, match="the module of mine_i:hook"):
        places.check(templates["two"])


@pytest.mark.parametrize(
    ("workdir", "hook", "plain"),
    [
        ("pack_a/sub", "pack_a.sub.mine:hook", False),
        ("pack_b/sub", "pack_b.sub.mine:hook", True),  # without __init__.py
        ("pack_c/sub", "pack_c.outer:hook", False),  # which imports it
    ],
)
def test_a_workspace_does_not_hold_a_part_of_a_package(tmp_path: Path, workdir: str, hook: str, plain: bool) -> None:
    _write_package(tmp_path, workdir, hook, plain)
    with pytest.raises(ConfigError, match=r"holds the module (of )?pack_.*move that out of the workspace"):
        load(tmp_path / "agents.yaml").agent()


def test_an_unchecked_package_part_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_package(tmp_path, "pack_d/sub", "pack_d.outer:hook", False)
    monkeypatch.setattr("wick.config.builder.check_loaded", lambda workspace: None)
    assert load(tmp_path / "agents.yaml").agent()
    _write_package(tmp_path, "pack_e/sub", "pack_e.sub.mine:hook", False)
    for module in ("config.builder", "config.files"):
        monkeypatch.setattr(f"wick.{module}.find_packages", lambda name, folder: [])
    assert load(tmp_path / "agents.yaml").agent()


def _write_package(folder: Path, workdir: str, hook: str, plain: bool) -> None:
    inner = folder / workdir
    inner.mkdir(parents=True)
    (inner / "mine.py").write_text(HOOK)
    (inner.parent / "outer.py").write_text("from .sub.mine import hook\n")
    for package in () if plain else (inner, inner.parent):
        (package / "__init__.py").touch()
    (folder / "agents.yaml").write_text(
        f"model: demo\nbackend: {{type: local, workdir: {workdir}}}\nhooks: ['{hook}']\n"
    )
