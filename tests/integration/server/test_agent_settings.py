"""Agents made in the settings: their form, their options, replacing them, and their text as agents.yaml."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from postgres import shared_server
from server_agents import get_json, send_answer, user_message
from server_process import host_server, open_client
from wick.config import load

AGENTS = {"plain": {"model": "demo", "system_prompt": "Be plain."}}
SECRET = "mcp-secret-0123456789abcdef"


async def create(client: aiohttp.ClientSession, id: str, status: int = 201, **options: Any) -> Any:
    async with client.post("/agents/", json={"agent_id": id, "model": "demo", **options}) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def put(client: aiohttp.ClientSession, id: str, revision: object, status: int = 200, **options: Any) -> Any:
    async with client.put(f"/agents/{id}", json=options, headers={"If-Match": f'"{revision}"'}) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def test_an_agent_is_replaced_and_survives_a_restart(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server) as ada:
        await create(ada, "helper", system_prompt="Old.")
        config = await get_json(ada, "/agents/helper/config")
        assert config["revision"] == 1 and not config["refused"] and config["options"]["system_prompt"] == "Old."
        changed = await put(ada, "helper", 1, **{**config["options"], "system_prompt": "New.", "examples": ["Hi"]})
        assert changed["system_prompt"] == "New." and changed["examples"] == ["Hi"]
        assert changed["answering_model"] == "offline demo model" and changed["is_demo"]
        refused = await put(ada, "helper", 1, 409, model="demo")
        assert "changed in the meantime" in refused["error"]["message"]
        assert (await send_answer(ada, "helper", user_message("Hello.")))["outcome"] == "completed"
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server) as ada:
        assert (await get_json(ada, "/agents/helper"))["system_prompt"] == "New."
        assert (await get_json(ada, "/agents/helper/config"))["revision"] == 2


async def test_a_broken_agent_never_replaces_a_working_one(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server, "root") as root:
        await create(root, "helper", system_prompt="Works.")
        wrong = {
            "model": "demo",
            "permissions": {"mode": "never"},
            "limits": {"steps": "many"},
            "todos": {"nudges": ""},
        }
        fields = (await put(root, "helper", 1, 400, **wrong))["error"]["fields"]
        assert fields.keys() == {"permissions.mode", "limits.steps", "todos.nudges"}
        assert "a whole number" in fields["limits.steps"] and "plan" in fields["permissions.mode"]
        unknown = (await put(root, "helper", 1, 403, model="demo", todos={"nudge": 1}))["error"]["fields"]
        assert "todos.nudge cannot be set" in unknown["todos"]
        for broken in ({"model": "nothing-there"}, {"model": "openai:gpt-4o", "tools": ["rm"]}):
            async with root.put("/agents/helper", json=broken, headers={"If-Match": "1"}) as response:
                assert response.status in (400, 403) and (await response.json())["error"]["fields"]
        assert (await put(root, "helper", "x", 422, model="demo"))["error"]["message"].startswith("If-Match")
        async with root.put("/agents/helper", json={"model": "demo"}) as response:
            assert response.status == 422  # no revision
        assert (await get_json(root, "/agents/helper"))["system_prompt"] == "Works."
        assert (await get_json(root, "/agents/helper/config"))["revision"] == 1
        assert (await put(root, "plain", 1, 409, model="demo"))["error"]["code"] == "not_allowed"


async def test_concurrent_changes_of_two_servers_conflict(tmp_path: Path) -> None:
    schema = shared_server().schema()
    more: dict[str, Any] = {"store": "postgres", "store_schema": schema}
    async with (
        host_server(tmp_path / "a", agents=AGENTS, **more) as one,
        host_server(tmp_path / "b", agents=AGENTS, **more) as two,
        open_client(one, "root") as first,
        open_client(two, "root") as second,
    ):
        await create(first, "helper", shared=True)

        async def attempt(client: aiohttp.ClientSession, text: str) -> int:
            options = {"model": "demo", "system_prompt": text}
            async with client.put("/agents/helper", json=options, headers={"If-Match": "1"}) as response:
                return response.status

        statuses = await asyncio.gather(*(attempt(first, f"a{n}") for n in range(3)), attempt(second, "b"))
        assert sorted(statuses) == [200, 409, 409, 409]
        prompts = {(await get_json(client, "/agents/helper"))["system_prompt"] for client in (first, second)}
        assert len(prompts) == 1  # a change of one server reaches the other
        key = {"api_key": "sk-0123456789abcdefgh"}
        async with first.put("/settings/providers/openai", json=key) as response:
            assert response.status == 409 and "WICK_ENCRYPTION_KEY" in (await response.json())["error"]["message"]


async def test_a_stored_key_reaches_the_other_servers(tmp_path: Path) -> None:
    more: dict[str, Any] = {"store": "postgres", "store_schema": shared_server().schema()}
    more["encryption_key"] = "shared-0123456789abcdef"
    async with (
        host_server(tmp_path / "a", agents=AGENTS, **more) as one,
        host_server(tmp_path / "b", agents=AGENTS, **more) as two,
        open_client(one, "root") as first,
        open_client(two, "root") as second,
    ):
        async with first.put("/settings/providers/openai", json={"api_key": "sk-0123456789abcdefgh"}) as response:
            assert response.status == 200
        found = next(
            p for p in (await get_json(second, "/settings/providers"))["providers"] if p["provider"] == "openai"
        )
        assert found["source"] == "stored" and not found["problem"]
        issued = {"name": "eve", "role": "operator"}
        async with first.post("/settings/tokens", json=issued) as response:
            token = (await response.json())["token"]
        async with open_client(two, token) as eve:
            assert (await get_json(eve, "/auth/me"))["username"] == "eve"


async def test_secrets_of_options_are_hidden_and_kept(tmp_path: Path) -> None:
    servers = {"docs": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}}}
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server, "root") as root:
        await create(root, "helper", mcp={"servers": servers})
        config = await get_json(root, "/agents/helper/config")
        assert SECRET not in str(config) and "${MCP_SERVERS_DOCS_HEADERS_AUTHORIZATION}" in config["yaml"]
        await put(root, "helper", 1, **config["options"])
        stored = await server.service.records.list("agent")
        assert SECRET in str(stored[0].data)  # the hidden value was kept
        config["options"]["mcp"]["servers"]["docs"]["url"] = "http://127.0.0.1:8/mcp"
        refused = await put(root, "helper", 2, 422, **config["options"])
        assert "address has changed" in refused["error"]["fields"]["mcp.servers.docs.headers.Authorization"]


async def test_the_yaml_loads_back_to_the_same_agent(tmp_path: Path) -> None:
    options = {
        "system_prompt": "Line one.\n\nLine ${HOME}: yes\n", "examples": ["1e5", "no"], "tools": ["calculate"],
        "permissions": {"deny": ["Bash(rm *)"], "mode": "plan"}, "limits": {"steps": 7, "cost": 0.5},
        "budget": {"tokens": 10_000}, "todos": False, "skills": {"shipped": True}, "settings": {"temperature": 0.1},
    }  # fmt: skip
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server, "root") as root:
        await create(root, "helper", **options)
        text = (await get_json(root, "/agents/helper/config"))["yaml"]
        (tmp_path / "agents.yaml").write_text(text)
        assert load(tmp_path / "agents.yaml").find("helper").options == {"model": "demo", **options}
        copied = (await get_json(root, "/agents/plain/config"))["options"]
        assert copied["system_prompt"] == "Be plain."


async def test_roles_decide_who_sees_and_changes_an_agent(tmp_path: Path) -> None:
    mcp = {"servers": {"files": {"command": "mcp-files"}}}
    async with (
        host_server(tmp_path, agents=AGENTS) as server,
        open_client(server) as ada,
        open_client(server, "olga") as olga,
        open_client(server, "root") as root,
    ):
        await create(ada, "adas")
        await create(root, "all", shared=True)
        assert "mcp" in (await create(ada, "more", 403, mcp=mcp))["error"]["fields"]
        assert (await put(ada, "adas", 1, 403, model="demo", mcp=mcp))["error"]["fields"].keys() == {"mcp"}
        assert (await put(olga, "all", 1, 403, model="demo"))["error"]["message"].endswith("role admin")
        await put(root, "all", 1, model="demo", name="Everyone's")
        assert (await get_json(olga, "/agents/all/config"))["refused"].endswith("role admin")
        for client, path, status in (
            (ada, "all", 403),
            (ada, "plain", 403),
            (olga, "adas", 404),
            (olga, "plain", 200),
        ):
            async with client.get(f"/agents/{path}/config") as response:
                assert response.status == status, path
        assert (await put(olga, "adas", 1, 404, model="demo"))["error"]["code"] == "not_found"
        forms = [(await get_json(client, "/settings/agent-form"))["form"] for client in (ada, olga, root)]
        keys = [form["properties"].keys() for form in forms]
        assert "mcp" not in keys[0] and "limits" not in keys[0] and "limits" in keys[1]
        assert "programs" not in keys[2] and "machine of this server" in forms[2]["properties"]["mcp"]["x-note"]
    async with (
        host_server(tmp_path, agents=AGENTS, agent_editors="operator") as server,
        open_client(server, "olga") as olga,
    ):
        await put(olga, "all", 2, model="demo", name="Ours")


async def test_enforced_options_cannot_be_removed(tmp_path: Path) -> None:
    enforced = {"permissions": {"deny": ["Bash(pwd)"]}, "limits": {"steps": 3}}
    async with host_server(tmp_path, agents=AGENTS, enforced=enforced) as server, open_client(server, "root") as root:
        await create(root, "free", backend="state", permissions=False, limits=False)
        config = await get_json(root, "/agents/free/config")
        assert config["enforced"] == ["limits", "permissions"] and config["options"]["permissions"] is False
        await put(root, "free", 1, model="demo", permissions={"allow": ["Bash(pwd)"], "mode": "bypassPermissions"})
        rules = await get_json(root, "/agents/free/permissions")
        assert "Bash(pwd)" in str(rules["rules"]) and rules["mode"] == "bypassPermissions"
        async with root.patch(
            "/agents/free/hooks", json={"hooks": {"permissions": False, "limits": False}}
        ) as response:
            hooks = {hook["name"]: hook for hook in (await response.json())["hooks"]}
        assert hooks["permissions"]["on"] and hooks["limits"]["on"]
        assert (await get_json(root, "/agents/free/limits"))["limits"]["steps"] == 3


async def test_issued_tokens_work_until_they_are_revoked(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server, "root") as root:
        async with root.post("/settings/tokens", json={"name": "eve", "role": "operator", "note": "CI"}) as response:
            assert response.status == 201
            made = await response.json()
        assert made["token"].startswith("wick_") and made["user"]["tokens"][0]["note"] == "CI"
        listed = await get_json(root, "/settings/users")
        assert made["token"] not in str(listed) and "eve" in [user["name"] for user in listed["users"]]
        assert made["token"].encode() not in (tmp_path / "data" / "threads.db").read_bytes()
        async with open_client(server, made["token"]) as eve:
            me = await get_json(eve, "/auth/me")
            assert (me["username"], me["role"], me["id"]) == ("eve", "operator", made["user"]["id"])
            for method, path in (("GET", "/users"), ("POST", "/tokens"), ("DELETE", f"/tokens/{made['id']}")):
                async with eve.request(method, f"/settings{path}", json={"name": "x"}) as response:
                    assert response.status == 403
            async with root.delete(f"/settings/tokens/{made['id']}") as response:
                assert response.status == 204
            async with eve.get("/auth/me") as response:
                assert response.status == 401
        async with root.delete(f"/settings/tokens/{made['id']}") as response:
            assert response.status == 404
