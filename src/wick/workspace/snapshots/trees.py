"""The format of snapshots: entries of folders, folders as blobs, and the manifest with the root folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from wick.errors import BackendError
from wick.workspace.snapshots.blobs import BlobStore

VERSION = 1
EntryType = Literal["file", "folder", "link", "skipped"]


class TreeEntry(NamedTuple):
    """One entry of a folder in a snapshot."""

    type: EntryType
    mode: int = 0  # permission bits of a file or folder
    size: int = 0
    blobs: tuple[str, ...] = ()  # the content of a file in chunks, or the blob of a folder
    text: str = ""  # the target of a link, or the reason why an entry was skipped
    group: str = ""  # the first path of hard-linked files, which have one content


Tree = Mapping[str, TreeEntry]


@dataclass(frozen=True)
class Manifest:
    """The root of a snapshot. Equal files give an equal manifest, and so an equal id."""

    root: TreeEntry
    files: int
    size: int  # bytes of all files
    exclude: tuple[str, ...] = ()  # patterns of paths that are neither stored nor restored


def store_tree(blobs: BlobStore, tree: Tree) -> str:
    """Store the entries of a folder and return the name of the blob."""
    rows = [[name, *_shorten(tree[name])] for name in sorted(tree)]
    return blobs.put(json.dumps(rows, separators=(",", ":")).encode())  # names that are not UTF-8 are escaped


def _shorten(entry: TreeEntry) -> list[Any]:
    """Return the fields of an entry without the defaults at its end."""
    row = list(entry)
    while row and not row[-1]:
        row.pop()
    return row


def load_tree(blobs: BlobStore, name: str) -> Tree:
    """Load the entries of a folder."""
    try:
        return {row[0]: _read_entry(row[1:]) for row in json.loads(blobs.get(name))}
    except (ValueError, TypeError, LookupError) as error:
        raise _format_error(name) from error


def _read_entry(row: list[Any]) -> TreeEntry:
    fields = dict(zip(TreeEntry._fields, row, strict=False))
    return TreeEntry(**{**fields, "blobs": tuple(fields.get("blobs", ()))})


def find_entry(blobs: BlobStore, root: TreeEntry, path: str) -> TreeEntry | None:
    """Return the entry of a path below a folder, or None if the snapshot does not have it."""
    entry: TreeEntry | None = root
    for name in path.split("/"):
        if entry is None or entry.type != "folder":
            return None
        entry = load_tree(blobs, entry.blobs[0]).get(name)
    return entry


def store_manifest(blobs: BlobStore, manifest: Manifest) -> str:
    """Store a manifest and return its name, which is the id of the snapshot."""
    row = {
        "version": VERSION,
        "root": _shorten(manifest.root),
        "files": manifest.files,
        "size": manifest.size,
        "exclude": list(manifest.exclude),
    }
    return blobs.put(json.dumps(row, separators=(",", ":")).encode())


def load_manifest(blobs: BlobStore, id: str) -> Manifest:
    """Load the manifest of a snapshot."""
    try:
        row = json.loads(blobs.get(id))
        if row["version"] != VERSION:
            raise BackendError(f"snapshot {id[:12]} was written by another version of wick", "invalid")
        return Manifest(_read_entry(row["root"]), row["files"], row["size"], tuple(row["exclude"]))
    except (ValueError, TypeError, LookupError) as error:
        raise _format_error(id) from error


def _format_error(name: str) -> BackendError:
    return BackendError(f"{name[:12]} is not a snapshot; give the id of one", "invalid")


def iterate_blobs(blobs: BlobStore, id: str, seen: set[str]) -> Iterator[str]:
    """Yield the names of all blobs of a snapshot that are not in `seen`, and add them there."""
    if id in seen:
        return
    folders = [load_manifest(blobs, id).root.blobs[0]]
    seen.add(id)
    yield id
    while folders:
        name = folders.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        for entry in load_tree(blobs, name).values():
            if entry.type == "folder":
                folders += entry.blobs
            else:
                fresh = [chunk for chunk in entry.blobs if chunk not in seen]
                seen.update(fresh)
                yield from fresh
