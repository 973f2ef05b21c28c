"""Provider keys in the settings: stored encrypted, used by agents, tested, and never returned."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from provider import Reply, ScriptedServer
from server_agents import get_json, send_answer, user_message
from server_process import InProcessServer, host_server, open_client

KEY = "sk-loopback-0123456789abcdefXYZ"
AGENTS = {"auto": {"model": "auto"}, "named": {"model": "gateway:small"}}


async def put_key(server: InProcessServer, url: str, status: int = 200, **more: Any) -> Any:
    """Store the key of the provider on loopback, as an admin."""
    body = {"api_key": KEY, "base_url": url, "models": ["small", "large"], **more}
    async with open_client(server, "root") as root, root.put("/settings/providers/gateway", json=body) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def read_everything(client: aiohttp.ClientSession, thread: str, run: str) -> str:
    """Return the text of all routes that could show a key."""
    paths = [
        "/settings/providers",
        "/models",
        "/agents/",
        "/agents/named",
        "/agents/named/hooks",
        "/agents/named/onion",
    ]
    paths += [f"/threads/{thread}", f"/threads/{thread}/export", f"/threads/{thread}/export?format=markdown"]
    paths += [f"/runs/{run}", f"/runs/{run}/trace", "/usage", "/metrics", "/v1/models", "/health"]
    texts = []
    for path in paths:
        async with client.get(path) as response:
            texts.append(f"{path} {response.status} {await response.text()}")
    return "\n".join(texts)


async def test_a_stored_key_answers_and_is_never_returned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    caplog.set_level(logging.DEBUG)
    agents = {**AGENTS, "named": {**AGENTS["named"], "recorder": True}}
    async with ScriptedServer() as provider, host_server(tmp_path, agents=agents) as server:
        script = provider.script(*[Reply(f"Reply {number}.") for number in range(3)])
        shown = await put_key(server, script.url)
        assert shown["source"] == "stored" and shown["models"] == ["small", "large"] and "api_key" not in shown
        async with open_client(server, "root") as root:
            first = await send_answer(root, "named", user_message(f"My key is {KEY}"))
            assert first["response"] == "Reply 0."
            assert (await send_answer(root, "auto", user_message("Hello.")))["response"] == "Reply 1."
            body = {**user_message("Hello."), "model": "gateway:large"}
            assert (await send_answer(root, "auto", body))["response"] == "Reply 2."
            assert [asked.body["model"] for asked in script.asked] == ["small", "small", "large"]
            assert {asked.headers["authorization"] for asked in script.asked} == {f"Bearer {KEY}"}
            seen = await read_everything(root, first["thread_id"], first["run_id"])
        messages = [line for line in seen.splitlines() if "My key is" not in line]  # the user's own words stay
        assert KEY not in "\n".join(messages) and KEY not in caplog.text
        assert KEY.encode() not in (tmp_path / "data" / "threads.db").read_bytes()
        passphrase = tmp_path / "data" / "encryption_key"
        assert passphrase.stat().st_mode & 0o777 == 0o600
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server, "root") as root:
        listed = (await get_json(root, "/settings/providers"))["providers"]
        stored = next(one for one in listed if one["provider"] == "gateway")
        assert stored["source"] == "stored" and not stored["problem"]  # after a restart
        async with root.delete("/settings/providers/gateway") as response:
            assert response.status == 204
        async with root.delete("/settings/providers/gateway") as response:
            assert response.status == 404
        assert (await get_json(root, "/models"))["models"] == []


async def test_a_test_sends_a_small_request_and_explains_a_failure(tmp_path: Path) -> None:
    async with ScriptedServer() as provider, host_server(tmp_path, agents=AGENTS) as server:
        script = provider.script(Reply("OK"))
        path = "/settings/providers/gateway/test"
        async with open_client(server, "root") as root:

            async def attempt(status: int = 200, **body: Any) -> Any:
                async with root.post(path, json=body) as response:
                    assert response.status == status, await response.text()
                    return await response.json()

            good = await attempt(api_key=KEY, base_url=script.url, model="small")
            assert good["ok"] and good["message"] == "OK" and good["model"] == "gateway:small"
            assert script.asked[0].body["max_tokens"] == 16
            bad = await attempt(api_key=KEY, base_url=script.url, model="small")  # the script is over
            assert not bad["ok"] and "no more replies" in bad["message"] and KEY not in str(bad)
            away = await attempt(api_key=KEY, base_url="http://127.0.0.1:9/v1", model="small")
            assert not away["ok"] and "127.0.0.1:9" in away["message"]
            refused = await attempt(422, api_key=KEY, model="small")
            assert "address" in refused["error"]["fields"]["base_url"]
            assert "model" in (await attempt(422, api_key=KEY, base_url=script.url))["error"]["fields"]
            await put_key(server, script.url)
            again = await attempt(422, base_url="http://127.0.0.1:9/v1", model="small")
            assert "enter the key again" in again["error"]["fields"]["api_key"]  # the stored one is not sent elsewhere
        moved = await put_key(server, "http://127.0.0.1:9/v1", 422, api_key="")
        assert "enter the key again" in moved["error"]["message"]
        kept = await put_key(server, script.url, api_key="", models=["large"])
        assert kept["models"] == ["large"]
        weak = await put_key(server, script.url, 422, api_key="short")
        assert "longer" in weak["error"]["fields"]["api_key"]


async def test_only_models_of_the_server_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
    agents = {"plain": {"model": "demo"}}
    async with host_server(tmp_path, agents=agents, models=["demo"]) as server, open_client(server) as ada:
        names = {one["name"]: one["source"] for one in (await get_json(ada, "/models"))["models"]}
        assert names["demo"] == "config" and "environment" in names.values() and len(names) == 2
        body = {**user_message("Hello."), "model": "openai:gpt-4o"}
        async with ada.post("/agents/plain/invoke", json=body) as response:
            assert response.status == 403 and "choose one of demo" in (await response.json())["error"]["message"]
        assert (await send_answer(ada, "plain", {**body, "model": "demo"}))["outcome"] == "completed"


async def test_a_key_of_another_encryption_key_is_reported(tmp_path: Path) -> None:
    async with ScriptedServer() as provider:
        url = provider.script(Reply("Hello.")).url
        async with host_server(tmp_path, agents=AGENTS, encryption_key="first-0123456789") as server:
            await put_key(server, url)
        async with (
            host_server(tmp_path, agents=AGENTS, encryption_key="other-0123456789") as server,
            open_client(server, "root") as root,
        ):
            listed = (await get_json(root, "/settings/providers"))["providers"]
            problem = next(one["problem"] for one in listed if one["provider"] == "gateway")
            assert "enter it again" in problem
            async with root.post("/agents/named/invoke", json=user_message("Hello.")) as response:
                assert response.status == 400 and "decrypted" in (await response.json())["error"]["message"]


@pytest.mark.parametrize("user", ["ada", "olga", ""])
async def test_only_an_admin_changes_keys(tmp_path: Path, user: str) -> None:
    requests = [("GET", ""), ("PUT", "/openai"), ("DELETE", "/openai"), ("POST", "/openai/test")]
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server, user) as client:
        for method, path in requests:
            async with client.request(method, f"/settings/providers{path}", json={"api_key": KEY}) as response:
                assert response.status == (403 if user else 401), (method, path)
