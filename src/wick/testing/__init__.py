"""Tools for tests: recorded replies, expired questions, a canary for declarations, cases for stores and others.

The pytest plugin is `wick.testing.plugin`. pytest loads it automatically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick._internal.familiar_words import TESTING_NAMES
from wick._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from wick.testing.backend_cases import BackendCases
    from wick.testing.canary import Canary
    from wick.testing.cassettes import Cassette
    from wick.testing.model_cases import ModelCases
    from wick.testing.plugin import NewCassette
    from wick.testing.questions import lapse_questions
    from wick.testing.store_cases import StoreCases

__all__ = [
    "BackendCases", "Canary", "Cassette", "ModelCases", "NewCassette", "StoreCases", "lapse_questions",
]  # fmt: skip

_MODULES = {  # imported when first used; cases and the plugin need pytest, the others the whole agent
    "BackendCases": "backend_cases",
    "Canary": "canary",
    "Cassette": "cassettes",
    "ModelCases": "model_cases",
    "NewCassette": "plugin",
    "StoreCases": "store_cases",
    "lapse_questions": "questions",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, TESTING_NAMES)
