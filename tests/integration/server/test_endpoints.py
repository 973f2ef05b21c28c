"""The documented table of endpoints, walked row by row on a real server."""

from __future__ import annotations

from typing import Any

import pytest

from api_requests import send_request
from server_process import DEMO, ServerProcess, read_frames, run_server

SAY = {"messages": [{"role": "user", "content": "Hello."}]}
TOOL = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {}},
    "callback_url": "http://127.0.0.1:9/weather",
    "agents": ["*"],
}

# endpoint, method, body, status: in the order in which they are done
TABLE: list[tuple[str, str, Any, int]] = [
    ("/health", "GET", None, 200),
    ("/health/live", "GET", None, 200),
    ("/health/ready", "GET", None, 200),
    ("/agents/", "GET", None, 200),
    ("/agents", "GET", None, 200),
    ("/agents/", "POST", {"agent_id": "one", "model": "demo", "backend": "local"}, 201),
    ("/agents", "POST", {"agent_id": "two", "model": "demo"}, 201),
    ("/agents/one", "GET", None, 200),
    ("/agents/two", "DELETE", None, 204),
    ("/agents/one/invoke", "POST", SAY, 200),
    ("/agents/one/stream", "POST", SAY, 200),
    ("/agents/one/backend", "PATCH", {"mode": "local"}, 200),
    ("/agents/one/container", "POST", {"action": "restart"}, 200),
    ("/agents/one/container", "POST", {"action": "stop"}, 200),
    ("/agents/one/hooks", "PATCH", {"hooks": {"todos": False}}, 200),
    ("/agents/one/files/write", "PUT", {"path": "a/b.txt", "content": "x"}, 200),
    ("/agents/one/files/list", "GET", None, 200),
    ("/agents/one/files/list?path=", "GET", None, 200),
    ("/agents/one/files/list?path=.", "GET", None, 200),
    ("/agents/one/files/list?path=a", "GET", None, 200),
    ("/agents/one/files/read?path=a/b.txt", "GET", None, 200),
    ("/agents/one/files/download?path=a/b.txt", "GET", None, 200),
    ("/agents/tools/available", "GET", None, 200),
    ("/agents/tools/", "POST", TOOL, 201),
    ("/agents/tools", "POST", TOOL, 201),
    ("/agents/tools/weather", "DELETE", None, 204),
    ("/agents/skills/available", "GET", None, 200),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with run_server(tmp_path_factory.mktemp("endpoints"), config=DEMO) as running:
        yield running


async def test_every_row_of_the_table_works(server: ServerProcess) -> None:
    for path, method, body, status in TABLE:
        got, told = await send_request(server, "olga", method, path, **({"json": body} if body is not None else {}))
        assert got == status, (method, path, got, told)
        if "files/list" in path:
            where = "b.txt" if path.endswith("=a") else "a"
            assert where in [entry["name"] for entry in told["entries"]], path


async def test_the_same_with_and_without_a_slash(server: ServerProcess) -> None:
    assert await send_request(server, "ada", "GET", "/agents") == await send_request(server, "ada", "GET", "/agents/")
    for path in ("/agents", "/agents/", "/agents/tools", "/agents/tools/"):
        async with server.client("") as nobody, nobody.post(path, json={}, allow_redirects=False) as answer:
            assert answer.status == 401, path  # it is refused, and sent nowhere else
        if "tools" in path:
            assert (await send_request(server, "ada", "POST", path, json=TOOL))[0] == 403


async def test_events_and_the_terminal_of_the_table_work(server: ServerProcess) -> None:
    async with server.client("olga") as client:
        async with client.get("/agents/events") as answer:
            assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
        async with client.ws_connect("/agents/default/terminal") as terminal:
            await terminal.send_str("exit\n")


async def test_a_reply_in_the_stream_has_its_model_and_its_tokens(server: ServerProcess) -> None:
    async with server.client("ada") as client, client.post("/agents/default/stream", json=SAY) as answer:
        run = answer.headers["X-Run-Id"]
        found = [frame async for frame in read_frames(answer)]
    (end,) = [frame for frame in found if frame["event"] == "on_chat_model_end"]
    usage = end["data"]["data"]["usage"]
    assert end["data"]["name"] == "offline demo model" and usage["output_tokens"] > 0 and usage["input_tokens"] > 0
    assert set(end["data"]["data"]["message"]) == {"role", "content"}  # they are no part of the message
    (done,) = [frame for frame in found if frame["event"] == "done"]
    assert done["data"]["data"]["usage"] == usage
    async with server.client("ada") as client, client.get(f"/runs/{run}/events") as answer:  # replayed from the log
        again = [frame async for frame in read_frames(answer)]
    assert [frame for frame in again if frame["event"] == "on_chat_model_end"] == [end]
    _, thread = await send_request(server, "ada", "GET", f"/threads/{done['data']['thread_id']}")
    assert all("usage" not in message for message in thread["messages"])
