"""agents.yaml is watched: changes are announced and apply from the next run; a broken file does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from api_requests import follow_events, send_request
from server_process import ServerProcess, read_frames, run_server

BEFORE = {"agents": {"stays": {"model": "demo"}, "goes": {"model": "demo"}, "changes": {"model": "demo"}}}
AFTER = {
    "agents": {"stays": {"model": "demo"}, "comes": {"model": "demo"}, "changes": {"model": "demo", "todos": False}}
}


def rewrite(server: ServerProcess, text: str) -> None:
    """Replace the file atomically, as the server may read it at any moment."""
    (server.folder / "next.yaml").write_text(text)
    (server.folder / "next.yaml").replace(server.folder / "agents.yaml")


async def next_news(answer: Any) -> dict[str, Any]:
    async with asyncio.timeout(60):
        async for frame in read_frames(answer):
            return frame
    raise AssertionError("the stream ended")


async def test_a_file_is_followed(tmp_path: Path) -> None:
    with run_server(tmp_path, config=BEFORE) as server:
        async with follow_events(server, "olga") as answer:
            rewrite(server, yaml.safe_dump(AFTER))
            told = await next_news(answer)
            assert told["event"] == "config_reloaded"
            assert told["data"]["data"] == {"added": ["comes"], "removed": ["goes"], "changed": {"changes": ["todos"]}}
            assert (await send_request(server, "ada", "GET", "/agents/comes"))[0] == 200
            assert (await send_request(server, "ada", "GET", "/agents/goes"))[0] == 404
            tools = (await send_request(server, "ada", "GET", "/agents/changes"))[1]["tools"]
            assert "write_todos" not in {tool["name"] for tool in tools}

            rewrite(server, "agents:\n  comes: {modle: demo}\n")
            told = await next_news(answer)
            assert told["event"] == "config_error" and "line 2" in told["data"]["data"]["message"]
            assert (await send_request(server, "ada", "GET", "/agents/comes"))[0] == 200  # as it was

            rewrite(server, yaml.safe_dump(BEFORE))
            assert (await next_news(answer))["data"]["data"]["added"] == ["goes"]
            (server.folder / "agents.yaml").unlink()
            assert (await next_news(answer))["event"] == "config_error"
            assert (await send_request(server, "ada", "GET", "/agents/goes"))[0] == 200


async def test_the_streams_of_news_end_when_the_server_stops(tmp_path: Path) -> None:
    with run_server(tmp_path, config=BEFORE) as server:
        async with follow_events(server, "ada") as answer:
            stopped = asyncio.create_task(asyncio.to_thread(server.stop))
            async with asyncio.timeout(60):
                assert [frame async for frame in read_frames(answer)] == []
            assert await stopped == 0
