"""Background jobs of the local backend, each with its launch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from wick.backends.daemon_client import Daemon
from wick.backends.sandbox.launch import Launch
from wick.backends.workspace_guard import explain_moved
from wick.errors import BackendError
from wick.workspace.results import JobInfo, JobOutput


@dataclass(slots=True)
class StartedJob:
    """A job with its last known state."""

    daemon: Daemon
    id: str  # the daemon's id
    launch: Launch
    job: JobInfo

    async def update(self, found: JobInfo | None) -> JobInfo:
        """Apply the daemon's state of the job; None if the daemon is lost."""
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
            error = self.launch.explain_error(found["exit_code"], found["error"])
            found = {**found, "error": explain_moved(error, self.launch.moved)}
        self.job = {**found, "id": self.job["id"]}
        return self.job

    async def output(self, offset: int) -> JobOutput:
        if not self.daemon.alive:
            raise BackendError(f"the output of {self.job['id']} is gone with the process that ran it", "not_running")
        return {**await self.daemon.job_output(self.id, offset=offset), "id": self.job["id"]}

    async def end(self) -> JobInfo:
        """End the job if it runs; a job unknown to the daemon has ended."""
        found = None
        if self.job["running"] and self.daemon.alive:
            with suppress(BackendError):
                found = await self.daemon.end_job(self.id)
        return await self.update(found)
