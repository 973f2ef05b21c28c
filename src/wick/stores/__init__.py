"""Stores of threads: in memory, in a SQLite file, in Postgres. One conformance suite tests them all."""
