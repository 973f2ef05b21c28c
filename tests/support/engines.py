"""Real engines for the tests, and images made from this machine's own files: nothing is pulled.

    find_engine()                the engine of this machine; started if none answers, and stopped with the test run
    find_engine().image("plain") the name of an image, which is built on first use
    start_podman(folder)         Podman's API
    PrivateEngine(folder)        a separate engine, which may be killed, stopped and restarted
    relay_port(path)             a TCP port that leads to a Unix socket, optionally with TLS

A missing component is a skip with the package to install (in CI a failure).
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import pytest

from images import USERS, build_root, image_digest, require_programs
from leak_checks import allow_leaks

SOCKET = "/var/run/docker.sock"
LOG = f"/tmp/wick-tests-dockerd{f'-{os.getuid()}' if os.getuid() else ''}.log"

# -- asking an engine, without the client under test ----------------------------------------------------------------


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def request_engine(path: str, method: str, target: str, body: Any = None) -> tuple[int, Any]:
    """One request to the engine behind a unix socket: its status, and its answer as data where it is JSON."""
    connection = _UnixConnection(path)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    try:
        connection.request(method, target, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        said = response.read()
    finally:
        connection.close()
    try:
        return response.status, json.loads(said)
    except ValueError:
        return response.status, said


def is_answering(path: str) -> bool:
    try:
        return request_engine(path, "GET", "/_ping")[0] == 200
    except OSError:
        return False


class RunningEngine:
    """An engine that runs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = f"unix://{path}"

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        status, said = request_engine(self.path, method, target, body)
        assert status < 400, f"{method} {target}: {status} {said}"
        return said

    def image(self, name: str) -> str:
        """The name of an image, which is made if it is not there as it should be."""
        full, wanted = f"wick-test:{name}", image_digest(name)
        status, found = request_engine(self.path, "GET", f"/images/{full}/json")
        if status == 200 and (found["Config"].get("Labels") or {}).get("wick.capabilities.recipes.files") == wanted:
            return full
        changes = [f"LABEL wick.capabilities.recipes.files={wanted}", *([f"USER {name}"] if name in USERS else [])]
        told = "".join(f"&changes={quote(change)}" for change in changes)
        self.ask("POST", f"/images/create?fromSrc=-&repo={full}{told}", build_root("plain" if name in USERS else name))
        return full

    def containers(self, label: str) -> list[dict[str, Any]]:
        filters = quote(json.dumps({"label": [label]}))
        found: list[dict[str, Any]] = self.ask("GET", f"/containers/json?all=true&filters={filters}")
        return found

    def inspect(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/containers/{id}/json")
        return found

    def remove(self, label: str) -> None:
        for found in self.containers(label):
            request_engine(self.path, "DELETE", f"/containers/{found['Id']}?force=true&v=true")


@cache
def find_engine() -> RunningEngine:
    """Return the engine of this machine; tests share it, so their containers have unique labels.

    Several test runs may share it, too: the last one ends it, if one of them started it.
    """
    with allow_leaks(), open(f"{LOG}.pid", "a+") as starting:
        users = os.open(f"{LOG}.users", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        atexit.register(_stop_unused, users)
        if not is_answering(SOCKET):
            _start_main(starting)
    return RunningEngine(SOCKET)


def _start_main(note: IO[str]) -> None:
    """Start it detached: tests that list their descendants must not find all containers."""
    require_programs("dockerd", "containerd", "runc", "setsid")
    if os.getuid() != 0:
        pytest.skip("an engine can be started by root only: start one, or run the tests as root")
    command = ["setsid", "--fork", "dockerd", "-H", f"unix://{SOCKET}", f"--pidfile={LOG}.engine"]
    environment = {
        name: value for name, value in os.environ.items() if name != "TMPDIR"
    }  # it outlives this run's folder
    with open(LOG, "wb") as log:
        subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=60
        )
    deadline = time.monotonic() + 60
    while not is_answering(SOCKET):
        if time.monotonic() > deadline:
            pytest.fail(f"the engine did not start:\n{Path(LOG).read_text(errors='replace')[-2_000:]}")
        time.sleep(0.1)
    note.truncate(0)
    note.write(Path(f"{LOG}.engine").read_text())


def _stop_unused(users: int) -> None:
    """End the engine that a test run has started, unless another one uses it."""
    with open(f"{LOG}.pid", "r+") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        with suppress(OSError, ValueError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pid = int(starting.read())
            starting.truncate(0)
            _end_main(pid)


def _end_main(pid: int) -> None:
    if b"dockerd" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return  # it ended long ago, and its pid was reused
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    with suppress(OSError):
        while Path(f"/proc/{pid}/cmdline").read_bytes() and time.monotonic() < deadline:  # a zombie's is empty
            time.sleep(0.1)


def _wait_for_engine(path: str, engine: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not is_answering(path):
        if engine.poll() is not None or time.monotonic() > deadline:
            _stop_process(engine)
            pytest.fail(f"the engine did not start:\n{log.read_text(errors='replace')[-2_000:]}")
        time.sleep(0.1)


def _stop_process(engine: subprocess.Popen[bytes]) -> None:
    engine.send_signal(signal.SIGCONT)
    engine.terminate()
    try:
        engine.wait(30)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait(10)


# -- engines of one's own -------------------------------------------------------------------------------------------


class PrivateEngine(RunningEngine):
    """An engine in a network namespace of its own, so that it may be killed and the machine's docker0 stays whole."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder / "engine.sock"))
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        require_programs("dockerd", "containerd", "runc", "unshare")
        if os.getuid() != 0:
            pytest.skip("an engine can be started by root only: run the tests as root")
        for name in ("engine.pid", "exec/containerd/containerd.pid"):  # left by one that was killed
            (self.folder / name).unlink(missing_ok=True)
        command = ["unshare", "-n", "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        command += ["-H", self.url, f"--data-root={self.folder}/data", f"--exec-root={self.folder}/exec"]
        command += [f"--pidfile={self.folder}/engine.pid", "--shutdown-timeout=2"]
        environment = {**os.environ, "TMPDIR": str(self.folder)}  # for the stack dump of containerd
        with allow_leaks("module"), (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
            _wait_for_engine(self.path, self.process, self.folder / "log")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        while number == signal.SIGSTOP and not self._is_stopped(self.process.pid):
            time.sleep(0.01)

    def _is_stopped(self, pid: int) -> bool:
        """Return True if every thread has stopped; that takes a moment."""
        states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(state == "T" for state in states)

    def kill(self) -> None:
        """As a power cut of the engine alone: its containers may live on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def restart(self) -> None:
        assert self.process is not None
        _stop_process(self.process)
        self.start()

    def end(self) -> None:
        """Remove its containers and stop it, in any state."""
        if self.process is None:
            return
        self.signal(signal.SIGCONT)
        if self.process.poll() is not None:
            self.start()
        for found in self.ask("GET", "/containers/json?all=true"):
            request_engine(self.path, "DELETE", f"/containers/{found['Id']}?force=true&v=true")
        _stop_process(self.process)
        _remove_remains(self.folder)


def _remove_remains(folder: Path) -> None:
    """Remove remains of an engine: shims of its containers, mounts, files."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(f"{folder}/") in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                os.kill(int(entry.parent.name), signal.SIGKILL)
    for line in Path("/proc/mounts").read_text().splitlines():
        if (place := line.split()[1]).startswith(str(folder)):
            subprocess.run(["umount", "-l", place], check=False, timeout=20)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def start_private(folder: Path) -> Iterator[PrivateEngine]:
    engine = PrivateEngine(folder)
    try:
        engine.start()
        yield engine
    finally:
        engine.end()


@contextmanager
def start_podman(folder: Path) -> Iterator[RunningEngine]:
    """Podman's API on a socket of its own, with its own images and containers."""
    if missing := [name for name in ("podman", "conmon", "runc") if not shutil.which(name)]:
        pytest.skip(f"there is no {', '.join(missing)} here: apt-get install podman catatonit runc")
    if os.getuid() != 0:
        pytest.skip("this test runs Podman as root: run the tests as root")
    # Podman raises these limits as far as root may anywhere, which not every root may.
    files, processes = (resource.getrlimit(which)[1] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    processes = min(processes, 32_768) if processes > 0 else 32_768
    limits = [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]
    (folder / "containers.conf").write_text(f"[containers]\ndefault_ulimits={json.dumps(limits)}\n")
    command = ["podman", f"--root={folder}/data", f"--runroot={folder}/run", "--runtime=runc"]
    command += ["--cgroup-manager=cgroupfs", "system", "service", "--time=0", f"unix://{folder}/engine.sock"]
    # It leaves the images that it was sent in the folder for temporary files.
    environment = {**os.environ, "CONTAINERS_CONF": f"{folder}/containers.conf", "TMPDIR": str(folder)}
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        _wait_for_engine(f"{folder}/engine.sock", engine, folder / "log")
        yield RunningEngine(f"{folder}/engine.sock")
    finally:
        _stop_process(engine)
        _remove_remains(folder)


# -- ways to an engine ----------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def relay_port(path: str, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A TCP port on loopback that leads to a unix socket; an event loop in a thread of its own carries the bytes."""
    ready, over, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    found: list[int] = []
    joined: set[asyncio.Task[None] | None] = set()
    ends: list[asyncio.StreamWriter] = []

    async def serve() -> None:
        server = await asyncio.start_server(join, "127.0.0.1", 0, ssl=tls)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()
        await over.wait()
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for one in others & joined:
                one.cancel()
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.transport.abort()
        await asyncio.sleep(0)  # an aborted connection is closed in the next loop iteration

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        joined.add(asyncio.current_task())
        ends.append(writer)
        opening = asyncio.ensure_future(asyncio.open_unix_connection(path))
        try:
            there, to = await asyncio.shield(opening)
        except asyncio.CancelledError:  # it may come about all the same
            ends.append((await opening)[1])
            raise
        ends.append(to)
        pumps = [asyncio.create_task(pump(reader, to)), asyncio.create_task(pump(there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in pumps:
                one.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to.transport.abort()
            writer.close()  # written data is still sent

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
