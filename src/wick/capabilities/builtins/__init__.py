"""Built-in tools: arithmetic, date and time, HTTP requests and web search.

Agent(model, hooks=[Builtins()])                                calculate, datetime, http_request
Agent(model, hooks=[Builtins(["calculate"])])                   one of them
Agent(model, hooks=[Builtins(search=my_search)])                and web_search, by a function of yours
Agent(model, tools=[calculate, HttpRequest(methods=["GET"])])   a tool without the rest
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from wick import constants
from wick._internal.http_requests import SAFE, HttpResponse, fetch
from wick._internal.import_path import load_module
from wick._internal.worker_threads import call_function
from wick.capabilities.builtins.calculator import calculate_text
from wick.capability import Capability
from wick.errors import ConfigError, ToolError
from wick.tools import Tool, tool

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ENTRY_POINTS = "wick.web_search"

Search = Callable[[str], Any]


class Builtins(Capability):
    """Adds built-in tools: `calculate`, `datetime`, `http_request` and `web_search`."""

    def __init__(
        self,
        tools: Iterable[str] | None = None,
        *,
        search: Search | str | None = None,
        timezone: str = "UTC",
        methods: Iterable[str] = METHODS,
        private: Iterable[str] = (),
        timeout: float = constants.HTTP_SECONDS,
        max_bytes: int = constants.HTTP_BYTES,
    ) -> None:
        makers: dict[str, Callable[[], Tool]] = {
            "calculate": lambda: calculate,
            "datetime": lambda: DateTime(timezone),
            "http_request": lambda: HttpRequest(methods, private=private, timeout=timeout, max_bytes=max_bytes),
            "web_search": lambda: WebSearch(search),
        }
        usual = [name for name in makers if name != "web_search" or search is not None]
        wanted = usual if tools is None else _check_texts("tools", tools)
        for name in wanted:
            if name not in makers:
                raise ConfigError(f"there is no built-in tool {name!r}; there are {', '.join(makers)}")
        self._tools = tuple(makers[name]() for name in dict.fromkeys(wanted))

    def tools(self) -> list[Tool]:
        return [*self._tools]


def _check_texts(option: str, given: Any) -> list[str]:
    texts: list[Any] = (
        [*given] if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping) else [None]
    )
    if not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"{option} is a list of texts, not {given!r}")
    return texts


def _check_positive(option: str, given: Any) -> None:
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < float("inf"):
        raise ConfigError(f"{option} is a number above 0, not {given!r}")


# -- calculate ------------------------------------------------------------------------------------------------------


@tool(read_only=True, timeout=10, effect="read", returns="own")
def calculate(
    expr: Annotated[str, "such as (1 + 2) * 3, 10 / 4, 2 ** 64, 5!, sqrt(2), round(pi, 4), log(8, 2)"],
) -> str:
    """Calculate an arithmetic expression. Rational results are exact; others have 15 digits."""
    return calculate_text(expr)


# -- the time -------------------------------------------------------------------------------------------------------

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{2}):?(\d{2})")


def DateTime(timezone: str = "UTC") -> Tool:
    """Return a tool for the current date and time, with this default timezone."""
    try:
        _find_timezone(timezone)
    except ToolError as error:
        raise ConfigError(f"timezone: {error}") from None

    def now(
        timezone: Annotated[str, "such as Europe/Berlin, UTC or +02:00; if left out, the usual one"] = timezone,
    ) -> dict[str, Any]:
        moment = dt.datetime.now(_find_timezone(timezone))
        return {
            "datetime": moment.isoformat(timespec="seconds"),
            "timezone": timezone,
            "weekday": moment.strftime("%A"),
            "unix": int(moment.timestamp()),
        }

    about = "The date and time now, in a timezone."
    return tool(now, name="datetime", description=about, read_only=True, timeout=10, effect="read", returns="trusted")


def _find_timezone(name: str) -> dt.tzinfo:
    """Return the timezone of a name, such as Europe/Berlin, or of an offset, such as +02:00."""
    if not isinstance(name, str):
        raise ToolError(f"a timezone is a text, such as Europe/Berlin, not {name!r}")
    if name.upper() in ("UTC", "GMT", "Z"):
        return dt.UTC
    if offset := _OFFSET.fullmatch(name):
        hours, minutes = int(offset[2]), int(offset[3])
        if hours < 24 and minutes < 60:
            return dt.timezone((-1 if offset[1] == "-" else 1) * dt.timedelta(hours=hours, minutes=minutes))
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # unknown, or a path outside of the timezone folder
        raise ToolError(
            f"there is no timezone {name[:60]!r}; give one such as Europe/Berlin, America/New_York, UTC or +02:00"
        ) from None


datetime = DateTime()


# -- requests -------------------------------------------------------------------------------------------------------

# Headers set by the connection, and headers that would change the framing of a request.
_CONNECTION_HEADERS = frozenset(
    "accept-encoding connection content-length expect host keep-alive proxy-authorization proxy-connection te trailer "
    "transfer-encoding upgrade".split()
)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.IGNORECASE)
_ODD = re.compile(r"[\s\\\x00-\x1f\x7f]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TEXTUAL = re.compile(r"text/|.*[/+](?:json|xml|javascript|yaml|csv|x-www-form-urlencoded|x-ndjson|graphql)\b")
_SHOWN_HEADERS = (
    "content-type",
    "location",
    "etag",
    "last-modified",
    "link",
    "retry-after",
    "www-authenticate",
    "allow",
)


def HttpRequest(
    methods: Iterable[str] = METHODS,
    *,
    private: Iterable[str] = (),
    timeout: float = constants.HTTP_SECONDS,
    max_bytes: int = constants.HTTP_BYTES,
) -> Tool:
    """Return a tool for HTTP requests to public addresses; `private` lists allowed private hosts, as `host:port`.

    Redirects are not followed: the response has their location, and a request to it is a new tool use. With safe
    methods only (GET, HEAD, OPTIONS) the tool is `read_only`.
    """
    allowed = [method.upper() for method in _check_texts("methods", methods)]
    if not allowed or not set(allowed) <= set(METHODS):
        raise ConfigError(f"methods are some of {', '.join(METHODS)}, not {', '.join(allowed) or 'none'}")
    _check_positive("timeout", timeout)
    _check_positive("max_bytes", max_bytes)
    hosts = frozenset(host.lower() for host in _check_texts("private", private))
    requests = _HttpRequests(tuple(allowed), hosts, timeout, int(max_bytes))
    return tool(
        requests.http_request,
        description=f"Send an HTTP request and read the answer. The methods are {', '.join(allowed)}.",
        kind="network",
        read_only=set(allowed) <= set(SAFE),
        timeout=timeout + constants.CANCEL_GRACE_SECONDS,
        effect="fetch" if set(allowed) <= set(SAFE) else "send",
        targets=["url", "method", "headers"],
        returns="untrusted",
    )


@dataclass(frozen=True, slots=True)
class _HttpRequests:
    methods: tuple[str, ...]
    private: frozenset[str]
    timeout: float
    max_bytes: int

    async def http_request(
        self,
        url: Annotated[str, "begins with http:// or https://"],
        method: Annotated[str, "the first of the methods, if left out"] = "",
        headers: dict[str, str] | None = None,
        body: Annotated[str, "the text to send"] = "",
    ) -> dict[str, Any]:
        method = method.upper() or self.methods[0]
        if method not in self.methods:
            raise ToolError(f"the method {method[:20]!r} is not one of {', '.join(self.methods)}")
        parts = urlsplit(_check_url(url))
        host = (parts.hostname or "").lower()
        port = parts.port or (443 if parts.scheme == "https" else 80)
        checked = _check_headers(headers or {})
        data = body.encode("utf-8", "replace")
        if len(data) > constants.HTTP_BODY_BYTES:
            raise ToolError(f"the body has more than {constants.HTTP_BODY_BYTES:,} bytes; send less")
        fetched = await fetch(
            url,
            method=method,
            headers={"User-Agent": "wick", **checked},
            body=data,
            private=host in self.private or f"{host}:{port}" in self.private,
            seconds=self.timeout,
            most_bytes=self.max_bytes,
        )
        return _format_response(fetched)


def _check_url(url: str) -> str:
    """Return the URL; raise a ToolError for one that parsers may interpret differently."""
    if len(url) > constants.URL_CHARS:
        raise ToolError(f"the URL has more than {constants.URL_CHARS:,} characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if _ODD.search(url) or not _HOST.fullmatch(host) or port == 0 or parts.scheme not in ("http", "https"):
        raise ToolError("the URL is not well formed; use one like https://example.com/path, with spaces as %20")
    if "@" in parts.netloc:
        raise ToolError("the URL has a user or a password in it; send them in a header, if they are needed")
    return url


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    if (
        len(headers) > constants.HTTP_HEADERS
        or sum(map(len, [*headers, *headers.values()])) > constants.HTTP_HEADERS_BYTES
    ):
        raise ToolError(f"these are too many headers, or too long ones; at most {constants.HTTP_HEADERS} are sent")
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            raise ToolError(f"the header {name[:40]!r} has a name or a value that none can have")
        if name.lower() in _CONNECTION_HEADERS:
            raise ToolError(f"the header {name} is set by the connection itself; leave it out")
    return dict(headers)


def _format_response(fetched: HttpResponse) -> dict[str, Any]:
    """Return the status, headers and body of a response for the model."""
    headers = {name: fetched.headers[name][:1_000] for name in _SHOWN_HEADERS if name in fetched.headers}
    kind = fetched.headers.get("content-type", "").lower()
    charset = re.search(r"charset=[\"']?([\w.:-]+)", kind)
    if not _TEXTUAL.match(kind) and (kind or b"\0" in fetched.body) and (charset is None or b"\0" in fetched.body):
        body = f"({len(fetched.body):,} bytes of binary data are not shown)" if fetched.body else ""
    else:
        try:
            body = fetched.body.decode(charset[1] if charset else "utf-8", "replace")
            body = body.encode("utf-8", "replace").decode()
        except (LookupError, ValueError):  # unknown charset, or not a text encoding
            body = fetched.body.decode("utf-8", "replace")
    response = {"status": fetched.status, "headers": headers, "body": body, "truncated": fetched.truncated}
    if 300 <= fetched.status < 400 and "location" in headers:
        return {**response, "note": "the redirect was not followed; ask for its location if that is meant"}
    return response


# -- searching the web ----------------------------------------------------------------------------------------------


def WebSearch(search: Search | str | None = None, *, timeout: float = constants.SEARCH_SECONDS) -> Tool:
    """Return a tool that searches the web by `search(query)`, sync or async, which returns a text or a list.

    A text names an installed search (an entry point of the group `wick.web_search`) or a `module:function`. A result
    is a mapping with `title`, `url` and `snippet`, or a text.
    """
    _check_positive("timeout", timeout)
    if search is None or isinstance(search, str):
        search = _find_search(search)
    if not callable(search):
        raise ConfigError(f"search is a function that takes a query, or the name of one, not {search!r}")
    find: Search = search

    async def web_search(query: str, limit: Annotated[int, "the most results"] = 5) -> str | dict[str, Any]:
        """Search the web, and get titles, addresses and excerpts of pages."""
        if not query.strip() or len(query) > constants.SEARCH_CHARS:
            raise ToolError(f"a query is a text of at most {constants.SEARCH_CHARS:,} characters that is not empty")
        if not 1 <= limit <= constants.SEARCH_RESULTS:
            raise ToolError(f"limit is a number from 1 to {constants.SEARCH_RESULTS}, not {limit}")
        try:
            answer = await call_function(find, query, name="web_search")
        except ToolError:
            raise
        except Exception as error:
            raise ToolError(f"the search failed: {type(error).__name__}: {error}") from error
        if isinstance(answer, str):
            return answer
        if not isinstance(answer, list | tuple) or not all(isinstance(row, str | Mapping) for row in answer):
            raise ToolError(f"the search answered with a {type(answer).__name__}, not with a text or a list of results")
        rows = [{"snippet": row} if isinstance(row, str) else row for row in answer[:limit]]
        most = constants.CUT_HEAD_CHARS
        results = [{str(name): str(value)[:most] for name, value in row.items() if value is not None} for row in rows]
        return {"results": results}

    return tool(
        web_search,
        kind="network",
        read_only=True,
        timeout=timeout,
        effect="fetch",
        returns="untrusted",
        targets=["query"],  # it leaves with the request
    )


def has_search() -> bool:
    """Return True if exactly one search is installed, so that web_search needs no `search=`."""
    return len(entry_points(group=ENTRY_POINTS)) == 1


def _find_search(name: str | None) -> Search:
    """Return the search with this name, or the only one that is installed."""
    installed = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    if name is None and len(installed) != 1:
        which = f"choose one of: {', '.join(point.name for point in installed)}" if installed else "none is installed"
        raise ConfigError(f"web_search needs a search, and {which}; give it as search=, a function that takes a query")
    for point in installed:
        if name in (None, point.name):
            return _load_search(point.load, point.name)
    module, colon, function = (name or "").partition(":")
    if not (module and colon and function):
        raise ConfigError(f"there is no search {name!r}; give one that is installed, or module:function")
    return _load_search(lambda: getattr(import_module(module), function), f"{module}:{function}")


def _load_search(load: Callable[[], Any], name: str) -> Search:
    try:
        search: Search = load_module(load)
    except Exception as error:  # importing a module may raise anything
        raise ConfigError(f"the search {name} cannot be loaded: {type(error).__name__}: {error}") from error
    return search
