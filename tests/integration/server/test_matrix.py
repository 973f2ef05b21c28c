"""Isolation of two users of one server. The whole matrix is in tests/faults/test_isolation.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from server_process import ServerProcess, open_client, read_events


async def fetch_status(client: aiohttp.ClientSession, method: str, path: str, **options: Any) -> int:
    """The status of an answer; of a WebSocket that is accepted, 101."""
    if method == "WS":
        try:
            async with client.ws_connect(path, **options):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status
    async with client.request(method, path, **options) as answer:
        if answer.status >= 400 and method != "HEAD":
            body = await answer.json()
            assert body["error"]["code"] and body["error"]["message"], body
        return answer.status


@pytest.fixture
async def nobody(server: ServerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with open_client(server, "") as client:
        yield client


async def test_paths_that_are_not_there_are_denied_first(server: ServerProcess, nobody: Any) -> None:
    paths = ["/agents", "/agents/x/secret", "/admin", "/threads/", "/static/../server.py", "//health", "/health/"]
    for path in paths:
        address: Any = URL(server.url + path, encoded=True)  # unchanged by the client library
        assert await fetch_status(nobody, "GET", address) in (401, 404), path


# -- two users --------------------------------------------------------------------------------------------------------


async def test_a_second_agent_of_the_same_name_is_another(server: ServerProcess) -> None:
    """Two users with agents of the same name have one each, with separate files."""
    async with open_client(server, "ada") as ada, open_client(server, "bob") as bob:
        made = {"agent_id": "same", "model": "demo", "backend": {"type": "local"}}
        for client in (ada, bob):
            async with client.post("/agents/", json=made) as answer:
                assert answer.status == 201, await answer.text()
        write = {"path": "mine.txt", "content": "of ada"}
        assert await fetch_status(ada, "PUT", "/agents/same/files/write", json=write) == 200
        assert await fetch_status(bob, "GET", "/agents/same/files/read?path=mine.txt") == 404
        assert await fetch_status(bob, "DELETE", "/agents/same?files=true") == 204
        assert await fetch_status(ada, "GET", "/agents/same/files/read?path=mine.txt") == 200
        assert await fetch_status(ada, "DELETE", "/agents/same?files=true") == 204


async def test_a_shared_agent_has_files_per_user(server: ServerProcess) -> None:
    async with open_client(server, "ada") as ada, open_client(server, "bob") as bob:
        write = {"path": "ada.txt", "content": "of ada"}
        assert await fetch_status(ada, "PUT", "/agents/default/files/write", json=write) == 200
        assert await fetch_status(bob, "GET", "/agents/default/files/read?path=ada.txt") == 404
        assert await fetch_status(ada, "DELETE", "/agents/default/files?path=ada.txt") in (200, 204)


async def test_a_ticket_opens_a_websocket_once_and_for_its_user(
    server: ServerProcess, nobody: aiohttp.ClientSession
) -> None:
    async with open_client(server, "ada") as ada, ada.post("/auth/tickets") as answer:
        ticket = (await answer.json())["ticket"]
    path = f"/agents/plain/terminal?ticket={ticket}"
    first = await fetch_status(nobody, "WS", path)
    assert first == 409  # let in, but that agent has no workspace
    assert await fetch_status(nobody, "WS", path) == 401


async def test_news_of_one_user_do_not_reach_another(server: ServerProcess) -> None:
    async with (
        open_client(server, "ada") as ada,
        open_client(server, "bob") as bob,
        bob.get("/agents/events") as stream,
    ):
        assert stream.status == 200
        await stream.content.readline()  # a keep-alive: later events are not missed
        for client, id in ((ada, "news-ada"), (bob, "news-bob")):
            assert await fetch_status(client, "POST", "/agents/", json={"agent_id": id, "model": "demo"}) == 201
            assert await fetch_status(client, "DELETE", f"/agents/{id}") == 204
        seen = b""
        async with asyncio.timeout(60):
            while b"agent_deleted" not in seen:
                seen += await stream.content.readany()
        assert b"news-bob" in seen and b"news-ada" not in seen


async def test_users_cannot_answer_questions_of_others(server: ServerProcess) -> None:
    made = {"agent_id": "asks", "model": "demo", "backend": {"type": "local"}, "permissions": {"ask": ["execute"]}}
    body = {"messages": [{"role": "user", "content": "Run the command: ls"}]}
    async with (
        open_client(server, "ada") as ada,
        open_client(server, "bob") as bob,
        open_client(server, "root") as root,
    ):
        assert await fetch_status(ada, "POST", "/agents/", json=made) == 201
        async with ada.post("/agents/asks/stream", json=body) as stream:
            seen = await read_events(stream, until="on_approval_request")
            id, thread = seen[-1]["data"]["data"]["id"], stream.headers["X-Thread-Id"]
            for other in (bob, root):
                async with other.get("/approvals") as answer:
                    assert id not in await answer.text()
                for more in ({}, {"thread_id": thread}):
                    answer_it = {"choice": "allow", **more}
                    assert await fetch_status(other, "POST", f"/approvals/{id}", json=answer_it) == 404
            async with ada.get("/approvals") as answer:
                assert id in await answer.text()
            assert await fetch_status(ada, "POST", f"/approvals/{id}", json={"choice": "deny"}) == 200
            rest = await read_events(stream)
            assert rest[-1]["event"] == "done"
        assert await fetch_status(ada, "DELETE", "/agents/asks?files=true") == 204
