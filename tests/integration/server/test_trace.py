"""Runs of a thread, and their traces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from api_requests import send_refused, send_request
from server_agents import Gate, get_json, send_answer, user_message
from server_process import InProcessServer, ServerProcess, host_server, open_client
from wick import Agent, FunctionModel, ModelCall, Scripted, ToolCall, assistant, before, tool, user
from wick.capabilities.recorder import Recorder
from wick.prices import price
from wick.protocols import Delta, Finish, Request, TextDelta, Usage


class Priced:
    """A model with a priced name that reports its usage."""

    name = "openai:gpt-4o"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        yield TextDelta("Hello.")
        yield Usage(input_tokens=1_000, output_tokens=100, cached_tokens=600)
        yield Finish()


async def run_to_end(
    there: InProcessServer | ServerProcess, agent: str, words: str, thread: str = ""
) -> tuple[str, str]:
    body = {"messages": [{"role": "user", "content": words}], **({"thread_id": thread} if thread else {})}
    status, ran = await send_request(there, "ada", "POST", f"/agents/{agent}/invoke", json=body)
    assert status == 200, ran
    return str(ran["thread_id"]), str(ran["run_id"])


async def test_runs_of_a_thread_are_returned_with_their_entries(server: ServerProcess) -> None:
    thread, first = await run_to_end(server, "default", "What is 2 + 3?")
    _, second = await run_to_end(server, "default", "What is 3 + 4?", thread)
    status, found = await send_request(server, "ada", "GET", f"/threads/{thread}/runs")
    assert status == 200
    runs = found["runs"]
    assert [run["run_id"] for run in runs] == [first, second] and all(run["traced"] for run in runs)
    assert {(run["outcome"], run["reason"] != "") for run in runs} <= {("completed", True), ("completed", False)}
    assert runs[0]["first"] < runs[0]["last"] < runs[1]["first"] < runs[1]["last"]
    _, kept = await send_request(server, "ada", "GET", f"/threads/{thread}")
    seqs = [message["seq"] for message in kept["messages"] if message["role"] == "user"]
    assert seqs[0] < runs[0]["last"] < seqs[1] < runs[1]["last"], "what is said stands before its run, or in it"
    assert await send_refused(server, "bob", "GET", f"/threads/{thread}/runs") == (404, "not_found")


async def test_a_model_call_has_its_price_if_known(tmp_path: Path) -> None:
    agents = {
        "priced": lambda user: Agent(Priced(), name="priced", hooks=[Recorder()]),
        "free": lambda user: Agent(Scripted("Hello."), name="free", hooks=[Recorder()]),
    }
    async with host_server(tmp_path, agents=agents) as there:
        costs = {}
        for agent in agents:
            _, run = await run_to_end(there, agent, "Hello?")
            _, trace = await send_request(there, "ada", "GET", f"/runs/{run}/trace")
            (run_span,) = trace["spans"]
            (call,) = run_span["children"][0]["children"]
            assert call["name"] == "llm.call" and run_span["cost"] is None
            costs[agent] = call["cost"]
    known = price("openai:gpt-4o", Usage(1_000, 100, 600))
    assert known is not None and costs == {"priced": float(known), "free": None}
    assert float(known) < float(price("openai:gpt-4o", Usage(1_000, 100)) or 0), "what was cached costs less"


async def test_a_run_without_a_recorder_has_no_trace(server: ServerProcess) -> None:
    thread, run = await run_to_end(server, "plain", "What is 1 + 1?")
    (told,) = (await send_request(server, "ada", "GET", f"/threads/{thread}/runs"))[1]["runs"]
    assert (told["run_id"], told["traced"]) == (run, False)
    assert await send_refused(server, "ada", "GET", f"/runs/{run}/trace") == (404, "not_found")


async def test_a_run_in_progress_has_a_trace(tmp_path: Path) -> None:
    gate = Gate()
    agent = Agent(gate, name="gate", system="The word is secret-canary-0123456789.", hooks=[Recorder()])
    async with host_server(tmp_path, agents={"gate": agent}) as server, open_client(server) as client:
        server.service.secrets.learn(["secret-canary-0123456789"])
        going = asyncio.create_task(send_answer(client, "gate", user_message("go", "th_1")))
        await gate.asked.wait()
        (listed,) = (await get_json(client, "/threads/th_1/runs"))["runs"]
        assert listed["traced"] and listed["ended"] is None
        found = await get_json(client, f"/runs/{listed['run_id']}/trace")
        (run,) = found["spans"]
        (call,) = run["children"][0]["children"]
        assert (run["name"], run["ms"], call["name"], call["ms"]) == ("run", None, "llm.call", None)
        assert found["thread_id"] == "th_1" and "secret-canary" not in str(found)
        await get_json(client, f"/runs/{listed['run_id']}/spans/0.0.0", 404)  # it has no reply yet
        async with open_client(server, "bob") as bob:
            await get_json(bob, f"/runs/{listed['run_id']}/trace", 404)
        gate.answers.put_nowait("Done.")
        await going
        (run,) = (await get_json(client, f"/runs/{listed['run_id']}/trace"))["spans"]
        assert run["ms"] > 0 and run["attributes"]["outcome"] == "completed"


async def test_a_model_call_has_its_full_request_and_reply(tmp_path: Path) -> None:
    """Messages of the log, those that hooks add, and which of them are new since the call before."""

    @tool
    def look_up(word: str) -> str:
        """Look up a word."""
        return f"{word}: an animal with secret-canary-0123456789"

    @before(ModelCall)
    def add_note(call: ModelCall) -> None:
        call.messages.append(user("a note of a hook"))

    def looking(request: Request) -> Any:
        if request.messages[-2].role == "user":
            return assistant("I look.", ToolCall("c1", "look_up", {"word": "otter"}))
        return "It is an animal."

    hooks = [Recorder(), add_note]
    agent = Agent(FunctionModel(looking), name="finder", system="Be brief.", tools=[look_up], hooks=hooks)
    async with host_server(tmp_path, agents={"finder": agent}) as server, open_client(server) as client:
        server.service.secrets.learn(["secret-canary-0123456789"])
        run = (await send_answer(client, "finder", user_message("What is an otter?", "th_1")))["run_id"]
        spans = (await get_json(client, f"/runs/{run}/trace"))["spans"]
        paths = find_paths(spans, "llm.call")
        first, second = [await get_json(client, f"/runs/{run}/spans/{path}") for path in paths]
        assert first["system"].startswith("Be brief.") and first["system_changed"] and not second["system_changed"]
        assert [(one["role"], one["is_new"], bool(one["seq"])) for one in first["messages"]] == [
            ("user", True, True), ("user", True, False),
        ]  # fmt: skip
        assert [(one["role"], one["is_new"]) for one in second["messages"]] == [
            ("user", False), ("assistant", True), ("tool", True), ("user", True),
        ]  # fmt: skip
        assert first["reply"]["tool_calls"][0]["args"] == {"word": "otter"}
        assert second["reply"]["content"] == "It is an animal." and "secret-canary" not in str(second)
        await get_json(client, f"/runs/{run}/spans/0", 404)
        await get_json(client, f"/runs/{run}/spans/9.9", 404)
        async with open_client(server, "bob") as bob:
            await get_json(bob, f"/runs/{run}/spans/{paths[0]}", 404)


def find_paths(spans: list[Any], name: str, above: str = "") -> list[str]:
    found = []
    for at, span in enumerate(spans):
        path = f"{above}{at}"
        found += [path] if span["name"] == name else find_paths(span["children"], name, f"{path}.")
    return found
