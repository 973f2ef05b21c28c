"""The workspace of one run, with the written files tracked in its thread.

    workspace = TrackedWorkspace(backend, thread)
    workspace.track("a.txt", size, content)      thread.values["files"]["a.txt"] is the content now

Only the size is stored for a file that is too large, and for all files once the log reaches its limit. Protected files
are not tracked.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from wick import constants
from wick.backends.state_tree import InThread
from wick.errors import BackendError
from wick.protocols import Backend
from wick.threads import Thread
from wick.threads.state import Entry
from wick.workspace.protected import PROTECTED, ProtectedNames

_PROTECTED = ProtectedNames(PROTECTED)


@dataclass(slots=True)
class TrackedWorkspace:
    """A backend, and the thread that tracks the files written to it."""

    backend: Backend
    thread: Thread
    in_thread: bool = False  # the backend stores its files in the thread
    is_tracking: bool = True
    logged_bytes: int = -1  # bytes of files in the thread's log; -1: not counted yet
    _locks: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def normalize_path(self, path: str) -> str:
        """Return a path relative to the workspace. `..` is not resolved: it may follow a link."""
        above = f"{self.backend.workdir}/"
        inside = path.removeprefix(above).lstrip("/") if path.startswith(above) else path
        return inside if ".." in inside.split("/") else posixpath.normpath(inside)

    def lock(self, path: str) -> asyncio.Lock:
        """Return the lock of a file. Parallel tool uses track a file in the order in which they wrote it."""
        return self._locks[self.normalize_path(path)]

    def track(self, path: str, size: int, content: Any) -> None:
        """Store a written file in the thread: text, base64 content as a map, or None for the size alone."""
        key = self.normalize_path(path)
        if not self.is_tracking or self.in_thread or _PROTECTED.is_protected(key.split("/")):
            return
        if self.logged_bytes < 0:
            self.logged_bytes = sum(map(_count_logged_bytes, self.thread.entries))
        fits = (
            content is not None
            and size <= constants.STATE_FILE_BYTES
            and self.logged_bytes + size <= constants.STATE_BYTES
        )
        now = content if fits else {"size": size}
        files = InThread(self.thread)
        if files.get(key) != now:
            files[key] = now
            self.logged_bytes += size if fits else 0

    async def track_edited(self, path: str, size: int, **options: Any) -> None:
        """Read a file and store it in the thread; `options` are passed to the backend's `read`."""
        if not self.is_tracking or self.in_thread:
            return
        content = None
        if size <= constants.STATE_FILE_BYTES:
            with suppress(BackendError):  # deleted since; the edit itself succeeded
                read = await self.backend.read(path, **options)
                is_text = read["encoding"] == "utf-8"
                content = read["content"] if is_text else {"content": read["content"], "encoding": "base64"}
        self.track(path, size, content)


def _count_logged_bytes(entry: Entry) -> int:
    """Return the bytes of file content in a log entry."""
    if entry.kind != "value" or entry.data["key"] != InThread.KEY or "item" not in entry.data:
        return 0
    file = entry.data.get("value")
    content = file.get("content") if isinstance(file, Mapping) else file
    return len(content.encode()) if isinstance(content, str) else 0
