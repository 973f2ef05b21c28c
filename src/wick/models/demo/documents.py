"""What the demo model writes: slides, tables, documents and plans about anything, the same each time."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import StringIO

from wick._internal.frozen import digest
from wick.models.demo.instance import LABEL

MOST_ROWS = 100
_MONTHS = "January February March April May June July August September October November December".split()


def slug(topic: str, otherwise: str = "demo") -> str:
    """A file name made of a topic."""
    return "-".join(re.findall(r"[^\W_]+", topic.lower())[:6])[:60] or otherwise


def title(topic: str) -> str:
    topic = " ".join(topic.split())
    return topic[:1].upper() + topic[1:]


def slides(topic: str) -> str:
    """Slides as Markdown, with a line of dashes between two of them."""
    rows = "\n".join(f"| {year} | {_number(f'{topic} {year}')} |" for year in range(2020, 2025))
    pages = [
        f"# {title(topic)}\n\nSlides by the {LABEL}",
        f"## Why {topic}?\n\n- It was asked for\n- It fits on five slides\n- Each of them can be edited",
        f"## What there is to know\n\n1. Where {topic} began\n2. What it is today\n3. Where it is going",
        f"## In numbers\n\n| Year | Value |\n|---|---|\n{rows}",
        f"## Questions?\n\nAsk a larger model for the facts about {topic}.",
    ]
    return "\n\n---\n\n".join(pages) + "\n"


def document(topic: str, kind: str = "document") -> str:
    """A document as Markdown."""
    return (
        f"# {title(topic)}\n\n"
        f"This {kind} was written by the {LABEL}. It shows what a document looks like; the facts are yours to add.\n\n"
        f"## Summary\n\nA few words about {topic}.\n\n"
        f"## Details\n\n- What {topic} is\n- Why it matters\n- What to do next\n\n"
        "## Next steps\n\n1. Edit this file\n2. Ask a larger model for the facts\n"
    )


def plan(topic: str, steps: Sequence[str]) -> str:
    """A plan as Markdown."""
    return f"# Plan: {title(topic)}\n\n" + "".join(f"{number}. {step}\n" for number, step in enumerate(steps, 1))


def table(topic: str, columns: Sequence[str] = (), rows: int = 0) -> str:
    """A table as CSV: a name in the first column, numbers in the others."""
    heads = list(columns) or ["Month", title(topic), "Change"]
    count = min(rows or (5 if columns else len(_MONTHS)), MOST_ROWS)
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(heads)
    for row in range(count):
        first = f"{heads[0]} {row + 1}" if columns else _MONTHS[row % len(_MONTHS)]
        writer.writerow([first, *(_number(f"{topic} {head} {row}") for head in heads[1:])])
    return file.getvalue()


def _number(text: str) -> int:
    """A number that only looks like chance."""
    return int(digest(text.encode())[:4], 16) % 90 + 10
