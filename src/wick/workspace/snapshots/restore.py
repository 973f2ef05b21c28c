"""The restoration of a snapshot: only changed paths are written, and no link is followed.

    report = restore_changes(root, blobs, compare_snapshots(blobs, current, wanted))

Each folder is opened beneath the descriptor of the root without links (openat2 with RESOLVE_NO_SYMLINKS), and each file
is written under another name and renamed. A process that replaces a folder by a link gets an error into the report, and
nothing outside the root changes. A restoration that was interrupted is completed by the next one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex

from wick.errors import BackendError
from wick.workspace.os_errors import to_backend_error
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.snapshots.blobs import BlobStore
from wick.workspace.snapshots.compare import Comparison, FileChange, PathSelection
from wick.workspace.snapshots.scan import SPECIAL
from wick.workspace.snapshots.trees import TreeEntry, find_entry

TEMPORARY = ".wick-restored-"  # names of files before they are renamed
_PATH = getattr(os, "O_PATH", 0)


@dataclass
class RestoreReport:
    """The paths that a restoration has changed, and those that it has left as they are, with the reason."""

    restored: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def restore_changes(root: RootedFolder, blobs: BlobStore, comparison: Comparison) -> RestoreReport:
    """Apply the changes of a comparison to the folder that is as the comparison's first snapshot."""
    return _Restoration(root, blobs, comparison).run()


class _Restoration:
    """One restoration of a folder."""

    def __init__(self, root: RootedFolder, blobs: BlobStore, comparison: Comparison) -> None:
        self.root, self.blobs, self.comparison = root, blobs, comparison
        self.report = RestoreReport()
        self._modes: dict[str, int] = {}  # of folders, set at the end

    def run(self) -> RestoreReport:
        changes = [change for change in self.comparison.changes if self._is_possible(change)]
        self._open_closed_folders()
        for change in reversed(changes):  # children before their folders
            if change.before is not None and (change.after is None or _changes_folder(change)):
                self._attempt(change.path, lambda change=change: self._remove(change))  # type: ignore[misc]
        members = list[FileChange]()
        for change in changes:
            if change.after is None or change.path in self.report.left:
                continue
            if change.after.group and change.after.group != change.path:
                members.append(change)
            else:
                self._attempt(change.path, lambda change=change: self._create(change))  # type: ignore[misc]
        for change in members:
            self._attempt(change.path, lambda change=change: self._link(change))  # type: ignore[misc]
        for path in sorted(self._modes, key=lambda path: -path.count("/") if path else 1):
            with suppress(OSError):  # deleted
                self._set_mode(path, self._modes[path])
        left = self.report.left
        self.report.restored = [change.path for change in changes if change.path not in left]
        return self.report

    def _is_possible(self, change: FileChange) -> bool:
        """Return False for a change of something that a snapshot does not cover, and note why."""
        for entry, sentence in (
            (change.before, "it is left as it is, since no snapshot has its content: {}"),
            (change.after, "it is not restored, since the snapshot does not have it: {}"),
        ):
            if entry is None or entry.type != "skipped":
                continue
            if entry is change.before and entry.text in SPECIAL.values():
                continue  # no content is lost with a pipe or a socket
            if entry is change.after and change.before is not None and change.before.type == "skipped":
                return False
            self.report.left[change.path] = sentence.format(entry.text)
            return False
        return True

    def _attempt(self, path: str, work: Callable[[], None]) -> None:
        """Do one change; note an error and continue with the others."""
        try:
            work()
        except OSError as error:
            self.report.left[path] = str(to_backend_error(error, path, links=False))
        except BackendError as error:
            self.report.left[path] = str(error)

    def _open_closed_folders(self) -> None:
        """Give the owner all permissions for folders that contain changes. Their modes are set at the end."""
        changed = {change.path: change.after for change in self.comparison.changes}
        for path, entry in self.comparison.folders.items():
            if entry.mode & stat.S_IRWXU != stat.S_IRWXU:
                after = changed.get(path, entry)
                self._modes[path] = entry.mode if after is None else after.mode
                self._attempt(path, lambda path=path, mode=entry.mode: self._set_mode(path, mode | stat.S_IRWXU))  # type: ignore[misc]

    @contextmanager
    def _open_parent(self, path: str) -> Iterator[tuple[int, str]]:
        parent, _, name = path.rpartition("/")
        fd = self.root.open_folder(parent or ".")
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _set_mode(self, path: str, mode: int) -> None:
        if not path:
            os.fchmod(self.root.fd, mode)
            return
        with self._open_parent(path) as (fd, name):
            if not _PATH:
                os.chmod(name, mode, dir_fd=fd, follow_symlinks=False)
                return
            found = os.open(name, _PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                if not stat.S_ISLNK(os.fstat(found).st_mode):
                    os.chmod(f"/proc/self/fd/{found}", mode)
            finally:
                os.close(found)

    def _remove(self, change: FileChange) -> None:
        with self._open_parent(change.path) as (fd, name), suppress(FileNotFoundError):
            is_folder = change.before is not None and change.before.type == "folder"
            os.rmdir(name, dir_fd=fd) if is_folder else os.unlink(name, dir_fd=fd)

    def _create(self, change: FileChange) -> None:
        entry, path = change.after, change.path
        assert entry is not None
        if entry.type == "folder":
            self._modes[path] = entry.mode
            if path and (change.before is None or change.before.type != "folder"):
                with self._open_parent(path) as (fd, name), suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=fd)
        elif change.kind == "mode":
            self._set_mode(path, entry.mode)
        elif entry.type == "link":
            self._replace(path, lambda fd, name: os.symlink(entry.text, name, dir_fd=fd))
        else:
            self._replace(path, lambda fd, name: self._write(fd, name, entry))

    def _link(self, change: FileChange) -> None:
        """Link a file to the first of its group, or write it if that one is not restored, or is another file."""
        entry = change.after
        assert entry is not None
        first = next((one for one in self.comparison.others if one.path == entry.group), None)
        is_other = first is not None and (first.before is None or first.before._replace(group=entry.group) != entry)
        unknown = [one.path for one in self.comparison.others if not one.is_covered]
        is_other = is_other or find_entry(self.blobs, self.comparison.wanted, entry.group) != entry
        if is_other or PathSelection([*self.report.left, *unknown]).covers(entry.group):
            self._replace(change.path, lambda fd, name: self._write(fd, name, entry))
            return
        try:
            with self._open_parent(entry.group) as (source, original):
                self._replace(
                    change.path,
                    lambda fd, name: os.link(original, name, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False),
                )
        except FileNotFoundError:
            self._replace(change.path, lambda fd, name: self._write(fd, name, entry))

    def _replace(self, path: str, create: Callable[[int, str], None]) -> None:
        """Create an entry under a temporary name and rename it."""
        with self._open_parent(path) as (fd, name):
            temporary = f"{TEMPORARY}{token_hex(6)}"
            try:
                create(fd, temporary)
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            finally:
                with suppress(FileNotFoundError):  # also a hard link to the same file, which rename leaves
                    os.unlink(temporary, dir_fd=fd)

    def _write(self, folder: int, name: str, entry: TreeEntry) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            for data in map(self.blobs.get, entry.blobs):
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            os.fchmod(fd, entry.mode)
        finally:
            os.close(fd)


def _changes_folder(change: FileChange) -> bool:
    """Return True if a folder becomes something else, or something else a folder."""
    assert change.before is not None and change.after is not None
    return change.before.type != change.after.type and "folder" in (change.before.type, change.after.type)
