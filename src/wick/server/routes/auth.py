"""Authentication: browser sessions, the current user, and tickets for clients that cannot send a header."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from wick.api.types import CurrentUser, Ticket
from wick.server.auth.browser_sessions import SESSION_SECONDS
from wick.server.auth.credentials import read_credential
from wick.server.auth.identity import User
from wick.server.auth.middleware import session_cookie_name
from wick.server.auth.tickets import TICKET_SECONDS
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.strict_models import StrictModel

router = APIRouter(prefix="/auth", tags=["sign-in"], route_class=JsonRoute)


class SignIn(StrictModel):
    """Credentials of a browser: a token, or the ticket of a sign-in link."""

    token: Annotated[str, Field(max_length=16_000)] = ""
    ticket: Annotated[str, Field(max_length=200)] = ""


@router.post("/session")
async def sign_in(body: SignIn, wick: Wick, request: Request, response: Response) -> CurrentUser:
    """Sign in a browser: the response sets a cookie that scripts cannot read."""
    bearer = body.token or (await wick.tickets.redeem_sign_in(body.ticket) if body.ticket else "") or ""
    user = await wick.authenticator.verifier.authenticate(bearer)
    if user is None:
        message = "the credential is not valid; a sign-in link works once and for ten minutes"
        raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
    cookie = await wick.authenticator.browsers.sign_in(bearer)
    response.set_cookie(
        session_cookie_name(wick.settings),
        cookie,
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return _describe_user(user)


@router.delete("/session", status_code=204)
async def sign_out(user: Caller, wick: Wick, request: Request, response: Response) -> None:
    """Sign out this browser."""
    name = session_cookie_name(wick.settings)
    found = read_credential({"headers": [each for each in request.scope["headers"] if each[0] == b"cookie"]}, name)
    if found is not None:
        await wick.authenticator.sign_out(found.value)
    response.delete_cookie(name)


@router.get("/me")
async def me(user: Caller) -> CurrentUser:
    """Return the current user."""
    return _describe_user(user)


@router.post("/tickets")
async def ticket(user: Caller, wick: Wick) -> Ticket:
    """Create a one-use ticket for a WebSocket or an EventSource, which cannot send a header."""
    return Ticket(ticket=await wick.tickets.issue(user), expires_in=TICKET_SECONDS)


def _describe_user(user: User) -> CurrentUser:
    return CurrentUser(id=user.id, username=user.name, role=user.role)
