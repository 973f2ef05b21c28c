"""What goes on by itself: jobs and terminals of the local backend, each with its launch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from wick.backends.daemon import Daemon, DaemonTerminal
from wick.backends.sandbox.launch import Launch
from wick.errors import BackendError
from wick.shapes import Job, JobOutput


@dataclass(slots=True)
class StartedJob:
    """A job, as it was when it was last looked at."""

    daemon: Daemon
    id: str  # by which the daemon knows it
    launch: Launch
    job: Job

    async def update(self, found: Job | None) -> Job:
        """Take over what the daemon says; None if there is nobody to ask any more."""
        if not self.job["running"]:
            return self.job
        if found is None:
            found = {
                **self.job,
                "running": False,
                "exit_code": 137,
                "error": "the job ended with the process that ran it",
            }
        if not found["running"]:
            await self.launch.end()
            found = {**found, "error": self._explained(found)}
        self.job = {**found, "id": self.job["id"]}
        return self.job

    def _explained(self, found: Job) -> str:
        error, moved = self.launch.explained(found["exit_code"], found["error"]), self.launch.moved
        note = f"protected paths appeared meanwhile and were moved aside: {', '.join(moved)}" if moved else ""
        return "; ".join(filter(None, [error, note]))

    async def output(self, offset: int) -> JobOutput:
        if not self.daemon.alive:
            raise BackendError(f"the output of {self.job['id']} is gone with the process that ran it", "not_running")
        return {**await self.daemon.job_output(self.id, offset=offset), "id": self.job["id"]}

    async def end(self) -> Job:
        """End it, if it still runs; a daemon that does not know it any more has ended it."""
        found = None
        if self.job["running"] and self.daemon.alive:
            with suppress(BackendError):
                found = await self.daemon.end_job(self.id)
        return await self.update(found)


class LocalTerminal:
    """A shell in the sandbox that somebody types into."""

    def __init__(self, inner: DaemonTerminal, launch: Launch, over: Callable[[LocalTerminal], None]) -> None:
        self._inner, self._launch, self._over = inner, launch, over

    @property
    def moved(self) -> list[str]:
        """Protected paths that appeared meanwhile and were moved aside, once it has ended."""
        return self._launch.moved

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        data = await self._inner.read()
        if not data:
            await self._end()
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
            await self._end()

    async def _end(self) -> None:
        self._over(self)
        await self._launch.end()
