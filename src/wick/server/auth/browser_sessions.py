"""Browser sessions: a cookie refers to the bearer token of the sign-in, which is verified again on every request."""

from __future__ import annotations

import time
from collections.abc import Callable

from wick.server.auth.signed_cookies import decrypt, encrypt, new_secret, secret_id
from wick.server.records import Records

KIND = "browser"
SESSION_SECONDS = 14 * 86_400.0


class BrowserSessions:
    """Session cookies. The stored bearer token can only be decrypted with the cookie itself."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.time) -> None:
        self._records, self._clock = records, clock

    async def sign_in(self, bearer: str) -> str:
        """Create a session for a verified token and return its cookie."""
        cookie = new_secret()
        until = self._clock() + SESSION_SECONDS
        await self._records.put(KIND, "", secret_id(cookie), {"bearer": encrypt(cookie, bearer)}, until=until)
        return cookie

    async def load_bearer(self, cookie: str) -> str | None:
        """Return the bearer token of a session, or None if the cookie is unknown or expired."""
        found = await self._records.get(KIND, "", secret_id(cookie))
        return None if found is None else decrypt(cookie, found["bearer"])

    async def sign_out(self, cookie: str) -> None:
        await self._records.delete(KIND, "", secret_id(cookie))
