"""Conformance tests for backends. Subclass `BackendCases` with a fixture `backend`."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from wick.protocols import Backend, Protection
from wick.testing.command_cases import CommandCases
from wick.testing.file_cases import FileCases
from wick.testing.workspace_cases import WorkspaceCases, WorkspaceFiles, assert_refused

OPERATIONS = {name: fn for name, fn in vars(Backend).items() if inspect.isfunction(fn) and not name.startswith("_")}


ATTEMPTS: dict[str, Any] = {
    "execute": lambda backend: backend.execute("true"),
    "background": lambda backend: backend.background("true"),
    "terminal": lambda backend: backend.terminal(),
    "glob": lambda backend: backend.glob("*"),
    "grep": lambda backend: backend.grep("a"),
}


class LifecycleCases(WorkspaceCases):
    """Test cases for the protocol, for start and stop, and for unsupported operations."""

    async def test_every_operation_follows_the_protocol(self, backend: Backend) -> None:
        """The same names and defaults in the same order; further options have defaults."""
        assert len(OPERATIONS) > 15
        for operation, function in OPERATIONS.items():
            there = inspect.signature(getattr(type(backend), operation)).parameters
            asked = inspect.signature(function).parameters
            found = [(name, part.kind, part.default) for name, part in there.items() if name in asked]
            assert found == [(name, part.kind, part.default) for name, part in asked.items()], operation
            assert all(part.default is not part.empty for name, part in there.items() if name not in asked), operation

    async def test_a_backend_describes_itself(self, backend: Backend) -> None:
        await backend.start()
        assert backend.name
        assert backend.workdir.startswith("/")
        assert backend.status.state == "launched"
        protection: object = backend.protection
        assert isinstance(protection, Protection), f"`protection` is a wick.protocols.Protection, not {protection!r}"
        assert protection.says.count(" ") > 2, f"`says` of the protection is a sentence for users: {protection.says!r}"

    async def test_starting_twice_is_starting_once(self, backend: Backend, files: WorkspaceFiles) -> None:
        await asyncio.gather(*(backend.start() for _ in range(3)))
        await backend.write("a.txt", "a")
        await backend.start()
        assert backend.status.state == "launched" and await files.get("a.txt") == b"a"

    async def test_stopping_and_starting_again(self, backend: Backend) -> None:
        await backend.write("a.txt", "a")
        await backend.stop()
        stopped = backend.status.state
        await backend.stop()
        await backend.start()
        assert (stopped, backend.status.state) == ("idle", "launched")
        assert (await backend.read("a.txt"))["content"] == "a"

    async def test_another_thread_than_that_of_the_constructor_uses_the_backend(self, backend: Backend) -> None:
        """A server builds a backend in a worker thread. The fixture has built this one in the thread of the test."""

        async def use() -> str:
            await backend.write("a.txt", "a")
            entries = (await backend.ls())["entries"]
            content = str((await backend.read("a.txt"))["content"])
            await backend.delete("a.txt")
            await backend.stop()
            return f"{[entry['name'] for entry in entries]}: {content}"

        try:
            found = await asyncio.to_thread(lambda: asyncio.run(use()))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            pytest.fail(f"the backend cannot be used in another OS thread than the one that built it: {problem}")
        assert found == "['a.txt']: a"

    async def test_operations_start_the_backend(self, backend: Backend, files: WorkspaceFiles) -> None:
        await backend.stop()
        await backend.write("a.txt", "a")
        assert backend.status.state == "launched" and await files.get("a.txt") == b"a"

    async def test_unsupported_operations_are_refused(self, backend: Backend) -> None:
        for operation, attempt in ATTEMPTS.items():
            if not self.supports(operation):
                await assert_refused("unsupported", attempt(backend))
                continue
            answer = await attempt(backend)
            if operation == "terminal":
                await answer.close()
            if operation == "background":
                await backend.end_job(answer["id"])

    async def test_missing_jobs_are_not_found(self, backend: Backend) -> None:
        await assert_refused("not_found", backend.job_output("nothing"))
        await assert_refused("not_found", backend.end_job("nothing"))
        assert [job for job in await backend.jobs() if job["running"]] == []


class BackendCases(FileCases, CommandCases, LifecycleCases):
    """Test cases for a backend: files, searches, paths, commands, jobs, a terminal, start and stop.

        class TestAcmeBackend(BackendCases):
            unsupported = frozenset({"background", "terminal"})

            @pytest.fixture
            async def backend(self, tmp_path):
                backend = AcmeBackend(tmp_path)
                yield backend
                await backend.stop()

    The workspace is empty at the start of each case. `unsupported` has the operations that the backend refuses with the
    code `unsupported`: any of `execute`, `background`, `terminal`, `glob` and `grep`.
    """
