"""Canary: a listener that records every connection, and addresses to plant in untrusted text.

    with canary() as bird:
        ...  # plant bird.addresses and bird.texts wherever a text goes
        bird.silent()       # or it is Violated, and says who came

It hears TCP with its first bytes, datagrams and questions for names, on both loopbacks. Who was called beyond it, by
any process of a program, the kernel says: `overheard(trace)` reads what `strace` wrote of a program that was started
with `listening(trace)` before its command.
"""

from __future__ import annotations

import re
import selectors
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from faults.tally import Violated

FIRST_BYTES = 200
FIRST_SECONDS = 5.0  # time for a connection in progress on a busy machine
LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
DNS_HEAD = 12


class Canary:
    """A listener that records connections and their first bytes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._selector = selectors.DefaultSelector()
        self._over = threading.Event()
        self.port = self._bind()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    # -- planted addresses --------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def addresses(self) -> list[str]:
        """Return spellings of its address, each with another path, so that the followed one is known."""
        port = self.port
        return [
            f"{self.url}/plain",
            f"https://127.0.0.1:{port}/tls",
            f"ws://127.0.0.1:{port}/socket",
            f"http://localhost:{port}/name",
            f"http://[::1]:{port}/six",
            f"http://[::ffff:127.0.0.1]:{port}/mapped",
            f"http://127.1:{port}/short",
            f"http://2130706433:{port}/number",
            f"http://0x7f.0.0.1:{port}/hex",
            f"http://0:{port}/zero",
            f"http://user:word@127.0.0.1:{port}/user",
            f"http://canary.localhost:{port}/below",
            f"//127.0.0.1:{port}/scheme",
            f"tcp://127.0.0.1:{port}",
            f"file://127.0.0.1:{port}/file",
            f"ftp://127.0.0.1:{port}/ftp",
            f"gopher://127.0.0.1:{port}/_gopher",
            f"\\\\127.0.0.1@{port}\\share",
            f"127.0.0.1:{port}",
        ]

    @property
    def texts(self) -> list[str]:
        """Return texts with planted addresses."""
        url = self.url
        return [
            f"<script src={url}/script></script><img src={url}/img onerror=fetch('{url}/error')>",
            f"<link rel=preconnect href={url}><link rel=dns-prefetch href={url}><link rel=stylesheet href={url}/css>",
            f"<style>@import url({url}/import); * {{ background: url({url}/background) }}</style>",
            f"![x]({url}/markdown) [x]: {url}/reference <{url}/auto>",
            f"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM '{url}/entity'>]><x>&e;</x>",
            f"${{jndi:ldap://127.0.0.1:{self.port}/x}} {{{{ fetch('{url}/template') }}}}",
            f'=WEBSERVICE("{url}/cell")',
            f"$(curl -s {url}/shell) `wget -q {url}/backtick` | curl {url}/pipe",
            f"!include {url}/yaml\n<<: !!python/object/apply:urllib.request.urlopen ['{url}/python']",
            f"data:text/html,<img src={url}/data>",
        ]

    # -- recorded connections -----------------------------------------------------------------------------------------

    def silent(self) -> None:
        """Raise Violated if a connection arrived; wait for connections in progress."""
        self._settle()
        if self.calls:
            raise Violated(f"the canary was called {len(self.calls)} times: {self.calls[:5]}")

    def heard(self, seconds: float = 60.0) -> str:
        """Wait for the next call; remove and return it."""
        end = time.monotonic() + seconds
        while not self.calls:
            if time.monotonic() > end:
                raise Violated(f"no call of the canary within {seconds} s")
            time.sleep(0.005)
        return self.calls.pop(0)

    def _settle(self) -> None:
        """Connect to itself: every earlier connection has been recorded then."""
        mark = f"settle {time.monotonic_ns()}"
        with socket.create_connection(("127.0.0.1", self.port), 60) as own:
            own.sendall(mark.encode())
        end = time.monotonic() + 60
        while not any(mark in call for call in self.calls):
            if time.monotonic() > end:
                raise Violated("the canary does not hear")
            time.sleep(0.002)
        self.calls[:] = [call for call in self.calls if mark not in call]

    def close(self) -> None:
        self._over.set()
        self._thread.join(60)
        for key in [*self._selector.get_map().values()]:
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    # -- listening ----------------------------------------------------------------------------------------------------

    def _bind(self) -> int:
        """One port for TCP and UDP on each loopback that there is."""
        for _ in range(50):
            made: list[socket.socket] = []
            try:
                port = 0
                for family, host in LOOPBACKS:
                    if family == socket.AF_INET6 and not _has_six():
                        continue
                    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                        made.append(_bound(family, kind, host, port))
                        port = made[0].getsockname()[1]
            except OSError:
                for one in made:
                    one.close()
                continue
            for one in made:
                self._selector.register(one, selectors.EVENT_READ)
            return int(port)
        raise OSError("there is no port that is free for TCP and UDP")

    def _listen(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.05):
                with suppress(OSError):
                    self._hear(key.fileobj)  # type: ignore[arg-type]

    def _hear(self, ear: socket.socket) -> None:
        if ear.type == socket.SOCK_DGRAM:
            data, _ = ear.recvfrom(4_096)
            self.calls.append(f"UDP {asked_name(data) or data[:FIRST_BYTES]!r}")
            return
        caller, _ = ear.accept()
        with caller:
            caller.settimeout(FIRST_SECONDS)
            said = b""
            with suppress(OSError):
                said = caller.recv(FIRST_BYTES)
        self.calls.append(f"TCP {said!r}")


def _has_six() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _bound(family: int, kind: int, host: str, port: int) -> socket.socket:
    made = socket.socket(family, kind)
    try:
        made.bind((host, port))
        if kind == socket.SOCK_STREAM:
            made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def asked_name(data: bytes) -> str:
    """The name that a datagram asks for, if it is a question of DNS; else nothing."""
    if len(data) <= DNS_HEAD or data[2] & 0xF8 or data[4:6] != b"\0\1":
        return ""
    labels, at = [], DNS_HEAD
    while at < len(data) and (size := data[at]):
        labels.append(data[at + 1 : at + 1 + size].decode("latin-1"))
        at += 1 + size
    return ".".join(labels)


@contextmanager
def canary() -> Iterator[Canary]:
    """One that listens for as long as this is open."""
    bird = Canary()
    try:
        yield bird
    finally:
        bird.close()


# -- connections of a program -----------------------------------------------------------------------------------------

_INET = re.compile(
    r"sa_family=AF_INET6?,.*?htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )\"([^\"]+)\""
    r".*\) += (?:0|-1 EINPROGRESS)"
)


def listening(trace: Path) -> list[str]:
    """Return the strace prefix of a command whose connections are traced; the command keeps its pid."""
    if shutil.which("strace") is None:
        pytest.skip("strace is missing; install it with: apt-get install strace")
    return ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-etrace=connect", f"-o{trace}"]


def overheard(trace: Path) -> list[str]:
    """Return the remote addresses of a program and its children as `address:port`, without Unix sockets."""
    with suppress(FileNotFoundError):
        return [f"{host}:{port}" for port, host in _INET.findall(trace.read_text(errors="replace"))]
    return []
