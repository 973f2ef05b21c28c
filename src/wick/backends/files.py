"""Access to files that an operator configures: in a backend, or in a folder of this machine.

files = files_for_thread(backend, run.thread)  the files of the backend for this thread
files = HostFolder("~/.wick/skills")           a folder of this machine, which agents cannot access
data, size = await read_bytes(files, "plan/SKILL.md", 64_000)
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from wick._internal.worker_threads import run_in_thread
from wick.protocols import Backend
from wick.threads import Thread
from wick.workspace.results import GlobResult, ReadResult, WriteResult
from wick.workspace.workspace import Workspace

T = TypeVar("T")


class FileBackend(Protocol):
    """The file methods of a backend that skills and memory need; see `wick.protocols.Backend`."""

    @property
    def workdir(self) -> str: ...

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> ReadResult: ...

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False) -> GlobResult: ...

    async def write(self, path: str, content: str | bytes) -> WriteResult: ...

    async def move(self, source: str, target: str) -> None: ...

    async def delete(self, path: str, *, recursive: bool = False) -> None: ...


class HostFolder:
    """A folder of this machine. Paths cannot escape it; it is opened for each operation."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.workdir = os.path.realpath(os.path.expanduser(path))

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> ReadResult:
        return await self._run(lambda files: files.read(path, offset=offset, limit=limit))

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False) -> GlobResult:
        return await self._run(lambda files: files.glob(pattern, path, everything=everything))

    async def write(self, path: str, content: str | bytes) -> WriteResult:
        return await self._run(lambda files: files.write(path, content))

    async def move(self, source: str, target: str) -> None:
        await self._run(lambda files: files.move(source, target))

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        await self._run(lambda files: files.delete(path, recursive=recursive))

    async def _run(self, do: Callable[[Workspace], T]) -> T:
        def work() -> T:
            files = Workspace(self.workdir, protect=())
            try:
                return do(files)
            finally:
                files.close()

        return await run_in_thread(work, "folder")


def files_for_thread(backend: Backend, thread: Thread | None) -> FileBackend:
    """Return the files of a backend; of one that stores files in threads, those of this thread."""
    of: Any = getattr(backend, "of", None)
    return backend if of is None or thread is None else of(thread)


async def read_bytes(files: FileBackend, path: str, most: int) -> tuple[bytes, int]:
    """Return the first bytes of a file, and its size."""
    content = await files.read(path, limit=most)
    text = content["content"]
    return b64decode(text) if content["encoding"] == "base64" else text.encode(), content["size"]
