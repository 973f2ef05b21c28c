"""Who asks: a user and a role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["user", "operator", "admin"]
ROLES: tuple[Role, ...] = ("user", "operator", "admin")  # each may do what the one before it may


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who has signed in. `id` owns everything they make; it is never a login."""

    id: str
    name: str
    role: Role = "user"

    def has_role(self, role: Role) -> bool:
        """Whether this user has that role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL_USER = User("local", "local", "admin")  # whoever has the server's own token
