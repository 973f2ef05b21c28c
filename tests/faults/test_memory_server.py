"""R3 on a server: memory is bounded for any request and any unread response."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from faults.leaks import MB
from faults.server_memory_load import KINDS, LIFTED, SERVER, Scene, idle, say
from faults.tally import FULL, Tally, Violated
from server_process import ServerProcess, open_client, run_server

MOST = 64 * MB  # more than before
WHOLE = 250 * MB  # with nothing to do
MEGABYTES, MANY = (1_000, 50) if FULL else (60, 12)
PLANTED = (150, 20) if FULL else (90, 12)  # enough to show that nothing holds them back
THREADS, STREAMS = (10_000, 1_000) if FULL else (40, 40)
SAMPLED = ("uploads by all users", "unread streams")
SERVERS: Any = "function" if FULL else "module"  # memory freed by one would hide the need of the next
NO_QUOTAS = {"runs": 0, "threads": 0, "terminals": 0, "streams": 0, "requests_per_second": 0}

pytestmark = pytest.mark.timeout(1_800 if FULL else 300)


@contextmanager
def _serving(folder: Path, fault: str = "") -> Iterator[ServerProcess]:
    with run_server(folder, script=fault + SERVER, quotas=NO_QUOTAS, grace=0.0, fresh=True) as server:
        yield server


@pytest.fixture(scope=SERVERS)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that has been spoken to before."""
    with _serving(tmp_path_factory.mktemp("fed")) as made:
        asyncio.run(_warm(made))
        yield made


async def _warm(server: ServerProcess) -> None:
    async with open_client(server) as client:
        await say(client, "loud", "1", "th_warm")
        await say(client, "files", "1", "th_files")
        async with client.ws_connect("/agents/files/terminal"):
            pass


@pytest.fixture(scope=SERVERS)
def lifted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that nothing holds back."""
    with _serving(tmp_path_factory.mktemp("lifted"), LIFTED) as made:
        asyncio.run(_warm(made))
        yield made


# -- nothing to do --------------------------------------------------------------------------------------------------


def idling(tally: Tally, server: ServerProcess, threads: int, streams: int) -> None:
    """All of it is counted; of a sample, as much as all of it would be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    try:
        scene = Scene(server, 0, 0)
        with scene.sockets:
            before, after = asyncio.run(idle(scene, threads, streams))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    whole = before + (after - before) * 1_000 // streams
    tally.note(megabytes=round(whole / MB, 1), of_streams=round((after - before) / MB, 1))
    tally.check(whole <= WHOLE, f"with {threads} threads and {streams} streams it holds {after / MB:.0f} MB")


@pytest.mark.long
def test_a_server_with_nothing_to_do_is_small(server: ServerProcess) -> None:
    with Tally("R3", f"{THREADS} idle threads, {STREAMS} idle streams") as tally:
        idling(tally, server, THREADS, STREAMS)


@pytest.mark.long
def test_memory_heavy_streams_are_detected(lifted: ServerProcess) -> None:
    with pytest.raises(Violated, match="it holds"), Tally("R3", "idle, planted", planted=True) as tally:
        idling(tally, lifted, 40, 20)


# -- much to do -----------------------------------------------------------------------------------------------------


def bounded(tally: Tally, server: ServerProcess, kind: str, megabytes: int = MEGABYTES, many: int = MANY) -> None:
    grew, said = asyncio.run(Scene(server, megabytes, many).grown(KINDS[kind]))
    tally.note(grew_megabytes=round(grew / MB, 1))
    tally.check(grew <= MOST, f"{kind}: it grew by {grew / MB:.0f} MB ({said})")


@pytest.mark.parametrize("kind", KINDS if FULL else SAMPLED)
def test_a_server_grows_by_little(server: ServerProcess, kind: str) -> None:
    with Tally("R3", f"a server, {kind}") as tally:
        bounded(tally, server, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_without_caps_is_detected(lifted: ServerProcess, kind: str) -> None:
    with pytest.raises(Violated), Tally("R3", f"a server, {kind}, planted", planted=True) as tally:
        bounded(tally, lifted, kind, *PLANTED)
