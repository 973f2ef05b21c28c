"""How commands print what they found: a table for people, JSON for programs, and what takes long while it does."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

WIDTH = 200  # of what is not printed on a terminal

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    click.echo(dump_json(data, indent=2))


def dump_json(data: Mapping[str, Any] | Sequence[Any], indent: int | None = None) -> str:
    """Data as JSON that any terminal can show: what it would obey is escaped."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
    return re.sub(r"[^\n -~]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def print_text(text: str, *, nl: bool = False) -> None:
    """Print what somebody else wrote: to a terminal without what it would obey, elsewhere exactly as it is."""
    click.echo(strip_controls(text) if sys.stdout.isatty() else text, nl=nl, color=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str = "") -> None:
    """Print a table. Where there are no rows, `nothing` is said instead, to those who read it."""
    from rich.console import Console  # takes longer to load than most commands to run
    from rich.table import Table

    there = [*rows]
    if not there and nothing:
        click.echo(nothing, err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in there:
        table.add_row(*(strip_controls(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False).print(table)


def strip_controls(text: str) -> str:
    """A text without what a terminal would obey: somebody else may have written it."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def format_count(number: int, what: str) -> str:
    """A number of things: `1 thread`, `2 threads`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_time(at: float) -> str:
    """A time, as people here write it."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


@contextmanager
def show_status(what: str) -> Iterator[None]:
    """Say what is being done, on a terminal and for as long as it takes; elsewhere say nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(strip_controls(what)):
        yield
