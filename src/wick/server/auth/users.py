"""Users by login: each login gets an internal id once, which owns the user's data."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from wick.server.auth.identity import Role, User
from wick.server.records import Records

KIND = "user"
MAX_CACHED = 10_000


class Users:
    """Maps logins to user ids. The same login of two providers is two users."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._ids: dict[tuple[str, str], str] = {}

    async def get_or_create(self, provider: str, login: str, role: Role) -> User:
        """Return the user of a login that a provider has verified. Create the id on the first sign-in."""
        key = (provider, login)
        if key not in self._ids:
            id = f"u_{secrets.token_hex(8)}"
            if await self._records.put(KIND, provider, login, {"id": id}, new=True):
                await self._records.put("user_name", "", id, {"name": login, "provider": provider})
            else:
                row = await self._records.get(KIND, provider, login)
                assert row is not None, "user records are never deleted"
                id = str(row["id"])
            if len(self._ids) >= MAX_CACHED:
                self._ids.clear()
            self._ids[key] = id
        return User(self._ids[key], login, role)

    async def list(self) -> Sequence[tuple[str, str, str]]:
        """Return the provider, the login and the id of the first users, at most 1,000."""
        return [(row.owner, row.id, str(row.data["id"])) for row in await self._records.list(KIND)]

    async def name(self, id: str) -> str:
        """Return the login of a user id, or the id itself if it is unknown."""
        found = await self._records.get("user_name", "", id)
        return str(found["name"]) if found else id
