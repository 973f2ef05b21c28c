"""Token verification by a gateway: each token is sent to its `/auth/me`, which returns the login and the role."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson

from wick.server.auth.identity import Claim, parse_claim
from wick.server.auth.signed_cookies import secret_id
from wick.server.errors import ApiError

CACHE_SECONDS = 10.0
ASK_SECONDS = 5.0
MAX_RESPONSE_BYTES = 64_000
MAX_CACHED = 10_000


class GatewayVerifier:
    """Verifies tokens with a gateway and caches each reply for ten seconds. Without a reply a token is refused."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url.rstrip("/") + "/auth/me"
        self._clock = clock
        self._known: dict[str, tuple[float, Claim | None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._asking: dict[str, asyncio.Lock] = {}

    async def verify_token(self, bearer: str) -> Claim | None:
        """Return the login and the role of a token, or None if the gateway rejects it."""
        name = secret_id(bearer)
        # concurrent requests with the same token share one lookup
        async with self._asking.setdefault(name, asyncio.Lock()):
            try:
                until, known = self._known.get(name, (0.0, None))
                if self._clock() < until:
                    return known
                self._known.pop(name, None)
                claim = await self._ask_gateway(bearer)
                if len(self._known) >= MAX_CACHED:
                    self._known.clear()
                self._known[name] = (self._clock() + CACHE_SECONDS, claim)
                return claim
            finally:
                self._asking.pop(name, None)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask_gateway(self, bearer: str) -> Claim | None:
        """Request `{"username": …, "role": …}`."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        try:
            headers = {"Authorization": f"Bearer {bearer}", "Accept": "application/json"}
            async with self._session.get(self._url, headers=headers, allow_redirects=False) as answer:
                if answer.status in (401, 403):
                    return None
                if answer.status != 200:
                    raise _gateway_unavailable(f"it answered {answer.status}")
                body = bytearray()
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise _gateway_unavailable(f"it sent more than {MAX_RESPONSE_BYTES:,} bytes")
                data: Any = orjson.loads(bytes(body))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise _gateway_unavailable(type(error).__name__) from error
        return parse_claim(data.get("username"), data.get("role")) if isinstance(data, dict) else None


def _gateway_unavailable(why: str) -> ApiError:
    message = f"the authentication gateway does not answer ({why}); try again"
    return ApiError(503, "gateway_unavailable", message, {"Retry-After": "2"})
