"""The status of a cluster: `GET /cluster`, `wick cluster`, the client and the metric."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from tempfile import mkdtemp

import psycopg

from cli.forked_command import ForkedWick
from postgres import shared_server
from server_agents import Gate, get_json, sample_agents, send_answer, user_message
from server_process import TOKENS, InProcessServer, host_server, open_client, wait_until
from wick.client import Client

DEAD = "('gone', 'node-9:1:2:3:', '1.0', 5, 2, false, 0, extract(epoch FROM clock_timestamp()) - 60)"


async def run_command(folder: Path, server: InProcessServer, *args: str) -> tuple[int, str]:
    """Run `wick cluster` beside the event loop of the server; return its exit code and its output."""
    (folder / "token").write_text(TOKENS["root"])
    wick = ForkedWick(Path(mkdtemp(dir=folder)))
    options = ("--server", server.url, "--token-file", str(folder / "token"), *args)
    done = await asyncio.to_thread(lambda: wick("cluster", *options))
    return done.code, done.out


async def test_a_server_with_sqlite_is_its_own_cluster(tmp_path: Path) -> None:
    gate = Gate()
    async with host_server(tmp_path, agents=sample_agents(gate), capacity=4) as server, open_client(server) as ada:
        going = asyncio.create_task(send_answer(ada, "gate", user_message("Hello.")))
        await gate.asked.wait()
        async with Client(server.url, TOKENS["root"]) as client:
            status = await client.cluster()
        (only,) = status.servers
        assert (status.server_id, status.live, status.live_connected) == ("local", "local", True)
        assert (only.id, only.host, only.capacity, only.running) == ("local", socket.gethostname(), 4, 1)
        assert only.alive and not only.draining and status.is_healthy
        gate.answers.put_nowait("Here.")
        await going
        server.service.start_drain()
        async with open_client(server, "root") as admin:
            assert (await get_json(admin, "/cluster"))["servers"][0]["draining"]
        code, out = await run_command(tmp_path, server)
        assert code == 0 and "local (this)" in out and "draining" in out
        assert "wick_servers_alive 1.0" in server.service.metrics.render()


async def test_only_an_admin_sees_the_servers(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server:
        for user, status in (("", 401), ("ada", 403), ("olga", 403), ("root", 200)):
            async with open_client(server, user) as client, client.get("/cluster") as response:
                assert response.status == status


async def test_servers_of_one_database_see_each_other_and_the_dead(tmp_path: Path) -> None:
    postgres, schema = shared_server(), shared_server().schema()
    options = {"store": "postgres", "store_schema": schema, "agents": sample_agents(Gate()), "grace": 0.0}
    async with (
        host_server(tmp_path / "a", capacity=3, **options) as first,
        host_server(tmp_path / "b", **options) as second,
        open_client(second, "root") as admin,
    ):
        found = await get_json(admin, "/cluster")
        one, two = found["servers"]
        assert (found["server_id"], found["live"], found["live_connected"]) == (two["id"], "postgres", True)
        assert one["id"] == first.service.store.server_id  # type: ignore[attr-defined]
        assert (one["capacity"], two["capacity"], one["host"]) == (3, 0, socket.gethostname())
        assert one["alive"] and two["alive"] and one["address"] == first.url
        assert (await run_command(tmp_path, first))[0] == 0

        # a server with another secret cannot forward requests, and an operator sees the reason
        first.service.forwards.start("another secret", first.service.registry.locality.place)
        assert "the same `cluster_secret`" in (await get_json(admin, "/cluster"))["servers"][0]["problem"]
        code, out = await run_command(tmp_path, second)
        assert code == 1 and "unreachable" in out and "requests for its files fail here" in out

        async def counts_both() -> bool:
            return "wick_servers_alive 2.0" in first.service.metrics.render()

        await wait_until(counts_both)
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            connection.execute(f"INSERT INTO {schema}.servers VALUES {DEAD}".encode())
        code, out = await run_command(tmp_path, first, "--json")
        dead = next(server for server in json.loads(out)["servers"] if server["id"] == "gone")
        assert (code, dead["host"], dead["running"], dead["alive"]) == (1, "node-9", 2, False)
        assert dead["heartbeat_age"] >= 60 and not dead["problem"]
        assert "1 server is dead: other servers resume the runs" in (await run_command(tmp_path, second))[1]
        await wait_until(counts_both)


async def test_a_disconnected_live_plane_is_a_failure(tmp_path: Path) -> None:
    options = {"store": "postgres", "store_schema": shared_server().schema(), "agents": sample_agents(Gate())}
    async with host_server(tmp_path, live="nats://127.0.0.1:1", **options) as server:
        code, out = await run_command(tmp_path, server)
        assert code == 1 and "nats, disconnected" in out and "dead" not in out
