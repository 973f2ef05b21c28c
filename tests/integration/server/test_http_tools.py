"""Tools behind HTTP: operators register them, agents that name them use them, and nothing secret is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from api_requests import send_refused, send_request
from server_process import InProcessServer, ServerProcess, host_server
from wick import Scripted
from wick.messages import ToolCall
from wick.server.auth.identity import User

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@pytest.fixture
async def callback() -> AsyncIterator[tuple[str, list[Any]]]:
    """A remote program as a tool: its URL and its requests."""
    asked: list[Any] = []

    async def lookup(request: web.Request) -> web.Response:
        asked.append((await request.json(), request.headers.get("X-Key")))
        return web.json_response({"result": f"found {asked[-1][0]['args']['word']}"})

    app = web.Application()
    app.router.add_post("/base/tools/lookup", lookup)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/base", asked
    finally:
        await runner.cleanup()


def a_tool(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "lookup", "description": "Looks a word up.", "parameters": SCHEMA, "callback_url": url, **more}


async def used(there: InProcessServer, user: str, agent: str) -> str:
    """Return the result of an agent's first tool."""
    _, me = await send_request(there, user, "GET", "/auth/me")
    instance = await there.service.registry.get_agent(User(me["id"], user), agent)
    result = await instance.agent.run("Look it up.", user=me["id"], thread=f"t-{user}-{agent}")
    return next(message.text for message in result.messages if message.role == "tool")


def scripted() -> Scripted:
    return Scripted(*[ToolCall("c1", "lookup", {"word": "wick"}), "Done."] * 3, spare=True)


async def test_an_agent_uses_a_registered_tool_by_name(tmp_path: Path, callback: tuple[str, list[Any]]) -> None:
    url, asked = callback
    agents = {"names": {"model": scripted(), "tools": ["lookup"]}, "other": {"model": scripted()}}
    async with host_server(tmp_path, agents=agents) as there:
        assert (await send_request(there, "ada", "GET", "/agents/names"))[1]["missing_tools"] == ["lookup"]
        body = a_tool(url, headers={"X-Key": "s3cret"})
        assert (await send_request(there, "olga", "POST", "/agents/tools/", json=body))[0] == 201
        assert (await send_request(there, "ada", "GET", "/agents/names"))[1]["missing_tools"] == []
        assert "found wick" in await used(there, "ada", "names")
        assert asked == [({"name": "lookup", "args": {"word": "wick"}}, "s3cret")]
        assert "there is no tool" in await used(there, "ada", "other")
        assert (await send_request(there, "olga", "DELETE", "/agents/tools/lookup"))[0] == 204
        assert (await send_request(there, "ada", "GET", "/agents/names"))[1]["missing_tools"] == ["lookup"]


async def test_a_tool_may_be_added_to_all_agents(tmp_path: Path, callback: tuple[str, list[Any]]) -> None:
    agents = {"one": {"model": scripted()}, "two": {"model": scripted()}}
    async with host_server(tmp_path, agents=agents) as there:
        await send_request(there, "olga", "POST", "/agents/tools/", json=a_tool(callback[0], agents=["one"]))
        assert "found wick" in await used(there, "ada", "one")
        assert "there is no tool" in await used(there, "ada", "two")
        await send_request(there, "olga", "POST", "/agents/tools/", json=a_tool(callback[0], agents=["*"]))
        assert "found wick" in await used(there, "bob", "two")


async def test_a_tool_may_be_its_operators_alone(tmp_path: Path, callback: tuple[str, list[Any]]) -> None:
    async with host_server(tmp_path, agents={"one": {"model": scripted()}}) as there:
        body = a_tool(callback[0], agents=["*"], shared=False)
        assert (await send_request(there, "olga", "POST", "/agents/tools/", json=body))[0] == 201
        names = {
            tool["name"] for tool in (await send_request(there, "ada", "GET", "/agents/tools/available"))[1]["tools"]
        }
        assert "lookup" not in names
        assert "there is no tool" in await used(there, "ada", "one")
        assert await send_refused(there, "root", "DELETE", "/agents/tools/lookup") == (404, "not_found")


async def test_available_tools_are_listed_without_secrets(server: ServerProcess) -> None:
    body = {**a_tool("http://me:pass@127.0.0.1:9"), "name": "listed", "headers": {"X-Key": "s3cret"}}
    try:
        assert (await send_request(server, "olga", "POST", "/agents/tools/", json=body))[0] == 201
        for user, url in (("ada", None), ("olga", "http://•••@127.0.0.1:9")):
            status, listed = await send_request(server, user, "GET", "/agents/tools/available")
            found = {tool["name"]: tool for tool in listed["tools"]}
            assert status == 200 and found["calculate"]["kind"] == "builtin"
            assert found["listed"]["kind"] == "http" and found["listed"]["callback_url"] == url
            assert "s3cret" not in str(listed) and "pass" not in str(listed)
    finally:
        assert (await send_request(server, "olga", "DELETE", "/agents/tools/listed"))[0] == 204


async def test_users_register_no_tools(server: ServerProcess) -> None:
    assert (await send_request(server, "ada", "POST", "/agents/tools/", json=a_tool("http://127.0.0.1:9")))[0] == 403
    assert (await send_request(server, "ada", "DELETE", "/agents/tools/lookup"))[0] == 403
    assert await send_refused(server, "olga", "DELETE", "/agents/tools/nothing") == (404, "not_found")
    assert await send_refused(server, "olga", "DELETE", "/agents/tools/calculate") == (409, "conflict")


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"name": "execute"}, (409, "conflict")),
        ({"name": "calculate"}, (409, "conflict")),
        ({"name": "Bash"}, (409, "conflict")),
        ({"name": "no spaces"}, (422, "invalid")),
        ({"callback_url": "file:///etc/passwd"}, (400, "invalid")),
        ({"callback_url": "http://x/?a=b"}, (400, "invalid")),
        ({"parameters": {"type": "nonsense"}}, (400, "invalid")),
        ({"timeout": 0}, (422, "invalid")),
        ({"private": False}, (422, "invalid")),
    ],
    ids=str,
)
async def test_an_invalid_tool_is_refused(
    server: ServerProcess, change: dict[str, Any], answer: tuple[int, str]
) -> None:
    body = {**a_tool("http://127.0.0.1:9"), **change}
    assert await send_refused(server, "olga", "POST", "/agents/tools/", json=body) == answer


@pytest.mark.parametrize("installed", [False, True])
async def test_web_search_is_listed_only_if_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if installed:
        point = EntryPoint("mine", "wick.constants:CALLBACK_SECONDS", "wick.web_search")
        monkeypatch.setattr("wick.capabilities.builtins.entry_points", lambda **group: [point])
    async with host_server(tmp_path, agents={"one": {"model": scripted()}}) as there:
        _, listed = await send_request(there, "ada", "GET", "/agents/tools/available")
        assert ("web_search" in {tool["name"] for tool in listed["tools"]}) is installed
        if not installed:
            body = {"agent_id": "two", "model": "demo", "tools": ["web_search"]}
            status, told = await send_request(there, "ada", "POST", "/agents/", json=body)
            assert status == 400 and "web_search needs a search" in told["error"]["message"]
