"""A pytest plugin, loaded automatically: a test fails if it leaves replies of a `Scripted` model unused."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from wick.models import scripted


def pytest_runtest_setup(item: pytest.Item) -> None:
    scripted.watched = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    for model in scripted.watched or ():
        model.check()
    return result


def pytest_runtest_teardown(item: pytest.Item) -> None:
    scripted.watched = None
