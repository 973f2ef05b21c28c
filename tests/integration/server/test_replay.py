"""Replay over HTTP: decisions of other guards about a user's past threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_requests import send_refused, send_request
from server_process import InProcessServer, host_server
from wick import Agent, Block, Scripted, ToolCall, ToolUse, assistant, guard, tool
from wick.models.scripted import FunctionModel
from wick.protocols import Request


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@guard(ToolUse, match="add")
def small(use: ToolUse) -> Block | None:
    return Block("too large") if use.args["a"] > 100 else None


def writing(request: Request) -> Any:
    """A model that writes its input into a file, and then lists the folder."""
    last = request.messages[-1]
    if last.role == "user":
        return assistant("", ToolCall("c1", "write_file", {"path": f"{last.text}.txt", "content": "x"}))
    return "Done." if last.tool_call_id == "c2" else assistant("", ToolCall("c2", "ls", {}))


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[InProcessServer]:
    calls = (assistant("", ToolCall("c1", "add", {"a": 1, "b": 2})), "3")
    agents = {
        "writer": {"model": FunctionModel(writing), "backend": {"type": "local"}},
        "adder": lambda user: Agent(Scripted(*calls), name="adder", tools=[add], hooks=[small]),
    }
    async with host_server(tmp_path, agents=agents) as found:
        yield found


async def run_to_end(there: InProcessServer, agent: str, words: str, user: str = "ada") -> str:
    """Return the thread of a finished run."""
    body = {"messages": [{"role": "user", "content": words}]}
    status, ran = await send_request(there, user, "POST", f"/agents/{agent}/invoke", json=body)
    assert status == 200 and ran["outcome"] == "completed", ran
    return str(ran["thread_id"])


async def again(there: InProcessServer, user: str = "ada", **body: Any) -> dict[str, Any]:
    status, report = await send_request(there, user, "POST", "/replay", json={"agent_id": "writer", **body})
    assert status == 200, report
    return dict(report)


async def test_unchanged_guards_give_the_same_decisions(there: InProcessServer) -> None:
    await run_to_end(there, "writer", "one")
    report = await again(there)
    assert (report["threads"], report["uses"], report["changes"], report["more"]) == (1, 2, [], False)


async def test_a_rule_shows_calls_it_would_block(there: InProcessServer) -> None:
    one, two = await run_to_end(there, "writer", "one"), await run_to_end(there, "writer", "two")
    report = await again(there, rules={"deny": ["Write(one.txt)"], "ask": ["LS"]})
    found = {change["thread_id"]: change for change in report["changes"]}
    assert (found[one]["tool"], found[one]["recorded"], found[one]["now"]) == ("write_file", "allow", "block")
    assert found[one]["args"]["path"] == "one.txt" and "Write(one.txt)" in found[one]["reason"]
    assert (found[two]["tool"], found[two]["now"], found[two]["call_id"]) == ("ls", "ask", "c2")
    assert found[one]["title"] == "one" and report["threads"] == 2
    assert (await send_request(there, "ada", "GET", "/agents/writer/permissions"))[1]["rules"] == [], (
        "nothing has changed"
    )


async def test_a_set_of_guards_is_tried_on_chosen_threads(there: InProcessServer) -> None:
    one, _ = await run_to_end(there, "writer", "one"), await run_to_end(there, "writer", "two")
    report = await again(there, thread_ids=[one], hooks={"permissions": {"mode": "plan"}})
    (change,) = report["changes"]
    assert (change["thread_id"], change["now"], change["reason"]) == (
        one, "block", "Plan mode: write operations not allowed",
    )  # fmt: skip
    assert (report["threads"], (await again(there, thread_ids=[]))["threads"]) == (1, 0)
    allowed = {"permissions": {"mode": "plan", "allow": ["Write"]}}
    assert (await again(there, thread_ids=[one], hooks=allowed))["changes"], "a plan is a plan"


async def test_rules_can_be_replayed_for_a_registered_agent(there: InProcessServer) -> None:
    thread = await run_to_end(there, "adder", "go")
    report = await again(there, agent_id="adder", rules={"deny": ["add"]})
    assert [(change["thread_id"], change["now"]) for change in report["changes"]] == [(thread, "block")]
    assert (await again(there, agent_id="adder"))["changes"] == []
    body = {"agent_id": "adder", "hooks": {"todos": False}}
    assert await send_refused(there, "ada", "POST", "/replay", json=body) == (409, "conflict")


async def test_users_cannot_replay_threads_of_others(there: InProcessServer) -> None:
    hers = await run_to_end(there, "writer", "one")
    body = {"agent_id": "writer", "thread_ids": [hers]}
    assert await send_refused(there, "bob", "POST", "/replay", json=body) == (404, "not_found")
    assert (await again(there, "bob"))["threads"] == 0


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"agent_id": "nobody"}, (404, "not_found")),
        ({"agent_id": "writer", "rules": {"deny": ["Bash("]}}, (400, "invalid")),
        ({"agent_id": "writer", "hooks": {"mcp": {"servers": {"x": {"command": "sh"}}}}}, (403, "not_allowed")),
        ({"agent_id": "writer", "hooks": {"hooks": ["os:system"]}}, (403, "not_allowed")),
        ({"agent_id": "writer", "rules": {"never": []}}, (422, "invalid")),
        ({}, (422, "invalid")),
    ],
)
async def test_an_invalid_replay_is_an_error_message(
    there: InProcessServer, body: dict[str, Any], answer: tuple[int, str]
) -> None:
    assert await send_refused(there, "ada", "POST", "/replay", json=body) == answer
