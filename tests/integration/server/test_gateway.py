"""A gateway that authenticates users: answers are cached briefly, and without it access is denied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from server_process import host_server, open_client, run_server
from wick.server.auth.gateway import CACHE_SECONDS, GatewayVerifier
from wick.server.errors import ApiError


class Known:
    """A gateway of the test's own."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: dict[str, Any] = {"good": {"username": "ada", "role": "operator"}}
        self.status = 0
        self.url = ""

    async def me(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.status:
            return web.Response(status=self.status, headers={"Location": "/elsewhere"})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.answers:
            return web.Response(status=401)
        return web.json_response(self.answers[token])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no gateway that does not answer."""
    monkeypatch.setattr("wick.server.auth.gateway.ASK_SECONDS", 60.0)


@asynccontextmanager
async def running(known: Known) -> AsyncIterator[Known]:
    app = web.Application()
    app.router.add_get("/auth/me", known.me)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    known.url = f"http://127.0.0.1:{port}"
    try:
        yield known
    finally:
        await runner.cleanup()


async def test_an_answer_of_the_gateway_is_cached_until_it_expires() -> None:
    now = 100.0
    async with running(Known()) as known:
        gateway = GatewayVerifier(known.url + "/", clock=lambda: now)
        found = await asyncio.gather(*(gateway.verify_token("good") for _ in range(20)))
        assert found == [("ada", "operator")] * 20 and known.asked == 1
        known.answers["good"] = {"username": "ada", "role": "user"}
        now += CACHE_SECONDS + 1
        assert await gateway.verify_token("good") == ("ada", "user") and known.asked == 2
        del known.answers["good"]
        now += CACHE_SECONDS + 1
        assert await gateway.verify_token("good") is None
        await gateway.close()
    assert CACHE_SECONDS <= 10


@pytest.mark.parametrize(
    ("said", "claim"),
    [
        ({"username": "ada", "role": "admin"}, ("ada", "admin")),
        ({"username": "ada", "role": "emperor"}, ("ada", "user")),
        ({"username": "ada"}, ("ada", "user")),
        ({"username": ""}, None),
        ({"username": 7, "role": "admin"}, None),
        ({"username": "x" * 300}, None),
        ({}, None),
        ([], None),
    ],
)
async def test_gateway_answers_are_validated(said: Any, claim: Any) -> None:
    async with running(Known()) as known:
        known.answers["good"] = said
        gateway = GatewayVerifier(known.url)
        assert await gateway.verify_token("good") == claim
        await gateway.close()


@pytest.mark.parametrize("status", [302, 404, 429, 500])
async def test_an_empty_gateway_answer_denies(status: int) -> None:
    async with running(Known()) as known:
        known.status = status
        gateway = GatewayVerifier(known.url)
        with pytest.raises(ApiError) as caught:
            await gateway.verify_token("good")
        assert (caught.value.status, caught.value.code) == (503, "gateway_unavailable")
        known.status = 0
        assert await gateway.verify_token("good") == ("ada", "operator")  # a failure is not remembered
        await gateway.close()


async def test_a_gateway_answer_may_be_chunked_but_is_bounded() -> None:
    async def me(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        if request.headers["Authorization"] == "Bearer good":
            for piece in (b'{"username": "a', b'da", "role"', b': "operator"}'):
                await answer.write(piece)
                await asyncio.sleep(0.05)
            return answer
        with suppress(ConnectionError):
            while True:
                await answer.write(b" " * 10_000)
        return answer

    known = Known()
    known.me = me  # type: ignore[method-assign,assignment]
    async with running(known):
        gateway = GatewayVerifier(known.url)
        assert await gateway.verify_token("good") == ("ada", "operator")
        with pytest.raises(ApiError, match="more than"):
            await gateway.verify_token("endless")
        await gateway.close()


async def test_an_unreachable_gateway_denies(tmp_path: Path) -> None:
    async with running(Known()) as known:
        options: dict[str, Any] = {"gateway": known.url, "tokens": (), "agents": {"default": {"model": "demo"}}}
        async with host_server(tmp_path, **options) as here:
            async with here.client("good") as ada, ada.get("/auth/me") as answer:
                assert (answer.status, (await answer.json())["role"]) == (200, "operator")
            async with here.client("bad") as nobody, nobody.get("/auth/me") as answer:
                assert answer.status == 401
            assert here.service.authenticator.verifier.local_token == ""  # a gateway excludes other credentials
            async with here.client("") as browser, browser.post("/auth/session", json={"token": "good"}) as answer:
                cookie = answer.headers["Set-Cookie"].partition(";")[0]
            known.status = 500
            gateway = here.service.authenticator.verifier._gateway
            assert gateway is not None
            gateway._known.clear()
            here.service.authenticator._remembered.clear()
            for client in (here.client("good"), here.client("", Cookie=cookie)):
                async with client, client.get("/auth/me") as answer:
                    assert answer.status == 503 and answer.headers["Retry-After"]


async def test_a_server_asks_the_gateway_that_its_flag_names(tmp_path: Path) -> None:
    none: dict[str, Any] = {"tokens": []}
    async with running(Known()) as known:
        with run_server(tmp_path, flags=("--gateway", known.url), **none) as server:
            assert server.link == "" and "with your token" in server.log
            async with open_client(server, "good") as ada, ada.get("/auth/me") as answer:
                assert (await answer.json())["username"] == "ada"
            async with open_client(server, "bad") as nobody, nobody.get("/auth/me") as answer:
                assert answer.status == 401
            assert not (tmp_path / "data" / "token").exists()
