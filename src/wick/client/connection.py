"""HTTP requests to one server, with the token, and with error responses as exceptions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
from pydantic_core import from_json, to_json
from yarl import URL

from wick.client.errors import ServerError

SILENCE_SECONDS = 45.0  # a stream sends a heartbeat every 15 s; longer silence means a dead connection
CONNECT_SECONDS = 10.0


class ServerConnection:
    """The address of a server and the token, with a pool of connections."""

    def __init__(self, url: str, token: str = "", *, timeout: float | None = None) -> None:
        try:
            self.url = URL(url.rstrip("/"))
        except ValueError:  # such as an unclosed IPv6 address
            self.url = URL()
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise ServerError(f"invalid server URL {url!r}; use one like http://127.0.0.1:8000", "invalid")
        self.timeout = timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the HTTP session, created on first use."""
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def build_url(self, path: str, query: Mapping[str, Any] | None = None) -> URL:
        """Return the URL of a path with quoted parts; query values of None are omitted."""
        url = URL(f"{self.url}{path}", encoded=True)
        params = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (query or {}).items()
            if value is not None
        }
        return url.update_query(params) if params else url

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request, and return the JSON of its response; None if the body is empty."""
        async with self.open_response(method, path, query=query, json=json, body=body, headers=headers) as response:
            raw = await response.read()
        try:
            return from_json(raw) if raw else None
        except ValueError:
            message = "the response is not JSON; check that the URL is that of a wick server"
            raise ServerError(message, "invalid") from None

    @asynccontextmanager
    async def open_response(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        silence: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and yield its response for reading; raise ServerError for an error response."""
        sent = dict(headers or {})
        if json is not None:
            body, sent["Content-Type"] = to_json(json), "application/json"
        limits = aiohttp.ClientTimeout(total=self.timeout, sock_connect=CONNECT_SECONDS, sock_read=silence)
        try:
            async with self.session().request(
                method,
                self.build_url(path, query),
                data=body and BytesIO(body),
                headers=sent,
                allow_redirects=False,
                timeout=limits,
            ) as response:
                if response.status >= 300:
                    raise _parse_error(response, await response.read())
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, aiohttp.ClientConnectorError):
                message = f"{self.url} cannot be reached: {why}; check that the server is running"
                raise ServerError(message, "unreachable") from error
            raise ServerError(f"the connection to {self.url} was lost: {why}", "broken") from error


def _parse_error(response: aiohttp.ClientResponse, raw: bytes) -> ServerError:
    try:
        error = from_json(raw)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, LookupError, TypeError):
        code, message = "error", f"{response.url.path} answered with status {response.status}"
    after = response.headers.get("Retry-After", "")
    return ServerError(message, code, response.status, float(after) if after.isdigit() else None)
