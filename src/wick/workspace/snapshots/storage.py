"""Where the snapshots of one workspace are stored: the protocol, and a folder with blobs and a list of snapshots."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from wick.workspace.snapshots.blobs import BlobStore, FolderBlobs

DAY = 86_400.0
SnapshotRow = dict[str, Any]  # `id` and `at` of one snapshot


class SnapshotStorage(BlobStore, Protocol):
    """The blobs of a workspace, the list of its snapshots, and a generation that changes before blobs are deleted."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock of this workspace: one process at a time takes, restores or deletes snapshots."""

    def read_rows(self) -> list[SnapshotRow]:
        """Return the snapshots, oldest first."""

    def append_row(self, row: SnapshotRow) -> None:
        """Add a snapshot. All its blobs are flushed."""

    def keep_rows(self, rows: Collection[SnapshotRow]) -> None:
        """Remove all other snapshots from the list."""

    def read_generation(self) -> str:
        """Return the generation. Blobs that an index of another generation names may be deleted."""

    def start_generation(self) -> None:
        """Set a new generation."""

    def is_cleanup_due(self) -> bool:
        """Return True if the generation is a day old. Start the first one."""

    def fetch(self, names: Iterable[str]) -> None:
        """Load blobs that will be read next, if that is faster than one by one."""

    def delete_except(self, live: Collection[str]) -> int:
        """Delete all other blobs, and return their number."""


class FolderStorage(FolderBlobs):
    """Snapshots in one folder, which can be on a disk that several servers share."""

    def read_rows(self) -> list[SnapshotRow]:
        rows = list[SnapshotRow]()
        for line in read_file(self.folder / "snapshots.jsonl").splitlines():
            with suppress(ValueError):  # the end of a line that a crash cut off
                row = json.loads(line)
                if isinstance(row, dict) and {"id", "at"} <= row.keys():
                    rows.append(row)
        return rows

    def append_row(self, row: SnapshotRow) -> None:
        with open(self.folder / "snapshots.jsonl", "ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            is_cut = file.read(1) not in (b"", b"\n")  # a crash cut off the last line
            file.write(b"\n" * is_cut + json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def keep_rows(self, rows: Collection[SnapshotRow]) -> None:
        write_file(self.folder / "snapshots.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def read_generation(self) -> str:
        return read_file(self.folder / "generation").decode("utf-8", "replace")

    def start_generation(self) -> None:
        write_file(self.folder / "generation", token_hex(8).encode())

    def is_cleanup_due(self) -> bool:
        try:
            return time.time() - (self.folder / "generation").stat().st_mtime > DAY
        except FileNotFoundError:
            self.start_generation()
            return False

    def fetch(self, names: Iterable[str]) -> None:
        """Do nothing: files are read one by one."""


def read_file(path: Path) -> bytes:
    """Return the content of a file, or nothing if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def write_file(path: Path, data: bytes) -> None:
    """Replace a file, durably and in one step."""
    temporary = path.with_name(f"{path.name}.{token_hex(4)}")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
