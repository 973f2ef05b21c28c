"""The walk over the files beneath a folder: in order, within a budget, without what is left out.

DiskWalk(tree, Budget()).files("src", Glob("**/*.py"))
Rules(read).left_out("build/a.o")               for those who do not walk
"""

from __future__ import annotations

import errno
import os
import time
from typing import Callable, Iterator, NamedTuple

from wick.constants import GREP_BYTES, IGNORE_BYTES, WALK_ENTRIES, WALK_SECONDS
from wick.workspace.globs import HEAVY, Glob, IgnoreRules, States, parse_ignore_file
from wick.workspace.rooted_folder import RootedFolder


class IgnoreLookup:
    """What is left out of a tree, for those who do not walk it. `read` gives a folder's .gitignore, "" if none."""

    def __init__(self, read: Callable[[str], str], *, everything: bool = False) -> None:
        self._read, self._everything = read, everything
        self._known: dict[str, IgnoreRules | None] = {}

    def is_ignored(self, path: str, start: str = "") -> bool:
        """Whether a file is left out of a search that begins in a folder."""
        if self._everything:
            return False
        parts = path.split("/")
        first = start.count("/") + 1 if start else 0
        return any(
            self._is_part_ignored(parts[:depth], depth < len(parts)) for depth in range(first + 1, len(parts) + 1)
        )

    def _is_part_ignored(self, parts: list[str], folder: bool) -> bool:
        if folder and parts[-1] in HEAVY:
            return True
        rules = self._rules_for(parts[:-1])
        return rules is not None and rules.is_ignored("/".join(parts), parts[-1], folder)

    def _rules_for(self, parts: list[str]) -> IgnoreRules | None:
        folder = "/".join(parts)
        if folder not in self._known:
            above = self._rules_for(parts[:-1]) if parts else None
            self._known[folder] = parse_ignore_file(folder, self._read(folder), above)
        return self._known[folder]


class WalkBudget:
    """How much may be looked at. `spent` once there is more than was looked at; `over` when it is time to stop."""

    def __init__(
        self, entries: int = WALK_ENTRIES, seconds: float = WALK_SECONDS, most_bytes: int = GREP_BYTES
    ) -> None:
        self._entries, self._bytes, self._until = entries, most_bytes, time.monotonic() + seconds
        self.spent = self.over = False

    def take_entry(self) -> bool:
        """Look at one more file or folder; False if there is nothing left for it."""
        self._entries -= 1
        if self._entries % 64 == 0:
            self._stop_if(time.monotonic() > self._until)
        self.spent = self.spent or self._entries < 0
        return self._entries >= 0 and not self.over

    def take_bytes(self, size: int) -> bool:
        """Look into so many bytes; False if there is nothing left for them."""
        self._bytes -= size
        self._stop_if(self._bytes < 0 or time.monotonic() > self._until)
        return not self.over

    def _stop_if(self, over: bool) -> None:
        self.over = self.over or over
        self.spent = self.spent or over


class _Frame(NamedTuple):
    """One folder of a walk: what is still to be looked at, and what was found out on the way."""

    entries: Iterator[str]
    prefix: str
    states: tuple[States, ...]
    rules: IgnoreRules | None


LINK = "\0"  # ends the name of a link in a listing, as "/" ends a folder's: they are sorted as the whole path is


class FileWalk:
    """The files beneath a folder in the order of their paths. Links are never followed.

    What a folder holds is said by `entries` and `read_ignore_file`; `DiskWalk` has those of a folder on disk.
    """

    def __init__(self, budget: WalkBudget, *, everything: bool = False) -> None:
        self.budget, self.everything = budget, everything

    def entries(self, prefix: str) -> list[str]:
        """What is in a folder, sorted: "/" ends the name of a folder, LINK that of a link."""
        raise NotImplementedError

    def ignore_text(self, prefix: str) -> str:
        """What a folder's .gitignore says, "" if there is none."""
        raise NotImplementedError

    def files(self, start: str, glob: Glob) -> Iterator[tuple[str, bool]]:
        """The path of each file that fits, seen from the tree, and whether it is a link."""
        stack = [self._open_frame(f"{start}/" if start else "", glob.start, self._rules_above(start))]
        while stack and not self.budget.over:
            frame = stack[-1]
            entry = next(frame.entries, None)
            if entry is None:
                stack.pop()
            elif entry.endswith("/"):
                inner = self._enter_folder(frame, entry[:-1], glob)
                if inner:
                    stack.append(inner)
            else:
                name = entry.rstrip(LINK)
                if glob.matches_last(frame.states, name) and not self._is_ignored(frame, name, False):
                    yield frame.prefix + name, entry.endswith(LINK)

    def _enter_folder(self, frame: _Frame, name: str, glob: Glob) -> _Frame | None:
        if not self.everything and (name in HEAVY or self._is_ignored(frame, name, True)):
            return None
        states = glob.advance(frame.states, name)
        return self._open_frame(f"{frame.prefix}{name}/", states, frame.rules) if any(states) else None

    def _is_ignored(self, frame: _Frame, name: str, folder: bool) -> bool:
        return frame.rules is not None and frame.rules.is_ignored(frame.prefix + name, name, folder)

    def _open_frame(self, prefix: str, states: tuple[States, ...], above: IgnoreRules | None) -> _Frame:
        entries = self.entries(prefix)
        rules = self._read_rules(prefix, above) if ".gitignore" in entries else above
        return _Frame(iter(entries), prefix, states, rules)

    def _rules_above(self, start: str) -> IgnoreRules | None:
        """The rules of the folders that lead to the first one."""
        rules: IgnoreRules | None = None
        parts = start.split("/") if start else []
        for depth in range(len(parts)):
            rules = self._read_rules("".join(f"{part}/" for part in parts[:depth]), rules)
        return rules

    def _read_rules(self, prefix: str, above: IgnoreRules | None) -> IgnoreRules | None:
        return None if self.everything else parse_ignore_file(prefix.rstrip("/"), self.ignore_text(prefix), above)


class DiskWalk(FileWalk):
    """The walk over a folder on disk."""

    def __init__(self, tree: RootedFolder, budget: WalkBudget, *, everything: bool = False) -> None:
        super().__init__(budget, everything=everything)
        self._tree = tree

    def entries(self, prefix: str) -> list[str]:
        try:
            fd = self._tree.open_folder(prefix or ".")
        except OSError as error:  # gone, or not ours to read; or deeper than a path can say: then there is more
            self.budget.spent = self.budget.spent or error.errno == errno.ENAMETOOLONG
            return []
        try:
            with os.scandir(fd) as found:
                return sorted(self._mark_types(found))
        finally:
            os.close(fd)

    def _mark_types(self, found: Iterator[os.DirEntry[str]]) -> Iterator[str]:
        for entry in found:
            if not self.budget.take_entry():
                return
            if entry.is_dir(follow_symlinks=False):
                yield entry.name + "/"
            elif entry.is_symlink():
                yield entry.name + LINK
            elif entry.is_file(follow_symlinks=False):
                yield entry.name

    def ignore_text(self, prefix: str) -> str:
        return read_ignore_file(self._tree, prefix)


def read_ignore_file(tree: RootedFolder, prefix: str) -> str:
    """What a folder's .gitignore says, if there is one."""
    try:
        fd = tree.open_folder(f"{prefix}.gitignore", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(fd, IGNORE_BYTES).decode("utf-8", "surrogateescape")
    except OSError:  # a folder of that name, a device
        return ""
    finally:
        os.close(fd)
