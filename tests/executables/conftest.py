"""What the tests of hook programs share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import pytest_asyncio

from programs import Programs

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a module share an event loop, and so the wickd that starts their programs."""
    for item in items:
        if HERE in item.path.parents and iscoroutinefunction(getattr(item, "function", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(loop_scope="module")
async def _no_task_left() -> AsyncIterator[None]:
    """No test leaves a task behind, though the event loop is not its own."""
    there = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - there - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=1)
    assert not left, f"the test left tasks behind: {', '.join(sorted(map(repr, left)))}"


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is remembered in the home of who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Programs of which nothing is left in the end."""
    made = Programs(tmp_path)
    yield made
    assert made.left() == []
