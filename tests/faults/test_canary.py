"""The canary detects every planted way to contact it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.canary import Canary, asked_name, canary, listening, overheard
from faults.tally import Violated

QUESTION = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"\x06canary\x04test\x00" + b"\x00\x01\x00\x01"


@pytest.fixture
def bird() -> Iterator[Canary]:
    with canary() as found:
        yield found


def test_connections_are_recorded_with_their_first_bytes(bird: Canary) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"{bird.url}/hello", timeout=60)
    assert "GET /hello HTTP/1.1" in bird.heard()
    bird.silent()


def test_silent_connections_are_recorded(bird: Canary) -> None:
    socket.create_connection(("127.0.0.1", bird.port), 60).close()
    with pytest.raises(Violated, match="called 1 times"):
        bird.silent()


@pytest.mark.parametrize("text", [b"hello", QUESTION], ids=["a datagram", "a question"])
def test_datagrams_and_dns_queries_are_recorded(bird: Canary, text: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.sendto(text, ("127.0.0.1", bird.port))
    assert bird.heard() == ("UDP 'canary.test'" if text == QUESTION else "UDP b'hello'")


def test_only_questions_have_names() -> None:
    assert asked_name(QUESTION) == "canary.test"
    assert [asked_name(data) for data in (b"", b"x" * 40, QUESTION[:12], b"GET / HTTP/1.1\r\n")] == [""] * 4


def test_every_planted_address_is_attributed(bird: Canary) -> None:
    assert all(str(bird.port) in text for text in (*bird.addresses, *bird.texts))


def test_connections_of_a_program_and_its_children_are_traced(tmp_path: Path, bird: Canary) -> None:
    call = f"import socket; socket.create_connection(('127.0.0.1', {bird.port})).close()"
    ask = "import socket; socket.socket(2, 2).connect(('127.0.0.2', 53))"  # as one asks for a name
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {call!r}]); {ask}"
    quiet, loud = tmp_path / "quiet", tmp_path / "loud"
    for trace, code in ((quiet, "print(1)"), (loud, program)):
        with subprocess.Popen([*listening(trace), sys.executable, "-c", code], stdout=subprocess.DEVNULL) as process:
            process.wait(60)
    assert f"127.0.0.1:{bird.port}" in _until(loud, 2) and "127.0.0.2:53" in _until(loud, 2)
    assert overheard(quiet) == []
    bird.heard()


def _until(trace: Path, calls: int) -> list[str]:
    """Return traced connections; strace writes them shortly after the program ended."""
    for _ in range(6_000):
        if len(found := overheard(trace)) >= calls:
            break
        time.sleep(0.01)
    return found
