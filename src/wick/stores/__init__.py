"""Where threads are kept: in memory, in a SQLite file, in Postgres. They do the same, and tests hold them to it."""
