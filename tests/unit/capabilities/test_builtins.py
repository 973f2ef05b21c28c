"""The built-in tools: arithmetic, the time, requests and searches, for models that ask for anything."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import AsyncIterator, Callable
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from kit import tool_calls_reply, tool_result
from wick import Agent, Scripted, Tool, ToolCall, ToolError
from wick.capabilities import builtins
from wick.capabilities.builtins import METHODS, Builtins, DateTime, HttpRequest, WebSearch, calculate, datetime
from wick.capabilities.permissions import Permissions
from wick.errors import ConfigError
from wick.tools import run_tool

HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "",
    ".",
    "Europe",
    "Nowhere/Land",
    "a\0b",
    "+99:00",
    "ü",
    "+2",
    "x" * 5_000,
]


async def use_tool(tool: Tool, **args: Any) -> str:
    """Return the result of one use for the model."""
    model = Scripted(tool_calls_reply(ToolCall("c1", tool.name, args)), "done")
    return tool_result(await Agent(model, tools=[tool]).run("go"))


async def use_tool_json(tool: Tool, **args: Any) -> Any:
    return json.loads(await use_tool(tool, **args))


# -- which there are --------------------------------------------------------------------------------------------------


def names(capability: Builtins) -> list[str]:
    return [tool.name for tool in capability.tools()]


def test_there_are_three_and_a_search_if_there_is_one_to_search_with() -> None:
    assert names(Builtins()) == ["calculate", "datetime", "http_request"]
    assert names(Builtins(search=lambda query: "")) == ["calculate", "datetime", "http_request", "web_search"]
    assert names(Builtins(["datetime", "calculate", "datetime"])) == ["datetime", "calculate"]
    assert names(Builtins(["web_search"], search=lambda query: "")) == ["web_search"]
    assert names(Builtins([])) == []


def test_tool_descriptions() -> None:
    tools = {tool.name: tool for tool in Builtins(search=lambda query: "").tools()}
    assert {name for name, tool in tools.items() if tool.read_only} == {"calculate", "datetime", "web_search"}
    assert {name: tool.kind for name, tool in tools.items() if tool.kind} == {
        "http_request": "network",
        "web_search": "network",
    }
    assert all(tool.description and tool.schema and tool.timeout for tool in tools.values())
    assert "WebFetch" in tools["http_request"].aliases and "WebSearch" in tools["web_search"].aliases


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tools": ["web_search"]}, "web_search needs a search, and none is installed; give it as search="),
        (
            {"tools": ["calc"]},
            "there is no built-in tool 'calc'; there are calculate, datetime, http_request, web_search",
        ),
        ({"tools": "calculate"}, "tools is a list of texts, not 'calculate'"),
        ({"tools": [7]}, "tools is a list of texts"),
        ({"tools": 7}, "tools is a list of texts"),
        ({"search": 7}, "search is a function that takes a query, or the name of one, not 7"),
        ({"search": "nobody"}, "there is no search 'nobody'; give one that is installed, or module:function"),
        ({"search": "no_such_module:search"}, "the search no_such_module:search cannot be loaded: ModuleNotFoundError"),
        ({"search": "json:nothing"}, "the search json:nothing cannot be loaded: AttributeError"),
        ({"search": "sys:path"}, "search is a function"),
        ({"timezone": "Mars/Base"}, "timezone: there is no timezone 'Mars/Base'"),
        ({"timezone": None}, "timezone: a timezone is a text"),
        ({"methods": []}, "methods are some of GET, HEAD"),
        ({"methods": ["TRACE"]}, "methods are some of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, not TRACE"),
        ({"methods": "GET"}, "methods is a list of texts"),
        ({"private": "localhost"}, "private is a list of texts"),
        ({"timeout": 0}, "timeout is a number above 0"),
        ({"timeout": True}, "timeout is a number above 0"),
        ({"max_bytes": "many"}, "max_bytes is a number above 0"),
        ({"max_bytes": float("inf")}, "max_bytes is a number above 0"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Builtins(**options)
    assert sentence in str(caught.value)


# -- calculate --------------------------------------------------------------------------------------------------------


async def test_calculate() -> None:
    assert await use_tool(calculate, expr="2+2") == "4"
    assert await use_tool(calculate, expr="0.1 + 0.2") == "0.3"
    assert await use_tool(calculate, expr="1/0") == "nothing can be divided by zero"
    assert "is not part of a calculation" in await use_tool(calculate, expr="__import__('os').getcwd()")
    assert "expr is missing" in await use_tool(calculate)
    assert "expr" in await use_tool(calculate, expr=7)


# -- datetime ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "offset"),
    [("UTC", 0), ("utc", 0), ("Z", 0), ("GMT", 0), ("+02:00", 2), ("-0530", -5.5), ("UTC+01:00", 1), ("Asia/Tokyo", 9)],
)
async def test_the_time_in_a_timezone(zone: str, offset: float) -> None:
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    now = await use_tool_json(datetime, timezone=zone)
    moment = dt.datetime.fromisoformat(now["datetime"])
    assert before <= moment <= dt.datetime.now(dt.UTC)
    assert moment.utcoffset() == dt.timedelta(hours=offset)
    assert now["timezone"] == zone and now["unix"] == int(moment.timestamp())
    assert now["weekday"] == moment.strftime("%A")


async def test_the_usual_timezone_is_the_operators() -> None:
    assert (await use_tool_json(datetime))["timezone"] == "UTC"
    there = await use_tool_json(DateTime("Asia/Tokyo"))
    assert there["timezone"] == "Asia/Tokyo" and there["datetime"].endswith("+09:00")


@pytest.mark.parametrize("zone", HOSTILE)
async def test_an_invalid_timezone_is_an_error(zone: str) -> None:
    answer = await use_tool(datetime, timezone=zone)
    assert answer.startswith("there is no timezone ") and "such as Europe/Berlin" in answer and len(answer) < 300


# -- http_request -----------------------------------------------------------------------------------------------------


class Server:
    """A server with one page, which the test sets; it records requests."""

    def __init__(self) -> None:
        self.url, self.port = "", 0
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Callable[[web.Request], Any] = lambda request: web.Response(text="hello")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append((request.method, request.path_qs, headers, await request.read()))
        answer = self.answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{rest:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{server.port}"
    yield server
    await runner.cleanup()


def inside(**options: Any) -> Tool:
    """The tool with access to this machine allowed."""
    return HttpRequest(**{"private": ["127.0.0.1"], **options})


async def test_a_request_and_its_answer(server: Server) -> None:
    answer = await use_tool_json(inside(), url=f"{server.url}/a?b=c")
    assert answer == {
        "status": 200,
        "headers": {"content-type": "text/plain; charset=utf-8"},
        "body": "hello",
        "truncated": False,
    }
    method, path, headers, body = server.seen[0]
    assert (method, path, body) == ("GET", "/a?b=c", b"")
    assert headers["user-agent"] == "wick" and "cookie" not in headers and headers["accept-encoding"] == "identity"


async def test_a_body_and_headers_are_sent(server: Server) -> None:
    args = {"method": "post", "headers": {"Content-Type": "application/json", "X-Key": "ä"}, "body": '{"a": "ü"}'}
    assert (await use_tool_json(inside(), url=server.url, **args))["status"] == 200
    method, _, headers, body = server.seen[0]
    assert method == "POST" and headers["content-type"] == "application/json" and json.loads(body) == {"a": "ü"}


@pytest.mark.parametrize("method", METHODS)
async def test_every_method(server: Server, method: str) -> None:
    assert (await use_tool_json(inside(), url=server.url, method=method))["status"] == 200
    assert server.seen[0][0] == method


async def test_any_status_is_an_answer_and_a_redirect_is_not_followed(server: Server) -> None:
    server.answer = lambda request: web.Response(status=404, text="no such page")
    answer = await use_tool_json(inside(), url=server.url)
    assert answer["status"] == 404 and answer["body"] == "no such page" and "note" not in answer
    server.answer = lambda request: web.Response(status=302, headers={"Location": "http://169.254.169.254/keys"})
    answer = await use_tool_json(inside(), url=server.url)
    assert answer["headers"]["location"] == "http://169.254.169.254/keys"
    assert "was not followed" in answer["note"] and len(server.seen) == 2


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("größe".encode(), "text/plain", "größe"),
        ("größe".encode("latin-1"), "text/html; charset=ISO-8859-1", "größe"),
        ("größe".encode("latin-1"), "text/html; charset=utf-8", "gr\ufffd\ufffde"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"<a/>", "image/svg+xml", "<a/>"),
        (b"abc", "text/plain; charset=no-such-thing", "abc"),
        (b"abc", "text/plain; charset=base64", "abc"),
        (b"abc", "text/plain; charset=idna", "abc"),
        (b"+2AA-", "text/plain; charset=utf-7", "?"),
        (b"\x89PNG\0\1", "image/png", "(6 bytes of binary data are not shown)"),
        (b"\0\1", "application/octet-stream", "(2 bytes of binary data are not shown)"),
        (b"", "image/png", ""),
    ],
)
async def test_a_body_is_shown_as_text(server: Server, body: bytes, kind: str, text: str) -> None:
    server.answer = lambda request: web.Response(body=body, headers={"Content-Type": kind})
    assert (await use_tool_json(inside(), url=server.url))["body"] == text


async def test_of_a_long_answer_the_beginning_is_read(server: Server) -> None:
    server.answer = lambda request: web.Response(text="x" * 500_000)
    answer = await use_tool_json(inside(max_bytes=1_000), url=server.url)
    assert answer["body"] == "x" * 1_000 and answer["truncated"]


async def test_a_server_that_does_not_answer(server: Server) -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.sleep(0.8)
        return web.Response()

    server.answer = never
    slow = inside(timeout=0.3)
    assert await use_tool(slow, url=server.url) == f"{server.url} did not answer within 0.3 s"
    args = {"url": server.url, "method": "POST", "headers": None, "body": ""}
    result, ended = await run_tool(slow, slow.bind(args).values)
    assert ended == "unknown" and result.error.endswith("whether it took effect is unknown")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "127.1", "2130706433", "0x7f000001"])
async def test_private_addresses_are_not_reached(server: Server, host: str) -> None:
    answer = await use_tool(HttpRequest(), url=f"http://{host}:{server.port}/")
    assert "not a public address" in answer or "cannot be reached" in answer or "broke off" in answer
    assert not server.seen


async def test_only_allowed_hosts_are_reached(server: Server) -> None:
    port = server.port
    for private in (["127.0.0.1"], [f"127.0.0.1:{port}"], ["LOCALHOST", "127.0.0.1"]):
        assert (await use_tool_json(HttpRequest(private=private), url=server.url))["status"] == 200
    for private in (["localhost"], [f"127.0.0.1:{port + 1}"], ["127.0.0"], ["*"]):
        assert "not a public address" in await use_tool(HttpRequest(private=private), url=server.url)
    assert (await use_tool_json(HttpRequest(private=["localhost"]), url=f"http://LocalHost:{port}/"))["status"] == 200


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"url": ""}, "the URL is not well formed"),
        ({"url": "example.com"}, "the URL is not well formed; use one like https://example.com/path"),
        ({"url": "ftp://example.com"}, "the URL is not well formed"),
        ({"url": "file:///etc/passwd"}, "the URL is not well formed"),
        ({"url": "http://"}, "the URL is not well formed"),
        ({"url": "http://[::1"}, "the URL is not well formed"),
        ({"url": "http://a:99999"}, "the URL is not well formed"),
        ({"url": "http://a:0/"}, "the URL is not well formed"),
        ({"url": "http://a b/"}, "the URL is not well formed"),
        ({"url": "http://127.0.0.1\\@example.com/"}, "the URL is not well formed"),
        ({"url": "http://a\r\nHost: b/"}, "the URL is not well formed"),
        ({"url": "http://%6c%6fcalhost/"}, "the URL is not well formed"),
        ({"url": "http://ada:secret@example.com/"}, "the URL has a user or a password in it"),
        ({"url": "http://x/" + "a" * 9_000}, "the URL has more than 8,000 characters"),
        ({"url": "http://x/", "method": "BREW"}, "the method 'BREW' is not one of GET, HEAD"),
        ({"url": "http://x/", "headers": {"Host": "other"}}, "the header Host is set by the connection itself"),
        ({"url": "http://x/", "headers": {"Content-Length": "5"}}, "the header Content-Length is set by"),
        ({"url": "http://x/", "headers": {"Transfer-Encoding": "chunked"}}, "is set by the connection itself"),
        (
            {"url": "http://x/", "headers": {"X": "a\r\nY: b"}},
            "the header 'X' has a name or a value that none can have",
        ),
        ({"url": "http://x/", "headers": {"X Y": "a"}}, "has a name or a value that none can have"),
        ({"url": "http://x/", "headers": {"": "a"}}, "has a name or a value that none can have"),
        ({"url": "http://x/", "headers": {f"X{n}": "" for n in range(99)}}, "these are too many headers"),
        ({"url": "http://x/", "headers": {"X": "a" * 20_000}}, "too long ones"),
        ({"url": "http://x/", "headers": "X: a"}, "http_request: headers"),
        ({"url": "http://x/", "method": "POST", "body": "x" * 1_000_001}, "the body has more than 1,000,000 bytes"),
        ({}, "url is missing"),
    ],
)
async def test_requests_that_are_not_sent(args: dict[str, Any], sentence: str) -> None:
    assert sentence in await use_tool(inside(private=["x", "a", "example.com"]), **args)


def test_a_tool_that_only_asks_is_read_only() -> None:
    assert HttpRequest(["GET", "head"]).read_only and not HttpRequest(["GET", "POST"]).read_only
    assert "The methods are GET, HEAD." in HttpRequest(["GET", "head"]).description


async def test_a_method_that_the_operator_left_out(server: Server) -> None:
    answer = await use_tool(inside(methods=["GET"]), url=server.url, method="DELETE")
    assert answer == "the method 'DELETE' is not one of GET" and not server.seen


@given(st.text(max_size=40) | st.text("htps:/@[]%\\.?#0127.1aé", max_size=30).map(lambda rest: f"http://{rest}"))
def test_an_allowed_url_is_unambiguous(url: str) -> None:
    """The host check and the connection parse the URL separately: they must agree."""
    try:
        builtins._check_url(url)
        connected = URL(url)
    except (ToolError, ValueError):
        return
    parts = urlsplit(url)
    assert connected.scheme == parts.scheme and connected.user is None
    assert connected.explicit_port == parts.port
    assert not url.isascii() or connected.raw_host == parts.hostname


# -- web_search -------------------------------------------------------------------------------------------------------

PAGES = [
    {"title": "Tea", "url": "https://tea.example", "snippet": "x" * 5_000, "score": None},
    "a plain line",
    {"n": 7},
]


def find(query: str) -> Any:
    """A search that is an ordinary function."""
    return PAGES


async def find_soon(query: str) -> Any:
    return f"about {query}: nothing"


class Finder:
    async def __call__(self, query: str) -> Any:
        return [{"title": query}]


async def test_a_search() -> None:
    results = (await use_tool_json(WebSearch(find), query="tea"))["results"]
    assert results == [
        {"title": "Tea", "url": "https://tea.example", "snippet": "x" * 2_000},
        {"snippet": "a plain line"},
        {"n": "7"},
    ]
    assert len((await use_tool_json(WebSearch(find), query="tea", limit=1))["results"]) == 1
    assert await use_tool(WebSearch(find_soon), query="tea") == "about tea: nothing"
    assert await use_tool_json(WebSearch(Finder()), query="tea") == {"results": [{"title": "tea"}]}
    assert await use_tool(WebSearch(lambda query: find_soon(query)), query="tea") == "about tea: nothing"
    assert await use_tool_json(WebSearch(lambda query: []), query="tea") == {"results": []}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"query": "  "}, "a query is a text of at most 1,000 characters that is not empty"),
        ({"query": "x" * 1_001}, "a query is a text of at most 1,000 characters"),
        ({"query": "tea", "limit": 0}, "limit is a number from 1 to 20, not 0"),
        ({"query": "tea", "limit": 99}, "limit is a number from 1 to 20, not 99"),
        ({"query": ["tea"]}, "web_search: query"),
        ({}, "query is missing"),
    ],
)
async def test_searches_that_make_no_sense(args: dict[str, Any], sentence: str) -> None:
    assert sentence in await use_tool(WebSearch(find), **args)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "the search answered with a NoneType, not with a text or a list of results"),
        ({"title": "Tea"}, "the search answered with a dict"),
        ([1, 2], "the search answered with a list"),
        (RuntimeError("no key"), "the search failed: RuntimeError: no key"),
        (ToolError("the search has no credit left"), "the search has no credit left"),
    ],
)
async def test_a_search_that_fails(answer: Any, sentence: str) -> None:
    def search(query: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert (await use_tool(WebSearch(search), query="tea")).startswith(sentence)


async def test_a_search_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.find", find_soon, raising=False)
    assert await use_tool(WebSearch("json:find"), query="tea") == "about tea: nothing"


@pytest.mark.parametrize("count", [1, 2])
async def test_a_search_that_is_installed(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The metadata of a package; none is installed here."""
    monkeypatch.setattr("json.find", find_soon, raising=False)
    points = [EntryPoint(f"search{n}", "json:find", builtins.ENTRY_POINTS) for n in range(count)]
    monkeypatch.setattr(builtins, "entry_points", EntryPoints(points).select)
    assert await use_tool(WebSearch("search0"), query="tea") == "about tea: nothing"
    if count == 1:
        assert await use_tool(Builtins(["web_search"]).tools()[0], query="tea") == "about tea: nothing"
    else:
        with pytest.raises(ConfigError, match="choose one of: search0, search1"):
            Builtins(["web_search"])


# -- with others ------------------------------------------------------------------------------------------------------


async def test_with_permissions(server: Server) -> None:
    rules = Permissions(allow=["WebFetch(domain:127.0.0.1)", "calculate"], mode="dontAsk")
    wanted = [
        ToolCall("c1", "http_request", {"url": server.url}),
        ToolCall("c2", "http_request", {"url": f"http://localhost:{server.port}"}),
        ToolCall("c3", "calculate", {"expr": "1+1"}),
    ]
    hooks = [rules, Builtins(private=["127.0.0.1", "localhost"])]
    result = await Agent(Scripted(tool_calls_reply(*wanted), "done"), hooks=hooks).run("go")
    first, second, third = [message.text for message in result.messages if message.role == "tool"]
    assert json.loads(first)["body"] == "hello" and third == "2"
    assert "status" not in second and len(server.seen) == 1
