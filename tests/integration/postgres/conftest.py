"""The conformance cases of stores run on Postgres."""

from conformance.stores import open_places, store

__all__ = ["shared", "somewhere", "store"]

somewhere = open_places("somewhere", "postgres")
shared = open_places("shared", "postgres")
