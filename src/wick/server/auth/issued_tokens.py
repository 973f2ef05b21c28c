"""Tokens that admins issue while the server runs. The records hold the SHA-256 of each, never the token."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from wick.server.auth.identity import Claim, Role, User
from wick.server.auth.signed_cookies import new_secret
from wick.server.records import Records

KIND = "token"  # of records
PREFIX = "wick_"  # of issued tokens; other tokens need no lookup
ID_CHARS = 16


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """An issued token without its secret."""

    id: str
    name: str
    role: Role
    note: str
    by: str
    created: float


class IssuedTokens:
    """The issued tokens of a server. All servers of a database accept them, until they are revoked."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def issue(self, by: User, name: str, role: Role, note: str = "") -> tuple[str, IssuedToken]:
        """Return a new token of a user, and its record. The token cannot be read again."""
        token = PREFIX + new_secret()
        digest, created = _hash_token(token), time.time()
        data = {"name": name, "role": role, "note": note, "by": by.name, "created": created}
        await self._records.put(KIND, "", digest, data)
        return token, IssuedToken(digest[:ID_CHARS], name, role, note, by.name, created)

    async def verify(self, bearer: str) -> Claim | None:
        """Return the user name and the role of a token, or None."""
        row = await self._records.get(KIND, "", _hash_token(bearer)) if bearer.startswith(PREFIX) else None
        return None if row is None else (row["name"], row["role"])

    async def list(self) -> Sequence[IssuedToken]:
        """Return all issued tokens."""
        return [IssuedToken(row.id[:ID_CHARS], **row.data) for row in await self._records.list(KIND, "")]

    async def revoke(self, id: str) -> bool:
        """Revoke a token by its id; return False if it does not exist."""
        found = [row for row in await self._records.list(KIND, "") if row.id[:ID_CHARS] == id]
        return bool(found) and await self._records.delete(KIND, "", found[0].id)


def _hash_token(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()
