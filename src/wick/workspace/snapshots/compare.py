"""The differences between two snapshots: paths with their entries before and after, and changed lines."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from wick import constants
from wick.workspace.snapshots.blobs import BlobStore
from wick.workspace.snapshots.scan import SPECIAL, build_exclude_rules
from wick.workspace.snapshots.trees import Manifest, TreeEntry, load_tree

ChangeKind = Literal["created", "deleted", "changed", "mode"]


@dataclass(frozen=True)
class FileChange:
    """A path that differs between two snapshots."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None

    @property
    def kind(self) -> ChangeKind:
        """The kind of the change: `mode` if only permission bits differ."""
        if self.before is None or self.after is None:
            return "created" if self.before is None else "deleted"
        is_mode = self.before._replace(mode=0, blobs=()) == self.after._replace(mode=0, blobs=())
        is_folder = self.before.type == "folder"
        return "mode" if is_mode and (is_folder or self.before.blobs == self.after.blobs) else "changed"

    @property
    def is_covered(self) -> bool:
        """Return True if both snapshots cover the path. No content is lost with a pipe or a socket before."""
        is_known_before = self.before is None or self.before.type != "skipped" or self.before.text in SPECIAL.values()
        return is_known_before and (self.after is None or self.after.type != "skipped")


@dataclass
class Comparison:
    """The changes from one snapshot to another, parents before their children."""

    wanted: TreeEntry  # the root folder after the changes
    changes: list[FileChange] = field(default_factory=list)
    others: list[FileChange] = field(default_factory=list)  # changes of paths that are not selected
    folders: dict[str, TreeEntry] = field(default_factory=dict)  # the folders before, which contain changes


class PathSelection:
    """A selection of paths with everything below them. Without paths, everything is selected."""

    def __init__(self, paths: Iterable[str] | None) -> None:
        self._paths = None if paths is None else [path.strip("/") for path in paths]

    def covers(self, path: str) -> bool:
        """Return True if a path or a folder above it is selected."""
        if self._paths is None or "" in self._paths or "." in self._paths:
            return True
        return any(path == one or path.startswith(f"{one}/") for one in self._paths)

    def leads_to(self, folder: str) -> bool:
        """Return True if a selected path is below a folder."""
        return self._paths is not None and any(one.startswith(f"{folder}/") for one in self._paths)


def compare_snapshots(
    blobs: BlobStore, before: Manifest, after: Manifest, paths: Iterable[str] | None = None
) -> Comparison:
    """Return the changes that lead from one snapshot to another, for all paths or the selected ones.

    Paths that either snapshot excludes are not changes. A missing folder above a selected path is a change. Of a folder
    that one snapshot does not cover, only the folder itself is a change: nothing is known about the paths below it.
    """
    result, selection = Comparison(after.root), PathSelection(paths)
    differ = before.exclude != after.exclude
    rules = [build_exclude_rules(one.exclude) for one in (before, after)] if differ else []

    def is_excluded(path: str, entry: TreeEntry) -> bool:
        name, is_folder = path.rpartition("/")[2], entry.type == "folder"
        return any(rule is not None and rule.is_ignored(path, name, is_folder) for rule in rules)

    def visit(path: str, old: TreeEntry | None, new: TreeEntry | None) -> None:
        if old == new or is_excluded(path, old or new or after.root):
            return
        was_folder, is_folder = (entry is not None and entry.type == "folder" for entry in (old, new))
        change = FileChange(path, old, new)
        is_unknown = not change.is_covered
        if not (was_folder and is_folder and old.mode == new.mode):  # type: ignore[union-attr]
            is_missing_parent = is_folder and not was_folder and selection.leads_to(path)
            is_selected = selection.covers(path) or is_missing_parent or (is_unknown and selection.leads_to(path))
            result.changes.append(change) if is_selected else result.others.append(change)
        if is_unknown:
            return
        if was_folder and old is not None:
            result.folders[path] = old
        trees = [
            load_tree(blobs, entry.blobs[0]) if entry is not None and entry.type == "folder" else {}
            for entry in (old, new)
        ]
        for name in sorted({*trees[0], *trees[1]}):
            visit(f"{path}/{name}" if path else name, trees[0].get(name), trees[1].get(name))

    visit("", before.root, after.root)
    return result


def read_content(blobs: BlobStore, entry: TreeEntry | None) -> bytes | None:
    """Return the content of an entry for a comparison of lines, or None if it is large or not a file."""
    if entry is None:
        return b""
    if entry.type == "link":
        return f"link to {entry.text}\n".encode("utf-8", "surrogateescape")
    if entry.type != "file" or entry.size > constants.SNAPSHOT_DIFF_BYTES:
        return None
    return b"".join(map(blobs.get, entry.blobs))


def format_change(blobs: BlobStore, change: FileChange) -> str:
    """Return the changed lines of a file as a unified diff, or a sentence for a change that has none."""
    if change.kind == "mode":
        return f"mode {change.before.mode:o} becomes {change.after.mode:o}\n"  # type: ignore[union-attr]
    if "folder" in {one.type for one in (change.before, change.after) if one is not None}:
        return ""
    texts = list[Sequence[str]]()
    for entry in (change.before, change.after):
        data = read_content(blobs, entry)
        if data is None or b"\0" in data[: constants.BINARY_HEAD_BYTES]:
            sizes = [f"{one.size:,} bytes" if one else "nothing" for one in (change.before, change.after)]
            return f"{sizes[0]} become {sizes[1]}\n"
        texts.append(data.decode("utf-8", "replace").splitlines(keepends=True))
    lines = difflib.unified_diff(texts[0], texts[1], f"a/{change.path}", f"b/{change.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def format_changes(blobs: BlobStore, changes: Iterable[FileChange]) -> Iterator[tuple[FileChange, str]]:
    """Yield each change with its diff. Diffs after the first `SNAPSHOT_DIFF_CHARS` characters are left out."""
    left = constants.SNAPSHOT_DIFF_CHARS
    for change in changes:
        text = format_change(blobs, change) if left > 0 else ""
        left -= len(text)
        yield change, text
