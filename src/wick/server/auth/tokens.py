"""Verification of bearer tokens: the server's own token, listed tokens, JWTs and tokens of a gateway."""

from __future__ import annotations

import os
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Protocol

from wick.errors import ConfigError
from wick.server.auth.identity import LOCAL_USER, Role, User
from wick.server.auth.issued_tokens import IssuedTokens
from wick.server.auth.signed_cookies import new_secret
from wick.server.auth.users import Users
from wick.server.settings import Settings


class TokenChecker(Protocol):
    """A source that verifies tokens and returns the login and the role."""

    async def verify_token(self, bearer: str) -> tuple[str, Role] | None: ...


class ClosableTokenChecker(TokenChecker, Protocol):
    """A token checker that holds connections and must be closed."""

    async def close(self) -> None: ...


class TokenVerifier:
    """Verifies a token with each configured source in turn and returns its user."""

    def __init__(self, settings: Settings, users: Users, issued: IssuedTokens) -> None:
        own = "" if settings.has_provider else load_or_create_secret(settings.data / "token")
        self.local_token = settings.token or own
        self._local_digest = _digest(self.local_token) if self.local_token else ""
        self._listed, self._issued = settings.tokens, issued
        self._signed: TokenChecker | None = None
        self._gateway: ClosableTokenChecker | None = None
        self._users = users
        if settings.jwt:  # the verifiers are slow to import
            from wick.server.auth.jwt import JwtVerifier

            self._signed = JwtVerifier(settings.jwt)
        if settings.gateway:
            from wick.server.auth.gateway import GatewayVerifier

            self._gateway = GatewayVerifier(settings.gateway)

    async def authenticate(self, bearer: str) -> User | None:
        """Return the user of a token, or None if no source knows it."""
        if not bearer:
            return None
        digest = _digest(bearer)
        if self._local_digest and compare_digest(digest, self._local_digest):
            return LOCAL_USER
        # compare all of them: constant time
        listed = [token for token in self._listed if compare_digest(digest, token.sha256)]
        if listed:
            return await self._users.get_or_create("token", listed[0].name, listed[0].role)
        if claim := await self._issued.verify(bearer):
            return await self._users.get_or_create("token", *claim)
        if self._signed is not None and bearer.count(".") == 2 and (claim := await self._signed.verify_token(bearer)):
            return await self._users.get_or_create("jwt", *claim)
        if self._gateway is not None and (claim := await self._gateway.verify_token(bearer)):
            return await self._users.get_or_create("gateway", *claim)
        return None

    async def close(self) -> None:
        if self._gateway is not None:
            await self._gateway.close()


def load_or_create_secret(path: Path) -> str:
    """Return the secret in a file of the data folder. Create the file with mode 0600 on first use."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(new_secret() + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(f"{path} cannot be created: {error.strerror}; name another folder with --data") from None
    secret = path.read_text(encoding="utf-8").strip()
    if len(secret) < 16:
        raise ConfigError(f"{path} has no {path.name.replace('_', ' ')} in it; remove it, and start again")
    return secret


def _digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()
