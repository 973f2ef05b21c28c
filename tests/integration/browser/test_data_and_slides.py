"""Tables and slides on the canvas: looked at, changed, drawn, presented, and the same for the API."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from playwright.sync_api import Page, expect
from pptx import Presentation
from pptx.enum.chart import XL_CHART_TYPE

from browser_pages import ApiClient, wait_for
from canvas_page import open_file, save_file, switch_view, wait_for_text

CSV = "fruit,count,price\napple,5,1.5\npear,12,2\nquince,3,4.25\n"
DECK = """---
theme: plain
---

# Otters

What they do all day

---

## Mornings

::: columns
- sleep
- swim
|||
```chart pie
Hours
| what | hours |
|---|---|
| sleep | 9 |
| swim | 5 |
```
:::

Note: Tell them about the river.

---

## Figures

```chart bar
| day | fish | crabs |
|---|---|---|
| Mon | 3 | 1 |
| Tue | 5 | 2 |
```

---

Layout: center

> Swim while you can.
"""

CHANGES = [  # a file, its content, a cell, the new value, and the new content
    ("semi.csv", "a;b\n1,5;2\n", "2", "7", "a;b\n1,5;7\n"),
    ("ends.csv", "\ufeffa,b\r\n1,2\r\n", "2", "7", "\ufeffa,b\r\n1,7\r\n"),
    (
        "kinds.json",
        '[{"zip": "01234", "n": 1, "on": true}, {"zip": "9", "n": 2, "deep": {"a": [1]}}]',
        "9",
        "00005",
        '[{"zip":"01234","n":1,"on":true},{"zip":"00005","n":2,"deep":{"a":[1]}}]\n',
    ),
]


def entered(page: Page, cell: str, value: str) -> None:
    """Write into a cell of the grid."""
    page.get_by_role("grid", name="Data").get_by_role("gridcell", name=cell, exact=True).dblclick()
    page.get_by_label("Value", exact=True).fill(value)
    page.keyboard.press("Enter")


# -- data -------------------------------------------------------------------------------------------------------------


def test_data_is_a_grid_that_is_sorted_filtered_edited_and_drawn(ada: Page, api: ApiClient) -> None:
    api.write("fruit.csv", CSV)
    panel = open_file(ada, "fruit.csv")
    grid = ada.get_by_role("grid", name="Data")
    expect(grid.get_by_role("row")).to_have_count(4)
    grid.get_by_role("button", name="count").click()
    expect(grid.get_by_role("row").nth(1)).to_contain_text("quince")
    ada.get_by_placeholder("Filter rows").fill("pear")
    expect(grid.get_by_role("row")).to_have_count(2)
    entered(ada, "12", "40")
    ada.get_by_placeholder("Filter rows").press("Escape")  # it empties the field, and closes nothing
    expect(grid.get_by_role("row")).to_have_count(4)
    grid.get_by_role("gridcell", name="40").press("Control+s")
    wait_for_text(api, "fruit.csv", CSV.replace("pear,12", "pear,40"))
    switch_view(ada, "Chart")
    bars = panel.locator("figure[data-chart] rect")
    expect(bars).to_have_count(6)
    expect(bars.filter(has_text="pear, count: 40")).to_have_count(1)
    panel.get_by_role("checkbox", name="price").uncheck()
    expect(bars).to_have_count(3)
    panel.get_by_role("combobox", name=re.compile("^Chart")).select_option("pie")
    expect(panel.locator("figure[data-chart] path")).to_have_count(3)
    api.write("fruit.csv", CSV + "medlar,7,9\n")
    expect(panel.locator("figure[data-chart] path")).to_have_count(4)
    switch_view(ada, "Grid")
    expect(grid).to_contain_text("medlar")


def test_a_long_table_has_pages_and_is_changed_with_keys_alone(ada: Page, api: ApiClient) -> None:
    rows = "".join(f"{number}\tword{number}\n" for number in range(250))
    api.write("long.tsv", f"n\tword\n{rows}")
    panel = open_file(ada, "long.tsv")
    expect(panel.get_by_role("status").filter(has_text="250 rows")).to_be_visible()
    panel.get_by_role("button", name="Next", exact=True).click()
    expect(panel.get_by_text("Page 2 of 3")).to_be_visible()
    panel.get_by_role("gridcell", name="100", exact=True).focus()
    for key in ("ArrowDown", "ArrowRight", "x", "Enter", "Control+z", "Control+Shift+z"):
        ada.keyboard.press(key)
    panel.get_by_role("button", name="Add row").click()
    panel.get_by_role("button", name="Undo").click()
    ada.keyboard.press("Control+s")
    wait_for_text(api, "long.tsv", f"n\tword\n{rows}".replace("word101\n", "x\n"))


def test_a_cell_is_changed_and_everything_else_stays(ada: Page, api: ApiClient) -> None:
    for name, text, cell, value, now in CHANGES:
        api.write(name, text)
        open_file(ada, name)
        entered(ada, cell, value)
        save_file(ada)
        wait_for_text(api, name, now)


def test_data_that_is_no_table_is_code(ada: Page, api: ApiClient) -> None:
    api.write("large.json", json.dumps([{"id": 2**60 + 1}]))
    open_file(ada, "large.json")
    expect(ada.get_by_label("Text of large.json")).to_contain_text(str(2**60 + 1))
    api.write("turning.json", '[{"a": 1}]')
    panel = open_file(ada, "turning.json")
    expect(panel.get_by_role("grid")).to_be_visible()
    api.write("turning.json", '{"a": 1}')
    expect(ada.get_by_label("Text of turning.json")).to_contain_text('{"a": 1}')


# -- slides -----------------------------------------------------------------------------------------------------------


def test_slides_are_shown_and_restyled(ada: Page, api: ApiClient) -> None:
    api.write("look.md", DECK)
    panel = open_file(ada, "look.md")
    stage = panel.locator(".slides-stage")
    expect(stage.get_by_role("heading")).to_have_text("Otters")
    panel.get_by_role("button", name="Next slide").click()
    left, right = (stage.locator(".slides-columns > div").nth(place).bounding_box() for place in (0, 1))
    assert left is not None and right is not None and left["x"] + left["width"] <= right["x"]
    expect(stage.locator(".slides-columns figure")).to_contain_text("Hours")
    expect(panel.get_by_text("Tell them about the river.")).to_be_visible()
    panel.get_by_label("Theme").select_option("sea")
    expect(stage.locator(".slides-slide")).to_have_css("background-color", "rgb(242, 248, 251)")
    panel.get_by_label("Layout").select_option("center")
    expect(stage.locator(".slides-slide")).to_have_attribute("data-layout", "center")
    save_file(ada)
    wait_for(lambda: "theme: sea" in api.read("look.md"))
    assert "Layout: center\n## Mornings" in api.read("look.md")
    panel.get_by_role("button", name="Undo").click()
    expect(stage.locator(".slides-slide")).to_have_attribute("data-layout", "plain")
    api.write("look.md", DECK.replace("Mornings", "Evenings"))
    panel.get_by_role("button", name="Use the file’s version").click()
    expect(stage.get_by_role("heading")).to_have_text("Evenings")
    expect(panel.get_by_label("Theme")).to_have_value("plain")


def test_slides_are_presented_over_the_whole_screen(ada: Page, api: ApiClient) -> None:
    api.write("show.md", DECK)
    panel = open_file(ada, "show.md")
    panel.get_by_role("button", name="Present").click()
    shown = ada.get_by_role("dialog", name=re.compile("Presentation"))
    expect(shown).to_be_focused()
    wait_for(lambda: ada.evaluate("document.fullscreenElement === document.querySelector('.slides-present')"))
    for key in ("ArrowRight", "n"):
        ada.keyboard.press(key)
    expect(shown.get_by_text("Tell them about the river.")).to_be_visible()
    for key in ("PageDown", " "):
        ada.keyboard.press(key)
    expect(shown.locator("blockquote")).to_have_text("Swim while you can.")
    ada.keyboard.press("Tab")
    expect(shown.get_by_role("button", name="Exit (Esc)")).to_be_focused()
    ada.keyboard.press("Enter")
    expect(shown).to_have_count(0)
    wait_for(lambda: ada.evaluate("document.fullscreenElement === null"))
    expect(panel.get_by_text("4 / 4")).to_be_visible()


def test_slides_export_to_powerpoint(ada: Page, api: ApiClient) -> None:
    api.write("otters.md", DECK)
    panel = open_file(ada, "otters.md")
    panel.get_by_label("Theme").select_option("forest")  # not saved, and in the file all the same
    with ada.expect_download() as download:
        panel.get_by_role("button", name="PowerPoint").click()
    assert download.value.suggested_filename == "otters.pptx"
    slides = list(Presentation(io.BytesIO(download.value.path().read_bytes())).slides)
    assert [_texts(slide)[:1] for slide in slides] == [["Otters"], ["Mornings"], ["Figures"], ["Swim while you can."]]
    assert "What they do all day" in _texts(slides[0])
    words = next(shape for shape in slides[1].shapes if shape.has_text_frame and "swim" in shape.text_frame.text)
    pie, bars = _chart(slides[1]), _chart(slides[2])
    assert words.left + words.width <= pie.left and pie.chart.chart_type == XL_CHART_TYPE.PIE
    assert slides[1].notes_slide.notes_text_frame.text == "Tell them about the river."
    assert bars.chart.chart_type == XL_CHART_TYPE.COLUMN_CLUSTERED
    assert list(bars.chart.plots[0].categories) == ["Mon", "Tue"]
    assert [(one.name, tuple(one.values)) for one in bars.chart.plots[0].series] == [
        ("fish", (3, 5)),
        ("crabs", (1, 2)),
    ]
    assert slides[0].background.fill.fore_color.rgb == _rgb("f4f8f2")
    assert "theme: plain" in api.read("otters.md")


def _texts(slide: Any) -> list[str]:
    return [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame and shape.text_frame.text]


def _chart(slide: Any) -> Any:
    return next(shape for shape in slide.shapes if shape.has_chart)


def _rgb(text: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(text))
