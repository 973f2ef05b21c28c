"""Gemini at Vertex AI: addresses, and the tokens of Google's credentials."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from provider import Call, Reply, ScriptedServer, Thought
from wick import Agent, tool
from wick.errors import ConfigError, ModelError
from wick.models import TimeLimits, _http, access_tokens, resolve
from wick.models._network import NetworkSettings
from wick.models.access_tokens import GoogleTokens
from wick.models.vertex import Vertex

MODEL = "gemini-3-pro-preview"
PATH = "/v1/projects/acme/locations/{}/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse"


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in "APPLICATION_CREDENTIALS VERTEX_BASE_URL CLOUD_LOCATION OAUTH_ACCESS_TOKEN".split():
        monkeypatch.delenv(f"GOOGLE_{name}", raising=False)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "acme")
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def service_account(folder: Path, token_uri: str, **changes: Any) -> str:
    """Write the key file of a service account, and return its path."""
    pem = private_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {"type": "service_account", "project_id": "of-the-file", "private_key_id": "kid1", "token_uri": token_uri}
    info |= {"client_email": "bot@acme.example", "private_key": pem.decode()} | changes
    path = folder / "key.json"
    path.write_text(json.dumps({key: value for key, value in info.items() if value is not None}))
    return str(path)


# -- addresses ------------------------------------------------------------------------------------------------------


def test_project_and_location_are_in_the_address(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    env.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "ya29.token")
    model: Any = resolve("vertex:gemini-2.5-flash")
    assert type(model) is Vertex and model.name == "vertex:gemini-2.5-flash"
    assert model.server.url == "https://aiplatform.googleapis.com" + PATH.format("global")
    assert model.server.headers["authorization"] == "Bearer ya29.token"
    env.setenv("GOOGLE_CLOUD_LOCATION", "europe-west1")
    regional: Any = resolve("vertex:gemini-2.5-flash")
    assert regional.server.url == "https://europe-west1-aiplatform.googleapis.com" + PATH.format("europe-west1")
    elsewhere: Any = resolve({"provider": "vertex", "model": "m", "base_url": "https://elsewhere.example"})
    assert "authorization" not in elsewhere.server.headers and elsewhere._token is None
    env.delenv("GOOGLE_CLOUD_PROJECT")
    with pytest.raises(ConfigError, match="Vertex AI needs a project: set GOOGLE_CLOUD_PROJECT"):
        resolve("vertex:gemini-2.5-flash")
    env.delenv("GOOGLE_OAUTH_ACCESS_TOKEN")
    env.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, "https://oauth2.googleapis.com/token"))
    of_file: Any = resolve("vertex:m")
    assert "/projects/of-the-file/" in of_file.server.url
    assert "PRIVATE KEY" not in repr(of_file) + repr(vars(of_file)) + repr(of_file.server)


@pytest.mark.parametrize("location", ["evil.example/", "evil.example#", "a.b", "..", "global\n", "a@b"])
def test_a_location_cannot_change_the_host(env: pytest.MonkeyPatch, location: str) -> None:
    env.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "ya29.token")
    with pytest.raises(ConfigError, match="the location of Vertex AI must have only lower-case letters, digits and"):
        Vertex("m", location=location)


def test_a_model_and_a_project_cannot_change_the_path(env: pytest.MonkeyPatch) -> None:
    env.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "ya29.token")
    for model in ("../../other/m", "publishers/../m", "a//b", "/a", "a/.", "a/"):
        with pytest.raises(ConfigError, match="the model of Vertex AI .* must not be empty, '.' or '..'"):
            resolve(f"vertex:{model}")
    with pytest.raises(ConfigError, match="the project of Vertex AI must not be empty, '.' or '..'"):
        Vertex("m", project="..")
    end = ":streamGenerateContent?alt=sse"
    claude = Vertex("publishers/anthropic/models/claude?a#b")
    assert claude.server.url.endswith(f"/locations/global/publishers/anthropic/models/claude%3Fa%23b{end}")


def test_missing_credentials_are_a_sentence(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Vertex AI needs credentials: set GOOGLE_APPLICATION_CREDENTIALS to"):
        resolve("vertex:m")
    env.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    with pytest.raises(ConfigError, match="gone.json cannot be read: No such file"):
        resolve("vertex:m")
    for changes, why in (
        ({"type": "external_account"}, "of the type 'external_account', which wick does not follow"),
        ({"private_key": None}, "have no private_key; create them again"),
    ):
        env.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, "https://x.example", **changes))
        with pytest.raises(ConfigError, match=why):
            resolve("vertex:m")
    (tmp_path / "key.json").write_text("{")
    with pytest.raises(ConfigError, match="it is not JSON"):
        resolve("vertex:m")


# -- tokens ---------------------------------------------------------------------------------------------------------


class TokenServer:
    """A server in place of Google's, which records forms and returns tokens."""

    def __init__(self) -> None:
        self.url, self.forms = "", list[dict[str, str]]()
        self.answer: Any = {"expires_in": 3600}

    async def reply(self, request: web.Request) -> web.Response:
        self.forms.append({name: str(value) for name, value in (await request.post()).items()})
        if isinstance(self.answer, web.Response):
            return self.answer
        return web.json_response({"access_token": f"token-{len(self.forms)}", **self.answer})


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    found, app = TokenServer(), web.Application()
    app.router.add_post("/token", found.reply)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    yield found
    await _http.close()
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server
        await _http.close()


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def test_a_service_account_signs_in_and_its_token_is_used_until_it_expires(
    env: pytest.MonkeyPatch, tokens: TokenServer, server: ScriptedServer, tmp_path: Path
) -> None:
    calls = Reply("", (Thought("hm", "c2ln"),), (Call.of("call_1", "add", a=2, b=3),))
    script = server.script(calls, Reply("It is 5."), Reply("Bye."))
    env.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, tokens.url))
    env.setenv("GOOGLE_VERTEX_BASE_URL", script.url)
    model = Vertex(MODEL)
    assert (await Agent(model, tools=[add]).run("2 + 3?")).text == "It is 5."
    (form,) = tokens.forms
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    claims = jwt.decode(form["assertion"], private_key().public_key(), ["RS256"], audience=tokens.url)
    assert (claims["iss"], claims["scope"]) == ("bot@acme.example", access_tokens.SCOPE)
    assert claims["exp"] - claims["iat"] == 3600
    assert jwt.get_unverified_header(form["assertion"])["kid"] == "kid1"
    assert {asked.headers["authorization"] for asked in script.asked} == {"Bearer token-1"} and not script.refusals
    now = time.time()
    env.setattr(access_tokens, "time", lambda: now + 3500)  # renewed before it expires
    assert (await Agent(model).run("Bye?")).text == "Bye."
    assert script.asked[-1].headers["authorization"] == "Bearer token-2"


async def test_concurrent_requests_fetch_one_token(tokens: TokenServer, tmp_path: Path) -> None:
    source = GoogleTokens(service_account(tmp_path, tokens.url), NetworkSettings(), TimeLimits())
    assert {*await asyncio.gather(*(source() for _ in range(5)))} == {"token-1"} and len(tokens.forms) == 1


async def test_a_token_is_used_until_it_expires_if_it_cannot_be_renewed(
    env: pytest.MonkeyPatch, tokens: TokenServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = GoogleTokens(service_account(tmp_path, tokens.url), NetworkSettings(), TimeLimits())
    assert await source() == "token-1"
    now = time.time()
    tokens.answer = {"access_token": 5}
    env.setattr(access_tokens, "time", lambda: now + 3500)
    assert await source() == "token-1" and len(tokens.forms) == 2
    assert "is used until it expires: Google returned no access token" in caplog.text
    env.setattr(access_tokens, "time", lambda: now + 3700)
    with pytest.raises(ModelError, match="Google returned no access token"):
        await source()


async def test_the_credentials_of_a_user_are_refreshed(
    env: pytest.MonkeyPatch, tokens: TokenServer, server: ScriptedServer, tmp_path: Path
) -> None:
    script = server.script(Reply("Hello!"))
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    info = {"type": "authorized_user", "client_id": "id", "client_secret": "sec", "refresh_token": "ref"}
    (folder / "application_default_credentials.json").write_text(json.dumps(info))
    env.setattr(access_tokens, "TOKEN_URL", tokens.url)
    env.setenv("GOOGLE_VERTEX_BASE_URL", script.url)
    assert (await Agent(Vertex(MODEL)).run("Hi.")).text == "Hello!"
    assert tokens.forms == [
        {"grant_type": "refresh_token", "client_id": "id", "client_secret": "sec", "refresh_token": "ref"}
    ]


@pytest.mark.parametrize(
    ("answer", "why", "retryable"),
    [
        (web.json_response({"error": "invalid_grant"}, status=400), "Google answered 400: invalid_grant", False),
        (web.Response(status=503, text="later"), "Google answered 503: later", True),
        (web.Response(text="<html>"), "a body that is not a JSON object", True),
        ({"access_token": 5}, "returned no access token", False),
    ],
)
async def test_a_sign_in_that_fails_is_a_sentence(
    env: pytest.MonkeyPatch, tokens: TokenServer, tmp_path: Path, answer: Any, why: str, retryable: bool
) -> None:
    tokens.answer = answer
    env.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, tokens.url))
    env.setenv("GOOGLE_VERTEX_BASE_URL", "http://127.0.0.1:1")
    with pytest.raises(ModelError, match=why) as caught:
        _ = [delta async for delta in Vertex(MODEL).stream(_request())]
    assert caught.value.retryable is retryable


async def test_an_invalid_key_is_an_error(env: pytest.MonkeyPatch, tokens: TokenServer, tmp_path: Path) -> None:
    env.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, tokens.url, private_key="nonsense"))
    with pytest.raises(ModelError, match="the private key in .*key.json cannot be used; create another key") as caught:
        _ = [delta async for delta in Vertex(MODEL).stream(_request())]
    assert "nonsense" not in str(caught.value) and not tokens.forms


def _request() -> Any:
    from wick import user
    from wick.protocols import Request

    return Request((user("hi"),))
