"""Models of capabilities, given as objects or by name. `run.find_model` resolves a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wick.errors import ConfigError
from wick.operations import ModelLike


class NamedModels:
    """Base of capabilities that take models. The agent checks the names at construction, not when they are needed."""

    def list_models(self) -> Iterable[ModelLike | None]:
        """Return the models as they were given."""
        raise NotImplementedError


def check_model(given: Any, where: str) -> Any:
    """Return a model, its name or its options; raise a ConfigError for anything else."""
    named = (isinstance(given, str) and given.strip()) or (isinstance(given, Mapping) and given)
    if not named and (isinstance(given, type) or not hasattr(given, "stream")):
        raise ConfigError(f"{where} takes a model, or the name of one such as openai:gpt-4o, not {given!r}")
    return given


def model_label(given: ModelLike) -> str:
    """Return the name of a model for logs; other options may be secrets."""
    if isinstance(given, Mapping):
        return ":".join(str(given[key]) for key in ("provider", "model") if given.get(key))
    return given if isinstance(given, str) else given.name
