"""The trigram index of messages in Postgres. Without the extension pg_trgm, a search scans the messages of an owner."""

from __future__ import annotations

import logging

import psycopg
from psycopg import sql

from wick.stores.postgres_pool import Connection
from wick.stores.postgres_queries import fetch_rows

logger = logging.getLogger(__name__)

INDEX = "entries_text_trigrams"
WAIT_SECONDS = 600  # for the index of many messages; an unfinished one is dropped at the next start


async def ensure_search_index(connection: Connection) -> bool:
    """Create the index if the extension is there, or may be created; return False if searches scan messages."""
    query = "SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass(%s)"
    found = await fetch_rows(connection, query, (INDEX,))
    if found == [(True,)]:
        return True
    locked = "SELECT pg_try_advisory_lock(hashtext('wick search'), hashtext(current_schema()))"
    if await fetch_rows(connection, locked, ()) != [(True,)]:
        return True  # another server is creating it
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public")
        query = "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = %s"
        ((where,),) = await fetch_rows(connection, query, ("pg_trgm",))
        ((has_entries,),) = await fetch_rows(connection, "SELECT EXISTS (SELECT 1 FROM entries)", ())
        await connection.execute(f"SET statement_timeout = '{WAIT_SECONDS}s'")
        if found:
            await connection.execute(f"DROP INDEX {INDEX}")
        # CONCURRENTLY: other servers write while the index of an existing table is created
        statement = f"CREATE INDEX {'CONCURRENTLY' if has_entries else ''} {INDEX} ON entries USING gin (text {{}})"
        operators = sql.Identifier(where, "gin_trgm_ops")
        await connection.execute(sql.SQL(f"{statement} WHERE text IS NOT NULL").format(operators))
        return True
    except psycopg.Error as error:
        problem = " ".join(str(error).split())[:200]
        logger.warning(
            "searches scan all messages of a user: the extension pg_trgm cannot be used (%s); "
            "run CREATE EXTENSION pg_trgm in the database as its owner, and restart",
            problem,
        )
        return False
    finally:
        await connection.execute("RESET statement_timeout")
        await connection.execute("SELECT pg_advisory_unlock(hashtext('wick search'), hashtext(current_schema()))")


def like_pattern(word: str) -> str:
    """Return the pattern of LIKE for texts that contain a word."""
    return "%" + word.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
