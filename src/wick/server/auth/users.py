"""Who a login is: an internal id, made once, that owns everything they make."""

from __future__ import annotations

import secrets

from wick.server.auth.identity import Role, User
from wick.server.records import Records

KIND = "user"
MAX_CACHED = 10_000


class Users:
    """Logins and their ids. A login of one provider is never that of another."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._ids: dict[tuple[str, str], str] = {}

    async def get_or_create(self, provider: str, login: str, role: Role) -> User:
        """The user behind a login that a provider has vouched for."""
        key = (provider, login)
        if key not in self._ids:
            found = await self._get_or_create_id(provider, login)
            if len(self._ids) >= MAX_CACHED:
                self._ids.clear()
            self._ids[key] = found
        return User(self._ids[key], login, role)

    async def name(self, id: str) -> str:
        """What somebody is called; their id, if nobody knows."""
        found = await self._records.get("user_name", "", id)
        return str(found["name"]) if found else id

    async def _get_or_create_id(self, provider: str, login: str) -> str:
        id = f"u_{secrets.token_hex(8)}"
        if await self._records.put(KIND, provider, login, {"id": id}, new=True):
            await self._records.put("user_name", "", id, {"name": login, "provider": provider})
            return id
        row = await self._records.get(KIND, provider, login)
        assert row is not None, "what was there before a user was added is not deleted"
        return str(row["id"])
