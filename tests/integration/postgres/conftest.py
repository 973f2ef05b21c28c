"""The conformance cases of stores run on Postgres. Other tests have a schema of their own."""

from conformance.stores import open_places, store
from postgres import schema

__all__ = ["schema", "shared", "somewhere", "store"]

somewhere = open_places("somewhere", "postgres")
shared = open_places("shared", "postgres")
