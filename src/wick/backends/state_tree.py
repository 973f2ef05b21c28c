"""A tree of folders and files over a mapping, for `State`.

A key is a path, its value a text or {"content": …, "encoding": "base64"}. A folder exists if a file is in it; an
empty folder is a key with a trailing slash.
"""

from __future__ import annotations

import base64
import errno
from bisect import bisect_left
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from wick import constants
from wick.errors import BackendError
from wick.threads import Thread
from wick.workspace.os_errors import raise_os_error
from wick.workspace.results import FolderEntry
from wick.workspace.text import cut_at_nul, is_binary
from wick.workspace.walk import FileWalk, WalkBudget

PathNames = tuple[str, ...]
AFTER_SLASH = chr(ord("/") + 1)  # sorts after every path in a folder


class InThread(MutableMapping[str, Any]):
    """The files of a thread, in its value `files`. A change logs only the changed file."""

    KEY = "files"

    def __init__(self, thread: Thread) -> None:
        self._values = thread.values

    def __getitem__(self, path: str) -> Any:
        return self._files()[path]

    def __setitem__(self, path: str, stored: Any) -> None:
        self._values.put(self.KEY, path, stored)

    def __delitem__(self, path: str) -> None:
        self._files()[path]  # an unknown path is a KeyError
        self._values.drop(self.KEY, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files())

    def __len__(self) -> int:
        return len(self._files())

    def _files(self) -> Mapping[str, Any]:
        files = self._values.get(self.KEY)
        return files if isinstance(files, Mapping) else {}


class StateTree:
    """A tree of folders and files over a mapping."""

    def __init__(self, files: Mapping[str, Any]) -> None:
        self._files = files

    def is_file(self, names: PathNames) -> bool:
        return "/".join(names) in self._files and bool(names)

    def is_folder(self, names: PathNames) -> bool:
        return not names or (not self.is_file(names) and any(True for _ in self._keys_beneath(names)))

    def check_parents(self, names: PathNames) -> None:
        """Raise ENOTDIR if a parent of a path is a file."""
        if any(self.is_file(names[:depth]) for depth in range(1, len(names))):
            raise_os_error(errno.ENOTDIR)

    def check_exists(self, names: PathNames) -> None:
        self.check_parents(names)
        if not self.is_file(names) and not self.is_folder(names):
            raise_os_error(errno.ENOENT)

    def check_folder(self, names: PathNames) -> None:
        self.check_exists(names)
        if self.is_file(names):
            raise_os_error(errno.ENOTDIR)

    def find_keys(self, names: PathNames) -> list[str]:
        """Return the keys of a file, or of a folder and its contents."""
        return ["/".join(names)] if self.is_file(names) else list(self._keys_beneath(names))

    def list_names(self, names: PathNames) -> set[str]:
        """Return the names in a folder."""
        start = len("/".join((*names, "")))
        return {key[start:].split("/")[0] for key in self._keys_beneath(names)} - {""}

    def describe_entry(self, names: PathNames) -> FolderEntry:
        """Return the listing entry of a path."""
        name = names[-1] if names else "."
        if self.is_file(names):
            return {"name": name, "type": "file", "size": _content_size(self._files["/".join(names)])}
        return {"name": name, "type": "dir", "size": 0}

    def read_searchable(self, path: str) -> list[bytes]:
        """Return the searchable part of a file; nothing if it is binary or damaged."""
        try:
            data = self.read_data(path)
        except BackendError:
            return []
        return [] if is_binary(data) else [cut_at_nul(data)]

    def read_data(self, path: str) -> bytes:
        stored = self._files[path]
        if isinstance(stored, str):
            return stored.encode("utf-8", "surrogatepass")
        try:
            return base64.b64decode(stored["content"], validate=True)
        except (TypeError, KeyError, ValueError):
            raise BackendError(f"{path} is stored in an invalid form; write it again", "failed") from None

    def total_size(self, *, without: str) -> int:
        """Return the total size of all files and their names."""
        return sum(len(key) + _content_size(stored) for key, stored in self._files.items() if key != without)

    def _keys_beneath(self, names: PathNames) -> Iterator[str]:
        start = "/".join((*names, ""))
        return (key for key in self._files if key.startswith(start))


class MappedWalk(FileWalk):
    """The walk of a workspace over a mapping; binary search in the sorted keys finds a folder's entries."""

    def __init__(self, files: Mapping[str, Any], budget: WalkBudget, *, everything: bool) -> None:
        super().__init__(budget, everything=everything)
        self._files, self._keys = files, sorted(files)

    def entries(self, prefix: str) -> list[str]:
        entries: list[str] = []
        at = bisect_left(self._keys, prefix)
        while at < len(self._keys) and self._keys[at].startswith(prefix):
            name, slash, _ = self._keys[at][len(prefix) :].partition("/")
            if name and (not slash or prefix + name not in self._files) and self.budget.take_entry():
                entries.append(name + slash)
            at = bisect_left(self._keys, f"{prefix}{name}{AFTER_SLASH}", at) if slash and name else at + 1
        return sorted(entries)

    def ignore_text(self, prefix: str) -> str:
        path = f"{prefix}.gitignore"
        if path not in self._files:
            return ""
        return b"".join(StateTree(self._files).read_searchable(path))[: constants.IGNORE_BYTES].decode(
            "utf-8", "surrogateescape"
        )


def encode_state(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode(), "encoding": "base64"}


def _content_size(stored: Any) -> int:
    if isinstance(stored, str):
        return len(stored) if stored.isascii() else len(stored.encode("utf-8", "surrogatepass"))
    content = stored.get("content") if isinstance(stored, Mapping) else None
    return len(content) * 3 // 4 - content[-2:].count("=") if isinstance(content, str) else 0
