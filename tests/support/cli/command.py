"""Runs the command `wick` as a process of its own, as people do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-W", "error", "-m", "wick.cli"]


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    code: int
    out: str
    err: str


class WickCommand:
    """The command, with a home and a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "project", folder / "home"
        self.folder.mkdir()
        self.home.mkdir()

    def __call__(self, *words: str, stdin: str | bytes = "", **environment: str) -> CommandResult:
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=self.folder,
            env=self.environment | environment,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "--verbose" in words or "Traceback" not in err, err
        return CommandResult(done.returncode, out, err)

    def start(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Begin it, and do not wait for its end."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            env=self.environment | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH")))),
            "PYTHONIOENCODING": "utf-8",
            "LANG": "C.UTF-8",
            "OLLAMA_HOST": "127.0.0.1:1",
        }

    def write(self, name: str, text: str, *, executable: bool = False) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if executable else 0o644)
        return path
