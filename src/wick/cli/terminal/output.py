"""Output of commands: tables, JSON, and a status line during long operations."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

WIDTH = 200  # columns, if the output is not a terminal

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    click.echo(dump_json(data, indent=2))


def dump_json(data: Mapping[str, Any] | Sequence[Any], indent: int | None = None) -> str:
    """Return data as JSON, with control characters escaped."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
    return re.sub(r"[^\n -~]", lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


def print_text(text: str, *, nl: bool = False) -> None:
    """Print untrusted text: without control characters on a terminal, unchanged elsewhere."""
    click.echo(strip_controls(text) if sys.stdout.isatty() else text, nl=nl, color=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str = "") -> None:
    """Print a table. Without rows, print `nothing` to stderr instead."""
    from rich.console import Console  # slow to import
    from rich.table import Table

    cells = [*rows]
    if not cells and nothing:
        click.echo(nothing, err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(strip_controls(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False).print(table)


def strip_controls(text: str) -> str:
    """Replace control characters by spaces: untrusted text must not send escape sequences to the terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def format_time(at: float) -> str:
    """Return a timestamp in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


@contextmanager
def show_status(text: str) -> Iterator[None]:
    """Show a status line while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(strip_controls(text)):
        yield
