"""A Postgres server of the tests' own: started when first needed, on a port of its own, and ended with them."""

from __future__ import annotations

import atexit
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from leak_checks import allow_leaks
from ports import own_port

FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
PARENT_DIED = 1  # PR_SET_PDEATHSIG
_schemas = count(1)


@dataclass
class PostgresServer:
    """A running server. Its data is real: it syncs to disk as a server in use does."""

    folder: Path
    programs: Path
    user: str
    port: int
    kept: ExitStack = field(repr=False)  # its port, also while it is stopped
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    address: str = "127.0.0.1"

    @property
    def conninfo(self) -> str:
        return f"host={self.address} port={self.port} user={self.user} dbname=postgres"

    def start(self) -> None:
        options = f"listen_addresses={self.address} port={self.port} max_connections=200"
        options += f" unix_socket_directories={self.folder}"
        settings = [part for option in options.split() for part in ("-c", option)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.folder / "data", *settings],
                **_run_as(self.user),
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,  # a test run that is killed leaves no server behind
            )
        self._wait()

    def _wait(self) -> None:
        ready = [self.programs / "pg_isready", "-q", "-h", self.address, "-p", str(self.port), "-U", self.user]
        for _ in range(1200):
            if subprocess.run(ready, check=False, timeout=30).returncode == 0:
                return
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise AssertionError(f"Postgres did not start: {(self.folder / 'log').read_text()}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT as its operator would, SIGQUIT as a crash would."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        self.kept.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def schema() -> str:
        """A name that no other test has."""
        return f"t{os.getpid()}_{next(_schemas)}"


@cache
def shared_server() -> PostgresServer:
    """The server that all tests share; each has a schema of its own in it."""
    with allow_leaks():
        return new_server()


def new_server(address: str = "127.0.0.1", network: str = "") -> PostgresServer:
    """Start a server on an address. Clients of a network, such as 10.77.0.0/24, may connect, too."""
    missing = _missing_programs()
    if missing:
        pytest.skip(f"no Postgres: {missing}")
    folder = Path(tempfile.mkdtemp(prefix="wick-postgres-"))
    kept = ExitStack()
    made = PostgresServer(
        folder, FOLDERS[0], _unprivileged_user(), kept.enter_context(own_port()), kept, address=address
    )
    atexit.register(made.remove)
    shutil.chown(folder, made.user)
    command = [
        made.programs / "initdb",
        "-D",
        folder / "data",
        "-U",
        made.user,
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    done = subprocess.run(
        [*command, "--locale=C.UTF-8"], **_run_as(made.user), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    if network:
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} trust\n")
    made.start()
    return made


def _missing_programs() -> str:
    if not FOLDERS or not (FOLDERS[0] / "postgres").exists():
        return "install it with: apt-get install postgresql"
    if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
        return "install its client with: pip install 'wick-agent[postgres]'"
    return ""


def _unprivileged_user() -> str:
    """Postgres refuses to run as root."""
    return "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name


def _run_as(user: str) -> dict[str, object]:
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": [], "cwd": "/"} if not os.getuid() else {}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGQUIT)


@pytest.fixture
def schema() -> str:
    """A new schema of the shared server."""
    return shared_server().schema()


def open_store() -> Any:
    """Return a fixture: a store in the schema of the test. It may join a cluster."""

    @pytest.fixture
    async def store(schema: str) -> AsyncIterator[Any]:
        from wick.stores.postgres import Postgres  # needs the extra postgres

        made = Postgres(shared_server().conninfo, schema=schema)
        yield made
        await made.leave()
        await made.close()

    return store
