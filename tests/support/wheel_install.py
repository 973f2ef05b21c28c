"""wick as people get it: a wheel, installed into a fresh environment, with neither Node.js nor a compiler at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# Programs of a plain machine: no Node.js, no compiler, and no other Python.
PROGRAMS = """
    sh bash dash awk cat chmod cp curl cut date dirname env false find git grep head id kill ln ls mkdir mktemp mv od
    printf ps pwd readlink rm rmdir sed seq sleep sort tail tar tee test touch tr true uname uniq wc xargs bwrap
""".split()


def build_wheel(folder: Path) -> Path:
    """The wheel of this source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def plain_programs(folder: Path) -> Path:
    """A folder for the PATH with the programs of a plain machine, and no others."""
    folder.mkdir()
    for name in PROGRAMS:
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return folder


class InstalledWheel:
    """A fresh environment that something was installed in, with a home and a folder of its own."""

    def __init__(self, folder: Path, *packages: str) -> None:
        self.folder, self.home, self.place = folder / "project", folder / "home", folder / "environment"
        self.folder.mkdir(parents=True)
        self.home.mkdir()
        self._programs = plain_programs(folder / "programs")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.place], check=True, timeout=60)
        install(self.place, *packages)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.place / 'bin'}{os.pathsep}{self._programs}",
            "LANG": "C.UTF-8",
            "OLLAMA_HOST": "127.0.0.1:1",  # no owner
        }

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end."""
        program = shutil.which(command[0], path=self.environment["PATH"])
        assert program, f"there is no {command[0]}"
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )


def install(place: Path, *packages: str) -> None:
    """Install from the registry: with uv, in a tenth of pip's time; with pip where uv finds no registry."""
    python = str(place / "bin" / "python")
    fast = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, *packages]
    done = subprocess.run(fast, capture_output=True, text=True, timeout=300, env=_without_environment())
    if done.returncode == 0:
        return
    sure = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *packages]
    again = subprocess.run(sure, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, done.stderr + again.stderr


def _without_environment() -> Mapping[str, str]:
    """uv would take the environment that is active for the one that is meant."""
    return {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}


def wheelhouse(folder: Path, *packages: str) -> Path:
    """A folder with the wheels of everything that these packages need here, so that an install needs no registry.

    uv says which they are, in a tenth of pip's time; pip does both where uv finds no registry.
    """
    (folder / "needs.txt").write_text("\n".join(packages))
    lock = folder / "pylock.toml"
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--format", "pylock.toml", "--output-file"]
    command += [str(lock), "--only-binary", ":all:", "--python", sys.executable, str(folder / "needs.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=_without_environment())
    house = folder / "wheelhouse"
    if done.returncode == 0:
        (folder / "wheels.txt").write_text("\n".join(_wheel_urls(tomllib.loads(lock.read_text()))))
        found = ["download", "--no-deps", "--dest", str(house), "--requirement", str(folder / "wheels.txt")]
    else:
        found = ["wheel", "--wheel-dir", str(house), *packages]
    again = subprocess.run([sys.executable, "-m", "pip", *found], capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, done.stderr + again.stderr
    return house


def _wheel_urls(lock: Mapping[str, Any]) -> Iterator[str]:
    """The addresses of wheels with their hashes; the first of a package is the one that fits best."""
    for package in lock["packages"]:
        if wheels := package.get("wheels"):
            yield f"{wheels[0]['url']} --hash=sha256:{wheels[0]['hashes']['sha256']}"
