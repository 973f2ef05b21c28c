"""Access tokens that expire: functions that return them, and the credentials of Google in a file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.util import find_spec
from time import time
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from wick._internal.worker_threads import call_function
from wick.errors import ConfigError, ModelError
from wick.models import _http
from wick.models._http import Authorize, ModelServer, TimeLimits
from wick.models._network import NetworkSettings

logger = logging.getLogger(__name__)

TokenSource = Callable[[], str | Awaitable[str]]

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL = "https://oauth2.googleapis.com/token"
_EARLY_SECONDS = 120  # a token is renewed this long before it expires
_NEEDED = {
    "service_account": ("client_email", "private_key", "token_uri"),
    "authorized_user": ("client_id", "client_secret", "refresh_token"),
}


async def fetch_credentials(source: Callable[[], Any], what: str) -> Any:
    """Return the credentials of a function; raise ModelError if it fails. One that is not async runs in a thread."""
    try:
        return await call_function(source, name=what)
    except ModelError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{what} cannot be fetched: {reason}") from error


def bearer_authorizer(source: TokenSource) -> Authorize:
    """Return a function that adds the token of a source to a server."""
    if not callable(source):
        raise ConfigError("the token of a model is a function that returns it; give a fixed one as api_key=…")

    async def authorize(server: ModelServer, body: bytes) -> ModelServer:
        token = await fetch_credentials(source, f"the access token of {server.name}")
        if not isinstance(token, str) or not token.strip():
            raise ModelError(f"the function for the access token of {server.name} returned {type(token).__name__}")
        return replace(server, headers={**server.headers, "authorization": f"Bearer {token.strip()}"})

    return authorize


class GoogleTokens:
    """Access tokens for the credentials in a file: a key of a service account, or those of `gcloud auth`."""

    def __init__(self, path: str, network: NetworkSettings, limits: TimeLimits) -> None:
        self.path = path
        self._info = _read_credentials(path)
        self._token, self._expires = "", 0.0
        self._locks = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()  # one per event loop
        address = self._info["token_uri"] if self._info["type"] == "service_account" else TOKEN_URL
        self._server = ModelServer(
            "Google",
            address,
            {"content-type": "application/x-www-form-urlencoded"},
            limits,
            unreachable=f"check the token_uri in {path}",
            unauthorized=f"check the credentials in {path}",
            network=network,
        )

    @property
    def project(self) -> str:
        """The project of the credentials, if they have one."""
        return str(self._info.get("project_id") or self._info.get("quota_project_id") or "")

    def __repr__(self) -> str:
        return f"<GoogleTokens {self.path}>"

    async def __call__(self) -> str:
        """Return a token that is valid for some time; fetch one if necessary.

        Concurrent requests of an event loop wait for one fetch. If it fails, a token that has not expired is returned.
        """
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if time() > self._expires - _EARLY_SECONDS:
                try:
                    await self._refresh()
                except ModelError as error:
                    if time() >= self._expires:
                        raise
                    logger.warning("the access token of %s is used until it expires: %s", self.path, error)
        return self._token

    async def _refresh(self) -> None:
        fetched = await _http.post_json(self._server, urlencode(self._form()).encode())
        token, seconds = fetched.get("access_token"), fetched.get("expires_in", 3600)
        if not isinstance(token, str) or not isinstance(seconds, int | float):
            raise ModelError(f"Google returned no access token for the credentials in {self.path}")
        self._token, self._expires = token, time() + seconds

    def _form(self) -> dict[str, str]:
        if self._info["type"] == "authorized_user":
            return {"grant_type": "refresh_token"} | {key: self._info[key] for key in _NEEDED["authorized_user"]}
        import jwt  # imported late, as it is large and optional

        issued = int(time())
        claims = {"iss": self._info["client_email"], "scope": SCOPE, "aud": self._info["token_uri"]}
        claims |= {"iat": issued, "exp": issued + 3600}
        try:
            assertion = jwt.encode(
                claims, self._info["private_key"], "RS256", {"kid": self._info.get("private_key_id", "")}
            )
        except (TypeError, ValueError, jwt.PyJWTError):
            raise ModelError(f"the private key in {self.path} cannot be used; create another key") from None
        return {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}


def _read_credentials(path: str) -> dict[str, Any]:
    """Return the credentials in a file; raise ConfigError if wick cannot use them."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            info = json.load(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not JSON"
        raise ConfigError(f"the credentials of Google in {path} cannot be read: {reason}") from None
    kind = info.get("type") if isinstance(info, dict) else None
    if kind not in _NEEDED:
        raise ConfigError(
            f"the credentials of Google in {path} are of the type {kind!r}, which wick does not follow; use the key "
            "of a service account, or give token=… as a function"
        )
    if missing := [key for key in _NEEDED[kind] if not isinstance(info.get(key), str)]:
        raise ConfigError(f"the credentials of Google in {path} have no {', '.join(missing)}; create them again")
    if kind == "service_account" and find_spec("jwt") is None:
        raise ConfigError("keys of service accounts need PyJWT: pip install 'wick-agent[vertex]'")
    found: dict[str, Any] = info
    return found
