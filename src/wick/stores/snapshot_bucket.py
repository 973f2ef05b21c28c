"""Snapshots of a workspace in a bucket, with a folder of this machine as a cache.

Objects below the prefix of a workspace: `blobs/<sha256>`, and `log/<milliseconds>-<id>` for each snapshot, so that one
list request has the snapshots in order. `log/generation-<token>` changes before blobs are deleted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from secrets import token_hex

from wick.errors import BackendError
from wick.stores.s3 import S3Bucket, StoredObject
from wick.workspace.snapshots.blobs import FolderBlobs, unpack_blob
from wick.workspace.snapshots.storage import DAY, SnapshotRow, read_file, write_file

BLOBS, LOG, GENERATION = "blobs/", "log/", "log/generation-"
YOUNG_SECONDS = 3_600.0  # a blob that was stored within this time may belong to a snapshot that is not yet listed


class BucketStorage(FolderBlobs):
    """Snapshots in a bucket. A blob in the folder is also in the bucket, as long as the generation is the same.

    One server at a time has a workspace, so the lock of the folder is enough. A server that lost the workspace without
    noticing adds blobs and snapshots, but replaces none; it deletes no blob that is younger than an hour.
    """

    def __init__(self, folder: str | os.PathLike[str], bucket: S3Bucket) -> None:
        super().__init__(folder)
        self.bucket = bucket
        self._log: list[StoredObject] | None = None  # of this use of the lock

    @contextmanager
    def lock(self) -> Iterator[None]:
        with super().lock():
            self._log = [*self.bucket.list(LOG)]
            try:
                self._drop_stale()
                yield
            finally:
                self._log = None

    def _drop_stale(self) -> None:
        """Empty the cache if another server has deleted blobs since it was written."""
        path = self.folder / "bucket-generation"
        if read_file(path).decode() != (generation := self.read_generation()):
            shutil.rmtree(self._objects)
            self._objects.mkdir(mode=0o700)
            write_file(path, generation.encode())

    # -- blobs --------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> bytes:
        try:
            return super().get(name)
        except BackendError:
            content = self.bucket.get(BLOBS + name)
            if content is None:
                raise
        return self._cache(name, content)

    def has(self, name: str) -> bool:
        return super().has(name) or self.bucket.has(BLOBS + name)

    def fetch(self, names: Iterable[str]) -> None:
        """Load blobs into the cache, many at once."""
        missing = [BLOBS + name for name in names if not self._has_file(name)]
        self.bucket.get_all(missing, lambda key, content: self._cache(key.removeprefix(BLOBS), content))

    def flush(self) -> None:
        """Send new blobs, then add them to the cache. Blobs that are not in the cache are sent even if the bucket has
        them: that makes them young.
        """
        self.bucket.put_all((BLOBS + name, path.read_bytes) for name, path in [*self._pending.items()])
        super().flush()

    def delete_except(self, live: Collection[str]) -> int:
        super().delete_except(live)
        oldest = time.time() - YOUNG_SECONDS
        found = [blob.name for blob in self.bucket.list(BLOBS) if blob.modified < oldest]
        dead = [name for name in found if name.removeprefix(BLOBS) not in live]
        self.bucket.delete_all(dead)
        return len(dead)

    def _cache(self, name: str, content: bytes) -> bytes:
        data = unpack_blob(name, content)
        target, path = self._path_of(name), self._temporary / f"{name}.{token_hex(4)}"
        target.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content)
        path.rename(target)
        return data

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _read_log(self) -> list[StoredObject]:
        return [*self.bucket.list(LOG)] if self._log is None else self._log

    def read_rows(self) -> list[SnapshotRow]:
        names = [found.name for found in self._read_log() if not found.name.startswith(GENERATION)]
        parts = [name.removeprefix(LOG).partition("-") for name in names]
        return [{"id": id, "at": int(at) / 1000} for at, _, id in parts if at.isdigit() and id]

    def append_row(self, row: SnapshotRow) -> None:
        name = _name_row(row)
        self.bucket.put(name, b"")
        if self._log is not None:
            self._log.append(StoredObject(name, time.time()))

    def keep_rows(self, rows: Collection[SnapshotRow]) -> None:
        kept = {_name_row(row) for row in rows}
        found = {_name_row(row) for row in self.read_rows()}
        self.bucket.delete_all(found - kept)
        if self._log is not None:
            self._log = [entry for entry in self._log if entry.name not in found - kept]

    def read_generation(self) -> str:
        return " ".join(found.name for found in self._read_log() if found.name.startswith(GENERATION))

    def start_generation(self) -> None:
        old = self.read_generation().split()
        name = GENERATION + token_hex(8)
        self.bucket.put(name, b"")
        self.bucket.delete_all(old)
        write_file(self.folder / "bucket-generation", name.encode())
        if self._log is not None:
            self._log = [entry for entry in self._log if entry.name not in old] + [StoredObject(name, time.time())]

    def is_cleanup_due(self) -> bool:
        started = [found.modified for found in self._read_log() if found.name.startswith(GENERATION)]
        if not started:
            self.start_generation()
        return bool(started) and time.time() - max(started) > DAY


def _name_row(row: SnapshotRow) -> str:
    return f"{LOG}{round(row['at'] * 1000):013d}-{row['id']}"
