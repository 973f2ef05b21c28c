"""What find and stat print of a tree in a container, and the walk over it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from wick.backends.containers.shell_protocol import Place
from wick.workspace.rooted_folder import file_type
from wick.workspace.walk import LINK, FileWalk, WalkBudget

RECORD = re.compile(rb"([0-9a-f]+) (\d+) \./", re.DOTALL)


def records(said: bytes) -> Iterator[tuple[str, int, int]]:
    """What find and stat printed: no path has two slashes in a row, so those end one."""
    for record in said.split(b"//\n")[:-1]:  # the last one is empty, or was cut
        if found := RECORD.match(record):
            yield os.fsdecode(record[found.end() :]), int(found[1], 16), int(found[2])


@dataclass(frozen=True, slots=True)
class Tree:
    """A listing of everything beneath a folder, and the ignore files that count there."""

    start: tuple[str, ...]
    found: list[tuple[tuple[str, ...], int]]
    rules: dict[str, str]
    cut: bool
    file: Place | None = None  # what there is instead of a folder

    def folders(self) -> dict[str, list[str]]:
        """For each folder its entries, marked as a walk wants them: `/` ends a folder, NUL a link."""
        inside = dict[str, list[str]]()
        for names, mode in self.found:
            mark = {"dir": "/", "link": LINK, "file": ""}.get(file_type(mode))
            if mark is not None:
                inside.setdefault("".join(f"{name}/" for name in names[:-1]), []).append(names[-1] + mark)
        return inside


class TreeWalk(FileWalk):
    """The walk of a workspace, over a listing."""

    def __init__(self, tree: Tree, budget: WalkBudget, *, everything: bool) -> None:
        super().__init__(budget, everything=everything)
        self._folders, self._texts = tree.folders(), tree.rules

    def entries(self, prefix: str) -> list[str]:
        return sorted(name for name in self._folders.get(prefix, []) if self.budget.take_entry())

    def ignore_text(self, prefix: str) -> str:
        return self._texts.get(f"{prefix}.gitignore", "")
