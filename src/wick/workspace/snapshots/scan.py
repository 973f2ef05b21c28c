"""The scan of a folder for a snapshot. Unchanged files are found by their timestamps and not read.

    index = ScanIndex()
    scanned = scan_folder(root, blobs, index)       reads all files
    scanned = scan_folder(root, blobs, index)       reads those that have changed since

The kernel sets the change time of a file (ctime) at each change of content, mode or name, and programs cannot set it. A
file with an equal inode, size, modification and change time is unchanged, unless it changed so shortly before it was
read that a later change may have an equal timestamp: such a file is read again, as git does. A folder whose own
timestamps are equal has the same names.

A scan that finds changes is repeated until one finds none: all files had the scanned state at one time between both.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from wick import constants
from wick.errors import BackendError
from wick.workspace.globs import HEAVY, SECRET, IgnoreRules, parse_ignore_file
from wick.workspace.os_errors import to_backend_error
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.snapshots.blobs import BlobStore
from wick.workspace.snapshots.trees import Manifest, TreeEntry, store_manifest, store_tree

# Folders that programs can create again, and secrets. The content of .git is part of a snapshot.
DEFAULT_EXCLUDE = (*(f"{name}/" for name in sorted(HEAVY - {".git", ".hg", ".svn"})), *SECRET)

UNKNOWN = -1  # a change time that no file has
MOVING = "it changed while it was read"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PATH = getattr(os, "O_PATH", 0)
SPECIAL = {
    stat.S_IFIFO: "it is a named pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}


class FileRecord:
    """A file as it was scanned: its timestamps and its entry."""

    __slots__ = ("ino", "ctime", "mtime", "size", "links", "entry")

    def __init__(self) -> None:
        self.ino = self.mtime = self.size = self.links = 0
        self.ctime = UNKNOWN
        self.entry = TreeEntry("skipped", text=MOVING)


class FolderRecord:
    """A folder as it was scanned. `tree` is the name of its blob, or empty if something below it has changed."""

    __slots__ = (
        "ino",
        "ctime",
        "mtime",
        "mode",
        "files",
        "folders",
        "ctimes",
        "special",
        "skipped",
        "tree",
        "count",
        "size",
    )

    def __init__(self) -> None:
        self.ino = self.mtime = self.mode = self.count = self.size = 0
        self.ctime = UNKNOWN
        self.files: dict[str, FileRecord] = {}
        self.folders: dict[str, FolderRecord] = {}
        self.ctimes: list[int] = []  # of the files, in their order
        self.special: list[str] = []  # files that are skipped or have several links
        self.skipped = ""  # why the folder is not covered
        self.tree = ""

    def to_json(self) -> list[Any]:
        files = [[n, r.ino, r.ctime, r.mtime, r.size, r.links, *r.entry] for n, r in self.files.items()]
        folders = {name: folder.to_json() for name, folder in self.folders.items()}
        return [self.ino, self.ctime, self.mtime, self.mode, self.special, files, folders]

    @classmethod
    def from_json(cls, row: list[Any]) -> FolderRecord:
        folder = cls()
        folder.ino, folder.ctime, folder.mtime, folder.mode, folder.special, files, folders = row
        for name, ino, ctime, mtime, size, links, type, mode, length, blobs, text, group in files:
            record = folder.files[name] = FileRecord()
            record.ino, record.ctime, record.mtime, record.size, record.links = ino, ctime, mtime, size, links
            record.entry = TreeEntry(type, mode, length, tuple(blobs), text, group)
        folder.ctimes = [record.ctime for record in folder.files.values()]
        folder.folders = {name: cls.from_json(child) for name, child in folders.items()}
        return folder


@dataclass
class ScanIndex:
    """The result of the last scan of a folder, which the next scan compares with."""

    root: FolderRecord = field(default_factory=FolderRecord)
    folder: tuple[int, int] = (0, 0)  # device and inode of the scanned folder
    exclude: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps([self.folder, self.exclude, self.root.to_json()], separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ScanIndex:
        """Load an index; return an empty one for data that is not an index."""
        try:
            (device, ino), exclude, root = json.loads(data)
            return cls(FolderRecord.from_json(root), (device, ino), tuple(exclude))
        except (ValueError, TypeError, RecursionError):
            return cls()


@dataclass(frozen=True)
class ScanResult:
    """A scanned folder: the id of its snapshot, and the paths that it does not cover."""

    id: str
    manifest: Manifest
    read: int  # files that were read
    skipped: tuple[tuple[str, str], ...] = ()  # paths, and why they are not covered
    unstable: tuple[str, ...] = ()  # paths that changed during each pass


def build_exclude_rules(patterns: Sequence[str]) -> IgnoreRules | None:
    """Return the rules of patterns in the syntax of .gitignore."""
    return parse_ignore_file("", "\n".join(patterns))


def scan_folder(
    root: RootedFolder,
    blobs: BlobStore,
    index: ScanIndex,
    *,
    exclude: Sequence[str] = DEFAULT_EXCLUDE,
    most_bytes: int = constants.SNAPSHOT_BYTES,
    most_file_bytes: int = constants.SNAPSHOT_FILE_BYTES,
    most_entries: int = constants.SNAPSHOT_ENTRIES,
) -> ScanResult:
    """Scan a folder, store new content, and update the index. Raise a BackendError for a folder that is too large."""
    info = os.fstat(root.fd)
    if index.folder != (info.st_dev, info.st_ino) or index.exclude != tuple(exclude):
        index.root, index.folder, index.exclude = FolderRecord(), (info.st_dev, info.st_ino), tuple(exclude)
    scan = _Scan(blobs, index.root, build_exclude_rules(exclude), info.st_dev)
    scan.most_bytes, scan.most_file_bytes, scan.most_entries = most_bytes, most_file_bytes, most_entries
    for _ in range(constants.SNAPSHOT_PASSES):
        scan.begin_pass()
        scan.update_folder(root.fd, index.root, "", 0)
        if not scan.changed:
            break
    scan.group_links()
    entry = scan.store_folder(index.root)
    if index.root.size > most_bytes:
        raise scan.too_large_error()
    manifest = Manifest(entry, index.root.count, index.root.size, tuple(exclude))
    id = store_manifest(blobs, manifest)
    try:
        blobs.flush()
    except (OSError, BackendError) as error:
        index.root = FolderRecord()  # its blobs may be lost
        if isinstance(error, BackendError):
            raise
        raise to_backend_error(error, "a snapshot") from error
    unstable = tuple(scan.changed[: constants.SNAPSHOT_LISTED])
    return ScanResult(id, manifest, scan.read, tuple(scan.skipped.items()), unstable)


class _Scan:
    """One scan, in several passes."""

    most_bytes, most_file_bytes, most_entries = 0, 0, 0

    def __init__(self, blobs: BlobStore, root: FolderRecord, rules: IgnoreRules | None, device: int) -> None:
        self.blobs, self.root, self.rules, self.device = blobs, root, rules, device
        self.read = self.read_bytes = 0
        self.begin_pass()

    def begin_pass(self) -> None:
        self.entries = 0
        self.changed: list[str] = []  # paths with another state than in the pass before
        self.skipped: dict[str, str] = {}
        self.linked: dict[int, list[tuple[str, FileRecord]]] = defaultdict(list)

    def too_large_error(self) -> BackendError:
        limits = f"{self.most_entries:,} files and {self.most_bytes / 1e9:g} GB"
        return BackendError(
            f"the workspace is too large for snapshots, which cover up to {limits}; exclude folders with `exclude`",
            "too_large",
        )

    def update_folder(
        self, fd: int, folder: FolderRecord, prefix: str, depth: int, own_mode: int | None = None
    ) -> None:
        """Update the record of an open folder and of everything below it. It has `own_mode` if that is not readable."""
        now, info = time.time_ns(), os.fstat(fd)
        if (info.st_ctime_ns, info.st_mtime_ns, info.st_ino) != (folder.ctime, folder.mtime, folder.ino):
            self._list_names(fd, folder, prefix)
            folder.ctime = UNKNOWN if is_racy(info, now) or own_mode is not None else info.st_ctime_ns
            folder.mtime, folder.ino = info.st_mtime_ns, info.st_ino
        if folder.mode != (mode := _permissions(info) if own_mode is None else own_mode):
            folder.mode = mode
            self._note_change(folder, prefix)
        self.entries += 1 + len(folder.files)
        if self.entries > self.most_entries:
            raise self.too_large_error()
        if not self._has_equal_times(fd, folder):
            for name, record in folder.files.items():
                if self._update_file(fd, name, record, prefix + name):
                    self._note_change(folder, prefix + name)
            records = folder.files.items()
            folder.special = [name for name, one in records if one.links > 1 or one.entry.type == "skipped"]
            folder.ctimes = [record.ctime for record in folder.files.values()]
        for name in folder.special:
            record = folder.files[name]
            if record.entry.type == "skipped" and len(self.skipped) < constants.SNAPSHOT_LISTED:
                self.skipped[prefix + name] = record.entry.text
            elif record.links > 1:
                self.linked[record.ino].append((prefix + name, record))
        for name, child in [*folder.folders.items()]:
            self._enter(fd, name, folder, child, f"{prefix}{name}/", depth + 1)

    def _has_equal_times(self, fd: int, folder: FolderRecord) -> bool:
        """Return True if all files of a folder have the recorded change times.

        This is the hot loop: in an unchanged workspace, it is nearly all work. The names are those of the same inodes
        as before: another file of a name has changed the times of the folder.
        """
        stat_at = os.stat
        try:
            return folder.ctimes == [
                stat_at(name, dir_fd=fd, follow_symlinks=False).st_ctime_ns for name in folder.files
            ]
        except OSError:
            return False

    def _note_change(self, folder: FolderRecord, path: str) -> None:
        folder.tree = ""
        self.changed.append(path)

    def _list_names(self, fd: int, folder: FolderRecord, prefix: str) -> None:
        """Read the names of a folder. Records of names that it still has are kept."""
        files, folders = dict[str, FileRecord](), dict[str, FolderRecord]()
        rules = self.rules
        with os.scandir(fd) as entries:
            for entry in entries:
                name, is_folder = entry.name, entry.is_dir(follow_symlinks=False)
                if rules is not None and rules.is_ignored(prefix + name, name, is_folder):
                    continue
                if is_folder:
                    folders[name] = folder.folders.get(name) or FolderRecord()
                else:
                    files[name] = folder.files.get(name) or FileRecord()
                if self.entries + len(files) + len(folders) > self.most_entries:
                    raise self.too_large_error()
        if files.keys() != folder.files.keys() or folders.keys() != folder.folders.keys():
            self._note_change(folder, prefix)
        folder.files, folder.folders, folder.ctimes = files, folders, [UNKNOWN]

    def _enter(self, fd: int, name: str, above: FolderRecord, folder: FolderRecord, prefix: str, depth: int) -> None:
        reason = ""
        try:
            with open_folder_as_owner(name, fd) as (child, mode):
                if depth > constants.SNAPSHOT_DEPTH:
                    reason = f"it is nested deeper than {constants.SNAPSHOT_DEPTH} folders"
                elif os.fstat(child).st_dev != self.device:
                    reason = "it is on another file system"
                else:
                    self.update_folder(child, folder, prefix, depth, mode)
        except PermissionError:
            reason = "it cannot be read: permission denied"
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise to_backend_error(error, prefix) from error
            above.ctime = UNKNOWN  # replaced meanwhile
            self._note_change(above, prefix)
        if reason != folder.skipped:
            folder.skipped = reason
            self._note_change(folder, prefix)
        if reason and len(self.skipped) < constants.SNAPSHOT_LISTED:
            self.skipped[prefix[:-1]] = reason
        if not folder.tree:
            above.tree = ""

    def _update_file(self, fd: int, name: str, record: FileRecord, path: str) -> bool:
        """Read an entry that is not a folder; return True if it has another state than its record."""
        before, now = record.entry, time.time_ns()
        try:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            times = (info.st_ctime_ns, info.st_mtime_ns, info.st_size, info.st_ino)
            if times == (record.ctime, record.mtime, record.size, record.ino):
                return False
            if stat.S_ISREG(info.st_mode):
                entry, info = self._read_file(fd, name, info)
            elif stat.S_ISLNK(info.st_mode):
                target = os.readlink(name, dir_fd=fd)
                entry = TreeEntry("link", text=target, size=len(os.fsencode(target)))
            else:
                entry = TreeEntry("skipped", text=SPECIAL.get(stat.S_IFMT(info.st_mode), MOVING))
        except FileNotFoundError:
            entry = TreeEntry("skipped", text=MOVING)
            record.ctime = UNKNOWN
        except PermissionError:
            entry = TreeEntry("skipped", text="it cannot be read: permission denied")
        except OSError as error:
            entry = TreeEntry("skipped", text=f"it cannot be read: {error.strerror}")
            record.ctime = UNKNOWN
        else:
            record.ino, record.mtime, record.size = info.st_ino, info.st_mtime_ns, info.st_size
            record.links = info.st_nlink
            is_fixed = entry.text != MOVING and not is_racy(info, now)
            record.ctime = info.st_ctime_ns if is_fixed else UNKNOWN
        is_linked = entry.type == "file" and record.links > 1
        record.entry = entry._replace(group=before.group) if is_linked else entry  # `group_links` sets it anew
        return record.entry != before or entry.text == MOVING

    def _read_file(self, folder: int, name: str, info: os.stat_result) -> tuple[TreeEntry, os.stat_result]:
        """Store the content of a file in chunks; return its entry, and its state while it was read."""
        if info.st_size > self.most_file_bytes:
            return TreeEntry("skipped", text=f"it is larger than {self.most_file_bytes / 1e6:g} MB"), info
        fd = open_file_as_owner(name, folder)
        try:
            before, chunks, size = os.fstat(fd), list[str](), 0
            while chunk := _read_chunk(fd):
                size += len(chunk)
                self.read_bytes += len(chunk)
                if self.read_bytes > constants.SNAPSHOT_PASSES * self.most_bytes:
                    raise self.too_large_error()
                if size > self.most_file_bytes:
                    return TreeEntry("skipped", text=f"it is larger than {self.most_file_bytes / 1e6:g} MB"), info
                chunks.append(self.blobs.put(chunk))
            after = os.fstat(fd)
        finally:
            os.close(fd)
        self.read += 1
        times = [(one.st_mtime_ns, one.st_ctime_ns, one.st_size) for one in (before, after)]
        if times[0] != times[1] or size != after.st_size or after.st_ino != info.st_ino:
            return TreeEntry("skipped", text=MOVING), after
        return TreeEntry("file", _permissions(after), size, tuple(chunks)), after

    def group_links(self) -> None:
        """Set the group of hard-linked files: the first of their paths."""
        for members in self.linked.values():
            paths = sorted(path for path, _ in members)
            for path, record in members:
                group = paths[0] if len(paths) > 1 else ""
                if record.entry.type == "file" and record.entry.group != group:
                    record.entry = record.entry._replace(group=group)
                    folder = self.root
                    folder.tree = ""
                    for name in path.split("/")[:-1]:
                        folder = folder.folders[name]
                        folder.tree = ""

    def store_folder(self, folder: FolderRecord) -> TreeEntry:
        """Store the tree of a folder and return its entry. A folder without a change is not stored again."""
        if folder.skipped:
            return TreeEntry("skipped", text=folder.skipped)
        if not folder.tree:
            tree = {name: self.store_folder(child) for name, child in folder.folders.items()}
            tree |= {name: one.entry for name, one in folder.files.items()}
            folder.tree = store_tree(self.blobs, tree)
            children = folder.folders.values()
            folder.count = len(folder.files) + sum(child.count for child in children)
            folder.size = sum(one.entry.size for one in folder.files.values()) + sum(child.size for child in children)
        return TreeEntry("folder", folder.mode, 0, (folder.tree,))


def is_racy(info: os.stat_result, now: int) -> bool:
    """Return True if a file changed so recently that a later change may have the same timestamp."""
    is_coarse = info.st_ctime_ns % 1_000_000 == 0
    seconds = constants.SNAPSHOT_COARSE_SECONDS if is_coarse else constants.SNAPSHOT_RACE_SECONDS
    return info.st_ctime_ns >= now - int(seconds * 1e9)


def _permissions(info: os.stat_result) -> int:
    """Return the permission bits. Without setuid and setgid if a restored file would have another owner."""
    mode = stat.S_IMODE(info.st_mode)
    return mode if info.st_uid == os.geteuid() else mode & ~(stat.S_ISUID | stat.S_ISGID)


def _read_chunk(fd: int) -> bytes:
    """Read a whole chunk; a shorter one is the end of the file."""
    parts, missing = list[bytes](), constants.SNAPSHOT_CHUNK_BYTES
    while missing and (part := os.read(fd, missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def open_file_as_owner(name: str, folder: int) -> int:
    """Open a file for reading. If only its mode forbids that to its owner, change the mode for that moment."""
    try:
        return os.open(name, _FILE, dir_fd=folder)
    except PermissionError:
        with _permitted(name, folder, stat.S_IFREG, stat.S_IRUSR) as (path, _):
            return os.open(path, _FILE & ~os.O_NOFOLLOW)


@contextmanager
def open_folder_as_owner(name: str, parent: int) -> Iterator[tuple[int, int | None]]:
    """Open a folder and yield its descriptor. If only its mode forbids that, change the mode meanwhile and yield it."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=parent)
        if not os.access(name, os.X_OK, dir_fd=parent):
            os.close(fd)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    except PermissionError:
        with _permitted(name, parent, stat.S_IFDIR, stat.S_IRUSR | stat.S_IXUSR) as (path, mode):
            fd = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
            try:
                yield fd, mode
            finally:
                os.close(fd)
        return
    try:
        yield fd, None
    finally:
        os.close(fd)


@contextmanager
def _permitted(name: str, folder: int, type: int, bits: int) -> Iterator[tuple[str, int]]:
    """Add permission bits to an entry of this user meanwhile; yield a path of its descriptor, and its mode."""
    if not _PATH:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    fd = os.open(name, _PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        info, path = os.fstat(fd), f"/proc/self/fd/{fd}"
        if info.st_uid != os.geteuid() or stat.S_IFMT(info.st_mode) != type:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        os.chmod(path, stat.S_IMODE(info.st_mode) | bits)
        try:
            yield path, stat.S_IMODE(info.st_mode)
        finally:
            os.chmod(path, stat.S_IMODE(info.st_mode))
    finally:
        os.close(fd)
