#!/usr/bin/env python3
"""Run one SQL query over data files: each is a table named after its file.

    python3 query.py orders.csv customers.json --tables
    python3 query.py orders.csv "SELECT country, SUM(amount) FROM orders GROUP BY country" [--json | --csv out.csv]

Reads CSV, TSV, JSON (a list of objects, or an object with one) and JSON Lines. Python 3.8 and the standard library.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sqlite3
import sys
from typing import Any, Iterable, Sequence

FILES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
INTEGER, REAL = re.compile(r"[+-]?(0|[1-9]\d{0,17})"), re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,3})?")
LEADING_ZERO = re.compile(r"[+-]?0\d")  # a code, such as 00123, not a number
SHOWN_ROWS, SHOWN_CHARS = 100, 60


class Unusable(Exception):
    """A file or query is invalid; the message is the reason."""


def to_sqlite(value: Any) -> Any:
    """Convert a value for SQLite: texts that are numbers become numbers, empty ones NULL."""
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, (int, float)):
        return value
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text = value.strip()
    if INTEGER.fullmatch(text):
        return int(text)
    if REAL.fullmatch(text) and not LEADING_ZERO.match(text):
        return float(text)
    return text or None


def read_csv(path: str) -> tuple[list[str], list[list[Any]]]:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        head = file.readline()
        delimiter = "\t" if path.lower().endswith(".tsv") else max(",;\t|", key=head.count)
        file.seek(0)
        rows = [row for row in csv.reader((line.replace("\0", "") for line in file), delimiter=delimiter) if row]
    if not rows:
        raise Unusable(f"{path} is empty")
    names = [name.strip() or f"column_{at}" for at, name in enumerate(rows[0], 1)]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            print(f"note: row {number} of {path} has {len(row)} fields, not {len(names)}", file=sys.stderr)
    return names, [[to_sqlite(value) for value in [*row, *[""] * len(names)][: len(names)]] for row in rows[1:]]


def read_json(path: str) -> tuple[list[str], list[list[Any]]]:
    with open(path, encoding="utf-8-sig") as file:
        text = file.read()
    try:
        if path.lower().endswith(".json"):
            data = json.loads(text)
        else:
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise Unusable(f"{path} is not JSON: {error}") from None
    if isinstance(data, dict):
        data = next((value for value in data.values() if isinstance(value, list)), [data])
    if not isinstance(data, list) or not data or not all(isinstance(row, dict) for row in data):
        raise Unusable(f"{path} is not a list of objects")
    names = list(dict.fromkeys(key for row in data for key in row))
    return names, [[to_sqlite(row.get(name)) for name in names] for row in data]


def table_name(path: str, taken: Iterable[str]) -> str:
    stem = re.sub(r"\W+", "_", os.path.splitext(os.path.basename(path))[0]).strip("_") or "data"
    name = f"t_{stem}" if stem[0].isdigit() else stem
    if name.lower() in {other.lower() for other in taken}:
        raise Unusable(f"two files have the table name {name}; rename one of them")
    return name


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the column names without duplicates. SQLite ignores case, so this does too."""
    found: list[str] = []
    for at, name in enumerate(names, 1):
        taken = {other.lower() for other in found}
        found.append(name if name.lower() not in taken else f"{name}_{at}")
    return found


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def load_tables(paths: Sequence[str]) -> tuple[sqlite3.Connection, dict[str, int]]:
    """Return an in-memory database with a table for each file, and the number of rows of each."""
    database = sqlite3.connect(":memory:")
    tables: dict[str, int] = {}
    for path in paths:
        names, rows = (read_csv if path.lower().endswith((".csv", ".tsv")) else read_json)(path)
        name = table_name(path, tables)
        columns = ", ".join(map(quote_name, unique_names(names)))
        database.execute(f"CREATE TABLE {quote_name(name)} ({columns})")
        database.executemany(f"INSERT INTO {quote_name(name)} VALUES ({', '.join('?' * len(names))})", rows)
        tables[name] = len(rows)
    database.execute("PRAGMA query_only = 1")
    return database, tables


def describe_tables(database: sqlite3.Connection, tables: dict[str, int]) -> str:
    out = []
    for name, count in tables.items():
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({quote_name(name)})")]
        kinds = [
            "/".join(
                kind
                for (kind,) in database.execute(f"SELECT DISTINCT typeof({quote_name(column)}) FROM {quote_name(name)}")
            )
            for column in columns
        ]
        out.append(f"## {name}: {count} rows\n")
        out += [f"- {column} ({kind or 'no rows'})" for column, kind in zip(columns, kinds)]
        out += ["", format_table(columns, database.execute(f"SELECT * FROM {quote_name(name)} LIMIT 3").fetchall()), ""]
    return "\n".join(out).rstrip()


def format_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    body = [[format_value(value) for value in row] for row in rows[:SHOWN_ROWS]]
    lines = [names, ["---"] * len(names), *body]
    more = f"\n… and {len(rows) - SHOWN_ROWS} more rows; --csv writes all of them" if len(rows) > SHOWN_ROWS else ""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + more


def format_value(value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split()).replace("|", "\\|")
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def write_csv(path: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
    return f"wrote {len(rows)} rows to {path}"


def run_query(given: argparse.Namespace) -> str:
    files = [word for word in given.words if word.lower().endswith(FILES)]
    queries = [word for word in given.words if word not in files]
    if not files or len(queries) != (0 if given.tables else 1):
        raise Unusable("pass one or more files and one query in quotes, or --tables")
    database, tables = load_tables(files)
    if given.tables:
        return describe_tables(database, tables)
    cursor = database.execute(queries[0])
    names, rows = [column[0] for column in cursor.description or ()], cursor.fetchall()
    if given.csv:
        return write_csv(given.csv, names, rows)
    if given.json:
        return json.dumps([dict(zip(names, row)) for row in rows], ensure_ascii=False, indent=1)
    return format_table(names, rows)


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one SQL query over data files.")
    parser.add_argument("words", nargs="+", metavar="FILE… QUERY")
    parser.add_argument("--tables", action="store_true", help="show the tables instead")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", default="", metavar="FILE", help="write the result to a file")
    csv.field_size_limit(10_000_000)
    try:
        print(run_query(parser.parse_args(args)))
    except (OSError, OverflowError, csv.Error, sqlite3.Error, Unusable) as error:
        print(f"query failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
