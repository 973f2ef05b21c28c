"""Stores of blobs by their SHA-256: the protocol, and a folder of compressed files.

blobs = FolderBlobs("/data/snapshots/project")
name = blobs.put(b"content")
blobs.flush()                             the blob is durable, and readable for other processes
blobs.get(name)
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import time
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from wick.errors import BackendError
from wick.workspace.os_errors import to_backend_error
from wick.workspace.rooted_folder import libc

SYNC_EACH = 16  # up to this number of new blobs, each file is synced; above it, the file system once
STALE_SECONDS = 86_400.0  # after which a temporary file belongs to no process
RAW, ZLIB = b"r", b"z"  # the first byte of a file: how its content is stored


class BlobStore(Protocol):
    """A store of blobs by their SHA-256. A blob that was put is durable after `flush`."""

    def put(self, data: bytes) -> str:
        """Store a blob and return its name. A stored blob is not written again."""

    def get(self, name: str) -> bytes:
        """Return a blob; raise a BackendError if it is missing or damaged."""

    def has(self, name: str) -> bool:
        """Return True if a blob is stored."""

    def flush(self) -> None:
        """Make all blobs durable that were put."""


def unpack_blob(name: str, content: bytes) -> bytes:
    """Return the data of a stored blob; raise a BackendError if it is damaged."""
    try:
        data = zlib.decompress(content[1:]) if content[:1] == ZLIB else content[1:]
    except zlib.error:
        data = b""
    if sha256(data).hexdigest() != name:
        raise BackendError(f"the blob {name[:12]} of a snapshot is damaged; choose another snapshot", "damaged")
    return data


class FolderBlobs:
    """Blobs as files of a folder, private to the user. A file is renamed to its name after its content is durable."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._objects, self._temporary = self.folder / "objects", self.folder / "tmp"
        for path in (self.folder, self._objects, self._temporary):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._pending: dict[str, Path] = {}  # written, but not yet synced and renamed

    def put(self, data: bytes) -> str:
        name = sha256(data).hexdigest()
        if self._has_file(name):
            return name
        packed = zlib.compress(data, 1)
        content = ZLIB + packed if len(packed) < len(data) else RAW + data
        path = self._temporary / f"{name}.{token_hex(4)}"
        try:
            path.write_bytes(content)
        except OSError as error:
            raise to_backend_error(error, "a snapshot") from error
        self._pending[name] = path
        return name

    def get(self, name: str) -> bytes:
        path = self._pending.get(name) or self._path_of(name)
        try:
            return unpack_blob(name, path.read_bytes())
        except FileNotFoundError:
            raise BackendError(
                f"the snapshot has lost the blob {name[:12]}; choose another snapshot", "not_found"
            ) from None

    def has(self, name: str) -> bool:
        return self._has_file(name)

    def flush(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        many = len(pending) > SYNC_EACH
        self._sync([*pending.values()], many)
        changed = {self._objects}
        for name, path in pending.items():
            target = self._path_of(name)
            if target.parent not in changed:
                target.parent.mkdir(mode=0o700, exist_ok=True)
                changed.add(target.parent)
            path.rename(target)
        self._sync([*changed], many)

    def delete_except(self, live: Collection[str]) -> int:
        """Delete every blob that is not in `live`, and stale temporary files; return the number of deleted blobs."""
        deleted = 0
        for shard in self._objects.iterdir():
            for path in shard.iterdir():
                if shard.name + path.name not in live:
                    path.unlink()
                    deleted += 1
        for path in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()
        return deleted

    def size(self) -> int:
        """Return the bytes of all stored blobs on disk."""
        return sum(path.stat().st_size for shard in self._objects.iterdir() for path in shard.iterdir())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the exclusive lock of the folder: one process at a time takes, restores or deletes snapshots."""
        with open(self.folder / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _has_file(self, name: str) -> bool:
        return name in self._pending or self._path_of(name).exists()

    def _path_of(self, name: str) -> Path:
        return self._objects / name[:2] / name[2:]

    def _sync(self, paths: list[Path], many: bool) -> None:
        """Make files or folders durable: each one, or with `many` the whole file system, in one system call."""
        for path in paths[:1] if many else paths:
            fd = os.open(path, os.O_RDONLY)
            try:
                if not many:
                    os.fsync(fd)
                elif not hasattr(libc, "syncfs"):
                    os.sync()
                elif libc.syncfs(fd) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), str(path))
            finally:
                os.close(fd)
