"""Fixtures that give the conformance cases of stores a place to store threads in. Each tier names its own kinds:

somewhere = open_places("somewhere", "in_memory", "sqlite")          in conftest.py
from conformance.store_cases import *                                in test_stores.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from store_fixtures import StoreLocation, place
from wick.protocols import Store


def open_places(name: str, *kinds: str) -> Any:
    """Return a fixture of this name: an empty place of each of these kinds in turn."""

    @pytest.fixture(name=name, params=kinds)
    def opened(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
        return place(request.param, tmp_path)

    return opened


@pytest.fixture
async def store(somewhere: StoreLocation) -> AsyncIterator[Store]:
    opened = somewhere.open()
    yield opened
    await opened.close()
