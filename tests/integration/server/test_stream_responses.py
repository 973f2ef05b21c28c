"""Streams as clients that are not ours read them, and the events in the order that clients rely on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chromium import find_chromium
from server_agents import HELLO, Gate, get_json, list_names, sample_agents, user_message
from server_process import TOKENS, ServerProcess, host_server, open_client, read_events, wait_until
from wick import FunctionModel, ToolCall, assistant
from wick import events as module
from wick.protocols import Request
from wick.server.runs.frames import START
from wick.server.runs.record import RunInfo
from wick.server.stream_responses import EventName, StreamEvent


def reading(request: Request) -> Any:
    """Reads a file and returns its content."""
    if request.messages[-1].role == "user":
        return assistant("Let me read that file.", ToolCall("call_r1", "read_file", {"path": "main.py"}))
    return "The file contains a FastAPI app."


async def test_one_cycle_with_a_tool(tmp_path: Path) -> None:
    reader = {"model": FunctionModel(reading), "backend": {"type": "local"}}
    async with host_server(tmp_path, agents={"reader": reader}) as server, open_client(server) as client:
        body = {"path": "main.py", "content": "from fastapi import FastAPI\n"}
        async with client.put("/agents/reader/files/write", json=body) as written:
            assert written.status == 200, await written.text()
        async with client.post("/agents/reader/stream", json=user_message("What is in main.py?")) as response:
            found = await read_events(response)
    words = [frame for frame in found if frame["event"] == "on_chat_model_stream"]
    texts = [frame["data"]["data"]["delta"] for frame in words if frame["data"]["data"]["kind"] == "text"]
    assert "".join(texts) == "Let me read that file.The file contains a FastAPI app."
    told = [frame for frame in found if frame["event"] in ("on_tool_start", "on_tool_end", "done")]
    assert list_names(told) == ["on_tool_start", "on_tool_end", "done"]
    start, end, done = (frame["data"] for frame in told)
    assert start["name"] == end["name"] == "read_file" and start["data"]["args"] == {"path": "main.py"}
    assert "from fastapi import FastAPI" in end["data"]["output"] and done["thread_id"].startswith("th_")
    order = list_names(found)
    assert order.index("on_chat_model_stream") < order.index("on_tool_start") < order.index("on_tool_end")
    assert len(order) - 1 - order[::-1].index("on_chat_model_stream") > order.index("on_tool_end")
    for frame in found:
        StreamEvent.model_validate(frame["data"])


async def test_curl_reads_a_stream(server: ServerProcess) -> None:
    command = ["curl", "-sN", "--max-time", "60", f"{server.url}/agents/plain/stream", "-d", json.dumps(HELLO)]
    command += ["-H", f"Authorization: Bearer {TOKENS['ada']}", "-H", "Content-Type: application/json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0 and text.rstrip().split("\n\n")[-1].split("\n")[1] == "event: done"


async def test_the_openapi_document_has_every_event(server: ServerProcess) -> None:
    async with open_client(server) as client, client.get("/openapi.json") as response:
        document = await response.json()
    stream = document["paths"]["/agents/{id}/stream"]["post"]["responses"]["200"]["content"]
    assert "text/event-stream" in stream
    described = document["components"]["schemas"]["StreamEvent"]["properties"]["event"]["enum"]
    assert set(described) == set(EventName.__args__)  # type: ignore[attr-defined]
    known = {kind.event for kind in vars(module).values() if isinstance(kind, type) and getattr(kind, "event", "")}
    assert known == set(described)


async def test_a_run_that_is_over_ends_an_event_source(tmp_path: Path) -> None:
    """Like a browser: reconnect with the last id until the server reports the end."""
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        async with client.post("/agents/echo/invoke", json=HELLO) as response:
            run = (await response.json())["run_id"]
        seen: list[dict[str, Any]] = []
        for _ in range(5):
            headers = {"Last-Event-ID": seen[-1]["id"]} if seen else {}
            ticket = await _ticket(client)
            url = f"{server.url}/runs/{run}/events?ticket={ticket}"
            async with aiohttp.ClientSession() as browser, browser.get(url, headers=headers) as answered:
                if answered.status == 204:
                    break
                assert answered.status == 200
                seen += await read_events(answered)
        assert list_names(seen) == ["on_chat_model_end", "done"] and answered.status == 204


async def _ticket(client: aiohttp.ClientSession) -> str:
    async with client.post("/auth/tickets") as response:
        return str((await response.json())["ticket"])


IN_PAGE = """async (run) => await new Promise((resolve, reject) => {
  const seen = [], source = new EventSource(`/runs/${run}/events`);
  const note = (event) => { seen.push([event.type, event.lastEventId, JSON.parse(event.data).run_id]); };
  for (const name of ["on_chat_model_start", "on_chat_model_stream", "on_chat_model_end"])
    source.addEventListener(name, note);
  source.addEventListener("done", (event) => { note(event); source.close(); resolve(seen); });
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) reject(new Error("closed")); };
  window.listening = true;
})"""
SIGN_IN = """async (token) => (await fetch("/auth/session", {
  method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token}),
})).status"""


async def test_a_browser_follows_a_run(tmp_path: Path) -> None:
    """A real browser's EventSource, signed in by its cookie."""
    playwright = pytest.importorskip("playwright.async_api", reason="pip install playwright")
    chromium = find_chromium()
    gate = Gate()
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as server, open_client(server) as client:
        response = await client.post("/agents/gate/stream", json=HELLO)
        await gate.asked.wait()
        async with playwright.async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page()
            await page.goto(server.url)
            assert await page.evaluate(SIGN_IN, TOKENS["ada"]) == 200
            following = asyncio.create_task(page.evaluate(IN_PAGE, response.headers["X-Run-Id"]))
            await wait_until(lambda: page.evaluate("window.listening === true"))

            async def two_read() -> bool:
                return server.service.runs.followers.readers == 2

            await wait_until(two_read)
            gate.answers.put_nowait("Here.")
            seen = await following
            await browser.close()
        names = ["on_chat_model_start", "on_chat_model_stream", "on_chat_model_end", "done"]
        assert [name for name, _, _ in seen] == names
        assert {run for _, _, run in seen} == {response.headers["X-Run-Id"]} and seen[-1][1].isdecimal()
        await read_events(response)


async def test_following_a_run_of_a_deleted_thread_ends(tmp_path: Path) -> None:
    """Also when there is another thread of that name by now."""
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as client:
        async with client.post("/agents/echo/invoke", json=user_message("Hello.", "th_1")) as answer:
            assert answer.status == 200
        runs = server.service.runs
        gone = RunInfo("run_gone", (await get_json(client, "/auth/me"))["id"], "th_1", "echo")
        async with asyncio.timeout(60):
            frames = [frame async for batch in runs.followers.follow(gone, START) for frame in batch]
        assert isinstance(frames[-1].event, module.Failed) and frames[-1].event.code == "not_found"
