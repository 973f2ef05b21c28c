"""Tools for tests: recorded replies, expired questions, a canary for declarations, cases for stores and others.

The pytest plugin is `wick.testing.plugin`. pytest loads it automatically.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wick.testing.cassette import Cassette

if TYPE_CHECKING:
    from wick.testing.backend_cases import BackendCases
    from wick.testing.canary import Canary
    from wick.testing.model_cases import ModelCases
    from wick.testing.questions import lapse_questions
    from wick.testing.store_cases import StoreCases

__all__ = ["BackendCases", "Canary", "Cassette", "ModelCases", "StoreCases", "lapse_questions"]

_CASES = {  # imported when first used; cases need pytest, the others the whole agent
    "BackendCases": "backend_cases",
    "Canary": "canary",
    "ModelCases": "model_cases",
    "StoreCases": "store_cases",
    "lapse_questions": "questions",
}


def __getattr__(name: str) -> Any:
    if name not in _CASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_CASES[name]}"), name)
