"""Builds the web interface into a wheel that would otherwise be without it: hatchling calls this when it builds.

A page that is there stays as it is, so what is made from an sdist needs no Node.js.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = Path("src", "wick", "server", "ui", "index.html")


class BuildPage(BuildHookInterface):  # type: ignore[type-arg]
    """Runs `make ui` where there is no page yet."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / PAGE).is_file():
            return
        # What it prints goes to stderr: a build tool reads the name of the wheel from stdout.
        done = subprocess.run(["make", "ui"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0 and (root / PAGE).is_file():
            return
        self.app.display_error(done.stdout.strip())
        self.app.display_warning("the web interface is not built: with this wheel, the server shows its small page")
