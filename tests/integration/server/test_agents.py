"""Agents over HTTP: listing, details, creation, hooks, deletion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from api_requests import follow_events, send_refused, send_request
from postgres import shared_server as postgres_server
from server_process import ServerProcess, host_server, read_frames
from wick.server.agents.redacted_options import HIDDEN, model_name, redact_options


def new_id() -> str:
    return f"a-{uuid4().hex[:8]}"


async def create_agent(server: ServerProcess, user: str = "ada", **options: Any) -> str:
    id = new_id()
    status, body = await send_request(
        server, user, "POST", "/agents/", json={"agent_id": id, "model": "demo", **options}
    )
    assert status == 201, body
    return id


async def test_agents_are_listed_and_described(server: ServerProcess) -> None:
    _, listed = await send_request(server, "ada", "GET", "/agents/")
    found = {agent["agent_id"]: agent for agent in listed["agents"]}
    assert found["default"]["origin"] == "file" and found["default"]["shared"] and found["default"]["model"] == "demo"
    assert "filesystem" in found["default"]["hooks"] and "filesystem" not in found["plain"]["hooks"]
    status, agent = await send_request(server, "ada", "GET", "/agents/default")
    assert status == 200 and {"read_file", "execute"} <= {tool["name"] for tool in agent["tools"]}
    sources = {tool["name"]: tool["source"] for tool in agent["tools"]}
    assert (sources["read_file"], sources["write_todos"]) == ("filesystem", "todos")
    assert agent["backend"]["mode"] == "local" and agent["backend"]["protection"]["level"] in ("strong", "weak", "none")
    assert (await send_request(server, "ada", "GET", "/agents/plain"))[1]["backend"] is None
    assert await send_refused(server, "ada", "GET", "/agents/nobody") == (404, "not_found")


async def test_an_agent_is_private_to_its_creator(server: ServerProcess) -> None:
    id = await create_agent(server, system_prompt="Be brief.", backend="local", todos=False)
    status, agent = await send_request(server, "ada", "GET", f"/agents/{id}")
    assert status == 200 and agent["system_prompt"] == "Be brief." and not agent["shared"]
    assert "write_todos" not in {tool["name"] for tool in agent["tools"]}
    for path in ("", "/hooks", "/onion", "/skills", "/backend", "/files/list"):
        assert await send_refused(server, "bob", "GET", f"/agents/{id}{path}") == (404, "not_found")
    for method, path, body in (
        ("DELETE", "", None),
        ("PATCH", "/hooks", {"hooks": {"todos": True}}),
        ("PATCH", "/backend", {"mode": "local"}),
        ("POST", "/container", {"action": "stop"}),
        ("PUT", "/files/write", {"path": "x", "content": "x"}),
    ):
        assert await send_refused(server, "bob", method, f"/agents/{id}{path}", json=body) == (404, "not_found")
    assert await send_refused(server, "ada", "POST", "/agents/", json={"agent_id": id, "model": "demo"}) == (
        409,
        "conflict",
    )
    assert (await send_request(server, "ada", "DELETE", f"/agents/{id}"))[0] == 204
    assert await send_refused(server, "ada", "GET", f"/agents/{id}") == (404, "not_found")


async def test_operators_create_shared_agents(server: ServerProcess) -> None:
    body = {"agent_id": new_id(), "model": "demo", "shared": True}
    assert await send_refused(server, "ada", "POST", "/agents/", json=body) == (403, "not_allowed")
    assert (await send_request(server, "olga", "POST", "/agents/", json=body))[0] == 201
    path = f"/agents/{body['agent_id']}"
    assert (await send_request(server, "bob", "GET", path))[0] == 200
    assert await send_refused(server, "bob", "DELETE", path) == (403, "not_allowed")
    assert (await send_request(server, "olga", "DELETE", path))[0] == 204


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"agent_id": "tools"}, (400, "invalid")),
        ({"agent_id": "events"}, (400, "invalid")),
        ({"agent_id": "../x"}, (400, "invalid")),
        ({"agent_id": "x" * 65}, (422, "invalid")),
        ({"hooks": ["os:system"]}, (422, "invalid")),
        ({"sessions": True}, (422, "invalid")),
        ({"unknown": 1}, (422, "invalid")),
        ({"tools": ["os:system"]}, (403, "not_allowed")),
        ({"backend": {"type": "local", "sandbox": "none"}}, (403, "not_allowed")),
        ({"backend": {"type": "docker", "image": "x", "volumes": {"/": "/x"}}}, (403, "not_allowed")),
        ({"mcp": {"servers": {"x": {"command": "sh"}}}}, (403, "not_allowed")),
        ({"context": {"texts": ["\ud800"]}}, (422, "invalid")),
        ({"recorder": {"runs": 2**70}}, (400, "invalid")),
        ({"todos": {"nudges": "many"}}, (400, "invalid")),
        ({"skills": {"shiped": True}}, (403, "not_allowed")),
    ],
    ids=str,
)
async def test_invalid_definitions_are_refused_and_not_stored(
    server: ServerProcess, options: dict[str, Any], answer: tuple[int, str]
) -> None:
    body = json.dumps({"agent_id": "refused", "model": "demo", **options})
    sent = {"data": body, "headers": {"Content-Type": "application/json"}}
    assert await send_refused(server, "ada", "POST", "/agents/", **sent) == answer
    _, listed = await send_request(server, "ada", "GET", "/agents/")
    assert not {"refused", "tools", "events"} & {agent["agent_id"] for agent in listed["agents"]}


async def test_admins_may_set_more_than_users(server: ServerProcess) -> None:
    options = {
        "agent_id": new_id(),
        "model": {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9", "api_key": "sk-hidden"},
    }
    assert await send_refused(server, "ada", "POST", "/agents/", json=options) == (403, "not_allowed")
    assert await send_refused(server, "olga", "POST", "/agents/", json=options) == (403, "not_allowed")
    status, agent = await send_request(server, "root", "POST", "/agents/", json=options)
    assert status == 201 and agent["model"] == "openai:m" and "sk-hidden" not in json.dumps(agent)
    assert (await send_request(server, "root", "DELETE", f"/agents/{options['agent_id']}"))[0] == 204


# -- hooks ------------------------------------------------------------------------------------------------------------


async def hooks_of(server: ServerProcess, user: str, id: str) -> dict[str, Any]:
    _, body = await send_request(server, user, "GET", f"/agents/{id}/hooks")
    return {hook["name"]: hook for hook in body["hooks"]}


async def test_hooks_are_toggled_and_configured(server: ServerProcess) -> None:
    id = await create_agent(server)
    before = await hooks_of(server, "ada", id)
    assert before["todos"]["on"] and before["todos"]["tools"] and not before["memory"]["on"]
    change = {"hooks": {"todos": False, "context": {"texts": ["Remember."]}}}
    status, body = await send_request(server, "ada", "PATCH", f"/agents/{id}/hooks", json=change)
    assert status == 200
    after = {hook["name"]: hook for hook in body["hooks"]}
    assert not after["todos"]["on"] and after["todos"]["changed"] and not after["todos"]["tools"]
    assert after["context"]["options"] == {"texts": ["Remember."]} and after["context"]["points"]
    _, body = await send_request(server, "ada", "PATCH", f"/agents/{id}/hooks", json={"hooks": {"todos": None}})
    assert {hook["name"]: hook["on"] for hook in body["hooks"]}["todos"]
    assert (await send_request(server, "ada", "DELETE", f"/agents/{id}"))[0] == 204


async def test_shared_hooks_and_their_order_need_an_operator(server: ServerProcess) -> None:
    path = "/agents/plain/hooks"
    for body in ({"order": ["todos"]}, {"hooks": {"limits": {"steps": 999}}}, {"hooks": {"retry": False}}):
        assert await send_refused(server, "ada", "PATCH", path, json=body) == (403, "not_allowed")
    everyone = {"json": {"hooks": {}}, "params": {"everyone": "true"}}
    assert await send_refused(server, "ada", "PATCH", path, **everyone) == (403, "not_allowed")
    change = {"hooks": {"limits": {"steps": 7}}, "order": ["summarization", "todos"]}
    try:
        status, _ = await send_request(server, "olga", "PATCH", path, json=change, params={"everyone": "true"})
        assert status == 200
        names = [*await hooks_of(server, "bob", "plain")]
        assert names.index("summarization") < names.index("todos")
        assert (await hooks_of(server, "bob", "plain"))["limits"]["options"]["steps"] == 7
        _, onion = await send_request(server, "bob", "GET", "/agents/plain/onion")
        rings = {one["operation"]: [ring["capability"] for ring in one["rings"]] for one in onion["operations"]}
        assert rings["model_call"].index("summarization") < rings["model_call"].index("todos")
    finally:
        undone = {"hooks": {"limits": None}, "order": []}
        assert (await send_request(server, "olga", "PATCH", path, json=undone, params={"everyone": "true"}))[0] == 200
    assert [*await hooks_of(server, "bob", "plain")].index("todos") < names.index("todos")


async def test_unswitchable_hooks_are_marked(server: ServerProcess) -> None:
    """The flag of each hook holds: a permitted user may switch it, others get its message."""
    for user in ("ada", "olga"):
        listed = await hooks_of(server, user, "plain")
        refused = {name: hook["refused"] for name, hook in listed.items() if hook["refused"]}
        assert "todos" not in refused and ("limits" in refused) is (user == "ada")
        for name, hook in listed.items():
            change = {"hooks": {name: not hook["on"]}}
            status, body = await send_request(server, user, "PATCH", "/agents/plain/hooks", json=change)
            if name in refused:
                assert (status, body["error"]["message"]) == (403, refused[name])
            else:
                assert status != 403, (name, body)
        await send_request(
            server, user, "PATCH", "/agents/plain/hooks", json={"hooks": dict.fromkeys({*listed} - {*refused})}
        )


@pytest.mark.parametrize(
    "change",
    [{"hooks": {"nothing": True}}, {"hooks": {"hooks": ["os:system"]}}, {"order": ["todos", "todos"]}, {"x": 1}],
)
async def test_invalid_hooks_are_refused(server: ServerProcess, change: dict[str, Any]) -> None:
    assert await send_refused(server, "olga", "PATCH", "/agents/plain/hooks", json=change) == (422, "invalid")


async def test_a_hook_that_cannot_be_built_changes_nothing(server: ServerProcess) -> None:
    change = {"hooks": {"limits": {"steps": -1}}}
    assert await send_refused(server, "olga", "PATCH", "/agents/plain/hooks", json=change) == (400, "invalid")
    assert (await send_request(server, "olga", "GET", "/agents/plain"))[0] == 200


async def test_the_onion_is_data(server: ServerProcess) -> None:
    status, onion = await send_request(server, "ada", "GET", "/agents/default/onion")
    assert status == 200
    assert [one["operation"] for one in onion["operations"]] == ["run", "step", "model_call", "tool_use"]
    use = onion["operations"][-1]
    assert use["rings"][0]["capability"] == "tracing"  # outermost
    assert {ring["position"] for ring in use["rings"]} <= {"after", "wrap", "before"}
    confirm = next(ring for ring in use["guards"] if ring["hook"] == "filesystem.confirm")
    assert confirm["source"] == "filesystem" and confirm["fail"] == "closed"
    assert confirm["match"] == ["execute"] and confirm["point"] == "guard_tool_use" and confirm["inherit"]


async def test_a_program_that_fails_open_is_shown_as_such(tmp_path: Path) -> None:
    for name in ("strict", "lax"):
        program = tmp_path / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\n[ "$1" = hook ] && echo before_tool_call\nexit 0\n')
        program.chmod(0o755)
    options = {"model": "demo", "executables": {"dirs": [str(tmp_path / "programs")], "fail": {"lax": "open"}}}
    async with host_server(tmp_path, agents={"checked": options}) as server:
        _, onion = await send_request(server, "ada", "GET", "/agents/checked/onion")
        _, listed = await send_request(server, "ada", "GET", "/agents/checked/hooks")
    use = onion["operations"][-1]
    fails = {ring["hook"]: ring["fail"] for ring in (*use["rings"], *use["guards"]) if "program" in ring["source"]}
    assert set(fails.values()) == {"closed", "open"}
    assert {name for name, fail in fails.items() if fail == "open"} == {name for name in fails if "lax" in name}
    programs = next(hook for hook in listed["hooks"] if hook["name"] == "executables")
    assert programs["on"] and {"before_tool_use", "guard_tool_use"} <= {*programs["points"]}


# -- events -----------------------------------------------------------------------------------------------------------


async def news(answer: aiohttp.ClientResponse, last: str) -> list[dict[str, Any]]:
    """Return announcements until that tool was removed."""
    seen = []
    async for frame in read_frames(answer):
        seen.append(frame)
        if frame["data"]["data"].get("deregistered") == last:
            break
    return seen


async def test_changes_are_announced_to_affected_users(server: ServerProcess) -> None:
    tool = {"name": f"t_{uuid4().hex[:8]}", "description": "x", "parameters": {}, "callback_url": "http://127.0.0.1:9"}
    async with follow_events(server, "ada") as hers, follow_events(server, "bob") as his:
        id = await create_agent(server)
        await send_request(server, "ada", "PATCH", f"/agents/{id}/hooks", json={"hooks": {"todos": False}})
        await send_request(server, "ada", "DELETE", f"/agents/{id}")
        await send_request(server, "olga", "POST", "/agents/tools/", json=tool)
        await send_request(server, "olga", "DELETE", f"/agents/tools/{tool['name']}")
        told, others = await news(hers, str(tool["name"])), await news(his, str(tool["name"]))
    kinds = [frame["event"] for frame in told if id in json.dumps(frame) or tool["name"] in json.dumps(frame)]
    assert kinds == ["agent_created", "hooks_changed", "agent_deleted", "tools_changed", "tools_changed"]
    assert id not in json.dumps(others)


async def test_servers_with_a_shared_database_share_agents(tmp_path: Path) -> None:
    shared = {"store": "postgres", "store_schema": postgres_server().schema(), "agents": {"plain": {"model": "demo"}}}
    async with host_server(tmp_path / "one", **shared) as one, host_server(tmp_path / "two", **shared) as two:
        body = {"agent_id": "mine", "model": "demo", "system_prompt": "Be brief."}
        assert (await send_request(one, "ada", "POST", "/agents/", json=body))[0] == 201
        assert (await send_request(two, "ada", "GET", "/agents/mine"))[1]["system_prompt"] == "Be brief."
        assert (await send_request(two, "bob", "GET", "/agents/mine"))[0] == 404
        await send_request(two, "ada", "PATCH", "/agents/mine/hooks", json={"hooks": {"todos": False}})
        tools = (await send_request(one, "ada", "GET", "/agents/mine"))[1]["tools"]
        assert "write_todos" not in {tool["name"] for tool in tools}
        assert (await send_request(two, "ada", "DELETE", "/agents/mine"))[0] == 204
        assert (await send_request(one, "ada", "GET", "/agents/mine"))[0] == 404


# -- details ----------------------------------------------------------------------------------------------------------


def test_secrets_are_not_shown() -> None:
    from wick._internal.safe_yaml import ExpandedText

    options = {
        "api_key": "sk-1", "headers": {"X": "1"}, "url": "https://me:secret@example.com/x", "env": {"A": "b"},
        "list": [{"token": "t"}, ExpandedText("from the environment")],
        "number": 5, "token_count": 3, "object": object(), "cert": ["a.pem", "a.key", "correct-horse"],
    }  # fmt: skip
    assert redact_options(options) == {
        "api_key": HIDDEN, "headers": HIDDEN, "url": f"https://{HIDDEN}@example.com/x", "env": HIDDEN,
        "list": [{"token": HIDDEN}, HIDDEN], "number": 5, "token_count": 3, "object": HIDDEN, "cert": HIDDEN,
    }  # fmt: skip
    assert model_name({"provider": "openai", "model": "m", "api_key": "sk"}) == "openai:m"
    assert model_name("sonnet") == "sonnet" and model_name({}) == "auto"
