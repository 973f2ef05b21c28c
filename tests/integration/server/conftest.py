"""Fixtures of the server tests: a running server on each store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server_process import ServerProcess, run_server

STORES = ("sqlite", "postgres")


@pytest.fixture(scope="session", params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def server(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`wick serve` in a process of its own, shared by the tests that leave it as it was; once for each store."""
    with run_server(tmp_path_factory.mktemp("served"), store=store) as found:
        yield found
        assert "Traceback" not in found.log
