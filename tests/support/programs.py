"""Hook programs that tests write and run for real, and checks for leftover processes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from wick.capabilities.executables import Executables
from wickd_process import MARK, becomes_true, marked_processes

needs_node = pytest.mark.skipif(not shutil.which("node"), reason="Node is not installed: apt-get install nodejs")


class Programs:
    """A directory of hook programs; the input of each is stored beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "hooks"
        self.path.mkdir(parents=True, exist_ok=True)
        self.mark = uuid4().hex

    def write(self, name: str, text: str, path: Path | None = None) -> Path:
        file = (path or self.path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return file

    def sh(self, name: str, event: str, body: str = "cat >/dev/null", path: Path | None = None) -> Path:
        """Write a shell program for an event with this body."""
        query = event.replace("'", "'\\''")
        head = f"#!/bin/sh\nif [ \"$1\" = hook ]; then printf %s '{query}'; exit 0; fi\n"
        return self.write(name, f"{head}{body}\n", path)

    def recording(self, name: str, event: str, answer: str = "", path: Path | None = None) -> Path:
        """Write a shell program that stores its input in $told and prints an answer."""
        body = f"told=$(cat); printf '%s\\n' \"$told\" >> '{self.folder}/{Path(name).name}.told'\n{answer}"
        return self.sh(name, event, body, path)

    def replying(self, name: str, event: str, answer: Any) -> Path:
        return self.recording(name, event, f"cat <<'EOF'\n{json.dumps(answer)}\nEOF")

    def python(self, name: str, event: str, body: str) -> Path:
        """Write a Python program: `told` is its input, `answer` its output."""
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        text = f"""#!{sys.executable} -IS
import json, sys
if sys.argv[1] == "hook":
    print({event!r})
else:
    told, answer = json.load(sys.stdin), None
{lines}
    if answer is not None:
        print(json.dumps(answer))
"""
        return self.write(name, text)

    def node(self, name: str, event: str, body: str) -> Path:
        """Write a program for Node: `told` is its input, `answer` its output."""
        text = f"""#!/usr/bin/env node
if (process.argv[2] === "hook") {{ console.log({json.dumps(event)}); process.exit(0) }}
const told = JSON.parse(require("fs").readFileSync(0, "utf8"))
let answer
{body}
if (answer !== undefined) console.log(JSON.stringify(answer))
"""
        return self.write(name, text)

    def inputs(self, name: str) -> list[dict[str, Any]]:
        """Return the inputs of a program so far."""
        file = self.folder / f"{name}.told"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def executables(self, **options: Any) -> Executables:
        """Return the capability with these programs, marked so that leftover processes are found."""
        options = {"dirs": [self.path], "trust": self.folder / "trust.json", "env": {MARK: self.mark}} | options
        return Executables(**options)

    def remaining(self) -> list[int]:
        """The processes of these programs that are still there, though they had time to end."""
        becomes_true(lambda: not marked_processes(self.mark), 30)
        return marked_processes(self.mark)
