"""Real engines for the tests, and images made from this machine's own files: nothing is pulled.

    here()                the machine's engine; started if none answers, and ended with the test run
    here().image("plain") the name of an image, which is made when it is first asked for
    podman(folder)        Podman's API
    Private(folder)       an engine of one's own, which may be killed, stopped and started again
    relay(path)           a TCP port that leads to a unix socket, with TLS if asked

What is missing is a skip that says what to install (in CI a failure).
"""

from __future__ import annotations

import asyncio
import atexit
import http.client
import io
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

SOCKET = "/var/run/docker.sock"
PACKAGES = "docker.io iptables ripgrep busybox-static openssh-server openssh-client openssl"
USERS = ("reader", "toor")  # images whose own user these are: one with a name, and root by another name
WITH_PYTHON = ("python", "old", "searchless")  # the last has neither ripgrep nor grep
NEED = f"install them with: apt-get install {PACKAGES}"

# What the images hold beside Python: Debian's coreutils and their kin, as far as tests and scripts use them.
PROGRAMS = """
    sh dash bash cat chmod chown cp cut date dd df echo env false find grep head id kill ln ls mkdir mkfifo mktemp mv
    nohup nproc od printf ps pwd readlink realpath rm rmdir sed seq setsid sha256sum sleep sort stat stty sync tail tee
    test timeout touch tr true truncate tty uname uniq wc xargs yes
""".split()


# -- asking an engine, without the client under test ----------------------------------------------------------------


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def ask(path: str, method: str, target: str, body: Any = None) -> tuple[int, Any]:
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


def answers(path: str) -> bool:
    try:
        return ask(path, "GET", "/_ping")[0] == 200
    except OSError:
        return False


class Running:
    """An engine that runs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = f"unix://{path}"

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        status, said = ask(self.path, method, target, body)
        assert status < 400, f"{method} {target}: {status} {said}"
        return said

    def image(self, name: str) -> str:
        """The name of an image, which is made if it is not there as it should be."""
        full, recipe = f"wick-test:{name}", _recipe(name)
        status, found = ask(self.path, "GET", f"/images/{full}/json")
        if status == 200 and (found["Config"].get("Labels") or {}).get("wick.recipe") == recipe:
            return full
        changes = [f"LABEL wick.recipe={recipe}", *([f"USER {name}"] if name in USERS else [])]
        told = "".join(f"&changes={quote(change)}" for change in changes)
        self.ask("POST", f"/images/create?fromSrc=-&repo={full}{told}", root("plain" if name in USERS else name))
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
            ask(self.path, "DELETE", f"/containers/{found['Id']}?force=true&v=true")


@cache
def here() -> Running:
    """The engine of this machine; every test shares it, so what a test makes there has labels of its own."""
    if not answers(SOCKET):
        _start_main()
    return Running(SOCKET)


def _start_main() -> None:
    _needs("dockerd", "containerd", "runc")
    if os.getuid() != 0:
        pytest.skip("an engine can be started by root only: start one, or run the tests as root")
    path = Path(tempfile.gettempdir()) / "wick-tests-dockerd.log"
    with path.open("wb") as log:
        command = ["dockerd", "-H", f"unix://{SOCKET}"]
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    atexit.register(_end, engine)
    _await(SOCKET, engine, path)


def _needs(*programs: str) -> None:
    if missing := [name for name in programs if not shutil.which(name)]:
        pytest.skip(f"there is no {', '.join(missing)} here; {NEED}")


def _await(path: str, engine: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not answers(path):
        if engine.poll() is not None or time.monotonic() > deadline:
            _end(engine)
            pytest.fail(f"the engine did not start:\n{log.read_text(errors='replace')[-2_000:]}")
        time.sleep(0.1)


def _end(engine: subprocess.Popen[bytes]) -> None:
    engine.send_signal(signal.SIGCONT)
    engine.terminate()
    try:
        engine.wait(30)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait(10)


# -- engines of one's own -------------------------------------------------------------------------------------------


class Private(Running):
    """An engine in a network namespace of its own, so that it may be killed and the machine's docker0 stays whole."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder / "engine.sock"))
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        _needs("dockerd", "containerd", "runc", "unshare")
        if os.getuid() != 0:
            pytest.skip("an engine can be started by root only: run the tests as root")
        for name in ("engine.pid", "exec/containerd/containerd.pid"):  # left by one that was killed
            (self.folder / name).unlink(missing_ok=True)
        command = ["unshare", "-n", "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        command += ["-H", self.url, f"--data-root={self.folder}/data", f"--exec-root={self.folder}/exec"]
        command += [f"--pidfile={self.folder}/engine.pid", "--shutdown-timeout=2"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        _await(self.path, self.process, self.folder / "log")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut of the engine alone: its containers may live on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def restart(self) -> None:
        assert self.process is not None
        _end(self.process)
        self.start()

    def end(self) -> None:
        """Remove its containers and end it, whatever state it is in."""
        if self.process is None:
            return
        self.signal(signal.SIGCONT)
        if self.process.poll() is not None:
            self.start()
        for found in self.ask("GET", "/containers/json?all=true"):
            ask(self.path, "DELETE", f"/containers/{found['Id']}?force=true&v=true")
        _end(self.process)
        _forget(self.folder)


def _forget(folder: Path) -> None:
    """Remove what an engine has left: processes that watch its containers, mounts, files."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(f"{folder}/") in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                os.kill(int(entry.parent.name), signal.SIGKILL)
    for line in Path("/proc/mounts").read_text().splitlines():
        if (place := line.split()[1]).startswith(str(folder)):
            subprocess.run(["umount", "-l", place], check=False, timeout=20)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def private(folder: Path) -> Iterator[Private]:
    engine = Private(folder)
    try:
        engine.start()
        yield engine
    finally:
        engine.end()


@contextmanager
def podman(folder: Path) -> Iterator[Running]:
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
    environment = {**os.environ, "CONTAINERS_CONF": f"{folder}/containers.conf"}
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        _await(f"{folder}/engine.sock", engine, folder / "log")
        yield Running(f"{folder}/engine.sock")
    finally:
        _end(engine)
        _forget(folder)


# -- images ---------------------------------------------------------------------------------------------------------


def tar(files: dict[str, bytes]) -> bytes:
    """An archive, as the engine takes it."""
    buffer = io.BytesIO()
    with tarfile.TarFile(fileobj=buffer, mode="w") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _recipe(name: str) -> str:
    """Changes when an image would come out different."""
    python = _python(name) if name in WITH_PYTHON else None
    return f"4-{name}-{python.version if python else ''}"


@cache
def root(name: str) -> bytes:
    """A root file system as a tar."""
    tree = _Tree()
    if name == "busybox":
        tree.busybox()
    else:
        tree.programs(set(PROGRAMS) - ({"grep"} if name == "searchless" else set()))
    if name in WITH_PYTHON:
        tree.python(_python(name))
    if name in ("python", "old"):
        tree.programs(["rg"])
    return tree.tar()


class _Tree:
    """A root file system in the making; folders are /usr's, as Debian has it."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._buffer, mode="w")
        self._there: set[str] = set()
        for folder in ("usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "root", "var", "proc", "sys", "dev"):
            self.folder(folder)
        for name in ("bin", "lib", "lib64", "sbin"):
            self.link(name, f"usr/{name}")
        self.folder("tmp", mode=0o1777)
        self.text("etc/passwd", "root:x:0:0::/root:/bin/sh\nreader:x:4242:4343::/tmp:/bin/sh\ntoor:x:0:0::/:/bin/sh\n")
        self.text("etc/group", "root:x:0:\nreader:x:4242:\n")

    def tar(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()

    def programs(self, names: Iterable[str]) -> None:
        _needs(*(set(names) & {"rg"}))
        found = [path for name in names if (path := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))]
        for path in found:
            self.file(path, f"usr/bin/{Path(path).name}")
        self.libraries(found)

    def libraries(self, programs: Iterable[str | Path]) -> None:
        """What programs are linked with."""
        done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False, timeout=60)
        for word in sorted({word for word in done.stdout.split() if word.startswith("/") and ".so" in word}):
            self.file(word.rstrip(":"))

    def busybox(self) -> None:
        _needs("busybox")
        self.file(str(shutil.which("busybox")), "usr/bin/busybox")
        self.libraries([str(shutil.which("busybox"))])
        for name in subprocess.check_output(["busybox", "--list"], text=True, timeout=10).split():
            if name != "busybox":
                self.link(f"usr/bin/{name}", "busybox")

    def python(self, python: _Python) -> None:
        self.file(python.executable)
        if python.executable != "/usr/bin/python3":
            self.link("usr/bin/python3", python.executable)
        skipped = {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "lib2to3", "__pycache__"}
        modules = []
        for folder, folders, files in os.walk(python.library):
            folders[:] = [name for name in folders if name not in skipped and not name.startswith("config-")]
            for name in files:
                self.file(f"{folder}/{name}")
                modules += [f"{folder}/{name}"] if name.endswith(".so") else []
        self.libraries([python.executable, *modules])

    def file(self, path: str | Path, at: str = "") -> None:
        name = _usr(at or str(path))
        if name in self._there or not os.path.isfile(path):
            return
        self.folder(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.size, info.mode = os.path.getsize(path), 0o755 if os.access(path, os.X_OK) else 0o644
        with open(path, "rb") as file:
            self._add(info, file)

    def text(self, name: str, content: str) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        self._add(info, io.BytesIO(content.encode()))

    def folder(self, name: str, mode: int = 0o755) -> None:
        if name in self._there or not name:
            return
        self.folder(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._add(info)

    def link(self, name: str, target: str) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._add(info)

    def _add(self, info: tarfile.TarInfo, content: Any = None) -> None:
        if info.name not in self._there:
            self._there.add(info.name)
            self._tar.addfile(info, content)


def _usr(path: str) -> str:
    """A path's place in the tar: /bin, /lib, /lib64 and /sbin are links to their namesakes in /usr."""
    parts = path.strip("/").split("/")
    return "/".join((["usr"] if parts[0] in ("bin", "lib", "lib64", "sbin") else []) + parts)


class _Python:
    """A Python of this machine that can be copied into an image."""

    def __init__(self, command: str) -> None:
        code = "import json, os, sys, sysconfig as s; print(json.dumps([os.path.realpath(sys.executable), "
        code += "s.get_path('stdlib', vars={'installed_base': sys.base_prefix}), sys.version.split()[0]]))"
        said = subprocess.check_output([command, "-I", "-c", code], text=True, timeout=30)
        self.executable, self.library, self.version = json.loads(said)


@cache
def _python(name: str) -> _Python:
    """The system's Python, or else the one that runs the tests; `old` is a 3.8, which not every machine has."""
    if name != "old":
        return _Python("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable)
    return _Python(_old_pythons()[0])


def _old_pythons() -> list[str]:
    found = [*Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"), Path("/usr/bin/python3.8")]
    return [str(path) for path in found if path.exists()]


def images() -> list[str]:
    """The images with a Python that can be made here."""
    return ["python", *(["old"] if _old_pythons() else [])]


# -- ways to an engine ----------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def await_port(port: int) -> None:
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
def relay(path: str, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A TCP port on loopback that leads to a unix socket; an event loop in a thread of its own carries the bytes."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    found: list[int] = []

    async def serve() -> None:
        server = await asyncio.start_server(join, "127.0.0.1", 0, ssl=tls)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_unix_connection(path)
        pumps = [asyncio.create_task(pump(reader, to)), asyncio.create_task(pump(there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in pumps:
                one.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to.transport.abort()
            writer.close()  # what was written still goes out

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            with suppress(asyncio.CancelledError):
                runner.run(serve())
            runner.run(asyncio.sleep(0.05))  # for what was aborted to be closed

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0]
    finally:
        for task in asyncio.all_tasks(loop):
            loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
