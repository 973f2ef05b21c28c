"""Authentication of requests that one server of a cluster forwards to another, for a user that it has authenticated.

    header = signer.sign(user, "GET", b"/agents/a/files/list?path=.", place)
    user = signer.verify(header, "GET", b"/agents/a/files/list?path=.")

The header names the user, and is signed with a secret that only servers know. It is valid for one request to one place,
for a minute, and a server accepts it once.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from secrets import token_hex
from time import time
from urllib.parse import quote

import orjson
from starlette.types import Scope

from wick.server.auth.identity import ROLES, User
from wick.server.errors import ApiError

HEADER = "X-Wick-Forward"
VALID_SECONDS = 60.0


class ForwardSigner:
    """Signs and verifies forwarded requests. It refuses all of them until it has a secret."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._key, self.place = b"", ""
        self._used: dict[str, float] = {}  # headers by their end, the oldest first

    def start(self, secret: str, place: str) -> None:
        """Use this secret, and accept requests for this place."""
        self._key, self.place = sha256(f"wick forward {secret}".encode()).digest(), place

    def sign(self, user: User, method: str, target: bytes, place: str) -> str:
        """Return the header for a request of a user: `target` is its path with the query."""
        row = {"id": user.id, "name": user.name, "role": user.role, "until": self._clock() + VALID_SECONDS}
        payload = urlsafe_b64encode(orjson.dumps(row | {"once": token_hex(8)}))
        return f"{payload.decode()}.{self._compute_signature(payload, method, target, place)}"

    def verify(self, header: str, method: str, target: bytes) -> User:
        """Return the user of a forwarded request to this place; raise a 403 if it is forged, too old or repeated."""
        payload, _, signature = header.partition(".")
        expected = self._compute_signature(payload.encode("latin-1"), method, target, self.place)
        if not self._key or not hmac.compare_digest(signature.encode("latin-1"), expected.encode()):
            remedy = "let all servers have the same `cluster_secret`, and each an `advertise` of its own"
            raise _refusal(f"its signature is not valid; {remedy}")
        row, now = orjson.loads(urlsafe_b64decode(payload)), self._clock()
        if not now <= row["until"] <= now + 2 * VALID_SECONDS or row["role"] not in ROLES:
            raise _refusal("it is too old, or the clocks of the servers differ by a minute; synchronize them")
        while self._used and next(iter(self._used.values())) < now - VALID_SECONDS:  # two clocks may differ
            del self._used[next(iter(self._used))]
        if signature in self._used:
            raise _refusal("it was used before; each request is signed anew")
        self._used[signature] = row["until"]
        return User(row["id"], row["name"], row["role"])

    def _compute_signature(self, payload: bytes, method: str, target: bytes, place: str) -> str:
        signed = b"\n".join((payload, method.encode(), target, place.encode()))
        return hmac.new(self._key, signed, sha256).hexdigest()


def _refusal(problem: str) -> ApiError:
    return ApiError(403, "bad_forward", f"only servers of the cluster send {HEADER}: {problem}")


def request_target(scope: Scope) -> bytes:
    """Return the path and the query of a request as they were sent."""
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    return path + (b"?" + query if query else b"")
