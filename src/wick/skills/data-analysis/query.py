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
LEADING_ZERO = re.compile(r"[+-]?0\d")  # a code, such as 00123, and no number
SHOWN_ROWS, SHOWN_CHARS = 100, 60


class Unusable(Exception):
    """Something cannot be read or asked; the message says what."""


def cell(value: Any) -> Any:
    """A value as SQLite keeps it: a number where it is one, nothing where there is nothing."""
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


def from_csv(path: str) -> tuple[list[str], list[list[Any]]]:
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
    return names, [[cell(value) for value in [*row, *[""] * len(names)][: len(names)]] for row in rows[1:]]


def from_json(path: str) -> tuple[list[str], list[list[Any]]]:
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
        raise Unusable(f"{path} is no list of objects")
    names = list(dict.fromkeys(key for row in data for key in row))
    return names, [[cell(row.get(name)) for name in names] for row in data]


def table_name(path: str, taken: Iterable[str]) -> str:
    stem = re.sub(r"\W+", "_", os.path.splitext(os.path.basename(path))[0]).strip("_") or "data"
    name = f"t_{stem}" if stem[0].isdigit() else stem
    if name.lower() in {other.lower() for other in taken}:
        raise Unusable(f"two files would be the table {name}; rename one of them")
    return name


def unique(names: Sequence[str]) -> list[str]:
    """The names of columns, each another one; SQLite takes upper and lower case for the same."""
    found: list[str] = []
    for at, name in enumerate(names, 1):
        taken = {other.lower() for other in found}
        found.append(name if name.lower() not in taken else f"{name}_{at}")
    return found


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def loaded(paths: Sequence[str]) -> tuple[sqlite3.Connection, dict[str, int]]:
    """A database in memory with a table for each file, and how many rows each has."""
    database = sqlite3.connect(":memory:")
    tables: dict[str, int] = {}
    for path in paths:
        names, rows = (from_csv if path.lower().endswith((".csv", ".tsv")) else from_json)(path)
        name = table_name(path, tables)
        columns = ", ".join(map(quoted, unique(names)))
        database.execute(f"CREATE TABLE {quoted(name)} ({columns})")
        database.executemany(f"INSERT INTO {quoted(name)} VALUES ({', '.join('?' * len(names))})", rows)
        tables[name] = len(rows)
    database.execute("PRAGMA query_only = 1")
    return database, tables


def overview(database: sqlite3.Connection, tables: dict[str, int]) -> str:
    out = []
    for name, count in tables.items():
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({quoted(name)})")]
        kinds = [
            "/".join(
                kind for (kind,) in database.execute(f"SELECT DISTINCT typeof({quoted(column)}) FROM {quoted(name)}")
            )
            for column in columns
        ]
        out.append(f"## {name}: {count} rows\n")
        out += [f"- {column} ({kind or 'no rows'})" for column, kind in zip(columns, kinds)]
        out += ["", as_table(columns, database.execute(f"SELECT * FROM {quoted(name)} LIMIT 3").fetchall()), ""]
    return "\n".join(out).rstrip()


def as_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    body = [[text(value) for value in row] for row in rows[:SHOWN_ROWS]]
    lines = [names, ["---"] * len(names), *body]
    more = f"\n… and {len(rows) - SHOWN_ROWS} more rows; --csv writes them all" if len(rows) > SHOWN_ROWS else ""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + more


def text(value: Any) -> str:
    said = "" if value is None else " ".join(str(value).split()).replace("|", "\\|")
    return said if len(said) <= SHOWN_CHARS else said[: SHOWN_CHARS - 1] + "…"


def written(path: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
    return f"wrote {len(rows)} rows to {path}"


def answered(given: argparse.Namespace) -> str:
    files = [word for word in given.words if word.lower().endswith(FILES)]
    asked = [word for word in given.words if word not in files]
    if not files or len(asked) != (0 if given.tables else 1):
        raise Unusable("give one file or several, and one query in quotes, or --tables")
    database, tables = loaded(files)
    if given.tables:
        return overview(database, tables)
    cursor = database.execute(asked[0])
    names, rows = [column[0] for column in cursor.description or ()], cursor.fetchall()
    if given.csv:
        return written(given.csv, names, rows)
    if given.json:
        return json.dumps([dict(zip(names, row)) for row in rows], ensure_ascii=False, indent=1)
    return as_table(names, rows)


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one SQL query over data files.")
    parser.add_argument("words", nargs="+", metavar="FILE… QUERY")
    parser.add_argument("--tables", action="store_true", help="show the tables instead")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", default="", metavar="FILE", help="write the result to a file")
    csv.field_size_limit(10_000_000)
    try:
        print(answered(parser.parse_args(args)))
    except (OSError, OverflowError, csv.Error, sqlite3.Error, Unusable) as error:
        print(f"that did not work: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
