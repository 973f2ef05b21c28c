"""The CPU of a run over HTTP, of wick, of a server written by hand and of the servers of peers, which take turns.

    python bench/peer_servers.py                    # about 3 minutes; creates the environments with uv the first time
    python bench/peer_servers.py --quick
    WICK_BENCH_PEERS=agno,adk python bench/peer_servers.py    # some of the peers

All have the same scripted model: a run is two model calls, one tool call and 100 text deltas, in a new thread.
Ratios are taken within a round. See bench/README.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import IO, Any, cast
from urllib.parse import urlencode
from uuid import uuid4

import measure
from measure import Rows, groups, main
from peers import Peer, prepare
from run_cost import QUESTION, ROUTES, Client, served
from server import Served, _port

HERE = Path(__file__).parent
DELTAS = 100
GOALS = {"invoke": 3.0, "stream": 10.0}  # times less CPU than the cheapest peer
SLOW_SHARE = 4  # a peer has a fourth of the runs of the others, since a run takes it so long

FORM, JSON = {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "application/json"}


class PeerClient(Client):
    """Sends messages to the server of a peer. Each is the first of a new thread."""

    ends: Mapping[str, str] = MappingProxyType({"invoke": "", "stream": ""})  # a text in a complete response

    def create_request(self, route: str, thread: str) -> tuple[str, str, dict[str, str]]:
        return self.path(route), json.dumps(self.body(route)), JSON

    def path(self, route: str) -> str:
        raise NotImplementedError

    def body(self, route: str) -> dict[str, Any]:
        raise NotImplementedError

    def is_complete(self, route: str, text: str) -> bool:
        return self.ends[route] in text and (route == "invoke" or text.count("some words ") >= DELTAS)


class AgnoClient(PeerClient):
    ends = MappingProxyType({"invoke": "COMPLETED", "stream": "event: RunCompleted"})

    def create_request(self, route: str, thread: str) -> tuple[str, str, dict[str, str]]:
        body = urlencode({"message": QUESTION, "stream": "true" if route == "stream" else "false"})
        return "/agents/bench/runs", body, FORM


class PydanticAIClient(PeerClient):
    """Sends the input of an AG-UI run: the client has the conversation, and the server stores nothing."""

    ends = MappingProxyType({"stream": "RUN_FINISHED"})

    def path(self, route: str) -> str:
        return "/"

    def body(self, route: str) -> dict[str, Any]:
        messages = [{"id": uuid4().hex, "role": "user", "content": QUESTION}]
        return {"threadId": uuid4().hex, "runId": uuid4().hex, "messages": messages} | {
            "state": {}, "tools": [], "context": [], "forwardedProps": {}
        }  # fmt: skip


class LangGraphClient(PeerClient):
    """Creates a thread with its first run: https://docs.langchain.com/langsmith/agent-server-api."""

    ends = MappingProxyType({"invoke": "some words", "stream": "event: messages"})

    def path(self, route: str) -> str:
        return f"/threads/{uuid4()}/runs/{'wait' if route == 'invoke' else 'stream'}"

    def body(self, route: str) -> dict[str, Any]:
        asked = {"assistant_id": "bench", "input": {"messages": [{"role": "user", "content": QUESTION}]}}
        return asked | {"if_not_exists": "create"} | ({"stream_mode": ["messages-tuple"]} if route == "stream" else {})


class AdkClient(PeerClient):
    ends = MappingProxyType({"invoke": "some words", "stream": '"partial":true'})

    def path(self, route: str) -> str:
        return "/run" if route == "invoke" else "/run_sse"

    def body(self, route: str) -> dict[str, Any]:
        message = {"role": "user", "parts": [{"text": QUESTION}]}
        return {"appName": "bench", "userId": "user", "sessionId": uuid4().hex} | {
            "newMessage": message, "streaming": route == "stream"
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PeerServer:
    """A program of bench/peers/ that serves an agent, and its client."""

    peer: Peer
    client: type[PeerClient]
    arguments: Sequence[str] = ()
    routes: Sequence[str] = ROUTES


PEERS = [
    PeerServer(Peer("agno AgentOS", "agno", "agno_os"), AgnoClient),
    PeerServer(Peer("pydantic-ai AG-UI, stores nothing", "pydantic_ai", "pydantic_ai_ag_ui"), PydanticAIClient,
               routes=["stream"]),
    PeerServer(Peer("LangGraph dev, in memory", "langgraph", "langgraph_api"), LangGraphClient),
    PeerServer(Peer("ADK api_server", "adk", "adk_api_server"), AdkClient),
    PeerServer(Peer("ADK api_server, in memory", "adk", "adk_api_server"), AdkClient, ["memory://"]),
]  # fmt: skip


@contextmanager
def peer_served(server: PeerServer, folder: Path) -> Iterator[Served]:
    peer = server.peer
    data = Path(tempfile.mkdtemp(prefix=peer.program, dir=folder))
    command = [str(peer.python), str(HERE / "peers" / f"serve_{peer.program}.py"), str(data), *server.arguments]
    with (folder / f"{peer.program}.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        try:
            yield Served(peer.name, process, _port(cast(IO[str], process.stdout)))
        finally:
            cast(IO[str], process.stdin).close()


def compare_servers(peers: Sequence[PeerServer], folder: Path, rounds: int, runs: int) -> Rows:
    costs: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as servers:
        clients: list[tuple[Client, Sequence[str], int]] = [
            (Client(servers.enter_context(served(kind, folder))), ROUTES, runs) for kind in ("wick", "hand")
        ]
        for server in peers:
            client = server.client(servers.enter_context(peer_served(server, folder)))
            clients.append((client, server.routes, runs // SLOW_SHARE))
        for number in range(-1, rounds):  # one round warms up
            for route in ROUTES:
                for client, routes, count in clients:
                    cost = client.cpu_ms(route, count) if route in routes else None
                    if number >= 0 and cost is not None:
                        costs.setdefault((client.server.kind, route), []).append(cost)
    return create_rows(costs)


def create_rows(costs: dict[tuple[str, str], list[float]]) -> Rows:
    """Return a row for each server and route. The cheapest peer of a route has its goal."""
    rows: Rows = []
    for (kind, route), found in costs.items():
        ratio = median(a / b for a, b in zip(found, costs["wick", route], strict=True))
        rows.append({"group": route, "case": kind, "ms": median(found), "times_wick": ratio, "goal": None})
    for route, goal in GOALS.items():
        peers = [row for row in rows if row["group"] == route and row["case"] not in ("wick", "hand")]
        if peers:
            min(peers, key=lambda row: row["times_wick"])["goal"] = goal
    return rows


def tell(rows: Rows) -> None:
    for route, found in groups(rows).items():
        table = measure.pick(found, "ms", "times_wick", "goal")
        measure.table(f"CPU of {route}, 10 at once", ("", "ms", "times wick", "goal"), table)


def run(quick: bool) -> Rows:
    names = [name for name in os.environ.get("WICK_BENCH_PEERS", "").split(",") if name]
    chosen = [server for server in PEERS if not names or server.peer.program in names]
    for server in chosen:
        if error := prepare(server.peer):
            raise SystemExit(f"{server.peer.name}: {error}")
    folder = Path(tempfile.mkdtemp(prefix="wick-bench-"))
    try:
        return compare_servers(chosen, folder, 1 if quick else 5, 40 if quick else 100)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(__doc__, "peer_servers", run, tell)
