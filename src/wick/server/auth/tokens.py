"""Who a token belongs to: the server's own, those that are listed, signed ones, and those that a gateway knows."""

from __future__ import annotations

import os
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Protocol

from wick.errors import ConfigError
from wick.server.auth.identity import LOCAL, Role, User
from wick.server.auth.signed_cookies import new_secret
from wick.server.auth.users import Users
from wick.server.settings import Settings


class Signing(Protocol):
    """Somebody who knows whose a token is: a login and a role."""

    async def claim(self, bearer: str) -> tuple[str, Role] | None: ...


class Vouching(Signing, Protocol):
    """One of them who has to be let go of."""

    async def close(self) -> None: ...


class Verifier:
    """Asks each of those who may vouch for a token, in turn. Nobody is a user before one of them has."""

    def __init__(self, settings: Settings, users: Users) -> None:
        self.local = settings.token or ("" if settings.has_provider else kept_token(settings.data))
        self._local = _digest(self.local) if self.local else ""
        self._listed = settings.tokens
        self._signed = _signed(settings)
        self._gateway = _gateway(settings)
        self._users = users

    async def user(self, bearer: str) -> User | None:
        """The user a token belongs to; None if it is nobody's."""
        if not bearer:
            return None
        digest = _digest(bearer)
        if self._local and compare_digest(digest, self._local):
            return LOCAL
        listed = [token for token in self._listed if compare_digest(digest, token.sha256)]  # all are looked at
        if listed:
            return await self._users.user("token", listed[0].name, listed[0].role)
        return await self._vouched(bearer)

    async def close(self) -> None:
        if self._gateway is not None:
            await self._gateway.close()

    async def _vouched(self, bearer: str) -> User | None:
        if self._signed is not None and bearer.count(".") == 2 and (claim := await self._signed.claim(bearer)):
            return await self._users.user("jwt", *claim)
        if self._gateway is not None and (claim := await self._gateway.claim(bearer)):
            return await self._users.user("gateway", *claim)
        return None


def _signed(settings: Settings) -> Signing | None:
    """What checks signed tokens; it is loaded only where there are any, for that takes a while."""
    if not settings.jwt:
        return None
    from wick.server.auth.jwt import Signed

    return Signed(settings.jwt)


def _gateway(settings: Settings) -> Vouching | None:
    """The same for tokens that a gateway knows."""
    if not settings.gateway:
        return None
    from wick.server.auth.gateway import Gateway

    return Gateway(settings.gateway)


def kept_token(data: Path) -> str:
    """The token of this data folder, made when it is first needed; only its owner can read it."""
    path = data / "token"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(new_secret() + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(f"{path} cannot be made: {error.strerror}; name another folder with --data") from None
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < 16:
        raise ConfigError(f"{path} has no token in it; remove it, and start again")
    return token


def _digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()
