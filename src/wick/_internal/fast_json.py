"""Fast JSON encoding with orjson, and with the standard library for the values that orjson refuses."""

from __future__ import annotations

import json

import orjson


def encode_json(value: object) -> bytes:
    """Return compact JSON, also of integers beyond 64 bits and of lone surrogates; raise TypeError for other types."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
