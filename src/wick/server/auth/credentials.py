"""Credentials of a request: bearer token, session cookie or one-use ticket. Only this module parses them."""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Literal
from urllib.parse import parse_qs

MAX_CREDENTIAL_CHARS = 16_000  # a JWT with many claims is long


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential and the way in which it was sent."""

    kind: Literal["bearer", "cookie", "ticket"]
    value: str


def read_credential(scope: Any, cookie: str) -> Credential | None:
    """Return the credential of a request: the Authorization header, else the cookie, else the ticket.

    A ticket is for a browser's WebSocket or EventSource, which cannot send headers.
    """
    headers = scope["headers"]
    if authorization := read_header(headers, b"authorization"):
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        valid = scheme.lower() == "bearer" and 0 < len(token) <= MAX_CREDENTIAL_CHARS
        return Credential("bearer", token if valid else "")  # the cookie does not replace an invalid header
    if value := _parse_cookie(read_header(headers, b"cookie"), cookie):
        return Credential("cookie", value)
    query = scope.get("query_string", b"")
    if scope.get("method", "GET") != "GET" or b"ticket=" not in query:
        return None
    if len(query) > MAX_CREDENTIAL_CHARS or query.count(b"&") >= 100:
        return None
    tickets = parse_qs(query.decode("latin-1"), max_num_fields=100).get("ticket", [])
    return Credential("ticket", tickets[0]) if len(tickets) == 1 else None


def read_header(headers: Any, name: bytes) -> str:
    """Return the value of a header, or an empty string if it is missing or repeated."""
    found = [value for key, value in headers if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _parse_cookie(value: str, name: str) -> str:
    """Return the session cookie of this server, else the only one of a server that shares its sessions."""
    prefix = name.rpartition("_")[0]
    if len(value) > MAX_CREDENTIAL_CHARS or prefix not in value:
        return ""
    try:
        found = SimpleCookie(value)
    except CookieError:
        return ""
    like = [one.value for key, one in found.items() if key.startswith(f"{prefix}_")]
    return found[name].value if name in found else like[0] if len(like) == 1 else ""
