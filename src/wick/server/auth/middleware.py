"""The one way in, over HTTP and WebSocket alike: right host, right origin, a credential that holds, a role that may.

It stands outside of everything else. What is not listed as public is denied to whoever shows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from wick.server.auth.access_table import Door, Doors
from wick.server.auth.browser_sessions import Browsers
from wick.server.auth.credentials import Credential, header, shown
from wick.server.auth.identity import User
from wick.server.auth.signed_cookies import name_of
from wick.server.auth.tickets import Tickets
from wick.server.auth.tokens import Verifier
from wick.server.errors import ApiError, explained
from wick.server.http.middleware import refuse
from wick.server.ops.metrics import Metrics
from wick.server.ops.quotas import Limits
from wick.server.settings import Settings

REMEMBER_SECONDS = 5.0  # for which a cookie that was good is taken to be good
MOST_REMEMBERED = 10_000


class Guests:
    """Finds out who has come, by what they show."""

    def __init__(self, verifier: Verifier, browsers: Browsers, tickets: Tickets) -> None:
        self.verifier, self.browsers, self.tickets = verifier, browsers, tickets
        self._remembered: dict[str, tuple[float, User]] = {}

    async def user(self, credential: Credential | None) -> User | None:
        if credential is None:
            return None
        if credential.kind == "bearer":
            return await self.verifier.user(credential.value)
        if credential.kind == "ticket":
            return await self.tickets.redeem(credential.value)
        return await self._with_cookie(credential.value)

    async def sign_out(self, cookie: str) -> None:
        self._remembered.pop(name_of(cookie), None)
        await self.browsers.sign_out(cookie)

    async def _with_cookie(self, cookie: str) -> User | None:
        name, now = name_of(cookie), time.monotonic()
        until, known = self._remembered.get(name, (0.0, None))
        if known is not None and now < until:
            return known
        self._remembered.pop(name, None)
        bearer = await self.browsers.bearer(cookie)
        user = await self.verifier.user(bearer) if bearer else None
        if user is not None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[name] = (now + REMEMBER_SECONDS, user)
        return user


class Auth:
    """Lets in who may come in, and says who they are in `scope["wick.user"]`."""

    def __init__(
        self, app: ASGIApp, settings: Settings, guests: Guests, doors: Doors, limits: Limits, metrics: Metrics
    ) -> None:
        self._app, self._guests, self._doors, self._limits, self._metrics = app, guests, doors, limits, metrics
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._origins = frozenset(settings.cors_origins)
        self._cookie = cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            await self._let_in(scope)
        except Exception as error:  # whatever it is, nobody is let in
            told = explained(error, scope)
            self._metrics.add("wick_refused_total", code=told.code)
            await refuse(told, scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _let_in(self, scope: Scope) -> None:
        self._check_host(scope)
        self._check_origin(scope)
        door = self._doors.of(method_of(scope), path_of(scope))
        scope["wick.door"] = door
        if door is not None and door.access == "public":
            return
        user = await self._guests.user(shown(scope, self._cookie))
        if user is None:
            raise _unknown()
        _check_role(door, user)
        self._limits.request(user.id)
        scope["wick.user"] = user

    def _check_host(self, scope: Scope) -> None:
        host = header(scope["headers"], b"host").lower()
        if not host or not {host, without_port(host)} & self._hosts:
            message = "the server does not answer under this name; add it to `hosts:` in server.yaml if it should"
            raise ApiError(421, "wrong_host", message)

    def _check_origin(self, scope: Scope) -> None:
        """A page of another origin asks for nothing here, unless it is listed."""
        if not any(name == b"origin" for name, _ in scope["headers"]):
            return
        origin, host = header(scope["headers"], b"origin"), header(scope["headers"], b"host")
        if origin in self._origins or origin.lower() in own_origins(host):
            return
        raise ApiError(403, "wrong_origin", "a page of another origin may not ask for this; see `cors_origins`")


def _check_role(door: Door | None, user: User) -> None:
    """Behind a wall there is nothing to have a role for: the app says so."""
    if door is None or door.access == "public" or user.may(door.access):
        return
    raise ApiError(403, "forbidden", f"this takes the role {door.access}, and you have the role {user.role}")


def _unknown() -> ApiError:
    message = "sign in first: send a token as `Authorization: Bearer …`"
    return ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


def method_of(scope: Scope) -> str:
    return "WS" if scope["type"] == "websocket" else str(scope["method"])


def path_of(scope: Scope) -> str:
    """The path within the app, also where the app is mounted in another."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (name.endswith("]") or ":" not in name) else host


def own_origins(host: str) -> Iterable[str]:
    return (f"http://{host.lower()}", f"https://{host.lower()}")


def cookie_name(settings: Settings) -> str:
    """The ports of a machine share their cookies, so each server has a name of its own for it."""
    return f"wick_session_{settings.port}"
