"""Browsers that have signed in: a cookie stands for the token that was shown, which is checked each time as if sent."""

from __future__ import annotations

import time
from collections.abc import Callable

from wick.server.auth.signed_cookies import decrypt, encrypt, new_secret, secret_id
from wick.server.records import Records

KIND = "browser"
SESSION_SECONDS = 14 * 86_400.0


class BrowserSessions:
    """The cookies that were given out. What is kept of one opens only with the cookie itself."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.time) -> None:
        self._records, self._clock = records, clock

    async def sign_in(self, bearer: str) -> str:
        """A cookie for somebody who has shown this token."""
        cookie = new_secret()
        until = self._clock() + SESSION_SECONDS
        await self._records.put(KIND, "", secret_id(cookie), {"bearer": encrypt(cookie, bearer)}, until=until)
        return cookie

    async def load_bearer(self, cookie: str) -> str | None:
        """The token that a cookie stands for."""
        found = await self._records.get(KIND, "", secret_id(cookie))
        return None if found is None else decrypt(cookie, found["bearer"])

    async def sign_out(self, cookie: str) -> None:
        await self._records.delete(KIND, "", secret_id(cookie))
