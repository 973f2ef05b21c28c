"""The event stream of a window: threads, questions, files and agents of one user, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from server_agents import Gate, get_json, sample_agents, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_events, read_frames

Frame = dict[str, Any]


class Window:
    """A reader of `GET /events`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._frames, self.seen = read_frames(response), list[Frame]()

    async def find(self, kind: str, check: Callable[[Any], bool] = lambda data: True) -> Any:
        """Return the data of the next event of a kind that passes a check."""
        async with asyncio.timeout(30):
            async for frame in self._frames:
                self.seen.append(frame)
                if frame["event"] == kind and check(frame["data"]["data"]):
                    return frame["data"]["data"]
        raise AssertionError(f"the stream ended without {kind}: {self.seen}")


@asynccontextmanager
async def open_window(server: InProcessServer, user: str = "ada") -> AsyncIterator[Window]:
    async with open_client(server, user) as client, client.get("/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        window = Window(response)
        await window.find("resync")
        yield window


async def ask(client: aiohttp.ClientSession) -> None:
    """Start a run that waits for an answer."""
    response = await client.post("/agents/payer/stream", json=user_message("Pay.", "th_pay"))
    await read_events(response, until="on_approval_request")


async def test_a_window_gets_threads_and_questions(tmp_path: Path) -> None:
    async with (
        host_server(tmp_path, agents=sample_agents(Gate())) as server,
        open_client(server) as client,
        open_window(server) as window,
    ):
        await ask(client)
        row = await window.find("thread", lambda data: data["asking"] == 1)
        await window.find("approvals", lambda data: data["thread_id"] == "th_pay")
        assert row["agent_id"] == "payer" and row["id"] == "th_pay"
        (question,) = (await get_json(client, "/approvals"))["approvals"]
        async with client.post(f"/approvals/{question['id']}", json={"choice": "allow"}) as response:
            assert response.status == 200
        row = await window.find("thread", lambda data: not data["run_id"] and not data["running"] and data["last"])
        assert row["asking"] == 0
        async with client.patch("/threads/th_pay", json={"title": "Payments"}) as response:
            assert response.status == 200
        await window.find("thread", lambda data: data["title"] == "Payments")
        async with client.delete("/threads/th_pay") as response:
            assert response.status == 204
        assert await window.find("thread_deleted") == {"thread_id": "th_pay"}


async def test_a_window_gets_files_and_agents_of_its_user_alone(tmp_path: Path) -> None:
    agents = {"coder": {"model": "demo", "backend": {"type": "local"}}}
    async with host_server(tmp_path, agents=agents) as server, open_window(server, "bob") as bob:
        async with open_client(server) as client, open_window(server) as window:
            body = {"path": "a.txt", "content": "a"}
            async with client.put("/agents/coder/files/write", json=body) as response:
                assert response.status == 200
            assert await window.find("files") == {"agent_id": "coder", "thread_id": ""}
            async with client.post("/agents/", json={"agent_id": "hers", "model": "demo"}) as response:
                assert response.status == 201
            assert await window.find("agent_created") == {"agent_id": "hers"}
            await send_answer(client, "coder", user_message("Hello.", "th_secret"))
            await window.find("thread", lambda data: data["id"] == "th_secret")
        async with open_client(server, "bob") as client:
            await send_answer(client, "coder", user_message("Hello.", "th_bobs"))
        await bob.find("thread")
        assert {frame["event"] for frame in bob.seen} == {"resync", "thread"}
        assert "th_secret" not in str(bob.seen) and "hers" not in str(bob.seen)


async def test_tools_that_end_report_files(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        await ask(client)
        async with open_window(server) as window:
            (question,) = (await get_json(client, "/approvals"))["approvals"]
            async with client.post(f"/approvals/{question['id']}", json={"choice": "allow"}):
                pass
            assert await window.find("files") == {"agent_id": "payer", "thread_id": "th_pay"}
