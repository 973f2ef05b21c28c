"""What a server can tell of its runs: usage, traces, reasons, slides. On each store, for each role."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from server_process import Served, eventually, talking


async def asked(served: Served, user: str, method: str, path: str, **more: Any) -> tuple[int, Any]:
    async with talking(served, user) as client, client.request(method, path, **more) as answer:
        is_json = answer.content_type == "application/json"
        return answer.status, await answer.json() if is_json else await answer.read()


async def invoked(
    served: Served, user: str = "ada", text: str = "Write a file notes.txt that says hello"
) -> dict[str, Any]:
    words = {"messages": [{"role": "user", "content": text}]}
    status, answer = await asked(served, user, "POST", "/agents/default/invoke", json=words)
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


# -- usage ----------------------------------------------------------------------------------------------------------


async def test_a_user_sees_their_own_usage(served: Served) -> None:
    await invoked(served)

    async def counted() -> Any:
        status, report = await asked(served, "ada", "GET", "/usage")
        assert status == 200
        return report if report["rows"] else None

    report = await eventually(counted)
    assert {row["user"] for row in report["rows"]} == {"ada"}
    assert report["total"]["runs"] >= 1 and report["total"]["input_tokens"] > 0
    assert report["total"]["runs"] == sum(row["runs"] for row in report["rows"])
    assert (await asked(served, "ada", "GET", "/usage?agent=nobody"))[1]["rows"] == []
    assert (await asked(served, "ada", "GET", "/usage?until=2020-01-01"))[1]["rows"] == []


@pytest.mark.parametrize(("user", "status"), [("ada", 403), ("olga", 403), ("root", 200), ("", 401)])
async def test_who_sees_everybodys_usage(served: Served, user: str, status: int) -> None:
    assert (await asked(served, user, "GET", "/usage?user=*"))[0] == status


async def test_an_admin_sees_each_users_usage(served: Served) -> None:
    await invoked(served, "bob")
    mine = (await asked(served, "bob", "GET", "/auth/me"))[1]["id"]

    async def counted() -> Any:
        return (await asked(served, "root", "GET", f"/usage?user={mine}"))[1]["rows"]

    assert {row["user"] for row in await eventually(counted)} == {"bob"}
    assert (await asked(served, "bob", "GET", f"/usage?user={mine}"))[0] == 200
    assert (await asked(served, "ada", "GET", f"/usage?user={mine}"))[0] == 403


@pytest.mark.parametrize("query", ["since=yesterday", "until=2020-13-01", "since=99999-01-01"])
async def test_a_day_that_is_none(served: Served, query: str) -> None:
    assert (await asked(served, "ada", "GET", f"/usage?{query}"))[0] == 422


# -- traces and reasons ---------------------------------------------------------------------------------------------


async def test_the_trace_of_a_run(served: Served) -> None:
    answer = await invoked(served)
    status, trace = await asked(served, "ada", "GET", f"/runs/{answer['run_id']}/trace")
    assert status == 200 and trace["run"] == answer["run_id"] and trace["thread_id"] == answer["thread_id"]
    (root,) = trace["spans"]
    assert root["name"] == "run" and root["attributes"]["outcome"] == "completed"
    names = {child["name"] for step in root["children"] for child in step["children"]}
    assert names == {"llm.call", "tool.call"}
    assert (await asked(served, "bob", "GET", f"/runs/{answer['run_id']}/trace"))[0] == 404
    assert (await asked(served, "root", "GET", f"/runs/{answer['run_id']}/trace"))[0] == 404
    assert (await asked(served, "", "GET", f"/runs/{answer['run_id']}/trace"))[0] == 401


async def test_why_a_tool_was_used(served: Served) -> None:
    answer = await invoked(served)
    call = next(message["tool_calls"][0] for message in answer["messages"] if message.get("tool_calls"))
    path = f"/threads/{answer['thread_id']}/calls/{call['id']}/why"
    status, why = await asked(served, "ada", "GET", path)
    assert status == 200 and why["tool"] == call["name"] and why["args"] == call["args"]
    assert why["run_id"] == answer["run_id"] and why["attempts"][0]["ended"] == "done" and "notes.txt" in why["result"]
    assert (await asked(served, "bob", "GET", path))[0] == 404
    assert (await asked(served, "ada", "GET", f"/threads/{answer['thread_id']}/calls/other/why"))[0] == 404
    assert (await asked(served, "ada", "GET", f"{path}?seq=1"))[0] == 404
    assert (await asked(served, "ada", "GET", f"{path}?seq=0"))[0] == 422


# -- slides ---------------------------------------------------------------------------------------------------------


async def test_slides_of_a_workspace(served: Served) -> None:
    pptx = pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")
    text = "# T\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    written = {"path": "talk/deck.md", "content": text}
    assert (await asked(served, "ada", "PUT", "/agents/default/files/write", json=written))[0] == 200
    export = "/agents/default/slides/export"
    async with talking(served) as client, client.post(export, json={"path": "talk/deck.md"}) as answer:
        assert answer.status == 200 and "presentationml" in answer.content_type
        assert answer.headers["Content-Disposition"] == 'attachment; filename="deck.pptx"'
        (page,) = pptx.Presentation(BytesIO(await answer.read())).slides
    assert [shape.has_table for shape in page.shapes] == [False, True]
    assert (await asked(served, "bob", "POST", export, json={"path": "talk/deck.md"}))[0] == 404


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
async def test_slides_that_are_refused(served: Served, agent: str, body: dict[str, str], status: int) -> None:
    assert (await asked(served, "ada", "POST", f"/agents/{agent}/slides/export", json=body))[0] == status
