"""Forwarding middleware: a request that needs the files of a workspace is sent on to the server that has them.

This is the only place where a server decides "here or there". Bodies, event streams and terminals are relayed as they
arrive. A forwarded request is never forwarded again. If the server that has the files is dead, they are moved here: the
last snapshot is restored, and this server has the workspace from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from string import punctuation
from time import monotonic
from typing import Any
from urllib.parse import quote

import aiohttp
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from yarl import URL

from wick._internal.tasks import cancel_and_wait
from wick.errors import StoreError
from wick.protocols import WorkspaceHome
from wick.server.agents.locality import find_snapshots
from wick.server.auth.access_table import RouteAccess
from wick.server.auth.forwards import HEADER, request_target
from wick.server.auth.identity import User
from wick.server.auth.middleware import request_method, request_path
from wick.server.errors import FRAMEWORK_CODES, ApiError, resolve_error
from wick.server.http.middleware import send_error
from wick.server.service import Service

logger = logging.getLogger("wick.server")

RUN_PATHS = ("/agents/{id}/invoke", "/agents/{id}/stream", "/threads/{id}/messages")
FILE_PATHS = ("/agents/{id}/files", "/agents/{id}/skills", "/agents/{id}/slides", "/agents/{id}/terminal")
AGENT_PATH = "/agents/{id}"
FILE_ROUTES = (
    ("DELETE", AGENT_PATH),
    ("GET", "/threads/{id}/files"),
    ("POST", "/threads/{id}/files/restore"),
    ("POST", "/threads/{id}/fork"),
    ("POST", "/threads/{id}/rewind"),
)
OWN_HEADERS = frozenset((  # of one connection, or of the client and the first server
    b"authorization", b"connection", b"cookie", b"date", b"expect", b"host", b"keep-alive", b"origin",
    b"proxy-authorization", b"server", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"x-request-id",
))  # fmt: skip
URL_SAFE = punctuation.replace("#", "")
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 2.0  # of a connection that is used again; servers close theirs after 5
WATCH_SECONDS = 1.0  # between two checks whether the other server is alive
MESSAGE_BYTES = 16_000_000
GOING_AWAY, RESTARTED = 1001, 1012  # codes of closed WebSockets
SAVE_SECONDS = 10.0  # between two snapshots while a terminal is open
ABNORMAL = (1005, 1006)  # codes of connections without a closing handshake, which cannot be sent
RETRY = {"Retry-After": "3"}


class ForwardMiddleware:
    """Forwards requests to the server that has the files of a workspace."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service, self._locality = app, service, service.registry.locality
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, user = scope.get("wick.route_access"), scope.get("wick.user")
        needs_files = route is not None and (
            route.path in RUN_PATHS or route.path.startswith(FILE_PATHS) or (route.method, route.path) in FILE_ROUTES
        )
        if route is None or user is None or not needs_files:
            await self._app(scope, receive, send)
            return
        try:
            agent = await self._find_agent(scope, route, user)
            home = await self._locality.find_home(user.id, agent) if agent else None
            is_lost = home is not None and home.place != self._locality.place and not home.alive
            if is_lost and route.path not in (*RUN_PATHS, AGENT_PATH):  # a run brings its files; a deletion needs none
                home = await self._bring_files(user, agent)
            if home is not None and self._is_elsewhere(scope, route, home):
                await self._forward(scope, receive, send, user, home)
                return
            is_first_change = home is not None and not home.changed and _can_change(scope, route)
            if is_first_change and not await self._locality.record_change(user.id, agent):
                raise _moved_error()
        except Exception as error:
            await send_error(_as_refusal(error, scope), scope, receive, send)
            return
        if home is None or not _can_change(scope, route):
            await self._app(scope, receive, send)
        else:
            await self._serve_change(scope, receive, send, user, agent)

    # -- workspaces of this server ------------------------------------------------------------------------------------

    async def _bring_files(self, user: User, agent: str) -> WorkspaceHome:
        """Move the workspace of a dead server here, and return where it is; raise a 503 if that is not possible."""
        if self._service.draining:
            raise ApiError(503, "draining", "the server drains; send the request to another one", RETRY)
        instance = await self._service.registry.get_agent(user, agent)
        with instance.hold():
            moved = await self._locality.bring_here(user.id, agent, find_snapshots(instance.agent.hooks))
        if moved.problem:
            remedy = "start that server again, or send a message: its run asks whether to start afresh"
            message = f"the files of this workspace are missing: {moved.problem}; {remedy}"
            raise ApiError(503, "workspace_away", message, RETRY)
        if moved.report is not None:
            logger.info("restored %d files of %s from a dead server", len(moved.report.restored), agent)
        return moved.home

    async def _serve_change(self, scope: Scope, receive: Receive, send: Send, user: User, agent: str) -> None:
        """Serve a request that can change files, and save them. End it if the workspace moves away meanwhile."""
        since, is_started, is_refused = monotonic(), False, False

        async def send_checked(message: Message) -> None:
            nonlocal is_started, is_refused
            if message["type"] == "http.response.start" and message["status"] < 400:
                try:
                    refusal = None if await self._is_change_safe(user, agent, since) else _moved_error()
                except Exception as error:
                    refusal = _as_refusal(error, scope)
                if refusal is not None:
                    is_started = is_refused = True
                    await send_error(refusal, scope, receive, send)
            if not is_refused:
                is_started = True
                await send(message)

        serving = asyncio.ensure_future(self._app(scope, receive, send_checked))
        watching = asyncio.create_task(self._save_often(user, agent))
        try:
            await asyncio.wait((serving, watching), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
                return
            await cancel_and_wait((serving,))
            if scope["type"] == "websocket" and is_started:
                await send({"type": "websocket.close", "code": RESTARTED, "reason": "the workspace has moved"})
            elif not is_started:
                await send_error(_moved_error(), scope, receive, send)
        finally:
            await cancel_and_wait((serving, watching))
            self._service.save_workspace(user, agent)

    async def _is_change_safe(self, user: User, agent: str, since: float) -> bool:
        """Return False if a change must not be acknowledged, as the workspace has moved since the request arrived.

        A server that drains takes a snapshot first: the workspace may move as soon as the change is acknowledged.
        """
        if self._service.draining:
            return await self._service.save_workspace_now(user, agent)
        is_slow = monotonic() - since > WATCH_SECONDS
        return not is_slow or await self._locality.record_change(user.id, agent)

    async def _save_often(self, user: User, agent: str) -> None:
        """Take snapshots of a workspace while a terminal is open, until the workspace is at another place."""
        is_here = True
        while is_here:
            await asyncio.sleep(SAVE_SECONDS)
            with suppress(StoreError):
                is_here = await self._locality.record_change(user.id, agent)
            self._service.save_workspace(user, agent)

    # -- the server of a workspace ------------------------------------------------------------------------------------

    async def _find_agent(self, scope: Scope, route: RouteAccess, user: User) -> str:
        """Return the agent whose files a request needs; empty if they are not in a folder of one machine."""
        found = route.pattern.match(request_path(scope))
        agent = path_id = found["id"] if found is not None else ""
        try:
            if route.path.startswith("/threads"):
                agent = str((await self._service.store.head(user.id, path_id)).meta.get("agent", ""))
            return agent if agent and await self._service.registry.is_local(user, agent) else ""
        except (ApiError, StoreError) as error:
            if getattr(error, "status", 0) == 404 or error.code == "not_found":
                return ""  # the route reports it
            raise

    def _is_elsewhere(self, scope: Scope, route: RouteAccess, home: WorkspaceHome) -> bool:
        """Return True if a request is for another server; raise a 503 if that server cannot be reached."""
        if home.place == self._locality.place:
            return False
        if route.path in RUN_PATHS and (not home.alive or home.draining):
            return False  # the run brings the files here, or waits for its turn
        if not home.alive and route.path == AGENT_PATH:
            return False  # the agent is deleted, without its files
        if scope.get("wick.forwarded") or not home.alive:
            raise _moved_error()
        if not home.address:
            raise _away_error(home, "has no address for other servers", "start it with --advertise")
        return True

    # -- forwarding ---------------------------------------------------------------------------------------------------

    async def _forward(self, scope: Scope, receive: Receive, send: Send, user: User, home: WorkspaceHome) -> None:
        target = quote(request_target(scope), safe=URL_SAFE).encode()  # a client may send bytes that are not a URL
        url = URL(home.address.rstrip("/") + target.decode("ascii"), encoded=True)
        signature = self._service.forwards.sign(user, request_method(scope), target, home.place)
        is_started = False

        async def send_noted(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        relay = self._relay_socket if scope["type"] == "websocket" else self._relay_request
        try:
            await self._while_alive(home, relay(url, signature, scope, receive, send_noted))
        except (OSError, TimeoutError, aiohttp.ClientError, ConnectionClosed, InvalidHandshake) as error:
            if not is_started:
                is_unread = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
                is_safe = is_unread or request_method(scope) in ("GET", "HEAD", "WS")
                if is_safe:
                    raise _away_error(home, "does not answer") from error
                name = _server_name(home)
                problem = f"{name} broke off while it handled the request, so it may or may not have been done"
                remedy = "look at the result before you repeat it, or repeat a message with the same Idempotency-Key"
                raise ApiError(502, "forward_broken", f"{problem}; {remedy}") from error
            logger.warning("a forwarded response of %s broke off: %r", home.address, error)
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": RESTARTED, "reason": "the server of the files is away"})

    async def _while_alive(self, home: WorkspaceHome, work: Coroutine[Any, Any, None]) -> None:
        """Run work until its end; raise a TimeoutError if the other server dies, which may leave a connection open."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=WATCH_SECONDS))[0]:
                with suppress(StoreError):
                    if not await self._locality.is_alive(home.place):
                        raise TimeoutError
            await task
        finally:
            await cancel_and_wait((task,))

    async def _relay_request(self, url: URL, signature: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
                   if name not in OWN_HEADERS]  # fmt: skip
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        body = _BodyReader(receive)
        request = self._get_session().request(
            scope["method"],
            url,
            headers=[*headers, (HEADER, signature)],
            data=body.read() if has_body else None,
            allow_redirects=False,
        )
        try:
            async with request as response:
                kept = [
                    (name.lower(), value) for name, value in response.raw_headers if name.lower() not in OWN_HEADERS
                ]
                await send({"type": "http.response.start", "status": response.status, "headers": kept})
                await _until_disconnect(receive, _relay_body(response, send))
        except aiohttp.ClientError:
            if body.refusal is not None:
                raise body.refusal from None
            raise

    async def _relay_socket(self, url: URL, signature: str, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        address = url.with_scheme({"http": "ws", "https": "wss"}[url.scheme])
        connection = connect(
            str(address),
            additional_headers={HEADER: signature},
            compression=None,
            max_size=MESSAGE_BYTES,
            open_timeout=CONNECT_SECONDS,
            proxy=None,
        )
        try:
            async with connection as other:
                await send({"type": "websocket.accept"})
                await _until_disconnect(receive, _relay_messages(other, send), other)
        except InvalidStatus as refused:  # with the response of the other server
            answer = refused.response
            kept = [(name.lower().encode(), value.encode()) for name, value in answer.headers.raw_items()
                    if name.lower().encode() not in OWN_HEADERS]  # fmt: skip
            await send({"type": "websocket.http.response.start", "status": answer.status_code, "headers": kept})
            await send({"type": "websocket.http.response.body", "body": bytes(answer.body or b"")})

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = self._service.forward_session = aiohttp.ClientSession(
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._session


def _can_change(scope: Scope, route: RouteAccess) -> bool:
    """Return True if a request can change files by itself. The snapshots of runs are taken by the runs."""
    return route.path not in (*RUN_PATHS, AGENT_PATH) and request_method(scope) != "GET"


def _moved_error() -> ApiError:
    return ApiError(503, "workspace_moved", "the workspace has just moved to another server; repeat the request", RETRY)


def _away_error(home: WorkspaceHome, what: str, remedy: str = "try again in a few seconds") -> ApiError:
    message = f"the files of this workspace are on {_server_name(home)}, which {what}; {remedy}"
    return ApiError(503, "workspace_away", message, RETRY)


def _server_name(home: WorkspaceHome) -> str:
    return home.host.partition(":")[0] or "another server"


def _as_refusal(error: Exception, scope: Scope) -> ApiError:
    if isinstance(error, HTTPException):  # a body that is too large or too slow
        code = FRAMEWORK_CODES.get(error.status_code, "refused")
        return ApiError(error.status_code, code, str(error.detail))
    return resolve_error(error, scope)


class _BodyReader:
    """The body of a request. An error of the client is kept, since the HTTP client replaces it by its own."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.refusal: HTTPException | None = None

    async def read(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            try:
                message = await self._receive()
            except HTTPException as error:
                self.refusal = error
                raise
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("the client has disconnected")
            more = message.get("more_body", False)
            if piece := message.get("body", b""):
                yield piece


async def _relay_body(response: aiohttp.ClientResponse, send: Send) -> None:
    async for piece in response.content.iter_any():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _relay_messages(other: ClientConnection, send: Send) -> None:
    """Send the messages of the other server to the client, then the code with which it closes the connection."""
    with suppress(ConnectionClosed):
        while True:
            message = await other.recv()
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    code = other.close_code or GOING_AWAY
    code = GOING_AWAY if code in ABNORMAL else code
    await send({"type": "websocket.close", "code": code, "reason": other.close_reason or ""})


async def _until_disconnect(
    receive: Receive, work: Coroutine[Any, Any, None], other: ClientConnection | None = None
) -> None:
    """Run work until its end, or until the client disconnects. Messages of the client are sent to the other server."""

    async def read_client() -> None:
        while not (message := await receive())["type"].endswith(".disconnect"):
            if other is not None:
                data = message.get("bytes")
                await other.send(data if data is not None else message.get("text") or "")
        if other is not None:
            code = message.get("code", GOING_AWAY)
            await other.close(GOING_AWAY if code in ABNORMAL else code)

    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(read_client())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        await cancel_and_wait(tasks)
