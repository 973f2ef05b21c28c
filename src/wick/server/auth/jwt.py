"""Verification of JWTs that another identity provider signs. Its public keys come from a file or an https URL."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import orjson

from wick._internal.http_requests import fetch
from wick._internal.worker_threads import run_in_thread
from wick.errors import ConfigError, ToolError
from wick.server.auth.identity import Claim, parse_claim
from wick.server.errors import ApiError
from wick.server.settings import Jwt

KEYS_BYTES = 1_000_000
FRESH_SECONDS = 600.0  # keys are reloaded after this
AGAIN_SECONDS = 30.0  # for an unknown key id, after this
ASK_SECONDS = 5.0
LEEWAY_SECONDS = 30


class JwtVerifier:
    """Verifies signature, issuer, audience and times of a JWT. A token without `exp` is refused."""

    def __init__(self, settings: Jwt, clock: Callable[[], float] = time.monotonic) -> None:
        if any(name.startswith("HS") or name.lower() == "none" for name in settings.algorithms):
            raise ConfigError("jwt.algorithms names public-key algorithms only, such as RS256, ES256 and EdDSA")
        if settings.jwks.startswith("http://"):
            raise ConfigError("jwt.jwks is a file or an https address: over http the keys could be replaced in transit")
        self._settings, self._clock = settings, clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read = -FRESH_SECONDS

    async def verify_token(self, bearer: str) -> Claim | None:
        """Return the login and the role of a token, or None if it is not valid."""
        try:
            key = await self._find_key(jwt.get_unverified_header(bearer).get("kid", ""))
            if key is None:
                return None
            claims = jwt.decode(
                bearer,
                key=key,
                algorithms=[*self._settings.algorithms],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", self._settings.name_claim]},
            )
        except jwt.PyJWTError:
            return None
        return parse_claim(claims[self._settings.name_claim], claims.get(self._settings.role_claim))

    async def _find_key(self, id: Any) -> jwt.PyJWK | None:
        age = self._clock() - self._read
        if age >= FRESH_SECONDS or (id not in self._keys and age >= AGAIN_SECONDS):
            where = self._settings.jwks
            try:
                if where.startswith("https://"):
                    answer = await fetch(where, private=True, seconds=ASK_SECONDS, most_bytes=KEYS_BYTES)
                    if answer.status != 200 or answer.truncated:
                        raise _keys_unavailable(f"status {answer.status}")
                    data = answer.body
                else:
                    data = await run_in_thread(lambda: Path(where).expanduser().read_bytes(), "reading keys")
            except (OSError, ToolError) as error:
                raise _keys_unavailable(type(error).__name__) from error
            try:
                self._keys = {key.key_id or "": key for key in jwt.PyJWKSet.from_dict(orjson.loads(data)).keys}
            except (jwt.PyJWTError, ValueError, AttributeError) as error:
                why = "the keys of the sign-in service are not a JWKS document"
                message = f"{why}; set jwt.jwks to the right file or address"
                raise ApiError(503, "keys_unavailable", message) from error
            self._read = self._clock()
        if not id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(id) if isinstance(id, str) else None


def _keys_unavailable(why: str) -> ApiError:
    message = f"the keys of the sign-in service cannot be read ({why}); try again"
    return ApiError(503, "keys_unavailable", message, {"Retry-After": "2"})
