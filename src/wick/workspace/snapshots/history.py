"""The snapshots of one workspace: taken, compared, restored and deleted under one lock.

The folder of a history has the index of the last scan (`index.json`), and unless another storage is given the blobs and
the list of snapshots (`snapshots.jsonl`). It is private to the user, and never inside the workspace.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from wick import constants
from wick.errors import BackendError
from wick.workspace.os_errors import to_backend_error
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.snapshots.compare import Comparison, FileChange, compare_snapshots, format_changes
from wick.workspace.snapshots.restore import RestoreReport, restore_changes
from wick.workspace.snapshots.scan import DEFAULT_EXCLUDE, ScanIndex, ScanResult, scan_folder
from wick.workspace.snapshots.storage import DAY, FolderStorage, SnapshotStorage, read_file, write_file
from wick.workspace.snapshots.trees import Manifest, iterate_blobs, load_manifest

PLACE = "user.wick.place"  # an extended attribute of a workspace folder, lost when the folder is deleted


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a workspace, and the paths that it does not cover."""

    id: str
    at: float
    files: int
    size: int  # bytes of all files
    read: int = 0  # files that were read for it
    skipped: tuple[tuple[str, str], ...] = ()  # paths, and why they are not covered
    unstable: tuple[str, ...] = ()  # paths that changed while the snapshot was taken


class SnapshotHistory:
    """The snapshots of the workspace `root`, in `folder`. Its methods block: call them in a worker thread."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        root: str | os.PathLike[str],
        *,
        exclude: Sequence[str] = DEFAULT_EXCLUDE,
        most_bytes: int = constants.SNAPSHOT_BYTES,
        most_file_bytes: int = constants.SNAPSHOT_FILE_BYTES,
        storage: SnapshotStorage | None = None,
    ) -> None:
        self.folder, self.root = Path(folder).absolute(), os.path.realpath(root)
        if self.folder.resolve().is_relative_to(self.root):
            raise BackendError(
                f"snapshots of {self.root} cannot be stored inside it; store them in another folder", "invalid"
            )
        self.exclude, self.most_bytes, self.most_file_bytes = tuple(exclude), most_bytes, most_file_bytes
        self.blobs: SnapshotStorage = FolderStorage(self.folder) if storage is None else storage
        self._index: ScanIndex | None = None
        self._generation = ""
        self._threads = threading.Lock()  # the index is one, whichever thread uses it

    @contextmanager
    def _locked(self) -> Iterator[RootedFolder]:
        with self._threads, self.blobs.lock():
            try:
                root = RootedFolder(self.root)
            except OSError as error:
                raise to_backend_error(error, self.root) from error
            try:
                yield root
            finally:
                root.close()

    def take(self) -> Snapshot:
        """Take a snapshot, record it, and return it. Unchanged files are not read."""
        with self._locked() as root:
            return self._take(root)

    def _take(self, root: RootedFolder) -> Snapshot:
        scanned = self._scan(root)
        taken = Snapshot(
            scanned.id,
            time.time(),
            scanned.manifest.files,
            scanned.manifest.size,
            scanned.read,
            scanned.skipped,
            scanned.unstable,
        )
        self._add_row(taken.id, taken.at)
        if self._read_place() != (place := self.identify_root(create=True)):
            write_file(self.folder / "place", place.encode())
        return taken

    def _add_row(self, id: str, at: float) -> None:
        """Add a snapshot to the list, unless it is the last one and was added within a day."""
        rows = self.blobs.read_rows()
        if not rows or rows[-1]["id"] != id or at - rows[-1]["at"] > DAY:
            self.blobs.append_row({"id": id, "at": at})

    def identify_root(self, *, create: bool = False) -> str:
        """Return a text that identifies the workspace folder, and not another one at the same path."""
        with suppress(OSError, AttributeError):  # without extended attributes
            return os.getxattr(self.root, PLACE).decode("utf-8", "replace")
        info, token = os.stat(self.root), token_hex(16)
        if create:
            with suppress(OSError, AttributeError):
                os.setxattr(self.root, PLACE, token.encode())
                return token
        return f"{platform.node()} {info.st_dev} {info.st_ino}"

    def _scan(self, root: RootedFolder) -> ScanResult:
        generation = self.blobs.read_generation()
        if self._index is None or self._generation != generation:  # blobs that an index names may be deleted
            stored = read_file(self.folder / "index.json")
            is_current = stored.startswith(generation.encode() + b"\n")
            self._index = ScanIndex.from_bytes(stored.partition(b"\n")[2] if is_current else b"")
            self._generation = generation
        return scan_folder(
            root,
            self.blobs,
            self._index,
            exclude=self.exclude,
            most_bytes=self.most_bytes,
            most_file_bytes=self.most_file_bytes,
        )

    def save_index(self) -> None:
        """Store the index, so that the next process does not read unchanged files."""
        with self._threads, self.blobs.lock():
            if self._index is not None and self._generation == self.blobs.read_generation():
                write_file(self.folder / "index.json", self._generation.encode() + b"\n" + self._index.to_bytes())

    def compare(self, id: str, paths: Iterable[str] | None = None) -> list[tuple[FileChange, str]]:
        """Return the changes that restoring a snapshot would make, each with its changed lines."""
        with self._locked() as root:
            current = self._scan(root).manifest
            comparison = compare_snapshots(self.blobs, current, load_manifest(self.blobs, id), paths)
            return [*format_changes(self.blobs, comparison.changes)]

    def restore(self, id: str, paths: Iterable[str] | None = None) -> tuple[Snapshot, RestoreReport]:
        """Restore a snapshot, or the selected paths of it. Return a snapshot of the files before, and a report."""
        with self._locked() as root:
            wanted = load_manifest(self.blobs, id)
            before = self._take(root)
            current = load_manifest(self.blobs, before.id)
            report = restore_changes(root, self.blobs, compare_snapshots(self.blobs, current, wanted, paths))
            return before, report

    def find_missing(self) -> str:
        """Return the last snapshot if the root folder is another one than then, and empty; or an empty text."""
        is_other = not os.path.isdir(self.root) or self.identify_root() != self._read_place()
        is_missing = is_other and not (os.path.isdir(self.root) and os.listdir(self.root))
        return self.last() if is_missing else ""

    def restore_missing(self, id: str) -> RestoreReport:
        """Restore a snapshot into the root folder, which must be missing or empty."""
        if os.path.isdir(self.root) and os.listdir(self.root):
            raise BackendError(f"{self.root} is not empty; only a missing workspace is restored", "exists")
        return self.adopt(id)

    def adopt(self, id: str) -> RestoreReport:
        """Bring the root folder to a snapshot, which may be of another machine; create the folder if it is missing.

        The files that it has, such as an older copy, get a snapshot before.
        """
        if not self.has(id):
            raise BackendError(f"the snapshot {id[:12]} is not on this server", "not_found")
        os.makedirs(self.root, exist_ok=True)
        with self._locked() as root:
            wanted, older = load_manifest(self.blobs, id), self._scan(root)
            self.blobs.fetch(iterate_blobs(self.blobs, id, set()))
            if older.manifest.files:
                self._add_row(older.id, time.time())
            report = restore_changes(root, self.blobs, compare_snapshots(self.blobs, older.manifest, wanted))
            self._take(root)
            return report

    def last(self) -> str:
        """Return the id of the last snapshot, or an empty text."""
        rows = self.blobs.read_rows()
        return str(rows[-1]["id"]) if rows else ""

    def has(self, id: str) -> bool:
        """Return True if a snapshot is stored."""
        return self.blobs.has(id)

    def manifest(self, id: str) -> Manifest:
        """Return the manifest of a snapshot."""
        return load_manifest(self.blobs, id)

    def compare_two(self, before: str, after: str, paths: Iterable[str] | None = None) -> Comparison:
        """Return the changes from one snapshot to another."""
        return compare_snapshots(self.blobs, self.manifest(before), self.manifest(after), paths)

    def delete_old(self, days: float = constants.SNAPSHOT_DAYS, most: int = constants.SNAPSHOTS_KEPT) -> int:
        """Delete old snapshots, and the blobs that no other snapshot has; return the number of deleted blobs."""
        with self._threads, self.blobs.lock():
            rows = self.blobs.read_rows()
            first = time.time() - days * DAY
            keep = [row for row in rows[-most:] if row["at"] >= first] or rows[-1:]
            live = set[str]()
            for row in keep:
                try:
                    for _ in iterate_blobs(self.blobs, row["id"], live):
                        pass
                except BackendError as error:
                    if error.code not in ("not_found", "damaged", "invalid"):  # else the snapshot cannot be restored
                        raise
            self.blobs.start_generation()  # before blobs are deleted that an index may name
            self.blobs.keep_rows(keep)
            return self.blobs.delete_except(live)

    def delete_old_daily(self) -> None:
        """Delete old snapshots, unless that was done within a day."""
        with self._threads, self.blobs.lock():
            is_due = self.blobs.is_cleanup_due()
        if is_due:
            self.delete_old()

    def _read_place(self) -> str:
        return read_file(self.folder / "place").decode("utf-8", "replace")
