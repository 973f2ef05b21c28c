"""Users and their roles."""

from __future__ import annotations

from dataclasses import dataclass

from wick.api.types import UserRole

Role = UserRole
ROLES: tuple[Role, ...] = ("user", "operator", "admin")  # each includes the permissions of the previous one


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. `id` is internal and owns the user's data; `name` is the login."""

    id: str
    name: str
    role: Role = "user"

    def has_role(self, role: Role) -> bool:
        """Return True if the user has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL_USER = User("local", "local", "admin")  # the user of the server's own token
