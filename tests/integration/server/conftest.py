"""What the tests of the server share: one that runs, on each store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server_process import Served, serving

STORES = ("sqlite", "postgres")


@pytest.fixture(scope="session", params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def served(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`wick serve` in a process of its own, shared by the tests that leave it as it was; once for each store."""
    with serving(tmp_path_factory.mktemp("served"), store=store) as found:
        yield found
        assert "Traceback" not in found.log
