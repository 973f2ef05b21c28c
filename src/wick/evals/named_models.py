"""The models of a suite: by the name of a model, or by `module:name` of an object beside the suite."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wick.agent import Agent
from wick.config.builder import load_python_name
from wick.config.process_files import find_module
from wick.errors import ConfigError
from wick.models import check_model
from wick.protocols import Model


def load_named_model(spec: str | dict[str, Any], folder: Path) -> str | Mapping[str, Any] | Model:
    """Return a name or options of a model as they are; for `module:name`, the model, or what the function returns.

    The module may be in a folder. A ConfigError says why there is no such model.
    """
    try:
        check_model(spec)
    except ConfigError as error:
        if not isinstance(spec, str) or not re.fullmatch(r"[\w.]+:[\w.]+", spec):
            raise
        module = re.split("[.:]", spec)[0]
        if module not in sys.modules and not find_module(spec, folder):
            raise ConfigError(f"{error}; and there is no module {module!r} beside the suite") from None
        return _load_model(spec, folder)
    return spec


def _load_model(name: str, folder: Path) -> Model:
    model = load_python_name(name, folder)
    if not isinstance(model, Agent | Model) and callable(model):
        try:
            model = model()
        except Exception as error:  # the function of a user may raise anything
            problem = f"{name}() failed: {type(error).__name__}: {error}"
            hint = "name a model, or a function without parameters that returns one; other functions are scorers"
            raise ConfigError(f"{problem}; {hint}") from error
    if isinstance(model, Agent) or not isinstance(model, Model):  # an agent has the methods of a model, too
        raise ConfigError(f"{name} is not a model, but has the type {type(model).__name__}; a function is a scorer")
    return model
