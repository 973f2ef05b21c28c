"""Pending questions and the effect of answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server_agents import Gate, get_json, list_names, pay, payment_agent, sample_agents, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_events
from wick import FunctionModel


@pytest.fixture
async def server(tmp_path: Path, store: str) -> AsyncIterator[InProcessServer]:
    careful = {"model": FunctionModel(payment_agent), "tools": [pay], "permissions": {"mode": "default"}}
    made = sample_agents(Gate()) | {"careful": careful}
    async with host_server(tmp_path, store=store, agents=made, grace=0) as found:
        yield found


@pytest.fixture
async def client(server: InProcessServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with open_client(server) as found:
        yield found


async def decide(client: aiohttp.ClientSession, id: str, status: int = 200, **said: Any) -> Any:
    async with client.post(f"/approvals/{id}", json=said) as response:
        found = await response.json()
        assert response.status == status, found
        return found


async def ask(client: aiohttp.ClientSession, thread: str, agent: str = "payer") -> tuple[Any, dict[str, Any]]:
    """A stream that waits for an answer, and the question."""
    response = await client.post(f"/agents/{agent}/stream", json=user_message("Pay.", thread))
    asked = (await read_events(response, until="on_approval_request"))[-1]
    return response, asked["data"]["data"]


def output(found: list[dict[str, Any]]) -> dict[str, Any]:
    ends = [frame["data"]["data"] for frame in found if frame["event"] == "on_tool_end"]
    return {key: ends[-1].get(key, "") for key in ("output", "error")}


async def test_yes(client: aiohttp.ClientSession) -> None:
    stream, asked = await ask(client, "th_1")
    assert await decide(client, asked["id"], choice="allow") == {
        "id": asked["id"],
        "thread_id": "th_1",
        "choice": "allow",
    }
    assert output(await read_events(stream)) == {"output": "paid 500", "error": ""}


@pytest.mark.parametrize("args", [{"amount": "much"}, {}])
async def test_args_that_do_not_fit_leave_the_question_open(
    client: aiohttp.ClientSession, args: dict[str, Any]
) -> None:
    stream, asked = await ask(client, "th_1")
    refused = await decide(client, asked["id"], 422, choice="allow", args=args)
    assert refused["error"]["code"] == "invalid_args"
    assert "amount" in refused["error"]["message"]
    await decide(client, asked["id"], choice="allow", args={"amount": 7})
    assert output(await read_events(stream)) == {"output": "paid 7", "error": ""}


async def test_no_and_why(client: aiohttp.ClientSession) -> None:
    stream, asked = await ask(client, "th_1")
    await decide(client, asked["id"], choice="deny", words="ask me tomorrow", thread_id="th_1")
    assert output(await read_events(stream)) == {"output": "", "error": "ask me tomorrow"}


async def test_yes_with_other_arguments(client: aiohttp.ClientSession) -> None:
    stream, asked = await ask(client, "th_1")
    await decide(client, asked["id"], choice="allow", args={"amount": 7})
    assert output(await read_events(stream))["output"] == "paid 7"


async def test_a_permanent_grant_is_not_asked_again(client: aiohttp.ClientSession) -> None:
    stream, asked = await ask(client, "th_1", "careful")
    await decide(client, asked["id"], choice="allow_always")
    assert output(await read_events(stream))["output"] == "paid 500"
    again = await send_answer(client, "careful", user_message("Pay.", "th_2"))
    assert again["outcome"] == "completed" and "paid 500" in again["response"]


async def test_a_permanent_grant_covers_the_approved_call(client: aiohttp.ClientSession) -> None:
    """Changing the arguments grants the changed ones, not the original ones."""
    stream, asked = await ask(client, "th_1", "careful")
    await decide(client, asked["id"], choice="allow_always", args={"amount": 7})
    assert output(await read_events(stream))["output"] == "paid 7"
    (granted,) = (await get_json(client, "/agents/careful/permissions"))["grants"]
    assert (granted["tool"], granted["args"]) == ("pay", {"amount": 7})
    other, again = await ask(client, "th_2", "careful")  # 500 is asked about again
    await decide(client, again["id"], choice="deny")
    assert list_names(await read_events(other))[-1] == "done"


async def test_a_thread_grant_is_limited_to_its_thread(client: aiohttp.ClientSession) -> None:
    stream, asked = await ask(client, "th_1", "careful")
    await decide(client, asked["id"], choice="allow_session")
    await read_events(stream)
    assert "paid 500" in (await send_answer(client, "careful", user_message("Pay.", "th_1")))["response"]
    other, again = await ask(client, "th_2", "careful")
    assert again["id"] != asked["id"]
    await decide(client, again["id"], choice="deny")
    assert list_names(await read_events(other))[-1] == "done"


async def test_an_invalid_answer_is_refused(client: aiohttp.ClientSession) -> None:
    stream, asked = await ask(client, "th_1")
    await decide(client, asked["id"], 422, choice="perhaps")
    await decide(client, asked["id"], 422)
    await decide(client, asked["id"], 400, choice="deny", args={"amount": 1})
    await decide(client, "ask_nobody", 404, choice="allow")
    await decide(client, asked["id"], 404, choice="allow", thread_id="th_nowhere")
    assert len((await get_json(client, "/approvals?thread_id=th_1"))["approvals"]) == 1
    await decide(client, asked["id"], choice="deny")
    await read_events(stream)
    assert (await get_json(client, "/approvals"))["approvals"] == []
