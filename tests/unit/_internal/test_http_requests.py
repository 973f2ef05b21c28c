"""Requests reach the address that was meant, and an answer is bounded in every way."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from wick._internal.http_requests import fetch, is_public_address, post_json
from wick.constants import JSON_DEPTH
from wick.errors import ToolError, Uncertain

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """A server with one page, which the test sets."""

    url: str
    requests: list[web.Request]
    handle: Handle

    def __init__(self) -> None:
        self.requests = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.handle(request)

    def says(self, text: str | bytes, status: int = 200, **headers: str) -> None:
        async def handle(request: web.Request) -> web.Response:
            body = text.encode() if isinstance(text, str) else text
            return web.Response(
                body=body, status=status, headers={key.replace("_", "-"): value for key, value in headers.items()}
            )

        self.handle = handle


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}"
    yield server
    await runner.cleanup()


async def post(url: str, body: Any = None, *, private: bool = True, seconds: float = 20, most: int = 10_000) -> Any:
    return await post_json(url, body, private=private, seconds=seconds, most_bytes=most)


async def refusal(url: str, body: Any = None, **options: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await post(url, body, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_json_is_sent_and_received(server: Server) -> None:
    async def echo(request: web.Request) -> web.Response:
        assert request.method == "POST" and request.content_type == "application/json"
        return web.json_response({"got": await request.json(), "token": request.headers["X-Token"]})

    server.handle = echo
    answer = await post_json(
        f"{server.url}/a/b", {"x": "é"}, private=True, seconds=20, most_bytes=1000, headers={"X-Token": "t"}
    )
    assert answer == {"got": {"x": "é"}, "token": "t"}
    assert server.requests[0].path == "/a/b"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(server: Server, status: int) -> None:
    server.says("", status=status, Location=f"{server.url}/elsewhere")
    assert f"redirect ({status})" in await refusal(server.url)
    assert len(server.requests) == 1


async def test_an_error_page_is_quoted_in_short(server: Server) -> None:
    server.says("no\nsuch   thing " + "x" * 5000, status=404)
    sentence = await refusal(server.url)
    assert f"{server.url} answered with status 404: no such thing xxx" in sentence and len(sentence) < 300


async def test_a_response_is_read_up_to_the_limit(server: Server) -> None:
    server.says('"' + "x" * 98 + '"')
    assert await post(server.url, most=100) == "x" * 98
    assert "more than 99 bytes" in await refusal(server.url, most=99)


async def test_an_endless_answer_is_left(server: Server) -> None:
    async def forever(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"[" * 1000)

    server.handle = forever
    assert "more than 10,000 bytes" in await refusal(server.url)


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compression_does_not_get_around_the_limit(
    server: Server, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    server.says(pack(b'"hello"'), Content_Encoding=coding)
    assert await post(server.url) == "hello"
    server.says(pack(b"[" + b" " * 5_000_000 + b"]"), Content_Encoding=coding)
    assert "more than 10,000 bytes" in await refusal(server.url)


async def test_compression_that_cannot_be_undone_is_refused(server: Server) -> None:
    server.says(b"whatever", Content_Encoding="br")
    assert "compressed as br" in await refusal(server.url)
    server.says(b"whatever", Content_Encoding="gzip")
    assert "broken compression" in await refusal(server.url)


@pytest.mark.parametrize("text", ["", "{", "<html>", "[NaN]", "nope", '"\\ud800"', "[" * (JSON_DEPTH + 1) + "]" * 101])
async def test_non_json_is_refused(server: Server, text: str) -> None:
    server.says(text)
    assert "did not answer with JSON" in await refusal(server.url)


async def test_bytes_that_are_no_text_are_refused(server: Server) -> None:
    server.says(b'"\xff\xfe"')
    assert "did not answer with JSON" in await refusal(server.url)


async def test_deep_json_is_read_up_to_the_limit(server: Server) -> None:
    server.says("[" * JSON_DEPTH + "]" * JSON_DEPTH)
    assert json.dumps(await post(server.url)) == "[" * JSON_DEPTH + "]" * JSON_DEPTH


async def test_a_server_that_does_not_answer_is_left(server: Server) -> None:
    over = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    server.handle = hang
    assert "did not answer within 0.05 s" in await refusal(server.url, seconds=0.05)
    over.set()


async def test_a_server_that_dribbles_is_left(server: Server) -> None:
    async def dribble(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.005)

    server.handle = dribble
    assert "did not answer within 0.1 s" in await refusal(server.url, seconds=0.1)


async def test_a_server_that_hangs_up_is_an_error(server: Server) -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.handle = hang_up
    assert "whether it took effect is unknown" in await refusal(server.url)


async def test_an_unreachable_host_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        assert "cannot be reached" in await refusal(url)


@pytest.mark.parametrize(
    "url", ["", "ftp://example.com", "file:///etc/passwd", "http://", "https:///path", "example.com", "http://[::1"]
)
async def test_only_http_urls_are_called(url: str) -> None:
    assert "use one like https://example.com/path" in await refusal(url)


@pytest.mark.parametrize("body", [float("nan"), object(), {1: 2, "a": 3}])
async def test_a_body_that_is_not_json_is_not_sent(server: Server, body: Any) -> None:
    assert "not JSON data" in await refusal(server.url, body)
    assert not server.requests


async def test_private_addresses_are_not_connected_to(server: Server) -> None:
    server.says("1")
    port = server.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]"):
        sentence = await refusal(f"http://{host}:{port}", private=False)
        assert "not a public address" in sentence, sentence
    assert not server.requests
    assert await post(server.url) == 1


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f.1", "0177.0.0.1"])
async def test_odd_spellings_of_an_address_lead_nowhere(server: Server, host: str) -> None:
    server.says("1")
    await refusal(f"http://{host}:{server.url.rpartition(':')[2]}", private=False)
    assert not server.requests


async def test_a_name_that_changes_its_address_leads_nowhere(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the socket counts, not an earlier resolution."""

    class Rebinding(AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
            found = {"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}
            return [found]  # type: ignore[list-item]

        async def close(self) -> None: ...

    monkeypatch.setattr("aiohttp.connector.DefaultResolver", lambda loop=None: Rebinding())
    server.says("1")
    url = f"http://example.com:{server.url.rpartition(':')[2]}/"
    assert "is at 127.0.0.1, which is not a public address" in await refusal(url, private=False)
    assert not server.requests
    assert await post(url) == 1


async def test_proxies_of_the_environment_are_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.says("1")
    assert await post(server.url) == 1


async def test_cookies_are_not_stored_and_passwords_not_shown(server: Server) -> None:
    server.says("{", Set_Cookie="a=b")
    secret = server.url.replace("http://", "http://me:secret@") + "/path?key=secret"
    assert "secret" not in await refusal(secret)
    assert "Cookie" not in server.requests[0].headers


@pytest.mark.parametrize("ip", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses(ip: str) -> None:
    assert is_public_address(ip)


PRIVATE = """
127.0.0.1 127.255.255.255 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.2.1 198.18.0.1
224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255
:: ::1 fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 fec0::1 ff02::1 2001::1 2001:db8::1 100::1
::ffff:8.8.8.8 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::8.8.8.8 64:ff9b:1::1 2002:7f00:1:: 2002:808:808::
localhost 127.1 2130706433 8.8.8.8:80 nonsense
"""


@pytest.mark.parametrize("ip", PRIVATE.split())
def test_addresses_that_are_not_public(ip: str) -> None:
    assert not is_public_address(ip)


def test_the_empty_address_is_not_public() -> None:
    assert not is_public_address("")


# -- anything, not only JSON ------------------------------------------------------------------------------------------


async def test_any_response_is_handled(server: Server) -> None:
    server.says("gone", status=410, X_Why="time")
    fetched = await fetch(server.url, private=True, seconds=20, most_bytes=100)
    assert (fetched.status, fetched.body, fetched.truncated) == (410, b"gone", False)
    assert fetched.headers["x-why"] == "time"
    assert server.requests[0].method == "GET"


async def test_an_overlong_response_is_truncated(server: Server) -> None:
    server.says("x" * 1_000_000)
    fetched = await fetch(server.url, private=True, seconds=20, most_bytes=100)
    assert fetched.body == b"x" * 100 and fetched.truncated


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_small_answer_does_not_become_a_large_one(
    server: Server, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    server.says(pack(b"x" * 50_000_000), Content_Encoding=coding)
    fetched = await fetch(server.url, private=True, seconds=20, most_bytes=100_000)
    assert fetched.body == b"x" * 100_000 and fetched.truncated


async def test_only_unsafe_methods_have_an_unknown_outcome(server: Server) -> None:
    async def late(request: web.Request) -> web.Response:
        await asyncio.sleep(0.8)
        return web.Response()

    server.handle = late
    for method, unsure in (("GET", False), ("HEAD", False), ("POST", True), ("DELETE", True)):
        with pytest.raises(ToolError) as caught:
            await fetch(server.url, method=method, private=True, seconds=0.2, most_bytes=100)
        assert isinstance(caught.value, Uncertain) is unsure
        assert str(caught.value).endswith("whether it took effect is unknown") is unsure


async def test_only_public_addresses_are_fetched_from(server: Server) -> None:
    with pytest.raises(ToolError, match="not a public address"):
        await fetch(server.url, private=False, seconds=20, most_bytes=100)
    assert not server.requests
