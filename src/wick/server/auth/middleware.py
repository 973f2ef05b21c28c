"""The one way in, over HTTP and WebSocket alike: right host, right origin, a credential that holds, a role that may.

It stands outside of everything else. What is not listed as public is denied to whoever shows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from wick.server.auth.access_table import AccessTable, RouteAccess
from wick.server.auth.browser_sessions import BrowserSessions
from wick.server.auth.credentials import Credential, read_credential, read_header
from wick.server.auth.identity import User
from wick.server.auth.signed_cookies import secret_id
from wick.server.auth.tickets import Tickets
from wick.server.auth.tokens import TokenVerifier
from wick.server.errors import ApiError, resolve_error
from wick.server.http.middleware import send_error
from wick.server.ops.metrics import Metrics
from wick.server.ops.quotas import QuotaLimiter
from wick.server.settings import Settings

CACHE_SECONDS = 5.0  # for which a cookie that was good is taken to be good
MAX_CACHED = 10_000


class Authenticator:
    """Finds out who has come, by what they show."""

    def __init__(self, verifier: TokenVerifier, browsers: BrowserSessions, tickets: Tickets) -> None:
        self.verifier, self.browsers, self.tickets = verifier, browsers, tickets
        self._remembered: dict[str, tuple[float, User]] = {}

    async def authenticate(self, credential: Credential | None) -> User | None:
        if credential is None:
            return None
        if credential.kind == "bearer":
            return await self.verifier.authenticate(credential.value)
        if credential.kind == "ticket":
            return await self.tickets.redeem(credential.value)
        return await self._authenticate_cookie(credential.value)

    async def sign_out(self, cookie: str) -> None:
        self._remembered.pop(secret_id(cookie), None)
        await self.browsers.sign_out(cookie)

    async def _authenticate_cookie(self, cookie: str) -> User | None:
        name, now = secret_id(cookie), time.monotonic()
        until, known = self._remembered.get(name, (0.0, None))
        if known is not None and now < until:
            return known
        self._remembered.pop(name, None)
        bearer = await self.browsers.load_bearer(cookie)
        user = await self.verifier.authenticate(bearer) if bearer else None
        if user is not None:
            if len(self._remembered) >= MAX_CACHED:
                self._remembered.clear()
            self._remembered[name] = (now + CACHE_SECONDS, user)
        return user


class AuthMiddleware:
    """Lets in who may come in, and says who they are in `scope["wick.user"]`."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        guests: Authenticator,
        doors: AccessTable,
        limits: QuotaLimiter,
        metrics: Metrics,
    ) -> None:
        self._app, self._authenticator, self._access, self._limits, self._metrics = app, guests, doors, limits, metrics
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._origins = frozenset(settings.cors_origins)
        self._cookie = session_cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            await self._authorize(scope)
        except Exception as error:  # whatever it is, nobody is let in
            told = resolve_error(error, scope)
            self._metrics.add("wick_refused_total", code=told.code)
            await send_error(told, scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _authorize(self, scope: Scope) -> None:
        self._check_host(scope)
        self._check_origin(scope)
        door = self._access.find(request_method(scope), request_path(scope))
        scope["wick.route_access"] = door
        if door is not None and door.access == "public":
            return
        user = await self._authenticator.authenticate(read_credential(scope, self._cookie))
        if user is None:
            raise _unauthorized()
        _check_role(door, user)
        self._limits.count_request(user.id)
        scope["wick.user"] = user

    def _check_host(self, scope: Scope) -> None:
        host = read_header(scope["headers"], b"host").lower()
        if not host or not {host, strip_port(host)} & self._hosts:
            message = "the server does not answer under this name; add it to `hosts:` in server.yaml if it should"
            raise ApiError(421, "wrong_host", message)

    def _check_origin(self, scope: Scope) -> None:
        """A page of another origin asks for nothing here, unless it is listed."""
        if not any(name == b"origin" for name, _ in scope["headers"]):
            return
        origin, host = read_header(scope["headers"], b"origin"), read_header(scope["headers"], b"host")
        if origin in self._origins or origin.lower() in same_origins(host):
            return
        raise ApiError(403, "wrong_origin", "a page of another origin may not ask for this; see `cors_origins`")


def _check_role(door: RouteAccess | None, user: User) -> None:
    """Behind a wall there is nothing to have a role for: the app says so."""
    if door is None or door.access == "public" or user.has_role(door.access):
        return
    raise ApiError(403, "forbidden", f"this takes the role {door.access}, and you have the role {user.role}")


def _unauthorized() -> ApiError:
    message = "sign in first: send a token as `Authorization: Bearer …`"
    return ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


def request_method(scope: Scope) -> str:
    return "WS" if scope["type"] == "websocket" else str(scope["method"])


def request_path(scope: Scope) -> str:
    """The path within the app, also where the app is mounted in another."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (name.endswith("]") or ":" not in name) else host


def same_origins(host: str) -> Iterable[str]:
    return (f"http://{host.lower()}", f"https://{host.lower()}")


def session_cookie_name(settings: Settings) -> str:
    """The ports of a machine share their cookies, so each server has a name of its own for it."""
    return f"wick_session_{settings.port}"
