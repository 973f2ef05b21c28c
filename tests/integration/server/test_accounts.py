"""Reports about runs: usage, traces, reasons, slides. On each store, for each role."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from server_process import ServerProcess, open_client, wait_until


async def send_as(server: ServerProcess, user: str, method: str, path: str, **more: Any) -> tuple[int, Any]:
    async with open_client(server, user) as client, client.request(method, path, **more) as answer:
        is_json = answer.content_type == "application/json"
        return answer.status, await answer.json() if is_json else await answer.read()


async def invoked(
    server: ServerProcess, user: str = "ada", text: str = "Write a file notes.txt that says hello"
) -> dict[str, Any]:
    words = {"messages": [{"role": "user", "content": text}]}
    status, answer = await send_as(server, user, "POST", "/agents/default/invoke", json=words)
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


# -- usage ----------------------------------------------------------------------------------------------------------


async def test_users_see_their_own_usage(server: ServerProcess) -> None:
    await invoked(server)

    async def counted() -> Any:
        status, report = await send_as(server, "ada", "GET", "/usage")
        assert status == 200
        return report if report["rows"] else None

    report = await wait_until(counted)
    assert {row["user"] for row in report["rows"]} == {"ada"}
    assert report["total"]["runs"] >= 1 and report["total"]["input_tokens"] > 0
    assert report["total"]["runs"] == sum(row["runs"] for row in report["rows"])
    assert (await send_as(server, "ada", "GET", "/usage?agent=nobody"))[1]["rows"] == []
    assert (await send_as(server, "ada", "GET", "/usage?until=2020-01-01"))[1]["rows"] == []


@pytest.mark.parametrize(("user", "status"), [("ada", 403), ("olga", 403), ("root", 200), ("", 401)])
async def test_only_permitted_roles_see_all_usage(server: ServerProcess, user: str, status: int) -> None:
    assert (await send_as(server, user, "GET", "/usage?user=*"))[0] == status


async def test_an_admin_sees_each_users_usage(server: ServerProcess) -> None:
    await invoked(server, "bob")
    mine = (await send_as(server, "bob", "GET", "/auth/me"))[1]["id"]

    async def counted() -> Any:
        return (await send_as(server, "root", "GET", f"/usage?user={mine}"))[1]["rows"]

    assert {row["user"] for row in await wait_until(counted)} == {"bob"}
    assert (await send_as(server, "bob", "GET", f"/usage?user={mine}"))[0] == 200
    assert (await send_as(server, "ada", "GET", f"/usage?user={mine}"))[0] == 403


@pytest.mark.parametrize("query", ["since=yesterday", "until=2020-13-01", "since=99999-01-01"])
async def test_invalid_days_are_refused(server: ServerProcess, query: str) -> None:
    assert (await send_as(server, "ada", "GET", f"/usage?{query}"))[0] == 422


# -- traces and reasons ---------------------------------------------------------------------------------------------


async def test_the_trace_of_a_run(server: ServerProcess) -> None:
    answer = await invoked(server)
    status, trace = await send_as(server, "ada", "GET", f"/runs/{answer['run_id']}/trace")
    assert status == 200 and trace["run"] == answer["run_id"] and trace["thread_id"] == answer["thread_id"]
    (root,) = trace["spans"]
    assert root["name"] == "run" and root["attributes"]["outcome"] == "completed"
    names = {child["name"] for step in root["children"] for child in step["children"]}
    assert names == {"llm.call", "tool.call"}
    assert (await send_as(server, "bob", "GET", f"/runs/{answer['run_id']}/trace"))[0] == 404
    assert (await send_as(server, "root", "GET", f"/runs/{answer['run_id']}/trace"))[0] == 404
    assert (await send_as(server, "", "GET", f"/runs/{answer['run_id']}/trace"))[0] == 401


async def test_why_a_tool_was_used(server: ServerProcess) -> None:
    answer = await invoked(server)
    call = next(message["tool_calls"][0] for message in answer["messages"] if message.get("tool_calls"))
    path = f"/threads/{answer['thread_id']}/calls/{call['id']}/why"
    status, why = await send_as(server, "ada", "GET", path)
    assert status == 200 and why["tool"] == call["name"] and why["args"] == call["args"]
    assert why["run_id"] == answer["run_id"] and why["attempts"][0]["ended"] == "done" and "notes.txt" in why["result"]
    assert (await send_as(server, "bob", "GET", path))[0] == 404
    assert (await send_as(server, "ada", "GET", f"/threads/{answer['thread_id']}/calls/other/why"))[0] == 404
    assert (await send_as(server, "ada", "GET", f"{path}?seq=1"))[0] == 404
    assert (await send_as(server, "ada", "GET", f"{path}?seq=0"))[0] == 422


# -- slides ---------------------------------------------------------------------------------------------------------


async def test_slides_of_a_workspace(server: ServerProcess) -> None:
    pptx = pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")
    text = "# T\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    written = {"path": "talk/deck.md", "content": text}
    assert (await send_as(server, "ada", "PUT", "/agents/default/files/write", json=written))[0] == 200
    export = "/agents/default/slides/export"
    async with open_client(server) as client, client.post(export, json={"path": "talk/deck.md"}) as answer:
        assert answer.status == 200 and "presentationml" in answer.content_type
        assert answer.headers["Content-Disposition"] == 'attachment; filename="deck.pptx"'
        (page,) = pptx.Presentation(BytesIO(await answer.read())).slides
    assert [shape.has_table for shape in page.shapes] == [False, True]
    assert (await send_as(server, "bob", "POST", export, json={"path": "talk/deck.md"}))[0] == 404


@pytest.mark.parametrize(
    ("agent", "body", "status"),
    [
        ("default", {}, 422),
        ("default", {"content": "---"}, 422),
        ("default", {"content": "x" * 1_000_001}, 422),
        ("default", {"path": "../../etc/passwd"}, 400),
        ("default", {"path": "no.md"}, 404),
        ("plain", {"path": "deck.md"}, 409),
        ("plain", {"content": "# T"}, 200),
        ("nobody", {"content": "# T"}, 404),
    ],
)
async def test_slides_that_are_refused(server: ServerProcess, agent: str, body: dict[str, str], status: int) -> None:
    assert (await send_as(server, "ada", "POST", f"/agents/{agent}/slides/export", json=body))[0] == status
