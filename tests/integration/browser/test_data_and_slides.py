"""Tables and slides on the canvas: looked at, changed, drawn, presented, and the same for the API."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect
from pptx import Presentation
from pptx.enum.chart import XL_CHART_TYPE

from browser_pages import ApiClient, find_violations, open_page, wait_for
from canvas_page import open_file, save_file, switch_view, wait_for_text
from server_process import ServerProcess

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
    figure = panel.locator("figure[data-chart]")
    figure.get_by_text("Show as a table").click()
    expect(figure.get_by_role("row")).to_have_text(["countprice", "apple51.5", "pear402", "quince34.25"])
    panel.get_by_role("checkbox", name="price").uncheck()
    expect(figure.get_by_role("columnheader")).to_have_text(["count"])
    panel.get_by_role("combobox", name=re.compile("^Chart")).select_option("pie")
    expect(figure.locator("li")).to_have_text(["apple", "pear", "quince"])
    api.write("fruit.csv", CSV + "medlar,7,9\n")
    expect(figure.locator("li")).to_have_count(4)
    switch_view(ada, "Grid")
    expect(grid).to_contain_text("medlar")


COLOURS = """canvas => {
  const {width, height} = canvas
  const {data} = canvas.getContext('2d').getImageData(0, 0, width, height)
  const found = new Set()
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] === 255) found.add([...data.slice(at, at + 3)].join())
  return [...found]
}"""


def test_charts_are_drawn_in_the_colours_of_the_page(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    api.write("drawn.csv", CSV)
    with open_page(browser, server, color_scheme="light") as page:
        panel = open_file(page, "drawn.csv")
        switch_view(page, "Chart")
        canvas = panel.locator("figure canvas")
        for kind in ("bar", "line", "area", "pie"):
            panel.get_by_role("combobox", name=re.compile("^Chart")).select_option(kind)
            expect(canvas).to_have_accessible_name(f"Chart, {kind}: count, price by 3 labels")
            wait_for(lambda: "196,96,26" in canvas.evaluate(COLOURS))
            assert not find_violations(page), kind
        page.emulate_media(color_scheme="dark")
        wait_for(lambda: "240,163,94" in canvas.evaluate(COLOURS))
        assert not find_violations(page), "dark"
        panel.get_by_text("Show as a table").press("Enter")
        expect(panel.get_by_role("cell", name="4.25")).to_be_visible()
        assert not find_violations(page), "with a table"


def test_a_long_table_scrolls_and_is_changed_with_keys_alone(ada: Page, api: ApiClient) -> None:
    rows = "".join(f"{number}\tword{number}\n" for number in range(20_000))
    api.write("long.tsv", f"n\tword\n{rows}")
    panel = open_file(ada, "long.tsv")
    expect(panel.get_by_role("status").filter(has_text="20,000 rows")).to_be_visible()
    assert panel.get_by_role("row").count() < 100
    panel.get_by_role("gridcell", name="0", exact=True).focus()
    ada.keyboard.press("Control+End")
    last = panel.get_by_role("gridcell", name="word19999", exact=True)
    expect(last).to_be_focused()
    expect(last).to_be_in_viewport()
    panel.locator(".canvas-grid-place").evaluate("(box) => { box.scrollTop = 0 }")  # the focus is not lost with its row
    expect(panel.get_by_role("gridcell", name="word5", exact=True)).to_be_in_viewport()
    ada.keyboard.press("ArrowUp")
    expect(panel.get_by_role("gridcell", name="word19998", exact=True)).to_be_focused()
    expect(panel.get_by_role("gridcell", name="word19998", exact=True)).to_be_in_viewport()
    for key in ("x", "Enter", "Control+z", "Control+Shift+z"):
        ada.keyboard.press(key)
    panel.get_by_role("button", name="Add row").click()
    panel.get_by_role("button", name="Undo").click()
    ada.keyboard.press("Control+s")
    wait_for_text(api, "long.tsv", f"n\tword\n{rows}".replace("word19998\n", "x\n"))


def test_ranges_are_selected_by_mouse_and_keys_copied_and_cleared(ada: Page, api: ApiClient) -> None:
    ada.context.grant_permissions(["clipboard-read", "clipboard-write"])
    api.write("range.csv", CSV)
    panel = open_file(ada, "range.csv")
    selected = panel.get_by_role("gridcell", selected=True)
    _drag(ada, panel.get_by_role("gridcell", name="5", exact=True), panel.get_by_role("gridcell", name="2", exact=True))
    expect(selected).to_have_text(["5", "1.5", "12", "2"])
    expect(panel.get_by_role("gridcell", name="5", exact=True)).to_be_focused()
    ada.keyboard.press("Shift+ArrowDown")
    expect(selected).to_have_count(6)
    ada.keyboard.press("Control+c")
    expect(ada.get_by_text("Copied.")).to_be_visible()
    assert ada.evaluate("navigator.clipboard.readText()") == "5\t1.5\n12\t2\n3\t4.25"
    panel.get_by_role("rowheader", name="2", exact=True).click()
    expect(selected).to_have_text(["pear", "12", "2"])
    assert not find_violations(ada), "with a range"
    ada.keyboard.press("Delete")
    ada.keyboard.press("Control+s")
    wait_for_text(api, "range.csv", CSV.replace("pear,12,2", ",,"))
    ada.keyboard.press("Control+z")
    ada.keyboard.press("Escape")  # one cell again, and the panel stays open
    expect(selected).to_have_text(["pear"])
    expect(panel).to_be_visible()


def test_columns_have_the_width_that_is_given_to_them(ada: Page, api: ApiClient) -> None:
    api.write("wide.csv", CSV)
    panel = open_file(ada, "wide.csv")
    head = panel.get_by_role("columnheader", name="fruit")
    width = _width(head)
    place = head.locator(".canvas-grid-handle").bounding_box()
    assert place is not None
    ada.mouse.move(place["x"] + 4, place["y"] + 9)
    ada.mouse.down()
    ada.mouse.move(place["x"] + 104, place["y"] + 9, steps=4)
    ada.mouse.up()
    wait_for(lambda: _width(head) == width + 100)
    assert _width(panel.get_by_role("gridcell", name="apple")) == width + 100
    expect(head).to_have_attribute("aria-sort", "none")
    head.get_by_role("button").press("Shift+ArrowLeft")
    wait_for(lambda: _width(head) == width + 84)
    head.locator(".canvas-grid-handle").dblclick()
    wait_for(lambda: _width(head) == width)


def _drag(page: Page, start: Locator, end: Locator) -> None:
    start.hover()
    page.mouse.down()
    end.hover()
    page.mouse.up()


def _width(cell: Locator) -> float:
    box = cell.bounding_box()
    assert box is not None
    return round(box["width"])


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
