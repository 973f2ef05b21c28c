"""Models, by name. `resolve` makes one of a text or a dict; what is already a model stays what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick.errors import ConfigError
from wick.protocols import Model


def check_model(spec: str | Mapping[str, Any]) -> None:
    """Refuse a text or a dict that names no model, or has keys that its provider does not know; nothing is made."""
    from wick.models.registry import check  # loads what only a name needs

    check(spec)


def resolve(spec: str | Mapping[str, Any] | Model) -> Model:
    """The model that a text names, or a dict with `provider`, `model`, `base_url` and `api_key`.

    Keys and addresses come from the environment where they are not given. `auto` takes what is there.
    """
    if isinstance(spec, str | Mapping):
        from wick.models.registry import named  # loads what only a name needs

        return named(spec)
    if isinstance(spec, type) or not hasattr(spec, "stream"):
        raise ConfigError(f"a model is a text such as 'auto', a dict or an object with a stream method, not {spec!r}")
    return spec
