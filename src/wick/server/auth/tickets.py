"""One-use tickets: 30 seconds for a WebSocket or an EventSource, 10 minutes for signing in."""

from __future__ import annotations

import time
from collections.abc import Callable

from wick.server.auth.identity import User
from wick.server.auth.signed_cookies import decrypt, encrypt, new_secret, secret_id
from wick.server.records import Records

TICKET_SECONDS = 30.0
SIGN_IN_SECONDS = 600.0


class Tickets:
    """Issues and redeems tickets. Of two concurrent requests with the same ticket, one succeeds."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.time) -> None:
        self._records, self._clock = records, clock

    async def issue(self, user: User) -> str:
        """Return a ticket that authenticates one request of a user."""
        ticket = new_secret()
        data = {"id": user.id, "name": user.name, "role": user.role}
        await self._records.put("ticket", user.id, secret_id(ticket), data, until=self._clock() + TICKET_SECONDS)
        return ticket

    async def redeem(self, ticket: str) -> User | None:
        found = await self._records.take("ticket", secret_id(ticket))
        return None if found is None else User(**found[1])

    async def issue_sign_in(self, bearer: str) -> str:
        """Return a ticket that can be exchanged for a session, as in a sign-in link."""
        ticket = new_secret()
        until = self._clock() + SIGN_IN_SECONDS
        await self._records.put("sign_in", "", secret_id(ticket), {"bearer": encrypt(ticket, bearer)}, until=until)
        return ticket

    async def redeem_sign_in(self, ticket: str) -> str | None:
        """Return the bearer token of a sign-in ticket, or None if it is unknown, used or expired."""
        found = await self._records.take("sign_in", secret_id(ticket))
        return None if found is None else decrypt(ticket, found[1]["bearer"])
