"""A server with agents for the tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents_program import AGENTS
from server_process import ServerProcess, run_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("served"), script=AGENTS) as found:
        yield found
