"""What a request shows to get in: a bearer token, a cookie or a one-use ticket. Only this module reads them."""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Literal
from urllib.parse import parse_qs

MAX_CREDENTIAL_CHARS = 16_000  # of a credential: a JWT with many claims is long


@dataclass(frozen=True, slots=True)
class Credential:
    """Something that was shown, and how."""

    kind: Literal["bearer", "cookie", "ticket"]
    value: str


def read_credential(scope: Any, cookie: str) -> Credential | None:
    """The credential of a request; one in a header counts before a cookie, and that before a ticket."""
    headers = scope["headers"]
    bearer = _parse_bearer(read_header(headers, b"authorization"))
    if bearer is not None:
        return Credential("bearer", bearer)
    if value := _parse_cookie(read_header(headers, b"cookie"), cookie):
        return Credential("cookie", value)
    if scope.get("method", "GET") == "GET" and (value := _parse_ticket(scope.get("query_string", b""))):
        return Credential("ticket", value)  # for what can send no header: a WebSocket, an EventSource
    return None


def read_header(headers: Any, name: bytes) -> str:
    """A header that stands there once; one that stands there twice says nothing that can be trusted."""
    found = [value for key, value in headers if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _parse_bearer(value: str) -> str | None:
    """The token of an Authorization header; empty if there is such a header and it says something else."""
    if not value:
        return None
    scheme, _, token = value.partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and 0 < len(token) <= MAX_CREDENTIAL_CHARS else ""


def _parse_cookie(value: str, name: str) -> str:
    """The cookie of this server; or else of another one that shares its sessions, if there is one and no more."""
    prefix = name.rpartition("_")[0]
    if len(value) > MAX_CREDENTIAL_CHARS or prefix not in value:
        return ""
    try:
        found = SimpleCookie(value)
    except CookieError:
        return ""
    like = [one.value for key, one in found.items() if key.startswith(f"{prefix}_")]
    return found[name].value if name in found else like[0] if len(like) == 1 else ""


def _parse_ticket(query: bytes) -> str:
    if b"ticket=" not in query or len(query) > MAX_CREDENTIAL_CHARS:
        return ""
    found = parse_qs(query.decode("latin-1"), max_num_fields=100).get("ticket", []) if query.count(b"&") < 100 else []
    return found[0] if len(found) == 1 else ""
