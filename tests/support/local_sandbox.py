"""A local backend for tests, and checks for leftovers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from wick.backends.local import Local
from wick.backends.sandbox import cgroups
from wick.errors import BackendError

PYTHON = "/usr/bin/python3"  # one that the sandbox sees
MB = 1_000_000
Make = Callable[..., Local]

needs_bubblewrap = pytest.mark.skipif(
    not shutil.which("bwrap"), reason="bubblewrap is not installed: apt-get install bubblewrap"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
async def local(folder: Path) -> AsyncIterator[Make]:
    """Backends over one folder, which are stopped at the end."""
    made: list[Local] = []

    def make(**options: Any) -> Local:
        made.append(Local(options.pop("path", folder), **{"sandbox": "bubblewrap", **options}))
        return made[-1]

    yield make
    for backend in made:
        await backend.stop()


async def run_successfully(backend: Local, command: str, **options: Any) -> str:
    """Return the output of a command that must succeed."""
    result = await backend.execute(command, **options)
    assert result["exit_code"] == 0 and not result["error"], result
    return result["stdout"]


async def assert_refused(code: str, doing: Any) -> str:
    with pytest.raises(BackendError) as caught:
        await doing
    assert caught.value.code == code, caught.value
    return str(caught.value)


def read_tree(folder: Path) -> dict[str, str]:
    """Return every path below a folder with its content."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else ""
        for path in sorted(folder.rglob("*"))
    }


def fill_folder(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def command_lines() -> str:
    return subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout


def is_running(path: str | Path) -> bool:
    return os.path.lexists(path)


def control_groups() -> set[str]:
    """Return the control groups of this process's commands; reusable ones are empty."""
    folders = {controller.folder for controller in cgroups.get_controllers().values()}
    found = {name for folder in folders for name in os.listdir(folder) if name.startswith(f"wick-{os.getpid()}-")}
    return found - {group.name for group in cgroups.list_idle_groups()}


async def wait_until_ended(text: str) -> None:
    """Wait until no process has this in its command line."""
    until = time.monotonic() + 20
    while text in (there := command_lines()):
        assert time.monotonic() < until, there
        await asyncio.sleep(0.02)


PROJECT = {
    "main.py": "print(1)\n",
    ".env": "KEY=secret\n",
    ".env.local": "KEY=secret\n",
    ".env.example": "KEY=\n",
    ".envrc": "export KEY=secret\n",
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/config": "[core]\n\tbare = false\n",
    ".git/hooks/pre-commit": "#!/bin/sh\n",
    ".wick/agents.yaml": "agents: {}\n",
    ".claude/settings.json": "{}\n",
    "packages/one/.env": "KEY=secret\n",
    "packages/one/.git/config": "[core]\n\tbare = false\n",
    "packages/one/.git/hooks/pre-commit": "#!/bin/sh\n",
    "packages/one/.claude/settings.json": "{}\n",
    "packages/.claude/.env": "KEY=secret\n",
    ".claude/.env": "KEY=secret\n",
}
