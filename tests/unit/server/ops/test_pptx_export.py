"""Slides documents as PowerPoint files, opened again with python-pptx."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from struct import pack
from typing import Any
from zlib import compress, crc32

import pytest

from wick.backends.local import Local
from wick.server.errors import ApiError
from wick.server.ops.pptx_export import DECK_CELLS, DECK_SLIDES, export

pptx = pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")


def png() -> bytes:
    """One red pixel."""
    parts = [(b"IHDR", pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)), (b"IDAT", compress(b"\0\xff\0\0")), (b"IEND", b"")]
    chunks = [pack(">I", len(data)) + name + data + pack(">I", crc32(name + data)) for name, data in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def opened(data: bytes) -> list[Any]:
    return [*pptx.Presentation(BytesIO(data)).slides]


TEXT = """# Harvest
by Ada
---
## Apples fell
| fruit | 2024 |
|---|---|
| apples | 80 t |
---
## In a chart
- text beside it

```chart line
In tonnes
| year | apples | pears |
|---|---|---|
| 2023 | 120 | 60 |
| 2024 | 80 | 61 |
```
"""


async def test_tables_and_charts_are_native() -> None:
    first, second, third = opened(await export(TEXT))
    assert first.shapes.title.text == "Harvest"
    (table,) = [shape.table for shape in second.shapes if shape.has_table]
    assert [[cell.text for cell in row.cells] for row in table.rows] == [["fruit", "2024"], ["apples", "80 t"]]
    (chart,) = [shape.chart for shape in third.shapes if shape.has_chart]
    assert [(one.name, [*one.values]) for one in chart.plots[0].series] == [("apples", [120, 80]), ("pears", [60, 61])]
    assert third.placeholders[1].text == "text beside it"


async def test_images_are_loaded_only_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "outside.png").write_bytes(png())
    work = tmp_path / "work" / "talk"
    work.mkdir(parents=True)
    (work / "in.png").write_bytes(png())
    (work / "text.png").write_text("no picture")
    (work / "huge.png").write_bytes(png() + b"\0" * 6_000_000)
    names = ["in.png", "../../outside.png", str(tmp_path / "outside.png"), "no.png", "text.png", "huge.png", "x.svg"]
    backend = Local(tmp_path / "work", sandbox="none")
    try:
        text = "# T\n\n" + "\n\n".join(f"![{name}]({name})" for name in names)
        (page,) = opened(await export(text, backend, "talk"))
    finally:
        await backend.stop()
    assert sum(shape.shape_type == pptx.enum.shapes.MSO_SHAPE_TYPE.PICTURE for shape in page.shapes) == 1
    assert page.placeholders[1].text.splitlines() == names[1:]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid"),
        ("---\n\n---\n", "invalid"),
        ("# a\n---\n" * (DECK_SLIDES + 1), "too_large"),
        ("# a\n" + "| a |\n" * (DECK_CELLS + 1), "too_large"),
    ],
)
async def test_an_invalid_deck_is_refused(text: str, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        await export(text)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "text", ["# \ud800\x00\x0b<&>", "# T\n- \x1b[0m", "| \x00 |\n|---|", "```chart pie\nT\x01\n|a|b|\n|\x02|1|\n```"]
)
async def test_no_character_breaks_the_file(text: str) -> None:
    assert len(opened(await export(f"{text}\n"))) == 1


async def test_images_in_columns_and_themes_are_exported(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(png())
    text = "---\ntheme: ink\n---\n## Both\n::: columns\n- left\n|||\n![dot](dot.png)\n:::\n"
    (page,) = opened(await export(text, Local(tmp_path), ""))
    assert [shape.shape_type for shape in page.shapes if shape.name.startswith("Picture")]
    assert str(page.background.fill.fore_color.rgb) == "17191D"
