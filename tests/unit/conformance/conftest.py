"""The conformance cases on in-process implementations: State, and stores in memory and in SQLite."""

from conformance.backends import open_kinds, place, pytest_make_collect_report
from conformance.stores import open_places, store

__all__ = ["opened", "place", "pytest_make_collect_report", "shared", "somewhere", "store"]

opened = open_kinds("state")
somewhere = open_places("somewhere", "in_memory", "sqlite")
shared = open_places("shared", "sqlite")
