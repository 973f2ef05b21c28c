"""Users and their roles."""

from __future__ import annotations

from dataclasses import dataclass

from wick.api.types import UserRole

Role = UserRole
ROLES: tuple[Role, ...] = ("user", "operator", "admin")  # each includes the permissions of the previous one
Claim = tuple[str, Role]  # a login and a role


def parse_claim(name: object, role: object) -> Claim | None:
    """Return the claim of an external sign-in, or None without a login. An unknown role is treated as `user`."""
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        return None
    return name, next((known for known in ROLES if known == role), "user")


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. `id` is internal and owns the user's data; `name` is the login."""

    id: str  # the internal id, which owns the user's threads and files
    name: str  # the login
    role: Role = "user"  # user, operator or admin

    def has_role(self, role: Role) -> bool:
        """Return True if the user has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL_USER = User("local", "local", "admin")  # the user of the server's own token
