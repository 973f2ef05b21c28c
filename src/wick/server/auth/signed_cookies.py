"""Storage of data under a secret, such as the cookie of a session.

A record's id is a hash of the secret, and its data is encrypted with a key derived from the secret. A reader of the
database can neither sign in with a record nor decrypt it.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def secret_id(secret: str) -> str:
    """Return the id of the record that belongs to a secret."""
    return _hash("name", secret).hex()


def encrypt(secret: str, text: str) -> str:
    return _fernet(secret).encrypt(text.encode()).decode()


def decrypt(secret: str, sealed: str) -> str | None:
    """Return the decrypted text, or None if it was encrypted with another secret."""
    try:
        return _fernet(secret).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def _fernet(secret: str) -> Fernet:
    return Fernet(urlsafe_b64encode(_hash("key", secret)))


def _hash(purpose: str, secret: str) -> bytes:
    return sha256(f"wick {purpose} {secret}".encode(errors="replace")).digest()
