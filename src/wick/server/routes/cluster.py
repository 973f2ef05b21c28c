"""`GET /cluster`: the servers of a cluster, with their last heartbeats."""

from __future__ import annotations

import socket
from dataclasses import asdict
from importlib.metadata import version

from fastapi import APIRouter

from wick.api.types import ClusterServer, ClusterStatus
from wick.server.dependencies import Wick

router = APIRouter(tags=["server"])

LOCAL_ID = "local"  # of a server whose store belongs to one process


@router.get("/cluster")
async def cluster(wick: Wick) -> ClusterStatus:
    """Return the servers of the cluster, also those that died within a day, and the state of the live plane."""
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
        servers, server_id = [], wick.store.server_id  # type: ignore[attr-defined]
        for info in await fetch_servers():
            host = info.host.rsplit(":", 4)[0]  # without the identity of the process
            facts = {**asdict(info), "host": host, "heartbeat_age": info.age}
            servers.append(ClusterServer.model_validate({name: facts[name] for name in ClusterServer.model_fields}))
    connected = not wick.live.problem
    return ClusterStatus(server_id=server_id, live=wick.live.name, live_connected=connected, servers=servers)
