"""The compose file with three servers is brought up: Postgres, NATS and HAProxy are the programs of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

import engines
from compose import compose_command
from images import require_programs
from nats_server import find_program
from postgres import FOLDERS
from wick.client import ServerError, SyncClient

DEPLOY = Path(__file__).parents[3] / "deploy"
TOKEN = "a-token-that-is-long-enough"
WAIT_SECONDS = 60.0

# What the entry point of the official image does: create the cluster and the database of its environment.
POSTGRES = """
set -e
mkdir -p /var/run/postgresql && chown 4242:4343 /var/run/postgresql "$DATA"
printf %s "$POSTGRES_PASSWORD" >/tmp/password && chown 4242 /tmp/password
run() { setpriv --reuid=4242 --regid=4343 --clear-groups "$@"; }
run initdb -D "$DATA" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 -E UTF8 --locale=C.UTF-8 --no-sync
echo "host all all all scram-sha-256" >>"$DATA/pg_hba.conf"
echo "CREATE DATABASE $POSTGRES_DB" | run postgres --single -D "$DATA" postgres
exec setpriv --reuid=4242 --regid=4343 --clear-groups postgres -D "$DATA" -c "listen_addresses=*" "$@"
"""


def programs_override() -> dict[str, Any]:
    """Return a compose file that runs the programs of this machine in place of the images of registries."""
    engine = engines.find_engine()
    folders = {Path("/usr"), DEPLOY.parent, Path(sys.prefix), Path(sys.base_prefix)}
    outermost = [folder for folder in sorted(folders) if not any(above in folders for above in folder.parents)]
    host = {"image": engine.image("plain"), "volumes": [f"{folder}:{folder}:ro" for folder in outermost]}
    # `init` needs a file in /usr, which is read-only here
    wick = {**host, "init": False, "entrypoint": [sys.executable, "-m", "wick.cli"]}
    wick["environment"] = {"WICK_DATA": "/data", "WICK_HOST": "0.0.0.0", "WICK_PORT": "8000", "HOME": "/data"}
    database = {"DATA": "/var/lib/postgresql/data", "PATH": f"{FOLDERS[0]}:/usr/bin:/usr/sbin"}
    return {
        "services": {
            **{f"wick-{number}": wick for number in (1, 2, 3)},
            "db": {
                **host,
                "entrypoint": ["sh", "-c", POSTGRES.replace("$", "$$"), "postgres"],
                "environment": database,
                "healthcheck": {"interval": "1s"},
            },
            "nats": {**host, "entrypoint": [find_program()]},
            "proxy": {
                "image": engine.image("haproxy"),
                "entrypoint": ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"],
            },
        }
    }


class Project:
    """The services of the compose file, with a port of this machine."""

    def __init__(self, folder: Path) -> None:
        self.port = engines.free_port()
        override = folder / "override.yaml"
        override.write_text(yaml.safe_dump(programs_override()))
        files = ("-f", str(DEPLOY / "compose.yaml"), "-f", str(override))
        self._command = [*compose_command(), "-p", f"wick-test-{uuid4().hex[:8]}", *files]
        given = {"WICK_TOKEN": TOKEN, "POSTGRES_PASSWORD": "a-password", "WICK_PORT": str(self.port)}
        self._environment = {**os.environ, **given, "DOCKER_HOST": engines.find_engine().url}

    def call(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], env=self._environment, capture_output=True, text=True, timeout=250, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def open_client(self) -> SyncClient:
        return SyncClient(f"http://localhost:{self.port}", TOKEN)

    def wait_servers(self, count: int) -> None:
        """Wait until so many servers are alive, reach each other and NATS, according to one that the proxy chooses."""
        deadline, found = time.monotonic() + WAIT_SECONDS, None
        while time.monotonic() < deadline:
            with suppress(ServerError, OSError), self.open_client() as client:
                found = client.cluster()
                alive = [server for server in found.servers if server.alive]
                if found.live_connected and len(alive) == count and not any(server.problem for server in alive):
                    return
            time.sleep(0.2)
        pytest.fail(f"there are not {count} servers, but {found}:\n{self.call('logs', '--tail=30')}")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    require_programs("docker", "haproxy", "setpriv")
    if not compose_command() or not FOLDERS:
        pytest.skip("install them with: apt-get install docker-compose postgresql")
    project = Project(tmp_path)
    try:
        project.call("up", "--detach")
        yield project
    finally:
        project.call("down", "--volumes", "--timeout", "0")


@pytest.mark.timeout(300)
def test_agents_answer_behind_the_proxy_also_after_a_server_was_killed(project: Project) -> None:
    project.wait_servers(3)
    with project.open_client() as client:
        assert "Offline demo model" in client.invoke("default", "What can you do?").response
    project.call("kill", "wick-2")
    for _ in range(3):  # the proxy takes the servers in turn
        with project.open_client() as client:
            assert client.invoke("default", "What can you do?").outcome == "completed"
    project.wait_servers(2)
