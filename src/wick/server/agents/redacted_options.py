"""Redaction of secrets in agent options, for responses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from wick._internal.redaction import SECRET_WORDS
from wick._internal.safe_yaml import ExpandedText, KeyPath
from wick.config import RINGS
from wick.config.secrets import find_secrets
from wick.server.errors import ApiError

HIDDEN = "•••"
_ADDRESSES = ("url", "base_url", "callback_url", "command", "args", "provider", "type", "image", "engine")
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


def cover_secrets(value: Any, cover: Callable[[KeyPath], str], place: KeyPath = (), hidden: bool = False) -> Any:
    """Return options in which each secret is replaced by `cover` of its path. Maps and lists keep their shape."""
    key = next((str(part) for part in reversed(place) if isinstance(part, str)), "")
    hidden = hidden or _SECRET.search(key) is not None
    if isinstance(value, Mapping):
        return {str(name): cover_secrets(inner, cover, (*place, str(name)), hidden) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cover_secrets(inner, cover, (*place, number), hidden) for number, inner in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    return cover(place) if hidden or isinstance(value, ExpandedText) or any(find_secrets(value, key)) else value


def restore_secrets(value: Any, old: Any, place: KeyPath = (), moved: bool = False) -> Any:
    """Return options with the stored value in place of each hidden one; raise a 422 for one that is not stored.

    A secret is not restored if the address beside it has changed: it could be read by sending it elsewhere.
    """
    if value == HIDDEN:
        if moved or not isinstance(old, str | int | float):
            why = "since its address has changed" if moved else "since none is stored here"
            message = f"enter this value again, {why}"
            raise ApiError(422, "invalid", f"{_join(place)}: {message}", fields={_join(place): message})
        return old
    if isinstance(value, Mapping):
        before = old if isinstance(old, Mapping) else {}
        moved = moved or any(value.get(key) not in (before.get(key), HIDDEN) for key in _ADDRESSES)
        return {key: restore_secrets(inner, before.get(key), (*place, key), moved) for key, inner in value.items()}
    if isinstance(value, list):
        rows = [*old, *[None] * len(value)] if isinstance(old, list) else [None] * len(value)
        return [restore_secrets(inner, rows[number], (*place, number), moved) for number, inner in enumerate(value)]
    return value


def _join(place: KeyPath) -> str:
    return ".".join(map(str, place))


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
