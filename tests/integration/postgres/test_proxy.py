"""HAProxy with the configuration of deploy/ in front of two servers: round robin, streams, terminals, draining."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from ports import own_port
from postgres import shared_server as postgres_server
from server_agents import Gate, get_json, user_message
from server_process import TOKENS, InProcessServer, host_server, wait_until
from wick import Agent

CONFIG = Path(__file__).parents[3] / "deploy" / "haproxy.cfg"

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="no HAProxy: apt-get install haproxy")


@asynccontextmanager
async def run_proxy(folder: Path, servers: list[InProcessServer]) -> AsyncIterator[aiohttp.ClientSession]:
    """Run HAProxy with other ports and these servers, and yield a client of it."""
    lines = [f"    server {number} {urlsplit(server.url).netloc}" for number, server in enumerate(servers)]
    text = re.sub(r"^(    server wick-\d \S+\n)+", "\n".join(lines) + "\n", CONFIG.read_text(), flags=re.MULTILINE)
    with own_port() as port:
        (folder / "haproxy.cfg").write_text(text.replace("bind :8000", f"bind 127.0.0.1:{port}"))
        process = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", str(folder / "haproxy.cfg"))
        headers = {"Authorization": f"Bearer {TOKENS['ada']}"}
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as client:

                async def has_started() -> bool:
                    try:
                        return {"one", "two"} == {await name_server(client) for _ in range(4)}
                    except aiohttp.ClientError:
                        return False

                await wait_until(has_started)
                yield client
        finally:
            process.kill()
            await process.wait()


async def name_server(client: aiohttp.ClientSession) -> str:
    """Return the name of the server that answers the next request, which is that of an agent of its own."""
    async with client.get("/agents") as response:
        if response.status != 200:
            return ""
        return next(
            agent["agent_id"] for agent in (await response.json())["agents"] if agent["agent_id"] in ("one", "two")
        )


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def servers(tmp_path: Path, gate: Gate) -> AsyncIterator[list[InProcessServer]]:
    shell = {"model": "demo", "backend": {"type": "local"}}
    schema = postgres_server().schema()
    async with AsyncExitStack() as stack:
        found = list[InProcessServer]()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            agents: dict[str, Any] = {name: Agent(gate), "gate": Agent(gate), "shell": shell}
            options: dict[str, Any] = {"store": "postgres", "store_schema": schema, "grace": 0}
            found.append(await stack.enter_async_context(host_server(tmp_path / name, agents=agents, **options)))
        yield found


async def test_requests_streams_and_terminals_pass_and_a_draining_server_is_left_out(
    tmp_path: Path, servers: list[InProcessServer], gate: Gate
) -> None:
    async with run_proxy(tmp_path, servers) as client:
        names = [await name_server(client) for _ in range(6)]
        assert names in (["one", "two"] * 3, ["two", "one"] * 3)

        # the first events arrive while the model has not answered yet
        async with client.post("/agents/gate/stream", json=user_message("Hello.")) as response, asyncio.timeout(60):
            await gate.asked.wait()
            assert (await response.content.readline()).startswith((b"id:", b"event:", b"data:", b":"))
            gate.answers.put_nowait("Here.")
            assert b"Here." in await response.read()

        async with client.ws_connect("/agents/shell/terminal") as socket, asyncio.timeout(60):
            await socket.send_bytes(b"echo $((40 + 2))-done\n")
            seen = b""
            while b"42-done" not in seen:
                message = await socket.receive()
                seen += message.data if message.type == aiohttp.WSMsgType.BINARY else b""

        servers[0].service.start_drain()

        async def is_left_out() -> bool:
            found = [await name_server(client) for _ in range(4)]
            assert "" not in found  # a draining server still answers
            return found == ["two"] * 4

        await wait_until(is_left_out)
        assert (await get_json(client, "/health"))["status"]
