"""Fixtures of the hook program tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from executables.worker_kit import Make, WorkerProgram, wait_until_ended
from programs import Programs
from wick import constants

HERE = Path(__file__).parent
ALONE = ("test_pipe.py",)  # its pipes end with their event loop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a module share an event loop, and so the wickd that starts their programs."""
    for item in items:
        shares = HERE in item.path.parents and item.path.name not in ALONE
        if shares and iscoroutinefunction(getattr(item, "function", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture
def _no_task_left(request: pytest.FixtureRequest) -> None:
    """No test leaves a task behind, though the event loop may not be its own."""
    request.getfixturevalue("_own_tasks_end" if request.node.path.name in ALONE else "_shared_tasks_end")


@pytest_asyncio.fixture(loop_scope="function")
async def _own_tasks_end() -> AsyncIterator[None]:
    async with _no_task_stays():
        yield


@pytest_asyncio.fixture(loop_scope="module")
async def _shared_tasks_end() -> AsyncIterator[None]:
    async with _no_task_stays():
        yield


@asynccontextmanager
async def _no_task_stays() -> AsyncIterator[None]:
    there = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - there - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=20)
    assert not left, f"the test left tasks behind: {', '.join(sorted(map(repr, left)))}"


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary home for trust and settings."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines are busy: no program is broken because it was slow to begin."""
    monkeypatch.setattr(constants, "HOOK_TYPE_SECONDS", 60.0)
    monkeypatch.setattr(constants, "WARM_START_SECONDS", 60.0)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Programs of which nothing is left in the end."""
    made = Programs(tmp_path)
    yield made
    assert made.remaining() == []


@pytest_asyncio.fixture(loop_scope="module")
async def program(tmp_path: Path) -> AsyncIterator[Make]:
    """Create worker programs; afterwards none of their processes is left."""
    made: list[WorkerProgram] = []

    def make(body: str = "", **hook: Any) -> WorkerProgram:
        made.append(WorkerProgram(tmp_path, body, **hook))
        return made[-1]

    yield make
    for kept in made:
        for what in filter(None, (kept.serving, kept.capability)):
            await what.close()
        assert await wait_until_ended(*kept.starts)
