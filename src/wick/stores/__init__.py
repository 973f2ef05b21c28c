"""Stores of threads: in memory, in a SQLite file, in Postgres. One conformance suite tests them all.

A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick._internal.familiar_words import STORE_NAMES
from wick._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from wick.stores.in_memory import InMemory
    from wick.stores.postgres import Postgres
    from wick.stores.sqlite import Sqlite

__all__ = ["InMemory", "Postgres", "Sqlite"]

_MODULES = {"InMemory": "in_memory", "Postgres": "postgres", "Sqlite": "sqlite"}

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, STORE_NAMES)
