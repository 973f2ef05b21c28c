"""Dependencies of routes: the authenticated user and the service."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.service import Service


async def get_caller(connection: HTTPConnection) -> User:
    """Return the user that the auth middleware has authenticated."""
    user = connection.scope.get("wick.user")
    if not isinstance(user, User):  # a public route has no user
        raise ApiError(401, "unauthorized", "sign in first", {"WWW-Authenticate": "Bearer"})
    return user


async def get_service(connection: HTTPConnection) -> Service:
    found = connection.app.state.service
    assert isinstance(found, Service)
    return found


Caller = Annotated[User, Depends(get_caller)]
Wick = Annotated[Service, Depends(get_service)]
