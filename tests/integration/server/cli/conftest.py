"""A server for the command tests, and the two hosts that commands use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.forked_command import ForkedWick
from cli.hosts import AGENTS, HostCommand
from server_process import ServerProcess, run_server


@pytest.fixture(scope="session")
def cli_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("cli_server"), config=AGENTS) as found:
        yield found


@pytest.fixture(params=["here", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> HostCommand:
    """Each test runs twice: on this machine's data folder, and at a server."""
    server = request.getfixturevalue("cli_server") if request.param == "server" else None
    return HostCommand(ForkedWick(tmp_path), server)
