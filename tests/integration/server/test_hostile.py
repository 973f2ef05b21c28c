"""An attacker with or without a user's token: nothing breaks, hangs or leaks."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from starlette.websockets import WebSocket
from yarl import URL

from server_process import TOKENS, ServerProcess, open_client
from wick.server.auth.access_table import ACCESS
from wick.server.routes.terminal import _run_relay
from wick.server.static_files import MAX_PATH_CHARS, PageFiles

ADA = f"Authorization: Bearer {TOKENS['ada']}\r\n"
SECONDS = 60.0  # in which everything is answered; it shows that nothing hangs


async def send_raw(server: ServerProcess, raw: bytes) -> bytes:
    """Return the head of the response to these bytes, or "" if the connection is closed."""
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        async with asyncio.timeout(SECONDS):
            writer.write(raw)
            found = b""
            while b"\r\n\r\n" not in found and (piece := await reader.read(65_536)):
                found += piece
            return found
    except ConnectionError:
        return b""
    finally:
        await abort_connection(writer)


async def abort_connection(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once with pending data."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


def status_of(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else 0


def request(line: str, *headers: str, host: str = "Host: localhost\r\n", body: str = "") -> bytes:
    return (f"{line} HTTP/1.1\r\n{host}" + "".join(f"{each}\r\n" for each in headers) + f"\r\n{body}").encode("latin-1")


LINES = "".join(f"X-{number}: x\r\n" for number in range(5_000))
SMUGGLED = "GET /agents/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
RAW: dict[str, bytes] = {
    "two hosts": request("GET /health", host="Host: localhost\r\nHost: evil.example\r\n"),
    "no host": request("GET /health", host=""),
    "a list of hosts": request("GET /health", host="Host: localhost, evil.example\r\n"),
    "a host with a user": request("GET /health", host="Host: evil@localhost\r\n"),
    "another host forwarded": request("GET /auth/me", "X-Forwarded-Host: localhost", host="Host: evil.example\r\n"),
    "an address with a host": request("GET http://evil.example/auth/me"),
    "who was forwarded": request(
        "GET /auth/me", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-User: root", "X-User: root"
    ),
    "another path": request("GET /health/../auth/me", "X-Original-URL: /health", "X-Rewrite-URL: /health"),
    "no origin": request("GET /health", "Origin: null"),
    "two origins": request("GET /health", "Origin: http://localhost", "Origin: http://evil.example"),
    "an empty origin": request("GET /health", "Origin: "),
    "two lengths": request("POST /auth/session", "Content-Length: 2", "Content-Length: 40", body="{}" + SMUGGLED),
    "a length and chunks": request(
        "POST /auth/session", "Content-Length: 5", "Transfer-Encoding: chunked", body="0\r\n\r\n" + SMUGGLED
    ),
    "a length that is none": request("POST /auth/session", "Content-Length: -1", body="{}"),
    "a huge length": request("POST /auth/session", "Content-Length: " + "9" * 30, body="{}"),
    "a chunk that is none": request("POST /auth/session", "Transfer-Encoding: chunked", body="zz\r\n{}\r\n"),
    "a coding that is none": request("POST /auth/session", "Transfer-Encoding: gzip", body="{}"),
    "a folded header": request("GET /auth/me", "Authorization:\r\n Bearer x"),
    "a bare line feed": b"GET /auth/me HTTP/1.1\nHost: localhost\n\n",
    "a NUL in a header": request("GET /auth/me", "Authorization: Bearer \0x"),
    "bytes in a header": request("GET /auth/me", "Authorization: Bearer \xff\xfe"),
    "a long header": request("GET /auth/me", "X: " + "x" * 500_000),
    "many headers": f"GET /auth/me HTTP/1.1\r\nHost: localhost\r\n{LINES}\r\n".encode(),
    "a long cookie": request("GET /auth/me", "Cookie: wick_session_0=" + "x" * 60_000),
    "a cookie that is none": request("GET /auth/me", 'Cookie: wick_session_0="\\400\\777; ;;=;wick_session_0'),
    "a long path": request("GET /" + "a" * 60_000),
    "a path that is none": request("GET  nowhere"),
    "a query that is none": request("GET /auth/me?%zz&&&=&ticket=%00%ff&ticket"),
    "another method": request("BREW /auth/me"),
    "a method in small letters": request("get /auth/me"),
    "a tunnel": request("CONNECT evil.example:443"),
    "an upgrade": request("GET /auth/me", "Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200 + b"\r\n\r\n",
    "a web socket without a key": request("GET /agents/default/terminal", "Connection: Upgrade", "Upgrade: websocket"),
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
async def test_malformed_bytes_are_denied(server: ServerProcess, raw: bytes) -> None:
    """Without credentials only health is available."""
    answer = await send_raw(server, raw)
    status, head = status_of(answer), raw.split(b"\r\n", 1)[0]
    assert status < 500, answer
    assert status in (0, 400, 401, 403, 404, 405, 413, 421, 422, 426, 431) or (status == 200 and b"/health" in head)
    assert b"username" not in answer and answer.count(b"HTTP/1.1 ") <= 2
    async with open_client(server, "") as nobody, nobody.get("/health") as well:
        assert well.status == 200


async def test_a_smuggled_request_is_not_executed(server: ServerProcess) -> None:
    """A request behind a body is separate, with its own credential or none."""
    inner = request("POST /auth/session", ADA.strip(), "Content-Length: 2", body="{}") + SMUGGLED.encode()
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(inner.replace(b"localhost\r\n\r\n", b"localhost\r\nConnection: close\r\n\r\n"))
    async with asyncio.timeout(SECONDS):
        answers = await reader.read(-1)
    await abort_connection(writer)
    assert re.findall(rb"HTTP/1\.1 (\d{3})", answers) == [b"422", b"401"]


# -- ids and paths ----------------------------------------------------------------------------------------------------

IDS = (
    "%00", "a%00b", "%ed%a0%80", "%ff%fe", "%F0%9F%92%A9", "%E2%80%AE", "..", "%2e%2e", "%2e%2e%2fagents", ".", "%20",
    "%0d%0aX-Evil:1", "x" * 3_000, "tools", "hooks", "TOOLS", "'%22;--", "%7B%7D", "*", "-1", "1e999", "%C0%AF", "%",
)  # fmt: skip
QUERY = {"files/": "path=x", "search": "q=x"}


def paths() -> list[tuple[str, str]]:
    """Every route with an odd id in the place of its variables."""
    found = []
    for method, path, _ in ACCESS:
        if "{" in path and "{path:path}" not in path:
            query = next((f"?{query}" for part, query in QUERY.items() if part in path), "")
            found += [(method, re.sub(r"\{\w+\}", lambda _, id=id: id, path) + query) for id in IDS]  # type: ignore[misc]
    return found


async def test_odd_ids_are_not_found(server: ServerProcess) -> None:
    async with open_client(server) as ada:
        for method, path in paths():
            status = await fetch_status(ada, method, URL(server.url + path, encoded=True))
            refused = {0, 400, 404, 405, 409, 422}  # and an operator's door, or none to open a socket at
            is_restricted = "/agents/tools/" in path or path.startswith(("/evals/", "/settings/"))
            refused |= {403} if method == "WS" or is_restricted else set()
            assert status in refused, (method, path, status)
    assert "Traceback" not in server.log, server.log[-4_000:]


async def fetch_status(client: aiohttp.ClientSession, method: str, address: URL, **options: Any) -> int:
    """The status of an answer; 0 if the connection is closed instead."""
    try:
        if method == "WS":
            async with client.ws_connect(address):
                return 101
        async with client.request(method, address, **options) as answer:
            assert (await answer.read()) is not None and "X-Evil" not in answer.headers
            return answer.status
    except aiohttp.WSServerHandshakeError as error:
        return error.status
    except aiohttp.ServerDisconnectedError:
        return 0


@pytest.mark.parametrize(
    "path", ["/AUTH/me", "/auth/me/", "//auth/me", "/auth//me", "/auth/%6de", "/auth/me%2f", "/Docs"]
)
async def test_another_spelling_opens_nothing(server: ServerProcess, path: str) -> None:
    async with open_client(server, "") as nobody:
        assert await fetch_status(nobody, "GET", URL(server.url + path, encoded=True)) in (401, 404)


def test_a_path_with_many_segments_is_refused(tmp_path: Path) -> None:
    """Searching it would take seconds for an unauthenticated request; not even an existing one is found."""
    for letter, length in (("a", 400), ("b", 800)):
        name = "/".join([letter * 99] * (length // 100))
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
        assert (PageFiles(tmp_path).lookup_path(name)[1] is not None) == (length < MAX_PATH_CHARS)


@pytest.mark.parametrize("id", ["tools", "skills", "events", "hooks", "", ".", "..", "a/b", "a b", "\0", "x" * 500])
async def test_words_of_the_api_are_no_agents(server: ServerProcess, id: str) -> None:
    async with open_client(server) as ada, ada.post("/agents/", json={"agent_id": id, "model": "demo"}) as answer:
        assert answer.status in (400, 422), await answer.text()


async def test_a_method_cannot_be_another(server: ServerProcess) -> None:
    over = {"X-HTTP-Method-Override": "DELETE", "X-Method-Override": "DELETE", "X-HTTP-Method": "DELETE"}
    async with open_client(server) as ada:
        async with ada.post("/agents/", json={"agent_id": "stays", "model": "demo"}) as made:
            assert made.status == 201
        async with ada.get("/agents/stays?_method=DELETE", headers=over) as answer:
            assert answer.status == 200
        async with ada.get("/agents/stays") as there, ada.delete("/agents/stays") as gone:
            assert (there.status, gone.status) == (200, 204)


async def test_a_disconnect_before_the_terminal_opens_is_no_server_error() -> None:
    async def asks() -> Any:
        return {"type": "websocket.connect"}

    async def has_left(message: Any) -> None:
        raise OSError("gone")

    no_shell: Any = None  # it is not used
    assert await _run_relay(
        WebSocket({"type": "websocket", "headers": []}, asks, has_left), no_shell, "", {}, lambda: None
    )


# -- bodies -----------------------------------------------------------------------------------------------------------

BODIES: dict[str, bytes] = {
    "deep lists": b"[" * 10_000 + b"]" * 10_000,
    "deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "deep in a field": b'{"messages": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep in what is free": b'{"meta": ' + b'{"a":' * 2_000 + b"1" + b"}" * 2_000 + b"}",
    "never closed": b'{"messages": [' * 5_000,
    "a number without end": b'{"to": ' + b"9" * 5_000 + b"}",
    "beyond any number": b'{"to": 1e999, "at": -1e999}',
    "no number": b'{"to": NaN, "at": Infinity}',
    "half a character": b'{"title": "\\ud800", "token": "\\ud800.b.c", "path": "\\udfff", "content": "\\ud800"}',
    "a NUL": b'{"title": "a\\u0000b", "token": "\\u0000", "path": "a\\u0000b", "content": "x", "choice": "\\u0000"}',
    "no text": b'{"title": "\xff\xfe"}',
    "a mark": b'\xef\xbb\xbf{"title": "x"}',
    "nothing": b"",
    "null": b"null",
    "a key twice": b'{"title": "x", "title": ["y"]}',
    "prototype": b'{"__proto__": {"admin": true}, "constructor": {}, "__class__": "x"}',
}


def with_bodies() -> list[tuple[str, str]]:
    return [
        (method, re.sub(r"\{\w+\}", "default" if path.startswith("/agents") else "x", path))
        for method, path, _ in ACCESS
        if method in ("POST", "PUT", "PATCH") and not path.endswith(("/container", "/tickets"))
    ]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_odd_bodies_break_nothing(server: ServerProcess, body: bytes) -> None:
    async with open_client(server, "olga") as olga:
        for method, path in with_bodies():
            for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
                status = await fetch_status(
                    olga, method, URL(server.url + path), data=body, headers={"Content-Type": kind}
                )
                assert 200 <= status < 500, (method, path, kind, status)
    assert "Traceback" not in server.log, server.log[-4_000:]


async def test_deeply_nested_agent_data_is_refused_or_stored(server: ServerProcess) -> None:
    """Free-form JSON may be deeply nested; it is read back or refused."""
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    async with open_client(server) as ada:
        body = {"messages": [{"role": "user", "content": "Hello."}], "thread_id": "th_deep"}
        async with ada.post("/agents/plain/invoke", json=body) as made:
            assert made.status == 200
        async with ada.patch("/threads/th_deep", data=json.dumps({"meta": {"deep": deep}})) as answer:
            assert answer.status in (200, 400, 413, 422), await answer.text()
        async with ada.get("/threads/th_deep") as there, ada.get("/threads") as listed:
            assert (there.status, listed.status) == (200, 200)
        async with ada.delete("/threads/th_deep") as gone:
            assert gone.status == 204


# -- tickets and cookies ----------------------------------------------------------------------------------------------


async def test_of_many_with_one_ticket_one_gets_in(server: ServerProcess) -> None:
    async with open_client(server) as ada, open_client(server, "") as nobody:
        async with ada.post("/auth/tickets") as answer:
            ticket = (await answer.json())["ticket"]
        address = URL(f"{server.url}/auth/me?ticket={ticket}")
        found = await asyncio.gather(*(fetch_status(nobody, "GET", address) for _ in range(10)))
    assert sorted(found) == [200] + [401] * 9


async def test_a_ticket_changes_nothing(server: ServerProcess) -> None:
    """A ticket is part of a URL that others may make a user follow: it only reads."""
    async with open_client(server) as ada, open_client(server, "") as nobody:
        async with ada.post("/auth/tickets") as answer:
            ticket = (await answer.json())["ticket"]
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in ("/auth/tickets", "/auth/session", "/agents/default/files"):
                if (method, path) != ("POST", "/auth/session"):
                    assert await fetch_status(nobody, method, URL(f"{server.url}{path}?ticket={ticket}")) == 401, (
                        method,
                        path,
                    )
        assert await fetch_status(nobody, "GET", URL(f"{server.url}/auth/me?ticket={ticket}")) == 200


async def test_a_cookie_is_the_servers_own_choice(server: ServerProcess) -> None:
    """A cookie chosen by others is not valid after sign-in, and every sign-in has its own."""
    chosen = "wick_session_0=chosen-by-somebody-else"
    async with open_client(server, "", Cookie=chosen) as browser:
        made = []
        for _ in range(2):
            async with browser.post("/auth/session", json={"token": TOKENS["ada"]}) as answer:
                assert answer.status == 200
                made.append(answer.headers["Set-Cookie"])
        assert await fetch_status(browser, "GET", URL(f"{server.url}/auth/me")) == 401
    values = {each.partition(";")[0] for each in made}
    assert len(values) == 2 and chosen not in values
    assert all("HttpOnly" in each and "samesite=strict" in each.lower() for each in made)


async def test_a_foreign_origin_cannot_use_a_cookie(server: ServerProcess) -> None:
    async with (
        open_client(server, "") as browser,
        browser.post("/auth/session", json={"token": TOKENS["ada"]}) as answer,
    ):
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
    origins = ("https://evil.example", "null", "http://localhost.evil.example", "http://localhost:1", "file://", "")
    async with open_client(server, "", Cookie=cookie) as browser:
        assert await fetch_status(browser, "GET", URL(f"{server.url}/auth/me")) == 200
        for origin in origins:
            form = {"Origin": origin, "Content-Type": "text/plain"}
            for method, path in (("POST", "/auth/tickets"), ("POST", "/agents/"), ("DELETE", "/auth/session")):
                address = URL(server.url + path)
                assert await fetch_status(browser, method, address, headers=form, data=b"{}") == 403, (origin, path)
            try:
                async with browser.ws_connect("/agents/default/terminal", headers={"Origin": origin}):
                    raise AssertionError(f"a page of {origin!r} has a terminal")
            except aiohttp.WSServerHandshakeError as error:
                assert error.status == 403
