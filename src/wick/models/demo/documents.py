"""The files that the demo model writes: slides, tables, documents and plans."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import StringIO

from wick._internal.frozen import digest
from wick.models.demo.instance import LABEL

_ROWS = 5


def build_slug(topic: str) -> str:
    return "-".join(re.findall(r"[^\W_]+", topic.lower())[:6])[:60] or "demo"


def capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def write_slides(topic: str) -> str:
    """Return five slides in the Markdown of the skill `slides`."""
    rows = "\n".join(f"| {year} | {_pick_number(f'{topic} {year}')} |" for year in range(2020, 2025))
    slides = [
        f"# {capitalize(topic)}\n\nSlides by the {LABEL}",
        f"## Why {topic}?\n\n- It was asked for\n- It fits on five slides\n- Each of them can be edited",
        f"## What there is to know\n\n1. Where {topic} began\n2. What it is today\n3. Where it is going",
        f"## In numbers\n\n| Year | Value |\n|---|---|\n{rows}",
        f"## Questions?\n\nAsk a larger model for the facts about {topic}.",
    ]
    return "\n\n---\n\n".join(slides) + "\n"


def write_document(topic: str, kind: str) -> str:
    return (
        f"# {capitalize(topic)}\n\nThis {kind} was written by the {LABEL}. The facts are yours to add.\n\n"
        f"## Details\n\n- What {topic} is\n- Why it matters\n- What to do next\n"
    )


def write_plan(topic: str, steps: Sequence[str]) -> str:
    return f"# Plan: {capitalize(topic)}\n\n" + "".join(f"{number}. {step}\n" for number, step in enumerate(steps, 1))


def write_table(topic: str, columns: Sequence[str] = ()) -> str:
    """Return CSV with a label in the first column and numbers in the others."""
    heads = [*columns] or ["Name", capitalize(topic)]
    file = StringIO()
    rows = (
        [f"{heads[0]} {row}", *(_pick_number(f"{head} {row}") for head in heads[1:])] for row in range(1, _ROWS + 1)
    )
    csv.writer(file, lineterminator="\n").writerows([heads, *rows])
    return file.getvalue()


def _pick_number(text: str) -> int:
    """Return a two-digit number derived from a text."""
    return int(digest(text.encode())[:4], 16) % 90 + 10
