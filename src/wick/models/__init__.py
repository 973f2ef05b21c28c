"""Models by name: `resolve` creates a model from a text or a dict, and returns a model object unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick.errors import ConfigError
from wick.protocols import Model


def check_model(spec: str | Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown provider, model or key, without creating the model."""
    from wick.models.registry import check_spec  # imported late, as only names need it

    check_spec(spec)


def resolve(spec: str | Mapping[str, Any] | Model) -> Model:
    """Return the model for a text, or for a dict with `provider`, `model`, `base_url` and `api_key`.

    Missing keys and addresses are read from the environment. `auto` chooses an available model.
    """
    if isinstance(spec, str | Mapping):
        from wick.models.registry import create_model  # imported late, as only names need it

        return create_model(spec)
    if isinstance(spec, type) or not hasattr(spec, "stream"):
        raise ConfigError(f"a model is a text such as 'auto', a dict or an object with a stream method, not {spec!r}")
    return spec
