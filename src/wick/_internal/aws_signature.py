"""Signatures of AWS, version 4: headers that prove a request without sending the secret key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from hmac import digest
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, quote, urlsplit


class AwsCredentials(NamedTuple):
    """An access key of AWS, and the session token of temporary ones."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"<AwsCredentials {self.access_key}>"


class CredentialsLike(Protocol):
    """Credentials with the attributes of `AwsCredentials`, such as the frozen credentials of botocore."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


def sign_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    credentials: CredentialsLike,
    *,
    region: str,
    service: str,
    now: datetime,
) -> dict[str, str]:
    """Return the headers to add to a request. The given headers are signed, and so are host and date."""
    parts, stamp, content = urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ"), sha256(body).hexdigest()
    added = {"x-amz-date": stamp}
    if service == "s3":
        added["x-amz-content-sha256"] = content
    if credentials.token:
        added["x-amz-security-token"] = credentials.token
    signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed = dict(sorted((signed | added | {"host": parts.netloc}).items()))
    query = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in parse_qsl(parts.query, True))
    names = ";".join(signed)
    request = "\n".join((
        method,
        quote(parts.path or "/", safe="/~%" if service == "s3" else "/~"),  # S3 alone expects it encoded once
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{value}" for name, value in signed.items()),
        "",
        names,
        content,
    ))  # fmt: skip
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = digest(key, part.encode(), "sha256")
    signature = digest(key, text.encode(), "sha256").hex()
    proof = f"Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return added | {"authorization": f"AWS4-HMAC-SHA256 {proof}"}
