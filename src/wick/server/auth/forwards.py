"""Authentication of requests that one server of a cluster forwards to another, for a user that it has authenticated.

    header = signer.sign(user, "GET", b"/agents/a/files/list?path=.", place)
    user = signer.verify(header, "GET", b"/agents/a/files/list?path=.")

The header names the user, and is signed with a secret that only servers know. It is valid for one request to one place,
for a minute.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from time import time
from urllib.parse import quote

import orjson
from starlette.types import Scope

from wick.server.auth.identity import ROLES, User

HEADER = "X-Wick-Forward"
VALID_SECONDS = 60.0


class ForwardSigner:
    """Signs and verifies forwarded requests. It refuses all of them until it has a secret."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._key, self.place = b"", ""

    def start(self, secret: str, place: str) -> None:
        """Use this secret, and accept requests for this place."""
        self._key, self.place = sha256(f"wick forward {secret}".encode()).digest(), place

    def sign(self, user: User, method: str, target: bytes, place: str) -> str:
        """Return the header for a request of a user: `target` is its path with the query."""
        row = {"id": user.id, "name": user.name, "role": user.role, "until": self._clock() + VALID_SECONDS}
        payload = urlsafe_b64encode(orjson.dumps(row))
        return f"{payload.decode()}.{self._compute_signature(payload, method, target, place)}"

    def verify(self, header: str, method: str, target: bytes) -> User | None:
        """Return the user of a forwarded request to this place, or None if the header is forged or too old."""
        payload, _, signature = header.partition(".")
        expected = self._compute_signature(payload.encode("latin-1"), method, target, self.place)
        if not self._key or not hmac.compare_digest(signature.encode("latin-1"), expected.encode()):
            return None
        row = orjson.loads(urlsafe_b64decode(payload))
        if row["until"] < self._clock() or row["role"] not in ROLES:
            return None
        return User(row["id"], row["name"], row["role"])

    def _compute_signature(self, payload: bytes, method: str, target: bytes, place: str) -> str:
        signed = b"\n".join((payload, method.encode(), target, place.encode()))
        return hmac.new(self._key, signed, sha256).hexdigest()


def request_target(scope: Scope) -> bytes:
    """Return the path and the query of a request as they were sent."""
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    return path + (b"?" + query if query else b"")
