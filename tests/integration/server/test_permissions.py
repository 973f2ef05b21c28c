"""Permissions, grants, limits and budgets over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api_requests import send_refused, send_request
from server_process import InProcessServer, ServerProcess, host_server, wait_until
from wick import Scripted, ToolCall, assistant

CALL = ToolCall("c1", "write_file", {"path": "a.txt", "content": "x"})


def asking() -> dict[str, Any]:
    """An agent that asks before it writes, and does so once for each answer."""
    model = Scripted(*(step for _ in range(3) for step in (assistant("", CALL), "Done.")), spare=True)
    rules = {"allow": [{"rule": "Read", "message": "look"}], "policy": "shell"}
    return {"model": model, "backend": {"type": "local"}, "permissions": rules}


async def start_run(there: InProcessServer, thread: str = "") -> str:
    body = {"messages": [{"role": "user", "content": "go"}], **({"thread_id": thread} if thread else {})}
    async with there.client("ada") as ada, ada.post("/agents/asker/stream", json=body) as answer:
        return answer.headers["X-Run-Id"]


async def wait_for_run(there: InProcessServer, run: str) -> dict[str, Any]:
    async def over() -> dict[str, Any] | None:
        _, found = await send_request(there, "ada", "GET", f"/runs/{run}")
        return dict(found) if found["outcome"] else None

    return dict(await wait_until(over))


async def question(there: InProcessServer) -> str:
    async def pending_question() -> str:
        _, waiting = await send_request(there, "ada", "GET", "/approvals")
        return str(waiting["approvals"][0]["id"]) if waiting["approvals"] else ""

    return str(await wait_until(pending_question))


async def test_rules_have_their_source(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"asker": asking()}) as there:
        _, found = await send_request(there, "ada", "GET", "/agents/asker/permissions")
        assert (found["agent_id"], found["mode"], found["grants"]) == ("asker", "default", [])
        mine = [rule for rule in found["rules"] if not rule["policy"]]
        assert mine == [{"type": "allow", "rule": "Read", "message": "look", "policy": ""}]
        ready = [rule for rule in found["rules"] if rule["policy"] == "shell"]
        assert ready and {rule["type"] for rule in ready} == {"deny"}


async def test_an_agent_without_permissions_has_none(server: ServerProcess) -> None:
    _, found = await send_request(server, "ada", "GET", "/agents/plain/permissions")
    assert (found["mode"], found["rules"], found["grants"]) == (None, [], [])


async def test_grants_are_listed_and_revoked(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"asker": asking()}) as there:
        run = await start_run(there, "granted")
        body = {"choice": "allow_always"}
        assert (await send_request(there, "ada", "POST", f"/approvals/{await question(there)}", json=body))[0] == 200
        assert (await wait_for_run(there, run))["outcome"] == "completed"
        _, found = await send_request(there, "ada", "GET", "/agents/asker/permissions")
        (grant,) = found["grants"]
        assert (grant["tool"], grant["args"]["path"]) == ("write_file", "a.txt")
        assert (await wait_for_run(there, await start_run(there)))["outcome"] == "completed", "it does not ask again"

        path = f"/agents/asker/permissions/grants/{grant['id']}"
        assert await send_refused(there, "bob", "DELETE", path) == (404, "not_found")
        assert (await send_request(there, "ada", "DELETE", path))[0] == 204
        assert await send_refused(there, "ada", "DELETE", path) == (404, "not_found")
        assert (await send_request(there, "ada", "GET", "/agents/asker/permissions"))[1]["grants"] == []
        run = await start_run(there, "granted")  # also where it was granted
        assert await question(there), "it asks again"
        (asked,) = (await send_request(there, "ada", "GET", "/approvals"))[1]["approvals"]
        assert asked["tool"] == "write_file" and asked["shell"] is None
        await send_request(there, "ada", "POST", f"/runs/{run}/cancel")


async def test_a_grant_is_of_one_agent(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"asker": asking(), "other": asking()}) as there:
        await start_run(there)
        await send_request(there, "ada", "POST", f"/approvals/{await question(there)}", json={"choice": "allow_always"})
        (grant,) = (await send_request(there, "ada", "GET", "/agents/asker/permissions"))[1]["grants"]
        assert (await send_request(there, "ada", "GET", "/agents/other/permissions"))[1]["grants"] == []
        path = f"/agents/other/permissions/grants/{grant['id']}"
        assert await send_refused(there, "ada", "DELETE", path) == (404, "not_found")


async def test_a_question_about_a_command_shows_the_command(tmp_path: Path) -> None:
    command = ToolCall("c1", "execute", {"command": "timeout 5 make test < in > log; echo $(date)"})
    model = Scripted(assistant("", command), "Done.", spare=True)
    agents = {"asker": {"model": model, "backend": {"type": "local"}, "permissions": {"ask": ["Bash"]}}}
    async with host_server(tmp_path, agents=agents) as there:
        run = await start_run(there)
        await question(there)
        (asked,) = (await send_request(there, "ada", "GET", "/approvals"))[1]["approvals"]
        shell = asked["shell"]
        assert {"timeout 5 make test", "make test", "date"} <= {*shell["commands"]}
        assert (shell["reads"], shell["writes"]) == (["in"], ["log"]) and shell["opaque"]
        await send_request(there, "ada", "POST", f"/runs/{run}/cancel")


async def test_limits_and_remaining_budget_are_shown(tmp_path: Path) -> None:
    limits = {"steps": 7, "cost": 0.5, "tool_calls": 3}
    model = Scripted("Hello there.", spare=True)
    agents = {"saver": {"model": model, "limits": limits, "budget": {"tokens": 100_000, "reserve": 10}}}
    async with host_server(tmp_path, agents=agents) as there:
        _, found = await send_request(there, "ada", "GET", "/agents/saver/limits")
        assert found["limits"] == {"steps": 7, "tokens": None, "seconds": None, "cost": 0.5, "tool_calls": 3}
        (budget,) = found["budgets"]
        assert (budget["tokens"], budget["dollars"], budget["spent_tokens"]) == (100_000, None, 0)
        body = {"messages": [{"role": "user", "content": "go"}]}
        assert (await send_request(there, "ada", "POST", "/agents/saver/invoke", json=body))[0] == 200
        _, found = await send_request(there, "bob", "GET", "/agents/saver/limits")
        (budget,) = found["budgets"]
        assert budget["spent_tokens"] > 0 and budget["reserved_tokens"] == 0


async def test_an_agent_that_nothing_limits(server: ServerProcess) -> None:
    path = "/agents/plain"
    assert (await send_request(server, "olga", "PATCH", f"{path}/hooks", json={"hooks": {"limits": False}}))[0] == 200
    _, found = await send_request(server, "olga", "GET", f"{path}/limits")
    assert found == {"agent_id": "plain", "limits": None, "budgets": []}
    assert (await send_request(server, "olga", "PATCH", f"{path}/hooks", json={"hooks": {"limits": None}}))[0] == 200
    assert (await send_request(server, "olga", "GET", f"{path}/limits"))[1]["limits"]["steps"] > 0
