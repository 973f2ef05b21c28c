"""Secrets that are kept so that only who has them can use them.

A row in the records is named by a hash of the secret, and what is in it is encrypted with another. So whoever reads
the file can neither sign in with what stands there, nor read it.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def secret_id(secret: str) -> str:
    """Under which name a row about this secret is kept."""
    return _hash("name", secret).hex()


def encrypt(secret: str, text: str) -> str:
    return _fernet(secret).encrypt(text.encode()).decode()


def decrypt(secret: str, sealed: str) -> str | None:
    """What was sealed with this secret; None if it was another."""
    try:
        return _fernet(secret).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def _fernet(secret: str) -> Fernet:
    return Fernet(urlsafe_b64encode(_hash("key", secret)))


def _hash(purpose: str, secret: str) -> bytes:
    return sha256(f"wick {purpose} {secret}".encode(errors="replace")).digest()
