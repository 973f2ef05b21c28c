"""Servers as processes that need not load wick first: each is a fork of one that has."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO

from leak_checks import allow_leaks

PROGRAM = Path(__file__).with_name("server_fork.py")


class ForkedProcess:
    """A process of another process, used as a `subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb", buffering=0)
        self._read = b""
        self.returncode: int | None = None
        while b"\n" not in self._read:
            if not (more := self._status.read(32)):
                raise AssertionError("the process that forks servers has ended")
            self._read += more
        pid, _, self._read = self._read.partition(b"\n")
        self.pid = int(pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            self._receive(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._receive(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"the server {self.pid}", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _receive(self, timeout: float | None) -> None:
        if select.select([self._status], [], [], timeout)[0]:
            self._read += self._status.read(32) or b""
            self.returncode = int(self._read)
            self._status.close()


class ServerForks:
    """The process that has loaded the server, and forks for each that is started."""

    def __init__(self) -> None:
        with allow_leaks():
            self._begin()
        atexit.register(self.close)

    def _begin(self) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                process_group=0,
            )

    def start(self, words: list[str], folder: Path, environment: Mapping[str, str], log: IO[bytes]) -> ForkedProcess:
        ours, status = os.pipe()
        told = json.dumps({"words": words, "folder": str(folder), "environment": dict(environment)}).encode()
        socket.send_fds(self._link, [len(told).to_bytes(4, "big")], [log.fileno(), status])
        self._link.sendall(told)
        os.close(status)
        return ForkedProcess(ours)

    def close(self) -> None:
        self._link.close()
        self._process.kill()
        self._process.wait()


@cache
def server_forks() -> ServerForks:
    """The one of this program, made when it is first needed."""
    return ServerForks()
