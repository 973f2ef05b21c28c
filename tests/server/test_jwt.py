"""Signed tokens: good ones are somebody, all others nobody."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from serving import hosted
from wick.errors import ConfigError
from wick.server.errors import ApiError
from wick.server.jwt import AGAIN_SECONDS, Signed
from wick.server.settings import Jwt

KEY, OTHER = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
HMAC = "a secret that is long enough to sign with it, really"


def jwks(folder: Path, **keys: Any) -> Path:
    rows = [{**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": id, "use": "sig"} for id, key in keys.items()]
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": rows}))
    return path


def claims(**more: Any) -> dict[str, Any]:
    now = time.time()
    said = {"sub": "ada", "iss": "https://id", "aud": "wick", "exp": now + 60, "role": "operator"} | more
    return {name: value for name, value in said.items() if value is not None}


def token(key: Any = KEY, kid: str = "k1", algorithm: str = "ES256", **more: Any) -> str:
    return jwt.encode(claims(**more), key, algorithm, headers={"kid": kid})


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    return Signed(Jwt(jwks=str(jwks(tmp_path, k1=KEY)), issuer="https://id", audience="wick"))


async def test_a_good_token_is_somebody(signed: Signed) -> None:
    assert await signed.claim(token()) == ("ada", "operator")
    assert await signed.claim(token(role="emperor")) == ("ada", "user")
    assert await signed.claim(token(role=None)) == ("ada", "user")


BAD = {
    "another key": lambda: token(OTHER),
    "a key nobody knows": lambda: token(OTHER, kid="k2"),
    "over": lambda: token(exp=time.time() - 120),
    "not yet": lambda: token(nbf=time.time() + 600),
    "without an end": lambda: token(exp=None),
    "another issuer": lambda: token(iss="https://evil"),
    "for somebody else": lambda: token(aud="other"),
    "without a name": lambda: token(sub=None),
    "no signature": lambda: jwt.encode(claims(), None, "none", headers={"kid": "k1"}),
    "signed with a shared secret": lambda: jwt.encode(claims(), HMAC, "HS256", headers={"kid": "k1"}),
    "changed": lambda: token()[:-6] + "AAAAAA",
    "nonsense": lambda: "a.b.c",
    "empty": lambda: "..",
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
async def test_a_bad_token_is_nobody(signed: Signed, make: Any) -> None:
    assert await signed.claim(make()) is None


async def test_new_keys_are_found(tmp_path: Path) -> None:
    now = 0.0
    signed = Signed(Jwt(jwks=str(jwks(tmp_path, k1=KEY)), issuer="https://id", audience="wick"), clock=lambda: now)
    assert await signed.claim(token(OTHER, kid="k2")) is None
    jwks(tmp_path, k1=KEY, k2=OTHER)
    assert await signed.claim(token(OTHER, kid="k2")) is None  # asked a moment ago
    now += AGAIN_SECONDS + 1
    assert await signed.claim(token(OTHER, kid="k2")) == ("ada", "operator")


async def test_keys_that_cannot_be_read_let_nobody_in(tmp_path: Path) -> None:
    signed = Signed(Jwt(jwks=str(tmp_path / "missing"), issuer="https://id", audience="wick"))
    with pytest.raises(ApiError, match="cannot be read"):
        await signed.claim(token())
    (tmp_path / "odd").write_text("[]")
    signed = Signed(Jwt(jwks=str(tmp_path / "odd"), issuer="https://id", audience="wick"))
    with pytest.raises(ApiError, match="no JWKS"):
        await signed.claim(token())


@pytest.mark.parametrize(
    "more", [{"jwks": "http://keys.example"}, {"algorithms": ("HS256",)}, {"algorithms": ("none",)}]
)
def test_settings_that_open_a_door_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Signed(Jwt(**{"jwks": "keys.json", "issuer": "https://id", "audience": "wick"} | more))


async def test_it_lets_people_in(tmp_path: Path) -> None:
    said = {"jwks": str(jwks(tmp_path, k1=KEY)), "issuer": "https://id", "audience": "wick"}
    async with hosted(tmp_path, agents={"default": {"model": "demo"}}, tokens=(), jwt=said) as here:
        async with here.client(token()) as ada, ada.get("/auth/me") as answer:
            assert (await answer.json())["username"] == "ada"
        async with here.client(token(OTHER)) as nobody, nobody.get("/auth/me") as answer:
            assert answer.status == 401
