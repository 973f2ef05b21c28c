"""The skill `slides` reads the decks of the shared fixture as the web interface does (ui/src/canvas/decks.test.ts)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shipped_skills import load_program

deck = load_program("slides")
DECKS = json.loads((Path(__file__).parents[2] / "fixtures" / "decks.json").read_text(encoding="utf-8"))


def project_deck(text: str) -> dict[str, Any]:
    """Return a deck in the form of the fixture."""
    meta, slides = deck.parse_deck(text)
    theme = next(name for name, colors in deck.THEMES.items() if colors == deck.theme_colors(meta))
    title = meta.get("title") or (slides[0].heading if slides else "")
    return {
        "title": title,
        "author": meta.get("author", ""),
        "theme": theme,
        "slides": [project_slide(slide) for slide in slides],
    }


def project_slide(slide: Any) -> dict[str, Any]:
    blocks = [block for block in slide.blocks if block is not slide.first_heading]
    notes = " ".join(" ".join(slide.notes).split())
    return {"heading": slide.heading, "layout": slide.layout, "notes": notes, "blocks": project_blocks(blocks)}


def project_blocks(blocks: Any) -> list[dict[str, Any]]:
    """Return the blocks. Successive blocks of text are one, by their words."""
    found: list[dict[str, Any]] = []
    for block in blocks:
        if block.kind == "picture":
            found.append({"kind": "picture", "words": block.lines[0], "path": block.lines[1]})
        elif block.kind == "columns":
            found.append({"kind": "columns", "columns": [project_blocks(column) for column in block.lines]})
        elif block.kind == "chart" and (chart := deck.parse_chart(block.lines)):
            series = [{"name": name, "values": row} for name, row in zip(chart.series, chart.figures, strict=True)]
            about = {"kind": chart.kind, "title": chart.title, "labels": chart.labels, "series": series}
            found.append({"kind": "chart", "chart": about})
        else:
            lines = block.lines[1:] if block.kind == "chart" else block.lines
            texts = [line[2] if isinstance(line, tuple) else line for line in lines]
            if not found or found[-1]["kind"] != "text":
                found.append({"kind": "text", "words": ""})
            found[-1]["words"] = " ".join(re.findall(r"\w+", " ".join([found[-1]["words"], *texts])))
    return found


@pytest.mark.parametrize("case", DECKS, ids=lambda case: case["name"])
def test_a_deck_is_read_as_in_the_fixture(case: dict[str, Any]) -> None:
    assert project_deck("\n".join(case["lines"])) == case["deck"]


def test_the_fixture_has_each_theme_layout_and_kind_of_chart() -> None:
    found = json.dumps([case["deck"] for case in DECKS])
    for name in (*deck.THEMES, *deck.LAYOUTS, *deck.CHARTS):
        assert f'"{name}"' in found
