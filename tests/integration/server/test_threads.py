"""Threads: listed, searched, described, branched off, taken back, exported and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server_agents import HELLO, Gate, echo_agent, get_json, list_names, sample_agents, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_events, wait_until
from wick import Agent, FunctionModel, ToolCall, assistant
from wick.capabilities._child_agents.definitions import Subagent
from wick.capabilities.subagents import Subagents
from wick.protocols import Request


@pytest.fixture
async def gate() -> Gate:
    return Gate()


def handing_down(request: Request) -> Any:
    if request.messages[-1].role == "user" and request.messages[-1].text == "Delegate.":
        return assistant("", ToolCall("c1", "task", {"agent": "helper", "prompt": "Help."}))
    return f"You said: {request.messages[-1].text}"


@pytest.fixture
async def server(tmp_path: Path, gate: Gate, store: str) -> AsyncIterator[InProcessServer]:
    helper = Subagent("helper", "Helps", "You help.", model=FunctionModel(echo_agent))
    boss = Agent(FunctionModel(handing_down), hooks=[Subagents([helper])])
    async with host_server(tmp_path, store=store, agents=sample_agents(gate) | {"boss": boss}, grace=0) as found:
        yield found


@pytest.fixture
async def client(server: InProcessServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with open_client(server) as found:
        yield found


async def call(client: aiohttp.ClientSession, method: str, path: str, status: int, **more: Any) -> Any:
    async with client.request(method, path, **more) as response:
        found = await response.json() if response.content_type == "application/json" else await response.text()
        assert response.status == status, found
        return found


async def test_threads_are_listed_page_by_page(client: aiohttp.ClientSession) -> None:
    for number in range(5):
        await send_answer(client, "echo", user_message(f"Number {number}.", f"th_{number}"))
    first = await get_json(client, "/threads?limit=3")
    rest = await get_json(client, f"/threads?limit=3&cursor={first['next']}")
    assert [thread["id"] for thread in first["threads"] + rest["threads"]] == [f"th_{n}" for n in (4, 3, 2, 1, 0)]
    assert rest["next"] == "" and first["threads"][0]["title"] == "Number 4."
    assert first["threads"][0]["agent_id"] == "echo" and first["threads"][0]["last"] == 4
    oldest = await get_json(client, "/threads?limit=1&order=created")
    assert oldest["threads"][0]["id"] == "th_4"
    for query in ("limit=0", "limit=1000", "cursor=nonsense", "order=size"):
        assert (await client.get(f"/threads?{query}")).status in (400, 422)


async def test_threads_are_searched(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("The weather in Paris.", "th_1"))
    await send_answer(client, "echo", user_message("The weather in Rome.", "th_2"))
    hits = (await get_json(client, "/threads/search?q=weather paris"))["hits"]
    assert {hit["thread_id"] for hit in hits} == {"th_1"} and {hit["seq"] for hit in hits} == {1, 3}
    assert "Paris" in hits[0]["text"] and (await get_json(client, "/threads/search?q=berlin"))["hits"] == []
    assert (await client.get("/threads/search?q=%20")).status == 400


async def test_a_thread_has_its_messages(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("Hello.", "th_1"))
    thread = await get_json(client, "/threads/th_1")
    assert [(m["seq"], m["role"], m["content"]) for m in thread["messages"]] == [
        (1, "user", "Hello."),
        (3, "assistant", "You said: Hello."),
    ]
    assert thread["usage"]["output_tokens"] > 0 and not thread["running"] and thread["run_id"] == ""
    await call(client, "GET", "/threads/nowhere", 404)


async def test_a_thread_is_renamed(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("Hello.", "th_1"))
    changed = await call(client, "PATCH", "/threads/th_1", 200, json={"title": "Greeting", "meta": {"star": True}})
    assert changed["title"] == "Greeting" and changed["meta"] == {"star": True}
    again = await call(client, "PATCH", "/threads/th_1", 200, json={"meta": {"agent": "payer", "parent": "x"}})
    assert again["title"] == "Greeting" and again["agent_id"] == "echo"  # the server's fields are kept
    assert [thread["id"] for thread in (await get_json(client, "/threads"))["threads"]] == ["th_1"]
    await call(client, "PATCH", "/threads/th_1", 413, json={"meta": {"long": "x" * 20_000}})
    await call(client, "PATCH", "/threads/th_1", 422, json={"owner": "me"})
    assert (await send_answer(client, "echo", user_message("More.", "th_1")))["response"] == "You said: More."


async def test_a_thread_is_branched_off(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("One.", "th_1"))
    await send_answer(client, "echo", user_message("Two.", "th_1"))
    whole = await call(client, "POST", "/threads/th_1/fork", 201, json={})
    part = await call(client, "POST", "/threads/th_1/fork", 201, json={"at": 4, "title": "Another way"})
    assert whole["last"] == 8 and whole["meta"] == {"forked_from": "th_1", "forked_at": 8}
    assert part["title"] == "Another way" and part["agent_id"] == "echo" and part["id"] != whole["id"]
    more = await send_answer(client, "echo", user_message("Three.", part["id"]))
    assert [m["content"] for m in more["messages"]][::2] == ["One.", "Three."]
    assert len((await get_json(client, "/threads/th_1"))["messages"]) == 4
    await call(client, "POST", "/threads/th_1/fork", 400, json={"at": 99})


async def test_a_branch_does_not_take_a_run_along(server: InProcessServer, client: aiohttp.ClientSession) -> None:
    """Effects of a run happen once, even if the thread is branched meanwhile."""
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response:
        asked = (await read_events(response, until="on_approval_request"))[-1]["data"]["data"]["id"]
        branch = await call(client, "POST", "/threads/th_1/fork", 201, json={})
        assert branch["run_id"] == "" and branch["asking"] == 0
        await server.service._recovery.resume_all()
        thread = await get_json(client, f"/threads/{branch['id']}")
        assert thread["messages"][-1]["role"] == "tool" and "cancelled" in thread["messages"][-1]["content"]
        await call(client, "POST", f"/approvals/{asked}", 200, json={"choice": "allow", "thread_id": "th_1"})
        assert list_names(await read_events(response))[-1] == "done"
    assert (await send_answer(client, "payer", user_message("So?", branch["id"])))["response"].startswith("So?")


async def test_a_thread_is_taken_back(client: aiohttp.ClientSession, gate: Gate) -> None:
    await send_answer(client, "echo", user_message("One.", "th_1"))
    await send_answer(client, "echo", user_message("Two.", "th_1"))
    back = await call(client, "POST", "/threads/th_1/rewind", 200, json={"to": 4})
    assert [m["content"] for m in back["messages"]] == ["One.", "You said: One."]
    more = await send_answer(client, "echo", user_message("Three.", "th_1"))
    assert [m["content"] for m in more["messages"]][::2] == ["One.", "Three."]
    assert [m["seq"] for m in more["messages"]][:2] == [1, 3]
    await call(client, "POST", "/threads/th_1/rewind", 400, json={"to": 99})
    going = asyncio.create_task(send_answer(client, "gate", user_message("Wait.", "th_2")))
    await gate.asked.wait()
    refused = await call(client, "POST", "/threads/th_2/rewind", 409, json={"to": 0})
    assert refused["error"]["code"] == "conflict"
    gate.answers.put_nowait("Yes.")
    await going


async def test_to_take_back_ends_a_run_that_waits(server: InProcessServer, client: aiohttp.ClientSession) -> None:
    for instance in (server.service.registry.sessions,):
        instance.patience = 0.0
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response:
        seen = await read_events(response)
    assert seen[-1]["event"] == "done" and seen[-1]["data"]["data"]["outcome"] == "interrupted"
    run = response.headers["X-Run-Id"]
    assert (await get_json(client, f"/runs/{run}"))["state"] == "waiting"
    await call(client, "POST", "/threads/th_1/rewind", 200, json={"to": 0})
    ended = await get_json(client, f"/runs/{run}")
    assert (ended["state"], ended["outcome"], ended["reason"]) == ("ended", "cancelled", "the thread was rewound")
    async with client.get(f"/runs/{run}/events", headers={"Last-Event-ID": seen[-1]["id"]}) as response:
        assert list_names(await read_events(response)) == ["done"]


async def test_a_thread_is_exported(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("Show me ``` three.", "th_1"))
    log = await call(client, "GET", "/threads/th_1/export", 200)
    assert log["schema"] == 1 and [entry["kind"] for entry in log["entries"]] == [
        *("message", "run_start", "message", "run_end"),
    ]
    async with client.get("/threads/th_1/export?format=markdown") as response:
        text = await response.text()
        assert response.content_type == "text/markdown"
        assert response.headers["Content-Disposition"] == 'attachment; filename="th_1.md"'
    assert text.startswith("# Show me ``` three.\n") and "## User" in text and "You said: Show me ``` three." in text
    async with client.get("/threads/th_1/export?format=pdf") as response:
        assert response.status == 422


async def test_a_thread_is_deleted_with_those_of_its_subagents(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    found = await send_answer(client, "boss", user_message("Delegate.", "th_1"))
    assert "You said: Help." in found["response"]
    owner = (await get_json(client, "/auth/me"))["id"]
    there = [head.id for head in (await server.service.store.list(owner)).threads]
    (child,) = [id for id in there if id != "th_1"]
    assert [thread["id"] for thread in (await get_json(client, "/threads"))["threads"]] == ["th_1"]
    refused = await call(client, "POST", f"/threads/{child}/messages", 409, json=HELLO)
    assert "subagent" in refused["error"]["message"]
    await call(client, "DELETE", "/threads/th_1", 204)
    assert (await server.service.store.list(owner)).threads == ()
    await call(client, "DELETE", "/threads/th_1", 404)


async def test_a_thread_that_is_busy_is_deleted_too(client: aiohttp.ClientSession, gate: Gate) -> None:
    async with client.post("/agents/gate/stream", json=user_message("Wait.", "th_1")) as response:
        await gate.asked.wait()
        await call(client, "DELETE", "/threads/th_1", 204)
        assert list_names(await read_events(response))[-1] in ("done", "error")
    await call(client, "GET", f"/runs/{response.headers['X-Run-Id']}", 404)
    gate.answers.put_nowait("Anew.")
    assert len((await send_answer(client, "gate", user_message("Hello.", "th_1")))["messages"]) == 2


async def test_so_many_threads_and_no_more(tmp_path: Path) -> None:
    quotas = {"threads": 2, "requests_per_second": 0}
    async with (
        host_server(tmp_path, agents=sample_agents(Gate()), quotas=quotas) as server,
        open_client(server) as client,
    ):
        await send_answer(client, "echo", user_message("One.", "th_1"))
        await send_answer(client, "echo", user_message("Two.", "th_2"))
        await send_answer(client, "echo", user_message("Three.", "th_3"))
        await call(client, "GET", "/threads/th_1", 404)  # the longest idle one made room
        assert (await send_answer(client, "echo", user_message("More.", "th_2")))["response"] == "You said: More."
        assert len((await get_json(client, "/threads"))["threads"]) == 2


async def test_a_message_to_an_idle_thread_starts_a_run(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("One.", "th_1"))
    said = await call(client, "POST", "/threads/th_1/messages", 202, json=user_message("Two."))
    async with client.get(f"/runs/{said['run_id']}/events") as response:
        assert list_names(await read_events(response))[-1] == "done"

    async def is_answered() -> bool:
        return bool((await get_json(client, "/threads/th_1"))["messages"][-1]["content"] == "You said: Two.")

    await wait_until(is_answered)
    await call(client, "POST", "/threads/nowhere/messages", 404, json=HELLO)


async def test_pending_messages_are_listed(server: InProcessServer, client: aiohttp.ClientSession, gate: Gate) -> None:
    """A page shows it after a reload; delivered messages are listed once."""
    asked = asyncio.create_task(send_answer(client, "gate", user_message("One.", "th_1")))
    await gate.asked.wait()
    said = await call(client, "POST", "/threads/th_1/messages", 202, json=user_message("Two."))
    thread = await get_json(client, "/threads/th_1")
    (waits,) = thread["unheard"]
    assert (waits["position"], waits["message"]["content"]) == (said["position"], "Two.")
    assert [message["content"] for message in thread["messages"]] == ["One."] and thread["queued"] == 1
    for _ in range(2):
        gate.answers.put_nowait("")
    await asked
    await wait_until(lambda: _said_last(client, "You said: Two."))
    thread = await get_json(client, "/threads/th_1")
    assert thread["unheard"] == [] and [m["content"] for m in thread["messages"]].count("Two.") == 1
    assert thread["last"] == (await get_json(client, "/threads/th_1/export"))["entries"][-1]["seq"]


async def _said_last(client: aiohttp.ClientSession, words: str) -> bool:
    return bool((await get_json(client, "/threads/th_1"))["messages"][-1]["content"] == words)


async def test_an_idempotency_key_queues_a_message_once(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("One.", "th_1"))
    key = {"Idempotency-Key": "k1"}
    first = await call(client, "POST", "/threads/th_1/messages", 202, json=user_message("Two."), headers=key)
    async with client.get(f"/runs/{first['run_id']}/events") as response:
        assert list_names(await read_events(response))[-1] == "done"
    assert await call(client, "POST", "/threads/th_1/messages", 202, json=user_message("Two."), headers=key) == first
    await call(client, "POST", "/threads/th_1/messages", 409, json=user_message("Three."), headers=key)
    said = [message["content"] for message in (await get_json(client, "/threads/th_1"))["messages"]]
    assert said == ["One.", "You said: One.", "Two.", "You said: Two."]


async def test_a_long_thread_is_compressed_and_streams_are_not(tmp_path: Path) -> None:
    """A thread of 1 MB is read with less than 100 kB."""
    text = "".join(f"{number} bottles of beer on the wall, take {number % 7} down.\n" for number in range(6_000))
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        for number in range(2):
            await send_answer(client, "echo", user_message(f"{number} {text}", "th_long"))
        headers = {"Accept-Encoding": "gzip"}
        async with client.get("/threads/th_long", headers=headers) as response:
            whole = await response.read()
            assert response.headers["Content-Encoding"] == "gzip"
        async with client.get("/threads/th_long", headers={"Accept-Encoding": "identity"}) as response:
            assert await response.read() == whole and "Content-Encoding" not in response.headers
        async with aiohttp.ClientSession(auto_decompress=False, headers=client.headers) as raw:
            async with raw.get(f"{server.url}/threads/th_long", headers=headers) as response:
                assert len(whole) > 1_000_000 and len(await response.read()) < 100_000
            async with raw.get(f"{server.url}/events", headers=headers) as response:
                assert "Content-Encoding" not in response.headers
