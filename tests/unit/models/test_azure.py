"""Deployments of Azure OpenAI: addresses, keys and tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from provider import Answer, Reply, ScriptedServer
from provider.faults import status
from wick import Agent, user
from wick.errors import ConfigError, ModelError
from wick.models import _http, resolve
from wick.models.azure import Azure
from wick.protocols import Request

HOME = "https://acme.openai.azure.com"


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("AZURE_OPENAI_API_VERSION", raising=False)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{HOME}/")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "sk-azure")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    return monkeypatch


def test_the_two_forms_of_the_address(env: pytest.MonkeyPatch) -> None:
    model: Any = resolve("azure:my gpt")
    assert (model.name, repr(model)) == ("azure:my gpt", "<Azure azure:my gpt>")
    assert model.server.url == f"{HOME}/openai/v1/chat/completions"
    assert model.server.headers["api-key"] == "sk-azure" and "authorization" not in model.server.headers
    assert b'"model":"my gpt"' in model.body(Request((user("hi"),)))
    assert b'"max_completion_tokens":9' in model.body(Request((user("hi"),), settings={"max_tokens": 9}))
    env.setenv("AZURE_OPENAI_API_VERSION", "2024-10-21")
    older: Any = resolve("azure:my gpt")
    path = "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21"
    assert older.server.url == HOME + path
    for address in (f"{HOME}/openai/v1", f"{HOME}/openai/"):
        other: Any = resolve({"provider": "azure", "model": "m", "base_url": address, "api_key": "k"})
        assert other.server.url == f"{HOME}/openai/v1/chat/completions"


def test_a_deployment_and_a_version_cannot_change_the_path(env: pytest.MonkeyPatch) -> None:
    older = Azure("a/../b?c", api_version="1&x=/../")
    assert older.server.url == f"{HOME}/openai/deployments/a%2F..%2Fb%3Fc/chat/completions?api-version=1%26x%3D%2F..%2F"
    with pytest.raises(ConfigError, match="the deployment of Azure must not be empty, '.' or '..'; correct it"):
        Azure("..", api_version="2024-10-21")


def test_a_key_is_sent_to_the_address_of_the_environment_alone(env: pytest.MonkeyPatch) -> None:
    elsewhere: Any = resolve({"provider": "azure", "model": "m", "base_url": "https://elsewhere.example"})
    assert not elsewhere.server.headers.keys() & {"api-key", "authorization"}
    env.delenv("AZURE_OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="Azure needs a key: set AZURE_OPENAI_API_KEY, or give api_key"):
        resolve("azure:m")
    env.delenv("AZURE_OPENAI_ENDPOINT")
    with pytest.raises(ConfigError, match="set AZURE_OPENAI_ENDPOINT, as in https://NAME.openai.azure.com"):
        resolve("azure:m")
    with pytest.raises(ConfigError, match="the 'api_version' of a model's spec must be a text"):
        resolve({"provider": "azure", "model": "m", "api_version": 3})
    with pytest.raises(ConfigError, match="the token of a model is a function"):
        Azure("m", base_url=HOME, token="abc")  # type: ignore[arg-type]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server
        await _http.close()


async def test_a_run_with_a_key(env: pytest.MonkeyPatch, server: ScriptedServer) -> None:
    script = server.script(Reply("Hello!"), Answer(Reply(""), status(401)))
    env.setenv("AZURE_OPENAI_ENDPOINT", script.url)
    assert (await Agent("azure:m").run("Hi.")).text == "Hello!"
    assert script.asked[0].headers["api-key"] == "sk-azure" and not script.refusals
    with pytest.raises(ModelError, match="check AZURE_OPENAI_API_KEY, and the name of the deployment"):
        await Agent("azure:m").run("Hi.")


async def test_tokens_are_fetched_for_each_request(server: ScriptedServer) -> None:
    script = server.script(Reply("a"), Reply("b"))
    tokens = iter(["t1", "t2"])
    model = Azure("m", base_url=script.url.removesuffix("/v1"), token=lambda: next(tokens))
    for token in ("t1", "t2"):
        assert (await Agent(model).run("Hi.")).text in "ab"
        assert script.asked[-1].headers["authorization"] == f"Bearer {token}"
    assert script.asked[0].path.endswith("/openai/v1/chat/completions") and not script.refusals


async def test_a_token_that_cannot_be_fetched_is_a_sentence(server: ScriptedServer) -> None:
    script = server.script(Reply("a"))

    async def fail() -> str:
        raise RuntimeError("sign in first")

    for source, why in ((fail, "cannot be fetched: sign in first"), (lambda: "", "returned str")):
        model = Azure("m", base_url=script.url, token=source)
        with pytest.raises(ModelError, match=f"the access token of azure {why}|returned str"):
            await Agent(model).run("Hi.")
    assert not script.asked
