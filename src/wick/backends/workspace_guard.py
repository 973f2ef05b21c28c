"""Guard of a workspace on this host, for the time of one command.

    guard = WorkspaceGuard(await get_host_daemon(), "/srv/project", PROTECTED)
    entries = await guard.begin()            the protected paths that exist
    …                                        the command runs
    await guard.end()
    guard.moved                              the renamed plants

A plant is a new file at a protected path, such as a git hook, that a program outside of the sandbox would run. The
watcher (wick.wickd.watcher) renames plants as they appear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from wick import constants
from wick.backends.daemon_client import Daemon
from wick.errors import BackendError
from wick.protocols import Terminal
from wick.workspace.auto_executed import ProtectedEntry

T = TypeVar("T")


class WorkspaceGuard:
    """A watch on a folder while a command runs in it; `arm` is False for a command that cannot write.

    A `contained` command runs in a container: no mounts protect the existing paths, and processes may outlive the
    command for a moment. `show` converts a path of the folder to the path in the command's result.
    """

    def __init__(
        self,
        daemon: Daemon,
        root: str,
        protect: Sequence[str],
        *,
        arm: bool = True,
        contained: bool = False,
        show: Callable[[str], str] = str,
    ) -> None:
        self._daemon, self._root, self._protect = daemon, root, protect
        self._arm, self._contained, self._show = arm, contained, show
        self._ended = False
        self.name = ""  # id of the guard in wickd
        self.moved: list[str] = []
        self.stuck: list[str] = []  # plants that could not be renamed

    async def begin(self) -> dict[str, ProtectedEntry]:
        """Start watching the folder; return its protected paths."""
        found = await self._daemon.guard(self._root, self._protect, arm=self._arm, contained=self._contained)
        self.name = found["guard"]
        if self._ended:  # the caller was cancelled during the first walk
            await self.end()
        entries = (ProtectedEntry(path, what, (dev, ino), *more) for path, what, (dev, ino), *more in found["entries"])
        return {entry.path: entry for entry in entries}

    async def end(self) -> None:
        """Process the last changes of the command, and stop watching. A second call has no effect."""
        name, self.name, self._ended = self.name, "", True
        if name:
            with suppress(BackendError):  # wickd has ended, and its watcher has processed the changes
                found = await run_to_completion(self._daemon.release(name))
                self.moved = _shorten([self._show(path) for path in found["moved"]])
                self.stuck = _shorten([self._show(path) for path in found["stuck"]])


class CommandGuard(Protocol):
    """A guard of one command, job or terminal."""

    @property
    def moved(self) -> list[str]: ...

    async def end(self) -> None: ...


class GuardedTerminal:
    """A terminal with a guard of its workspace, which ends with the terminal."""

    def __init__(self, inner: Terminal, guard: CommandGuard, on_end: Callable[[GuardedTerminal], None]) -> None:
        self._inner, self._guard, self._on_end = inner, guard, on_end

    @property
    def moved(self) -> list[str]:
        """The renamed plants, once the terminal has ended."""
        return self._guard.moved

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        data = await self._inner.read()
        if not data:
            await self._end_guard()
        return data

    async def write(self, data: bytes) -> None:
        await self._inner.write(data)

    async def resize(self, rows: int, columns: int) -> None:
        await self._inner.resize(rows, columns)

    async def close(self) -> None:
        """End the shell and everything that runs in it."""
        try:
            await self._inner.close()
        finally:
            await self._end_guard()

    async def _end_guard(self) -> None:
        self._on_end(self)
        await self._guard.end()


def explain_stuck(error: str, stuck: Sequence[str]) -> str:
    """Return the error with the plants that could not be renamed."""
    note = f"move these away, they appeared and are protected: {', '.join(stuck)}" if stuck else ""
    return "; ".join(filter(None, [error, note]))


def explain_moved(error: str, moved: Sequence[str]) -> str:
    """Return the error of a job with the renamed plants."""
    note = f"protected paths appeared meanwhile and were moved aside: {', '.join(moved)}" if moved else ""
    return "; ".join(filter(None, [error, note]))


def _shorten(paths: Sequence[str]) -> list[str]:
    more = len(paths) - constants.PLANTS_NAMED
    return sorted(paths)[: constants.PLANTS_NAMED] + ([f"… and {more} more"] if more > 0 else [])


async def run_to_completion(work: Awaitable[T]) -> T:
    """Await short work. A cancelled caller waits for it, so that its effects can be undone."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark the exception as retrieved
        await asyncio.wait([task], timeout=constants.CANCEL_GRACE_SECONDS)
        raise
