"""`GET /cluster`: the servers of a cluster, with their last heartbeats."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import asdict
from importlib.metadata import version

from fastapi import APIRouter

from wick.api.types import ClusterServer, ClusterStatus
from wick.server.dependencies import Caller, Wick
from wick.server.peers import find_peer_problem

router = APIRouter(tags=["server"])

LOCAL_ID = "local"  # of a server whose store belongs to one process


@router.get("/cluster")
async def cluster(wick: Wick, caller: Caller) -> ClusterStatus:
    """Return the servers of the cluster, also those that died within a day, and the state of the live plane.

    The server that responds checks that it reaches the live ones, to forward requests for their files.
    """
    if (fetch_servers := getattr(wick.store, "servers", None)) is None:
        alone = ClusterServer(
            id=LOCAL_ID,
            host=socket.gethostname(),
            version=version("wick-agent"),
            capacity=wick.settings.capacity,
            running=len(wick.runs.executor.running),
            draining=wick.draining,
            heartbeat_age=0.0,
            alive=True,
        )
        servers, server_id = [alone], LOCAL_ID
    else:
        servers, server_id, found = [], wick.store.server_id, await fetch_servers()  # type: ignore[attr-defined]
        others = [info for info in found if info.alive and info.place != wick.forwards.place]
        checked = await asyncio.gather(*(find_peer_problem(wick.forwards, caller, info) for info in others))
        problems = dict(zip((info.id for info in others), checked, strict=True))
        for info in found:
            host = info.host.rsplit(":", 4)[0]  # without the identity of the process
            facts = {**asdict(info), "host": host, "heartbeat_age": info.age, "problem": problems.get(info.id, "")}
            servers.append(ClusterServer.model_validate({name: facts[name] for name in ClusterServer.model_fields}))
    connected = not wick.live.problem
    return ClusterStatus(server_id=server_id, live=wick.live.name, live_connected=connected, servers=servers)
