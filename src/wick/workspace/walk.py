"""Walk over the files beneath a folder: sorted, within a budget, without ignored files.

DiskWalk(tree, WalkBudget()).files("src", Glob("**/*.py"))
IgnoreLookup(read).is_ignored("build/a.o")      the same rules without a walk
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
    """Lookup of ignored paths without a walk. `read` returns a folder's .gitignore, or an empty string."""

    def __init__(self, read: Callable[[str], str], *, everything: bool = False) -> None:
        self._read, self._everything = read, everything
        self._known: dict[str, IgnoreRules | None] = {}

    def is_ignored(self, path: str, start: str = "") -> bool:
        """Return True if a search from the folder `start` ignores a file."""
        if self._everything:
            return False
        parts = path.split("/")
        first = start.count("/") + 1 if start else 0
        for index in range(first, len(parts)):
            name, is_folder = parts[index], index + 1 < len(parts)
            if is_folder and name in HEAVY:
                return True
            rules = self._rules_for(parts[:index])
            if rules is not None and rules.is_ignored("/".join(parts[: index + 1]), name, is_folder):
                return True
        return False

    def _rules_for(self, parts: list[str]) -> IgnoreRules | None:
        folder = "/".join(parts)
        if folder not in self._known:
            above = self._rules_for(parts[:-1]) if parts else None
            self._known[folder] = parse_ignore_file(folder, self._read(folder), above)
        return self._known[folder]


class WalkBudget:
    """Limits of a walk. `spent` is set if the result is incomplete, `over` if the walk must stop."""

    def __init__(
        self, entries: int = WALK_ENTRIES, seconds: float = WALK_SECONDS, most_bytes: int = GREP_BYTES
    ) -> None:
        self._entries, self._bytes, self._until = entries, most_bytes, time.monotonic() + seconds
        self.spent = self.over = False

    def take_entry(self) -> bool:
        """Count one entry; return False if the budget is exceeded."""
        self._entries -= 1
        if self._entries % 64 == 0:
            self._stop_if(time.monotonic() > self._until)
        self.spent = self.spent or self._entries < 0
        return self._entries >= 0 and not self.over

    def take_bytes(self, size: int) -> bool:
        """Count bytes to read; return False if the budget is exceeded."""
        self._bytes -= size
        self._stop_if(self._bytes < 0 or time.monotonic() > self._until)
        return not self.over

    def _stop_if(self, over: bool) -> None:
        self.over = self.over or over
        self.spent = self.spent or over


class _Frame(NamedTuple):
    """One folder of a walk: its remaining entries, pattern states and ignore rules."""

    entries: Iterator[str]
    prefix: str
    states: tuple[States, ...]
    rules: IgnoreRules | None


LINK = "\0"  # ends the name of a link in a listing, as "/" ends a folder's: they are sorted as the whole path is


class FileWalk:
    """A walk over files in the order of their paths. Links are not followed.

    Subclasses provide the content of folders by `entries` and `ignore_text`; `DiskWalk` reads from disk.
    """

    def __init__(self, budget: WalkBudget, *, everything: bool = False) -> None:
        self.budget, self.everything = budget, everything

    def entries(self, prefix: str) -> list[str]:
        """Return the sorted entries of a folder: "/" ends the name of a folder, LINK that of a link."""
        raise NotImplementedError

    def ignore_text(self, prefix: str) -> str:
        """Return a folder's .gitignore, or an empty string."""
        raise NotImplementedError

    def files(self, start: str, glob: Glob) -> Iterator[tuple[str, bool]]:
        """Yield the path of each matching file relative to the tree, and True if it is a link."""
        rules: IgnoreRules | None = None
        parents = start.split("/") if start else []
        for depth in range(len(parents)):
            rules = self._read_rules("".join(f"{name}/" for name in parents[:depth]), rules)
        stack = [self._open_frame(f"{start}/" if start else "", glob.start, rules)]
        while stack and not self.budget.over:
            frame = stack[-1]
            entry = next(frame.entries, None)
            if entry is None:
                stack.pop()
            elif entry.endswith("/"):
                name = entry[:-1]
                if not self.everything and (name in HEAVY or self._is_ignored(frame, name, True)):
                    continue
                states = glob.advance(frame.states, name)
                if any(states):
                    stack.append(self._open_frame(f"{frame.prefix}{name}/", states, frame.rules))
            else:
                name = entry.rstrip(LINK)
                if glob.matches_last(frame.states, name) and not self._is_ignored(frame, name, False):
                    yield frame.prefix + name, entry.endswith(LINK)

    def _is_ignored(self, frame: _Frame, name: str, folder: bool) -> bool:
        return frame.rules is not None and frame.rules.is_ignored(frame.prefix + name, name, folder)

    def _open_frame(self, prefix: str, states: tuple[States, ...], above: IgnoreRules | None) -> _Frame:
        entries = self.entries(prefix)
        rules = self._read_rules(prefix, above) if ".gitignore" in entries else above
        return _Frame(iter(entries), prefix, states, rules)

    def _read_rules(self, prefix: str, above: IgnoreRules | None) -> IgnoreRules | None:
        return None if self.everything else parse_ignore_file(prefix.rstrip("/"), self.ignore_text(prefix), above)


class DiskWalk(FileWalk):
    """A walk over a folder on disk."""

    def __init__(self, tree: RootedFolder, budget: WalkBudget, *, everything: bool = False) -> None:
        super().__init__(budget, everything=everything)
        self._tree = tree

    def entries(self, prefix: str) -> list[str]:
        try:
            fd = self._tree.open_folder(prefix or ".")
        except OSError as error:  # deleted or unreadable; a path that is too long makes the result incomplete
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
    """Return a folder's .gitignore, or an empty string."""
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
