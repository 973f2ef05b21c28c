"""Authentication middleware for HTTP and WebSocket: checks the host, the origin, the credential and the role.

It wraps the whole app. Every route that is not listed as public requires a credential.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from wick.server.auth.access_table import AccessTable, RouteAccess
from wick.server.auth.browser_sessions import BrowserSessions
from wick.server.auth.credentials import Credential, read_credential, read_header
from wick.server.auth.forwards import HEADER, ForwardSigner, request_target
from wick.server.auth.identity import User
from wick.server.auth.signed_cookies import secret_id
from wick.server.auth.tickets import Tickets
from wick.server.auth.tokens import TokenVerifier
from wick.server.errors import ApiError, resolve_error
from wick.server.http.middleware import send_error
from wick.server.ops.metrics import Metrics
from wick.server.ops.quotas import QuotaLimiter
from wick.server.settings import Settings

CACHE_SECONDS = 5.0  # a verified cookie is not verified again for this long
MAX_CACHED = 10_000
FORWARDED = HEADER.lower().encode()


class Authenticator:
    """Finds the user of a credential. Verified cookies are cached for a few seconds."""

    def __init__(self, verifier: TokenVerifier, browsers: BrowserSessions, tickets: Tickets) -> None:
        self.verifier, self.browsers, self.tickets = verifier, browsers, tickets
        self._remembered: dict[str, tuple[float, User]] = {}

    async def authenticate(self, credential: Credential | None) -> User | None:
        """Return the user of a credential, or None if it is missing or not valid."""
        if credential is None:
            return None
        if credential.kind == "bearer":
            return await self.verifier.authenticate(credential.value)
        if credential.kind == "ticket":
            return await self.tickets.redeem(credential.value)
        name, now = secret_id(credential.value), time.monotonic()
        until, known = self._remembered.get(name, (0.0, None))
        if known is not None and now < until:
            return known
        self._remembered.pop(name, None)
        bearer = await self.browsers.load_bearer(credential.value)
        user = await self.verifier.authenticate(bearer) if bearer else None
        if user is not None:
            if len(self._remembered) >= MAX_CACHED:
                self._remembered.clear()
            self._remembered[name] = (now + CACHE_SECONDS, user)
        return user

    async def sign_out(self, cookie: str) -> None:
        self._remembered.pop(secret_id(cookie), None)
        await self.browsers.sign_out(cookie)


class AuthMiddleware:
    """Refuses unauthorized requests and stores the user of the others in `scope["wick.user"]`."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        authenticator: Authenticator,
        access: AccessTable,
        limits: QuotaLimiter,
        metrics: Metrics,
        forwards: ForwardSigner,
    ) -> None:
        self._app, self._authenticator, self._access, self._forwards = app, authenticator, access, forwards
        self._limits, self._metrics = limits, metrics
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._origins = frozenset(settings.cors_origins)
        self._cookie = session_cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            await self._authorize(scope)
        except Exception as error:  # fail closed: any error refuses the request
            refusal = resolve_error(error, scope)
            self._metrics.refused.labels(refusal.code).inc()
            await send_error(refusal, scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _authorize(self, scope: Scope) -> None:
        """Set the route access and the user of a request; raise an ApiError if it is refused."""
        headers = scope["headers"]
        if any(name == FORWARDED for name, _ in headers):  # the host, the origin and the rate were checked there
            self._authorize_forwarded(scope, read_header(headers, FORWARDED))
            return
        host = read_header(headers, b"host").lower()
        if not host or not {host, strip_port(host)} & self._hosts:
            message = "the server does not answer under this name; add it to `hosts:` in server.yaml if it should"
            raise ApiError(421, "wrong_host", message)
        if any(name == b"origin" for name, _ in headers):
            origin = read_header(headers, b"origin")
            if origin not in self._origins and origin.lower() not in same_origins(host):
                message = "a page of another origin may not ask for this; see `cors_origins`"
                raise ApiError(403, "wrong_origin", message)
        route = self._access.find(request_method(scope), request_path(scope))
        scope["wick.route_access"] = route
        if route is not None and route.access == "public":
            return
        user = await self._authenticator.authenticate(read_credential(scope, self._cookie))
        if user is None:
            message = "sign in first: send a token as `Authorization: Bearer …`"
            raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
        check_role(user, route)
        await self._limits.take_request(user.id)
        scope["wick.user"] = user

    def _authorize_forwarded(self, scope: Scope, header: str) -> None:
        """Set the user of a request that another server has forwarded; raise an ApiError if its header is not valid."""
        user = self._forwards.verify(header, request_method(scope), request_target(scope))
        scope["wick.route_access"] = route = self._access.find(request_method(scope), request_path(scope))
        check_role(user, route)
        scope["wick.user"], scope["wick.forwarded"] = user, True


def check_role(user: User, route: RouteAccess | None) -> None:
    """Raise a 403 if a route requires another role."""
    if route is not None and route.access != "public" and not user.has_role(route.access):
        message = f"this takes the role {route.access}, and you have the role {user.role}"
        raise ApiError(403, "forbidden", message)


def request_method(scope: Scope) -> str:
    return "WS" if scope["type"] == "websocket" else str(scope["method"])


def request_path(scope: Scope) -> str:
    """Return the path inside the app, without the prefix under which it may be mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (name.endswith("]") or ":" not in name) else host


def same_origins(host: str) -> Iterable[str]:
    return (f"http://{host.lower()}", f"https://{host.lower()}")


def session_cookie_name(settings: Settings) -> str:
    """Return the name of the session cookie. It holds the port, since all ports of a host share their cookies."""
    return f"wick_session_{settings.port}"
