"""Access table: the role that every route requires. The server does not start with a route that has no row here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute, compile_path

from wick.errors import ConfigError
from wick.server.auth.identity import Role

Access = Literal["public"] | Role

# Sorted by path. `WS` is a WebSocket. A `public` route needs no credential.
ACCESS: tuple[tuple[str, str, Access], ...] = (
    ("GET", "/", "public"),
    ("GET", "/agents", "user"),
    ("POST", "/agents", "user"),
    ("GET", "/agents/", "user"),
    ("POST", "/agents/", "user"),
    ("GET", "/agents/events", "user"),
    ("GET", "/agents/skills/available", "user"),
    ("POST", "/agents/tools", "operator"),
    ("POST", "/agents/tools/", "operator"),
    ("GET", "/agents/tools/available", "user"),
    ("DELETE", "/agents/tools/{name}", "operator"),
    ("DELETE", "/agents/{id}", "user"),
    ("GET", "/agents/{id}", "user"),
    ("PUT", "/agents/{id}", "user"),  # agents of all users require the role of the setting agent_editors
    ("GET", "/agents/{id}/backend", "user"),
    ("PATCH", "/agents/{id}/backend", "user"),  # another container engine requires an operator
    ("GET", "/agents/{id}/config", "user"),  # of an agent of others, an operator
    ("POST", "/agents/{id}/container", "user"),
    ("DELETE", "/agents/{id}/files", "user"),
    ("GET", "/agents/{id}/files/download", "user"),
    ("GET", "/agents/{id}/files/list", "user"),
    ("POST", "/agents/{id}/files/move", "user"),
    ("GET", "/agents/{id}/files/read", "user"),
    ("POST", "/agents/{id}/files/upload", "user"),
    ("PUT", "/agents/{id}/files/write", "user"),
    ("GET", "/agents/{id}/hooks", "user"),
    ("PATCH", "/agents/{id}/hooks", "user"),  # capabilities that confine an agent require an operator
    ("POST", "/agents/{id}/invoke", "user"),
    ("GET", "/agents/{id}/limits", "user"),
    ("GET", "/agents/{id}/onion", "user"),
    ("GET", "/agents/{id}/permissions", "user"),
    ("DELETE", "/agents/{id}/permissions/grants/{grant}", "user"),
    ("GET", "/agents/{id}/skills", "user"),
    ("PATCH", "/agents/{id}/skills", "user"),
    ("POST", "/agents/{id}/skills", "user"),
    ("POST", "/agents/{id}/slides/export", "user"),
    ("POST", "/agents/{id}/stream", "user"),
    ("WS", "/agents/{id}/terminal", "user"),
    ("GET", "/approvals", "user"),
    ("POST", "/approvals/{id}", "user"),
    ("GET", "/auth/me", "user"),
    ("DELETE", "/auth/session", "user"),
    ("POST", "/auth/session", "public"),
    ("POST", "/auth/tickets", "user"),
    ("GET", "/canvas/frame", "public"),
    ("GET", "/cluster", "admin"),
    ("GET", "/docs", "user"),
    ("POST", "/drain", "admin"),
    ("GET", "/evals", "operator"),  # reports may quote threads of any user
    ("GET", "/evals/{name}", "operator"),
    ("GET", "/events", "user"),
    ("GET", "/health", "public"),
    ("GET", "/health/live", "public"),
    ("GET", "/health/ready", "public"),
    ("GET", "/metrics", "operator"),
    ("GET", "/models", "user"),
    ("GET", "/openapi.json", "user"),
    ("POST", "/replay", "user"),
    ("GET", "/runs/{id}", "user"),
    ("POST", "/runs/{id}/cancel", "user"),
    ("GET", "/runs/{id}/events", "user"),
    ("GET", "/runs/{id}/spans/{path}", "user"),
    ("GET", "/runs/{id}/trace", "user"),
    ("GET", "/settings/agent-form", "user"),
    ("GET", "/settings/providers", "admin"),
    ("DELETE", "/settings/providers/{provider}", "admin"),
    ("PUT", "/settings/providers/{provider}", "admin"),
    ("POST", "/settings/providers/{provider}/test", "admin"),
    ("POST", "/settings/tokens", "admin"),
    ("DELETE", "/settings/tokens/{token}", "admin"),
    ("GET", "/settings/users", "admin"),
    ("POST", "/shared", "public"),  # with the secret of a link
    ("GET", "/static/{path:path}", "public"),
    ("GET", "/threads", "user"),
    ("GET", "/threads/search", "user"),
    ("DELETE", "/threads/{id}", "user"),
    ("GET", "/threads/{id}", "user"),
    ("PATCH", "/threads/{id}", "user"),
    ("GET", "/threads/{id}/calls/{call_id}/why", "user"),
    ("GET", "/threads/{id}/export", "user"),
    ("GET", "/threads/{id}/files", "user"),
    ("POST", "/threads/{id}/files/restore", "user"),
    ("POST", "/threads/{id}/fork", "user"),
    ("POST", "/threads/{id}/messages", "user"),
    ("POST", "/threads/{id}/rewind", "user"),
    ("GET", "/threads/{id}/runs", "user"),
    ("GET", "/threads/{id}/search", "user"),
    ("GET", "/threads/{id}/shares", "user"),
    ("POST", "/threads/{id}/shares", "user"),
    ("DELETE", "/threads/{id}/shares/{share}", "user"),
    ("POST", "/threads/{id}/switch", "user"),
    ("GET", "/usage", "user"),
    ("POST", "/v1/chat/completions", "user"),
    ("GET", "/v1/models", "user"),
    ("GET", "/v1/models/{id}", "user"),
)


@dataclass(frozen=True, slots=True)
class RouteAccess:
    """A route and the access that it requires."""

    pattern: re.Pattern[str]
    method: str
    path: str
    access: Access


class AccessTable:
    """The routes of an app with their access, in the order in which the router tries them."""

    def __init__(self, routes: Sequence[BaseRoute], table: Iterable[tuple[str, str, Access]] = ACCESS) -> None:
        known = {(method, path): access for method, path, access in table}
        self.all: list[RouteAccess] = []
        for method, path in (place for route in routes for place in route_methods(route)):
            access = known.get((method, path))
            if access is None:
                raise ConfigError(f"{method} {path} has no row in ACCESS; add one with the role that it requires")
            self.all.append(RouteAccess(compile_path(path)[0], method, path, access))
        self._plain = {(row.method, row.path): row for row in self.all if "{" not in row.path}
        self._patterns = [row for row in self.all if "{" in row.path]

    def find(self, method: str, path: str) -> RouteAccess | None:
        """Return the access of the route that matches a request, or None if no route matches."""
        if found := self._plain.get((method, path)):
            return found
        return next((row for row in self._patterns if row.method == method and row.pattern.match(path)), None)


def route_methods(route: BaseRoute) -> list[tuple[str, str]]:
    """Return each method of a route with its path."""
    if isinstance(route, WebSocketRoute):
        return [("WS", route.path)]
    if isinstance(route, Route):
        return [(method, route.path) for method in sorted(route.methods or ()) if method != "HEAD"]
    if isinstance(route, Mount):
        return [("GET", f"{route.path}/{{path:path}}")]
    raise ConfigError(f"{route!r} is not a kind of route that the access table supports")


def sort_routes(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Sort literal path segments before variables, so that `/agents/{id}` does not shadow `/agents/events`."""
    return sorted(routes, key=lambda route: [part.startswith("{") for part in getattr(route, "path", "").split("/")])
