"""Redaction of secrets in agent options, for responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from wick._internal.redaction import SECRET_WORDS
from wick._internal.safe_yaml import ExpandedText
from wick.config import RINGS

HIDDEN = "•••"
_SECRET = re.compile(rf"(^|_)({SECRET_WORDS}|authorization|headers|env|dsn|cert)$", re.IGNORECASE)


def redact_options(value: Any, key: str = "") -> Any:
    """Return options with redacted secrets: values from the environment, and keys named like a token or password."""
    if _SECRET.search(key) or isinstance(value, ExpandedText):
        return HIDDEN
    if isinstance(value, Mapping):
        return {str(name): redact_options(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_options(inner) for inner in value]
    if isinstance(value, str):
        return re.sub(r"(://)[^/@\s]+@", rf"\1{HIDDEN}@", value)
    return value if isinstance(value, bool | int | float | None) else HIDDEN


def model_name(model: Any) -> str:
    """Return the name of a configured model, without its other settings."""
    if isinstance(model, Mapping):
        named = ":".join(str(model[key]) for key in ("provider", "model") if model.get(key))
        return str(redact_options(named)) if named else "auto"
    return str(model)


def enabled_capabilities(options: Mapping[str, Any]) -> list[str]:
    """Return the keys of the enabled capabilities, outermost first."""
    has_backend = bool(options.get("backend", False))
    on = [(ring, options.get(ring.key, ring.always or (ring.backend and has_backend))) for ring in RINGS if ring.kind]
    return [ring.key for ring, value in on if value is not False and ring.key != "sessions"]
