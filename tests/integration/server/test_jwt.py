"""Signed tokens: valid ones authenticate, all others are refused."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm

from server_process import host_server, run_server
from wick.errors import ConfigError
from wick.server.auth.jwt import AGAIN_SECONDS, JwtVerifier
from wick.server.errors import ApiError
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
def signed(tmp_path: Path) -> JwtVerifier:
    return JwtVerifier(Jwt(jwks=str(jwks(tmp_path, k1=KEY)), issuer="https://id", audience="wick"))


async def test_a_valid_token_authenticates(signed: JwtVerifier) -> None:
    assert await signed.verify_token(token()) == ("ada", "operator")
    assert await signed.verify_token(token(role="emperor")) == ("ada", "user")
    assert await signed.verify_token(token(role=None)) == ("ada", "user")


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
async def test_an_invalid_token_is_refused(signed: JwtVerifier, make: Any) -> None:
    assert await signed.verify_token(make()) is None


async def test_new_keys_are_found(tmp_path: Path) -> None:
    now = 0.0
    signed = JwtVerifier(Jwt(jwks=str(jwks(tmp_path, k1=KEY)), issuer="https://id", audience="wick"), clock=lambda: now)
    assert await signed.verify_token(token(OTHER, kid="k2")) is None
    jwks(tmp_path, k1=KEY, k2=OTHER)
    assert await signed.verify_token(token(OTHER, kid="k2")) is None  # asked a moment ago
    now += AGAIN_SECONDS + 1
    assert await signed.verify_token(token(OTHER, kid="k2")) == ("ada", "operator")


async def test_unreadable_keys_deny(tmp_path: Path) -> None:
    signed = JwtVerifier(Jwt(jwks=str(tmp_path / "missing"), issuer="https://id", audience="wick"))
    with pytest.raises(ApiError, match="cannot be read"):
        await signed.verify_token(token())
    (tmp_path / "odd").write_text("[]")
    signed = JwtVerifier(Jwt(jwks=str(tmp_path / "odd"), issuer="https://id", audience="wick"))
    with pytest.raises(ApiError, match="not a JWKS document"):
        await signed.verify_token(token())


@pytest.mark.parametrize(
    "more", [{"jwks": "http://keys.example"}, {"algorithms": ("HS256",)}, {"algorithms": ("none",)}]
)
def test_settings_that_open_a_door_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        JwtVerifier(Jwt(**{"jwks": "keys.json", "issuer": "https://id", "audience": "wick"} | more))


@asynccontextmanager
async def https(folder: Path, answer: Any) -> AsyncIterator[tuple[str, Path]]:
    """A server of keys with a certificate of its own: its address, and the certificate."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, key = datetime.now(UTC), generate_private_key(SECP256R1())
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = folder / "certificate.pem"
    certificate.write_bytes(made.add_extension(names, critical=False).sign(key, SHA256()).public_bytes(Encoding.PEM))
    private = folder / "key.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    app = web.Application()
    app.router.add_get("/keys", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=context)
    await site.start()
    try:
        yield f"https://localhost:{runner.addresses[0][1]}/keys", certificate
    finally:
        await runner.cleanup()


async def test_keys_are_fetched_over_https_chunked_and_without_redirect(tmp_path: Path) -> None:
    keys, redirected = jwks(tmp_path, k1=KEY).read_bytes(), False

    async def answer(request: web.Request) -> web.StreamResponse:
        if redirected:
            return web.Response(status=302, headers={"Location": "http://localhost:1/keys"})
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (keys[:20], keys[20:]):
            await response.write(piece)
            await asyncio.sleep(0.1)
        return response

    async with https(tmp_path, answer) as (address, certificate):
        none: dict[str, Any] = {"tokens": [], "jwt": {"jwks": address, "issuer": "https://id", "audience": "wick"}}
        with run_server(tmp_path / "good", environment={"SSL_CERT_FILE": str(certificate)}, **none) as server:
            async with server.client(token()) as ada, ada.get("/auth/me") as me:
                assert (me.status, (await me.json())["role"]) == (200, "operator")
            for name, make in BAD.items():
                async with server.client(make()) as nobody, nobody.get("/auth/me") as me:
                    assert me.status == 401, name
            redirected = True
            server.stop()
            server.start()
            async with server.client(token()) as ada, ada.get("/auth/me") as me:
                assert (me.status, me.headers["Retry-After"]) == (503, "2")


async def test_a_jwt_authenticates_requests(tmp_path: Path) -> None:
    said = {"jwks": str(jwks(tmp_path, k1=KEY)), "issuer": "https://id", "audience": "wick"}
    async with host_server(tmp_path, agents={"default": {"model": "demo"}}, tokens=(), jwt=said) as here:
        async with here.client(token()) as ada, ada.get("/auth/me") as answer:
            assert (await answer.json())["username"] == "ada"
        async with here.client(token(OTHER)) as nobody, nobody.get("/auth/me") as answer:
            assert answer.status == 401
