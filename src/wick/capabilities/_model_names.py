"""Models of capabilities, given as objects or by name.

Capabilities cannot import the model registry. The agent of the first run that needs a name resolves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick._internal.worker_threads import run_in_thread
from wick.errors import ConfigError
from wick.operations import Run
from wick.protocols import Model

ModelLike = Model | str | Mapping[str, Any]
_KEY = "models by name"  # of run.scratch


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


async def find_model(run: Run, given: ModelLike) -> Model:
    """Return a model; one given by name is created once per run, in a worker thread."""
    if not isinstance(given, str | Mapping):
        return given
    models: dict[str, Model] = run.root.scratch.setdefault(_KEY, {})
    key = repr(given)
    if key not in models:
        models[key] = await run_in_thread(lambda: run.make(given).model, "finding a model")
    return models[key]
