"""Models, by name. `resolve` makes one of a text; what is already a model stays what it is."""

from __future__ import annotations

from wick.errors import ConfigError
from wick.protocols import Model


def resolve(spec: str | Model) -> Model:
    """The model that a text names."""
    if not isinstance(spec, str):
        return spec
    raise ConfigError(
        f"there is no model named {spec!r}; give the agent a model, such as wick.Scripted or wick.FunctionModel"
    )
