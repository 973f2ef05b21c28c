"""The one way in: hosts, origins, credentials, roles; over HTTP and WebSocket alike."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from server_process import TOKENS, InProcessServer, host_server, open_client, run_server
from wick.server.app import create_api
from wick.server.auth.access_table import ACCESS, AccessTable, route_methods, sort_routes
from wick.server.auth.credentials import read_credential
from wick.server.auth.middleware import strip_port
from wick.server.http.middleware import SECURITY_HEADERS
from wick.server.static_files import page_routes

PLAIN = {"default": {"model": "demo"}}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[InProcessServer]:
    async with host_server(tmp_path, agents=PLAIN) as found:
        yield found


async def status(client: aiohttp.ClientSession, path: str = "/auth/me", **options: Any) -> int:
    async with client.request(options.pop("method", "GET"), path, **options) as answer:
        return answer.status


async def code(client: aiohttp.ClientSession, path: str = "/auth/me", **options: Any) -> tuple[int, str]:
    async with client.request(options.pop("method", "GET"), path, **options) as answer:
        return answer.status, (await answer.json())["error"]["code"]


async def test_a_token_identifies_its_user(here: InProcessServer) -> None:
    async with here.client("olga") as olga, olga.get("/auth/me") as answer:
        me = await answer.json()
        assert (answer.status, me["username"], me["role"]) == (200, "olga", "operator")
        assert re.fullmatch(r"u_[0-9a-f]{16}", me["id"])  # never the login


async def test_ids_stay_and_differ(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with host_server(tmp_path, agents=PLAIN) as here:
            for user in ("ada", "bob"):
                async with here.client(user) as client, client.get("/auth/me") as answer:
                    seen.append((await answer.json())["id"])
    assert seen[:2] == seen[2:] and seen[0] != seen[1]


BAD = ["nonsense", "Bearer", "Bearer ", "Bearer wrong", "Basic YWRhOmFkYQ==", TOKENS["ada"], "bearer  " + "x" * 20_000]


@pytest.mark.parametrize("value", BAD, ids=range(len(BAD)))
async def test_an_invalid_token_is_anonymous(here: InProcessServer, value: str) -> None:
    async with here.client("", Authorization=value) as client:
        assert await code(client) == (401, "unauthorized")


async def test_two_authorization_headers_are_refused(here: InProcessServer) -> None:
    """Proxies differ in the one they use, so it must not be guessed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rsplit(":", 1)[1]))
    token = TOKENS["ada"]
    writer.write(
        f"GET /auth/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Authorization: Bearer wrong\r\nConnection: close\r\n\r\n".encode()
    )
    assert b" 401 " in (await reader.read()).splitlines()[0]
    writer.close()
    await writer.wait_closed()


async def test_anonymous_requests_are_refused_without_public_access(here: InProcessServer) -> None:
    async with here.client("") as nobody:
        for path in ("/docs", "/openapi.json", "/metrics", "/auth/me", "/agents/", "/no/such/path", "/%2e%2e/docs"):
            assert await status(nobody, path) == 401, path
        for path in ("/health", "/", "/static/index.html"):
            assert await status(nobody, path) == 200, path


async def test_health_reveals_nothing_private(here: InProcessServer) -> None:
    async with here.client("") as nobody, nobody.get("/health") as answer:
        assert await answer.json() == {"status": "ok", "agents": 1}


async def test_a_role_is_needed(here: InProcessServer) -> None:
    for user, expected in (("ada", 403), ("olga", 200), ("root", 200)):
        async with here.client(user) as client:
            assert await status(client, "/metrics") == expected, user


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:x", ""]
)
async def test_unknown_host_names_are_refused(here: InProcessServer, host: str) -> None:
    async with here.client("ada", Host=host) as client:
        assert await status(client, "/health") in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:9", "[::1]:9", "LOCALHOST"])
async def test_this_machine_is_answered_under_every_port(here: InProcessServer, host: str) -> None:
    async with here.client("ada", Host=host) as client:
        assert await status(client) == 200


def test_a_port_is_cut_off_and_nothing_else() -> None:
    cases = {"a:80": "a", "[::1]:80": "[::1]", "[::1]": "[::1]", "::1": "::1", "a": "a", "a:b": "a:b", "a:": "a:"}
    assert {host: strip_port(host) for host in cases} == cases


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "", "http://127.0.0.1"])
async def test_pages_of_other_origins_get_nothing(here: InProcessServer, origin: str) -> None:
    async with here.client("ada", Origin=origin) as client:
        assert await code(client) == (403, "wrong_origin")
        assert await code(client, "/health") == (403, "wrong_origin")


async def test_the_own_origin_and_listed_ones_may_ask(tmp_path: Path) -> None:
    other = "https://app.example.com"
    async with host_server(tmp_path, agents=PLAIN, cors_origins=[other]) as here:
        async with here.client("ada", Origin=here.url) as client:
            assert await status(client) == 200
        async with here.client("ada", Origin=other) as client, client.get("/auth/me") as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, other)
        async with here.client("", Origin=other) as client, client.get("/auth/me") as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (401, other)
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        async with here.client("", Origin=other, **asked) as client, client.options("/agents/x/stream") as answer:
            assert answer.status == 200 and "POST" in answer.headers["Access-Control-Allow-Methods"]
        async with here.client("", Origin="https://evil.example", **asked) as client:
            assert await status(client, "/agents/x/stream", method="OPTIONS") == 400


async def test_every_response_has_security_headers(here: InProcessServer) -> None:
    async with here.client("") as nobody:
        for path in ("/health", "/", "/auth/me", "/no/such"):
            async with nobody.get(path) as answer:
                assert {name: answer.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS, path
                assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])
        assert "script-src 'self';" in SECURITY_HEADERS["Content-Security-Policy"]
        assert "img-src 'self' data: blob:;" in SECURITY_HEADERS["Content-Security-Policy"]


# -- browsers ---------------------------------------------------------------------------------------------------------


async def sign_in(here: InProcessServer, **body: str) -> tuple[int, str, str]:
    """The status, the cookie, and how it was set."""
    async with here.client("") as nobody, nobody.post("/auth/session", json=body) as answer:
        cookie = answer.headers.get("Set-Cookie", "")
        return answer.status, cookie.partition(";")[0], cookie


async def test_a_browser_signs_in_and_out(here: InProcessServer) -> None:
    got, cookie, how = await sign_in(here, token=TOKENS["ada"])
    assert got == 200
    assert "HttpOnly" in how and "SameSite=strict" in how and "Secure" not in how and TOKENS["ada"] not in how
    async with here.client("", Cookie=cookie) as ada:
        async with ada.get("/auth/me") as answer:
            assert (await answer.json())["username"] == "ada"
        assert await status(ada, "/auth/session", method="DELETE") == 204
        assert await status(ada) == 401


async def test_a_cookie_is_secure_behind_tls(here: InProcessServer) -> None:
    headers, body = {"X-Forwarded-Proto": "https"}, {"token": TOKENS["ada"]}  # of a proxy on this machine
    async with here.client("", **headers) as nobody, nobody.post("/auth/session", json=body) as answer:
        assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("body", [{}, {"token": "wrong"}, {"ticket": "wrong"}, {"token": "", "ticket": ""}])
async def test_invalid_credentials_cannot_sign_in(here: InProcessServer, body: dict[str, str]) -> None:
    got, cookie, _ = await sign_in(here, **body)
    assert (got, cookie) == (401, "")


async def test_a_stored_cookie_hash_is_not_a_credential(here: InProcessServer, tmp_path: Path) -> None:
    _, cookie, _ = await sign_in(here, token=TOKENS["ada"])
    kept = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("threads.db*"))
    assert cookie.partition("=")[2].encode() not in kept and TOKENS["ada"].encode() not in kept
    (row,) = await here.service.records.list("browser")
    async with here.client("", Cookie=f"{cookie.partition('=')[0]}={row.id}") as thief:
        assert await status(thief) == 401


async def test_a_token_that_is_withdrawn_ends_its_sessions(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=PLAIN) as here:
        _, cookie, _ = await sign_in(here, token=TOKENS["ada"])
    other: dict[str, Any] = {"tokens": (), "token": "another-token"}
    async with host_server(tmp_path, agents=PLAIN, **other) as here, here.client("", Cookie=cookie) as ada:
        assert await status(ada) == 401


async def test_a_failed_user_lookup_denies(here: InProcessServer, tmp_path: Path) -> None:
    _, cookie, _ = await sign_in(here, token=TOKENS["ada"])
    for path in (tmp_path / "data").glob("threads.db*"):
        path.rename(path.with_name(f"gone-{path.name}"))
    async with here.client("", Cookie=cookie) as ada:
        got = await code(ada)
        for path in (tmp_path / "data").glob("gone-*"):
            path.rename(path.with_name(path.name.removeprefix("gone-")))
        assert got == (503, "unavailable")
        assert await status(ada) == 200


async def test_an_authentication_error_denies(here: InProcessServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(bearer: str) -> None:
        raise RuntimeError("hush")

    monkeypatch.setattr(here.service.authenticator.verifier, "authenticate", broken)
    async with here.client("ada") as ada:
        assert await code(ada) == (500, "internal")
        assert await asked_by_websocket(ada) == 500


async def asked_by_websocket(client: aiohttp.ClientSession) -> int:
    try:
        async with client.ws_connect("/agents/default/terminal"):
            return 101
    except aiohttp.WSServerHandshakeError as error:
        return error.status


async def test_the_link_signs_in_once(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=PLAIN, tokens=()) as here:
        local = (tmp_path / "data" / "token").read_text().strip()
        assert os.stat(tmp_path / "data" / "token").st_mode & 0o777 == 0o600
        ticket = await here.service.tickets.issue_sign_in(local)
        results = await asyncio.gather(*(sign_in(here, ticket=ticket) for _ in range(5)))
        assert sorted(got for got, _, _ in results) == [200, 401, 401, 401, 401]
        (cookie,) = [cookie for got, cookie, _ in results if got == 200]
        async with here.client("", Cookie=cookie) as owner, owner.get("/auth/me") as answer:
            assert await answer.json() == {"id": "local", "username": "local", "role": "admin"}
        async with here.client(local) as script:
            assert await status(script) == 200


async def test_servers_with_a_shared_database_share_sessions(tmp_path: Path) -> None:
    with run_server(tmp_path / "a", store="postgres") as first:
        schema = {"store_schema": yaml.safe_load((tmp_path / "a" / "server.yaml").read_text())["store_schema"]}
        with run_server(tmp_path / "b", store="postgres", **schema) as second:
            async with (
                open_client(first, "") as ada,
                ada.post("/auth/session", json={"token": TOKENS["ada"]}) as answer,
            ):
                me, cookie = await answer.json(), answer.headers["Set-Cookie"].partition(";")[0]
            async with open_client(second, "", Cookie=cookie) as ada, ada.get("/auth/me") as answer:
                assert (answer.status, await answer.json()) == (200, me)
            async with open_client(first, "ada") as ada, ada.post("/auth/tickets") as answer:
                ticket = (await answer.json())["ticket"]
            async with open_client(second, "") as nobody:
                assert [await status(nobody, f"/auth/me?ticket={ticket}") for _ in range(2)] == [200, 401]


# -- tickets ----------------------------------------------------------------------------------------------------------


async def test_a_ticket_is_valid_once(here: InProcessServer) -> None:
    async with here.client("ada") as ada, ada.post("/auth/tickets") as answer:
        body = await answer.json()
        assert (answer.status, body["expires_in"]) == (200, 30)
    async with here.client("") as nobody:
        path = f"/auth/me?ticket={body['ticket']}"
        assert await status(nobody, "/auth/tickets?ticket=" + body["ticket"], method="POST") == 401  # for reading only
        got = await asyncio.gather(*(status(nobody, path) for _ in range(5)))
        assert sorted(got) == [200, 401, 401, 401, 401]


async def test_a_ticket_ends_with_its_time(tmp_path: Path, here: InProcessServer) -> None:
    tickets = here.service.tickets
    user = await here.service.users.get_or_create("token", "ada", "user")
    tickets._clock = lambda: 0.0
    old = await tickets.issue(user)
    old_link = await tickets.issue_sign_in(TOKENS["ada"])
    assert await tickets.redeem(old) is None
    assert await tickets.redeem_sign_in(old_link) is None


# -- doors ------------------------------------------------------------------------------------------------------------


def test_the_table_is_sorted_and_unique() -> None:
    assert [*ACCESS] == sorted(ACCESS, key=lambda row: (row[1], row[0]))
    assert len({row[:2] for row in ACCESS}) == len(ACCESS)


async def test_every_route_has_a_row_and_every_row_a_route(here: InProcessServer) -> None:
    routes, pages = create_api(here.service).router.routes, page_routes(here.service.static)[1]
    assert {place for route in routes for place in route_methods(route)} == {row[:2] for row in (*ACCESS, *pages)}


async def test_literal_paths_precede_parameters(here: InProcessServer) -> None:
    table = (*ACCESS, *page_routes(here.service.static)[1])
    doors = AccessTable(sort_routes(create_api(here.service).router.routes), table)
    for method, path in (("GET", "/agents/events"), ("GET", "/agents/skills/available"), ("GET", "/threads/search")):
        door = doors.find(method, path)
        assert door is not None and door.path == path


@pytest.mark.parametrize(
    ("headers", "query", "expected"),
    [
        ([(b"authorization", b"Bearer t"), (b"cookie", b"c_1=x")], b"ticket=y", ("bearer", "t")),
        ([(b"authorization", b"bearer   t  ")], b"", ("bearer", "t")),
        ([(b"authorization", b"Basic t"), (b"cookie", b"c_1=x")], b"", ("bearer", "")),
        ([(b"cookie", b"a=1; c_1=x; b=2")], b"ticket=y", ("cookie", "x")),
        ([(b"cookie", b"c_2=y; c_1=x; c_3=z")], b"", ("cookie", "x")),
        ([(b"cookie", b"a=1; c_2=y")], b"", ("cookie", "y")),
        ([(b"cookie", b"c_2=y; c_3=z")], b"", None),
        ([(b"cookie", b"cc=x; xc_1=z")], b"ticket=y", ("ticket", "y")),
        ([], b"a=1&ticket=y", ("ticket", "y")),
        ([], b"ticket=y&ticket=z", None),
        ([], b"&" * 5_000 + b"ticket=y", None),
        ([(b"cookie", b"c_1=\xff\x00;;;=")], b"", ("cookie", None)),
        ([], b"", None),
    ],
)
def test_one_credential_is_read(headers: Any, query: bytes, expected: tuple[str, str] | None) -> None:
    found = read_credential({"headers": headers, "query_string": query}, "c_1")
    if expected is not None and expected[1] is None:
        assert found is None or found.kind == "cookie"
    else:
        assert (found and (found.kind, found.value)) == expected
