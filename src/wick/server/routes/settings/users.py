"""Users of the server, and the tokens that admins issue to them."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from wick.api.types import NewToken, TokenInfo, UserInfo, UserList
from wick.server.auth.identity import LOCAL_USER
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.http.json_body import JsonRoute
from wick.server.service import Service
from wick.server.strict_models import StrictModel

router = APIRouter(prefix="/settings", tags=["settings"], route_class=JsonRoute)


class TokenRequest(StrictModel):
    """A token for a user, who need not exist yet."""

    name: str = Field(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$", description="the user name")
    role: Literal["user", "operator", "admin"] = Field("user", description="what a client with this token may do")
    note: str = Field("", max_length=200, description="what it is for")


@router.get("/users")
async def list_users(wick: Wick) -> UserList:
    """List the users that have signed in or have a token, each with its tokens."""
    return UserList(users=await _list_users(wick))


@router.post("/tokens", status_code=201)
async def create_token(body: TokenRequest, caller: Caller, wick: Wick) -> NewToken:
    """Issue a token. It is returned once; the server stores its SHA-256."""
    owner = await wick.users.get_or_create("token", body.name, body.role)
    token, issued = await wick.issued_tokens.issue(caller, body.name, body.role, body.note)
    user = next(user for user in await _list_users(wick) if user.id == owner.id)
    return NewToken(id=issued.id, token=token, user=user)


@router.delete("/tokens/{token}", status_code=204)
async def revoke_token(token: str, wick: Wick) -> None:
    """Revoke an issued token by its id. Browsers that signed in with it are signed out."""
    if not await wick.issued_tokens.revoke(token):
        raise not_found("such token; tokens of server.yaml are removed there")


async def _list_users(wick: Service) -> list[UserInfo]:
    tokens: dict[str, list[TokenInfo]] = {}
    for one in wick.settings.tokens:
        tokens.setdefault(one.name, []).append(TokenInfo(id="", role=one.role, note="server.yaml", by="", created=None))
    for issued in await wick.issued_tokens.list():
        info = TokenInfo(id=issued.id, role=issued.role, note=issued.note, by=issued.by, created=issued.created)
        tokens.setdefault(issued.name, []).append(info)
    users = [
        UserInfo(id=id, name=name, provider=provider, tokens=tokens.pop(name, []) if provider == "token" else [])
        for provider, name, id in await wick.users.list()
    ]
    unknown = [UserInfo(id="", name=name, provider="token", tokens=given) for name, given in tokens.items()]
    local = []
    if wick.authenticator.verifier.local_token:
        own = TokenInfo(id="", role="admin", note="the token of the server", by="", created=None)
        local = [UserInfo(id=LOCAL_USER.id, name=LOCAL_USER.name, provider="token", tokens=[own])]
    return [*local, *sorted([*users, *unknown], key=lambda user: user.name)]
