"""The CPU of a run over HTTP, of wick, of a server written by hand and of agno's AgentOS, which take turns.

    python bench/peer_servers.py            # about 2 minutes; creates the environment of agno with uv the first time
    python bench/peer_servers.py --quick

All have the same scripted model: a run is two model calls, one tool call and 100 text deltas, stored in SQLite. Ratios
are taken within a round. See docs/costs.md.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import IO, cast
from urllib.parse import urlencode

import measure
from measure import Rows, groups, main
from peers import Peer, prepare
from run_cost import ROUTES, Client, served
from server import Served, _port

HERE = Path(__file__).parent
AGNO = Peer("agno AgentOS", "agno_os")
GOALS = {"invoke": 3.0, "stream": 10.0}  # times less CPU than agno


class AgnoClient(Client):
    """Sends messages to AgentOS."""

    def send(self, route: str, thread: str = "") -> str:
        link = HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        body = urlencode({"message": "What is 2 + 3?", "stream": "true" if route == "stream" else "false"})
        link.request("POST", "/agents/bench/runs", body, {"Content-Type": "application/x-www-form-urlencoded"})
        response = link.getresponse()
        text = response.read().decode()
        link.close()
        is_complete = "COMPLETED" in text if route == "invoke" else "event: RunCompleted" in text
        if response.status != 200 or not is_complete:
            raise RuntimeError(f"agno returned {response.status}: {text[:300]}")
        return ""


@contextmanager
def agno_served(folder: Path) -> Iterator[Served]:
    data = Path(tempfile.mkdtemp(prefix="agno", dir=folder))
    command = [str(AGNO.python), str(HERE / "peers" / "serve_agno.py"), str(data)]
    with (folder / "agno.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        try:
            yield Served("agno", process, _port(cast(IO[str], process.stdout)))
        finally:
            cast(IO[str], process.stdin).close()


def compare_servers(folder: Path, rounds: int, runs: int) -> Rows:
    costs: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as servers:
        wick, hand = (Client(servers.enter_context(served(kind, folder))) for kind in ("wick", "hand"))
        clients = [wick, hand, AgnoClient(servers.enter_context(agno_served(folder)))]
        for number in range(-1, rounds):  # one round warms up
            for route in ROUTES:
                for client in clients:
                    cost = client.cpu_ms(route, runs)
                    if number >= 0:
                        costs.setdefault((client.server.kind, route), []).append(cost)
    rows: Rows = []
    for (kind, route), found in costs.items():
        ratio = median(a / b for a, b in zip(found, costs["wick", route], strict=True))
        goal = GOALS[route] if kind == "agno" else None
        rows.append({"group": route, "case": kind, "ms": median(found), "times_wick": ratio, "goal": goal})
    return rows


def tell(rows: Rows) -> None:
    for route, found in groups(rows).items():
        table = measure.pick(found, "ms", "times_wick", "goal")
        measure.table(f"CPU of {route}, 10 at once", ("", "ms", "times wick", "goal"), table)


def run(quick: bool) -> Rows:
    if error := prepare(AGNO):
        raise SystemExit(f"agno: {error}")
    folder = Path(tempfile.mkdtemp(prefix="wick-bench-"))
    try:
        return compare_servers(folder, 3 if quick else 9, 30 if quick else 100)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(__doc__, "peer_servers", run, tell)
