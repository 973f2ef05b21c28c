"""Links to threads: anyone with one reads the messages until then, and nothing else; it can be revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server_agents import Gate, get_json, sample_agents, send_answer, user_message
from server_process import InProcessServer, host_server, open_client
from wick import Agent, FunctionModel, ToolCall, assistant, tool


@tool
def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word}: an animal"


def looking(request: Any) -> Any:
    if request.messages[-1].role == "user":
        return assistant("I look.", ToolCall("c1", "look_up", {"word": "otter"}))
    return "It is an animal."


async def read_shared(server: InProcessServer, secret: str, status: int = 200) -> Any:
    """Read a shared thread without an account."""
    async with aiohttp.ClientSession(server.url) as anyone, anyone.post("/shared", json={"secret": secret}) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def share(client: aiohttp.ClientSession, thread: str, status: int = 201) -> Any:
    async with client.post(f"/threads/{thread}/shares") as response:
        assert response.status == status, await response.text()
        return await response.json()


async def test_a_link_shows_the_messages_until_then(tmp_path: Path, store: str) -> None:
    agents = {"finder": Agent(FunctionModel(looking), name="finder", system="Be brief.", tools=[look_up])}
    async with host_server(tmp_path, store=store, agents=agents) as server, open_client(server) as client:
        await send_answer(client, "finder", user_message("What is an otter?", "th_1"))
        link = await share(client, "th_1")
        assert link["path"] == f"/#share={link['secret']}" and len(link["secret"]) > 40
        await send_answer(client, "finder", user_message("And a secret beaver?", "th_1"))
        shown = await read_shared(server, link["secret"])
        assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert shown["messages"][1]["tool_calls"][0]["args"] == {"word": "otter"}
        assert shown["messages"][2]["content"] == "otter: an animal" and shown["title"] == "What is an otter?"
        for hidden in ("beaver", "Be brief", "th_1", "finder", "ada", "run_"):
            assert hidden not in str(shown), hidden
        (listed,) = (await get_json(client, "/threads/th_1/shares"))["shares"]
        assert listed["id"] == link["id"] and "secret" not in listed


async def test_a_link_is_revoked_and_ends_with_its_thread(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        await send_answer(client, "echo", user_message("Hello.", "th_1"))
        one, two = await share(client, "th_1"), await share(client, "th_1")
        async with client.delete(f"/threads/th_1/shares/{one['id']}") as response:
            assert response.status == 204
        async with client.delete(f"/threads/th_1/shares/{one['id']}") as response:
            assert response.status == 404
        await read_shared(server, one["secret"], 404)
        await read_shared(server, two["secret"])
        async with client.delete("/threads/th_1") as response:
            assert response.status == 204
        await read_shared(server, two["secret"], 404)
        await send_answer(client, "echo", user_message("Another one.", "th_1"))
        await read_shared(server, two["secret"], 404)
        assert (await get_json(client, "/threads/th_1/shares"))["shares"] == []


async def test_only_the_owner_shares_a_thread(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        await send_answer(client, "echo", user_message("Hello.", "th_1"))
        link = await share(client, "th_1")
        async with open_client(server, "bob") as bob:
            await share(bob, "th_1", 404)
            await get_json(bob, "/threads/th_1/shares", 404)
            async with bob.delete(f"/threads/th_1/shares/{link['id']}") as response:
                assert response.status == 404
        await read_shared(server, link["secret"])


@pytest.mark.parametrize("secret", ["a" * 43, "../../etc/passwd_______", "\u202e" * 30])
async def test_other_secrets_show_nothing(tmp_path: Path, secret: str) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        await send_answer(client, "echo", user_message("Hello.", "th_1"))
        link = await share(client, "th_1")
        await read_shared(server, secret, 404)
        await read_shared(server, link["secret"][:-1] + ("a" if link["secret"][-1] != "a" else "b"), 404)


async def test_an_operator_switches_links_off(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        await send_answer(client, "echo", user_message("Hello.", "th_1"))
        link = await share(client, "th_1")
    agents = sample_agents(Gate())
    async with host_server(tmp_path, agents=agents, shares=False) as server, open_client(server) as client:
        await share(client, "th_1", 403)
        await read_shared(server, link["secret"], 403)
