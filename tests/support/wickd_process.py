"""Shared by the wickd tests: a wickd spoken to line by line, and a list of leftover processes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wick.wickd import zipapp

MARK = "WICK_TEST_MARK"


def marked_processes(mark: str) -> list[int]:
    """Return processes with the mark in their environment, without zombies."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


def marked_environment(mark: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], MARK: mark}


def becomes_true(true: Callable[[], Any], seconds: float = 30.0) -> bool:
    """Return True if the condition becomes true."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


class LineClient:
    """One end of a conversation with wickd."""

    def __init__(self, reads: int, writes: int) -> None:
        self.reads, self.writes, self._said = reads, writes, b""

    def say(self, request: Any) -> None:
        line = request if isinstance(request, bytes) else json.dumps(request).encode()
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(self.writes, view) :]

    def hear(self, seconds: float = 60.0) -> dict[str, Any]:
        """The next reply; {} at the end."""
        until = time.monotonic() + seconds
        while b"\n" not in self._said:
            ready, _, _ = select.select([self.reads], [], [], max(0.0, until - time.monotonic()))
            assert ready, "wickd did not answer"
            try:
                data = os.read(self.reads, 1_048_576)
            except ConnectionResetError:
                data = b""
            if not data:
                return {}
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def ask(self, request: Any, seconds: float = 60.0) -> dict[str, Any]:
        self.say(request)
        return self.hear(seconds)

    def all_of(self, id: str) -> list[dict[str, Any]]:
        """Every reply up to the final one."""
        found = [self.hear()]
        while "chunk" in found[-1]:
            found.append(self.hear())
        assert {reply["id"] for reply in found} == {id}
        return found


class WickdProcess(LineClient):
    """A wickd of its own, as a container has it: the packed file, an isolated Python, pipes."""

    def __init__(self, *options: str, python: str = sys.executable, platform: str = "") -> None:
        with tempfile.NamedTemporaryFile(suffix=".pyz", delete=False) as file:
            file.write(zipapp.build_zipapp())
        self.path = file.name
        elsewhere = (
            f"import runpy, sys; sys.platform = {platform!r}; runpy.run_path({self.path!r}, run_name='__main__')"
        )
        what = ["-c", elsewhere] if platform else [self.path]
        self.process = subprocess.Popen(
            [python, "-I", "-S", "-E", *what, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdin and self.process.stdout
        super().__init__(self.process.stdout.fileno(), self.process.stdin.fileno())

    def tree(self) -> list[int]:
        """The guard, wickd, and everything below them."""
        found = [self.process.pid]
        for pid in found:
            with suppress(FileNotFoundError, ProcessLookupError):  # one that has just ended has no children
                for task in Path(f"/proc/{pid}/task").glob("*/children"):
                    found += map(int, task.read_text().split())
        return found

    @property
    def pid(self) -> int:
        """wickd itself, below its guard."""
        return int(self.ask({"id": "who", "op": "ping"})["result"]["pid"])

    def memory(self) -> int:
        """The most that wickd ever had, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def end(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise
        finally:
            self.process.stdout.close()
            Path(self.path).unlink()


@contextmanager
def wickd(*options: str, python: str = sys.executable, platform: str = "") -> Iterator[WickdProcess]:
    one = WickdProcess(*options, python=python, platform=platform)
    try:
        yield one
    finally:
        one.end()


@contextmanager
def connect_when_ready(address: Any) -> Iterator[LineClient]:
    """A connection to a wickd that listens, as soon as it does."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as peer:
        assert becomes_true(lambda: peer.connect_ex(address) == 0)
        yield LineClient(peer.fileno(), peer.fileno())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
