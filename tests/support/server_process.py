"""A real server for the tests: `wick serve` in a process of its own, with users of every role."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from forked_server import ForkedProcess, server_forks
from leak_checks import allow_leaks
from postgres import shared_server as postgres_server
from wick import cli
from wick.server.server import Server
from wick.server.service import Service
from wick.server.settings import Settings

TOKENS = {  # ada and bob are users like any other, olga is an operator, root an admin
    "ada": "ada-token-0123456789abcdef",
    "bob": "bob-token-0123456789abcdef",
    "olga": "olga-token-0123456789abcdef",
    "root": "root-token-0123456789abcdef",
}
ROLES = {"ada": "user", "bob": "user", "olga": "operator", "root": "admin"}
READ_WHILE_LOADING = ("PYTHON", "LD_", "SSL_")  # variables that a process which has loaded wick does not read again
CLI = Path(cli.__file__).with_name("__main__.py")
DEMO: Mapping[str, Any] = {
    "agents": {
        "default": {"model": "demo", "backend": {"type": "local"}, "skills": True, "recorder": True},
        "plain": {"model": "demo"},
    }
}


def server_settings(store: str, folder: Path, **more: Any) -> dict[str, Any]:
    """Return the server.yaml of these tests."""
    listed = [
        {"name": name, "role": ROLES[name], "sha256": sha256(token.encode()).hexdigest()}
        for name, token in TOKENS.items()
    ]
    said: dict[str, Any] = {"tokens": listed, "grace": 5.0, "quotas": {"requests_per_second": 0}}
    said["titles"] = False  # tests count the requests to their models
    if store == "postgres":
        said |= {"store": postgres_server().conninfo, "store_schema": postgres_server().schema()}
    if store == "memory":
        said["store"] = store
    return {**said, **more}


class ServerKilled(AssertionError):
    """The server was killed by a signal before it listened."""


@dataclass
class ServerProcess:
    """A server that is running, or has been killed and can be started again."""

    folder: Path
    command: list[str]
    environment: dict[str, str]
    fresh: bool = True  # it loads wick, as people start it; otherwise it is a fork of a process that has
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    url: str = ""
    link: str = ""
    starts: int = 0
    sessions: list[aiohttp.ClientSession] = field(default_factory=list)

    @property
    def log(self) -> str:
        return (self.folder / "serve.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it and wait for its address."""
        before = len(self.log) if (self.folder / "serve.log").exists() else 0
        again = allow_leaks("module") if self.starts else nullcontext()  # then it may be a wider fixture's
        with again, (self.folder / "serve.log").open("ab") as log:
            self.process = self._begin(log)
        self.starts += 1
        for _ in range(1200):
            if found := re.search(r"wick serves (http://\S+)\n", self.log[before:]):
                self.url = found[1]
                self._wait_until_ready()
                if link := re.search(r"sign in +(\S+#ticket=\S+)", self.log[before:]):
                    self.link = link[1]
                return
            if self.process.poll() is not None:
                if self.process.returncode == -signal.SIGKILL:
                    raise ServerKilled(f"the server was killed while it started:\n{self.log}")
                break
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"the server did not start:\n{self.log}")

    def _begin(self, log: IO[bytes]) -> subprocess.Popen[bytes] | ForkedProcess:
        if not self.fresh:
            return server_forks().start(self.command[1:], self.folder, self.environment, log)
        return subprocess.Popen(
            self.command,
            env=self.environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            process_group=0,  # Ctrl-C is for the parent process, which stops it
        )

    def _wait_until_ready(self) -> None:
        """A response shows that all startup lines were printed, as they are printed at once."""
        where = urlsplit(self.url)
        asking = HTTPConnection(where.hostname or "", where.port, timeout=60)
        try:
            with suppress(OSError, HTTPException):
                asking.request("GET", "/health")
                asking.getresponse().read()
        finally:
            asking.close()

    def stop(self, seconds: float = 60) -> int:
        """Ask it to stop, as an operator would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Kill -9."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)

    def client(self, user: str = "ada", **headers: str) -> aiohttp.ClientSession:
        """Return a client session of a user; '' is anonymous."""
        if user:
            headers["Authorization"] = f"Bearer {TOKENS.get(user, user)}"
        made = aiohttp.ClientSession(self.url, headers=headers, timeout=aiohttp.ClientTimeout(total=60))
        self.sessions.append(made)
        return made


@contextmanager
def run_server(
    folder: Path,
    *,
    store: str = "sqlite",
    config: Mapping[str, Any] | str | None = DEMO,
    flags: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    script: str = "",
    planted: str = "",
    fresh: bool = False,
    **more: Any,
) -> Iterator[ServerProcess]:
    """Run a server in another process; `script` is a Python program in place of `wick serve`.

    It is a fork of a process that has loaded wick, unless it is to be `fresh`.

    `planted` names a fault of tests/faults/planted_faults.py that is planted into it.

    `more` are settings of server.yaml. A script finds them in the file that WICK_SETTINGS names, and prints what
    `wick serve` prints.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "server.yaml"
    said.write_text(yaml.safe_dump(server_settings(store, folder, **more)))
    if script:
        (folder / "served.py").write_text(script)
        command = [sys.executable, *_fault_arguments(planted), str(folder / "served.py")]
    else:
        program = [*_fault_arguments(planted), str(CLI)] if planted else ["-m", "wick.cli"]
        command = [sys.executable, *program, "serve", "--settings", str(said), "--port", "0", *flags]
        command += ["--data", str(folder / "data")]
        if config is not None:
            agents = folder / "agents.yaml"
            agents.write_text(config if isinstance(config, str) else yaml.safe_dump(dict(config)))
            command += ["--config", str(agents)]
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("WICK_") and "API_KEY" not in key
    }
    extra = {"WICK_SETTINGS": str(said), "WICK_DATA": str(folder / "data"), "WICK_PORT": "0"} if script else {}
    variables = {**inherited, "PYTHONUNBUFFERED": "1", **extra, **(environment or {})}
    loading = any(name.startswith(READ_WHILE_LOADING) for name in environment or ())
    server = ServerProcess(folder, command, variables, fresh or loading or bool(planted) or "--workers" in flags)
    try:
        server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                server.stop()
        server.kill()


def _fault_arguments(fault: str) -> list[str]:
    return [str(Path(__file__).parents[1] / "faults" / "planted_faults.py"), fault] if fault else []


@dataclass
class InProcessServer:
    """A server in the event loop of the test: real sockets, and its insides at hand."""

    server: Server
    url: str = ""

    @property
    def service(self) -> Service:
        return self.server.service

    def client(self, user: str = "ada", **headers: str) -> aiohttp.ClientSession:
        if user:
            headers["Authorization"] = f"Bearer {TOKENS.get(user, user)}"
        return aiohttp.ClientSession(self.url, headers=headers, timeout=aiohttp.ClientTimeout(total=60))


@asynccontextmanager
async def host_server(
    folder: Path, *, store: str = "sqlite", agents: Mapping[str, Any] | None = None, tools: Any = (), **more: Any
) -> AsyncIterator[InProcessServer]:
    """A server in this event loop, with agents as a program registers them; `more` are settings."""
    said = {"port": 0, "data": folder / "data", **server_settings(store, folder, **more)}
    made = Server(settings=Settings(**said).check())
    for id, agent in (agents or {}).items():
        made.register_agent(id, agent)
    for tool in tools:
        made.register_tool(tool)
    lines: list[str] = []
    task = asyncio.create_task(made.serve(tell=lines.append))
    try:
        while not lines and not task.done():
            await asyncio.sleep(0.01)
        if task.done():
            task.result()
        yield InProcessServer(made, lines[0].split()[-1])
    finally:
        made.shutdown()
        await task


@asynccontextmanager
async def open_client(
    server: ServerProcess | InProcessServer, user: str = "ada", **headers: str
) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a client session of a user."""
    async with server.client(user, **headers) as client:
        yield client


async def read_events(answer: aiohttp.ClientResponse, until: str = "") -> list[dict[str, Any]]:
    """The frames of a stream to its end, or to the first event of that name: `id`, `event`, `data`."""
    found: list[dict[str, Any]] = []
    async for frame in read_frames(answer):
        found.append(frame)
        if frame["event"] == until:
            break
    return found


async def read_frames(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Each frame of a stream; comments are left out."""
    lines: dict[str, str] = {}
    async for raw in answer.content:
        line = raw.decode().rstrip("\r\n")
        if line:
            key, _, value = line.partition(":")
            if key:
                lines[key] = f"{lines[key]}\n{value.lstrip(' ')}" if key in lines else value.removeprefix(" ")
        elif lines:
            data = json.loads(lines["data"]) if lines.get("data") else None
            yield {"id": lines.get("id", ""), "event": lines.get("event", "message"), "data": data}
            lines = {}


async def wait_until(check: Any, seconds: float = 60.0) -> Any:
    """Return the first true result of `check()`."""
    until = time.monotonic() + seconds
    while not (found := await check()):
        assert time.monotonic() < until, f"it did not happen within {seconds} s"
        await asyncio.sleep(0.05)
    return found
