"""The canvas and the files: what is changed in the browser is in the workspace, and the other way round."""

from __future__ import annotations

import io
import re

from playwright.sync_api import Page, expect
from pptx import Presentation

from browsing import Asking, show, talk, until

CSV = "fruit,count,price\napple,5,1.5\npear,12,2\nquince,3,4.25\n"
DECK = """---
theme: plain
---

# Otters

What they do all day

---

## Mornings

- sleep
- swim

---

## Figures

```chart bar
| day | fish |
|---|---|
| Mon | 3 |
| Tue | 5 |
```
"""


def opened(page: Page, name: str) -> None:
    show(page, "Files").get_by_role("treeitem", name=re.compile(re.escape(name))).click()
    page.get_by_role("tab", name=name).wait_for()


def saved(page: Page) -> None:
    page.get_by_role("toolbar").get_by_role("button", name="Save", exact=True).click()


def test_a_file_is_edited_and_saved_and_seen_when_it_changes_elsewhere(ada: Page, api: Asking) -> None:
    api.write("code.py", "print('one')\n")
    opened(ada, "code.py")
    editor = ada.get_by_label("Text of code.py")
    expect(editor).to_contain_text("print('one')")
    editor.click()
    ada.keyboard.press("Control+End")
    ada.keyboard.insert_text("print('two')\n")
    ada.keyboard.press("Control+s")
    until(lambda: api.read("code.py") == "print('one')\nprint('two')\n")
    api.write("code.py", "print('three')\n")
    expect(editor).to_contain_text("print('three')")
    ada.get_by_role("group", name="Look at it as").get_by_role("button", name="Changes").click()
    expect(ada.get_by_label("Changes of code.py")).to_contain_text("two")


def test_what_the_agent_writes_opens(ada: Page) -> None:
    talk(ada, "Write a document about lighthouses to lights.md")
    expect(ada.get_by_role("tab", name="lights.md")).to_be_visible()
    expect(ada.locator("article.document")).to_contain_text(re.compile("lighthouse", re.I))


def test_data_is_a_grid_that_is_sorted_filtered_edited_and_drawn(ada: Page, api: Asking) -> None:
    api.write("fruit.csv", CSV)
    opened(ada, "fruit.csv")
    grid = ada.get_by_role("grid", name="Data")
    expect(grid.get_by_role("row")).to_have_count(4)
    grid.get_by_role("button", name="count").click()
    expect(grid.get_by_role("row").nth(1)).to_contain_text("quince")
    ada.get_by_placeholder("Filter rows").fill("pear")
    expect(grid.get_by_role("row")).to_have_count(2)
    cell = grid.get_by_role("gridcell", name="12")
    cell.dblclick()
    ada.get_by_label("Value", exact=True).fill("40")
    ada.keyboard.press("Enter")
    saved(ada)
    until(lambda: api.read("fruit.csv") == CSV.replace("pear,12", "pear,40"))
    ada.get_by_role("group", name="Look at it as").get_by_role("button", name="Chart").click()
    expect(ada.locator("figure.chart svg")).to_be_visible()
    api.write("fruit.csv", CSV + "medlar,7,9\n")
    ada.get_by_role("group", name="Look at it as").get_by_role("button", name="Grid").click()
    ada.get_by_placeholder("Filter rows").fill("")
    expect(grid).to_contain_text("medlar")


def test_slides_are_shown_presented_and_become_powerpoint(ada: Page, api: Asking) -> None:
    api.write("otters.md", DECK)
    opened(ada, "otters.md")
    stage = ada.locator(".stage")
    expect(stage).to_contain_text("Otters")
    ada.get_by_role("button", name="Next slide").click()
    expect(stage).to_contain_text("swim")
    ada.locator(".view-tools").get_by_label("Theme").select_option("sea")
    saved(ada)
    until(lambda: "theme: sea" in api.read("otters.md"))
    ada.get_by_role("button", name="Present").click()
    shown = ada.get_by_role("dialog", name=re.compile("Presentation"))
    expect(shown).to_contain_text("swim")
    shown.press("ArrowRight")
    expect(shown.locator("svg").first).to_be_visible()
    shown.get_by_role("button", name=re.compile("End")).click()
    with ada.expect_download() as download:
        ada.get_by_role("button", name="PowerPoint").click()
    deck = Presentation(io.BytesIO(download.value.path().read_bytes()))
    texts = [shape.text_frame.text for slide in deck.slides for shape in slide.shapes if shape.has_text_frame]
    assert len(deck.slides) == 3 and any("Otters" in text for text in texts) and any("swim" in text for text in texts)


def test_html_is_shown_in_a_frame_that_runs_and_reaches_nothing(ada: Page, api: Asking) -> None:
    api.write(
        "page.html",
        "<h1>Hello</h1><script>parent.document.title='caught'</script>"
        "<img src='http://127.0.0.1:9/x.png' onerror=\"parent.postMessage('caught','*')\">",
    )
    opened(ada, "page.html")
    frame = ada.frame_locator("iframe[title='Preview of page.html']")
    expect(frame.locator("h1")).to_have_text("Hello")
    assert ada.locator("iframe").get_attribute("sandbox") == ""
    assert "caught" not in ada.title()


def test_the_tree_follows_and_changes_the_workspace(ada: Page, api: Asking) -> None:
    files = show(ada, "Files")
    api.write("deep/er/note.txt", "x")
    files.locator("[data-path='deep']").click()
    files.locator("[data-path='deep/er']").click()
    note = files.locator("[data-path='deep/er/note.txt']")
    note.hover()
    note.get_by_role("button", name="Rename note.txt").click()
    ada.get_by_label("New name of note.txt").fill("letter.txt")
    ada.keyboard.press("Enter")
    until(lambda: "letter.txt" in str(api("GET", "/agents/default/files/list", path="deep/er")))
    assert api.read("deep/er/letter.txt") == "x"
    files.locator("input[type=file]").set_input_files(
        {"name": "up.txt", "mimeType": "text/plain", "buffer": b"uploaded"}
    )
    until(lambda: "up.txt" in str(api("GET", "/agents/default/files/list")))
    assert api.read("up.txt") == "uploaded"
    api("DELETE", "/agents/default/files", path="up.txt")
    expect(files.get_by_role("treeitem", name=re.compile("up.txt"))).to_have_count(0)
