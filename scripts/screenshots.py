#!/usr/bin/env python3
"""Make the pictures of the web interface anew: each main screen, light and dark, into docs/images/.

    make ui && .venv/bin/python scripts/screenshots.py [NAME …]

A real server is started for it, with the offline demo model, and everything that is seen is really done.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, expect

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser_pages import (  # noqa: E402
    ApiClient,
    launch_chromium,
    open_api_client,
    open_panel,
    run_story_server,
    sign_in,
    wait_until_loaded,
)

IMAGES = ROOT / "docs" / "images"
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
SALES = "month,tea,coffee\n" + "".join(
    f"{month},{tea},{coffee}\n"
    for month, tea, coffee in zip(
        "Jan Feb Mar Apr May Jun".split(), (31, 35, 42, 40, 55, 61), (52, 49, 47, 50, 44, 39), strict=True
    )
)
DECK = """---
theme: flame
---

# Tea and coffee

What six months of sales say

---

## Tea is catching up

::: columns
- Tea doubled from January to June
- Coffee fell by a quarter
- They crossed in **May**
|||
| month | tea | coffee |
|---|---|---|
| Jan | 31 | 52 |
| Jun | 61 | 39 |
:::

---

## Month by month

```chart line
| month | tea | coffee |
|---|---|---|
| Jan | 31 | 52 |
| Mar | 42 | 47 |
| May | 55 | 44 |
| Jun | 61 | 39 |
```
"""
CODE = '''"""Sums of a table."""

import csv
from pathlib import Path


def totals(path: Path) -> dict[str, int]:
    """The sum of each column of numbers."""
    rows = list(csv.DictReader(path.open()))
    return {name: sum(int(row[name]) for row in rows) for name in rows[0] if name != "month"}


if __name__ == "__main__":
    print(totals(Path("sales.csv")))
'''


def prepare(api: ApiClient) -> None:
    """Create the files, threads and questions of the screenshots."""
    api.write("sales.csv", SALES)
    api.write("deck.md", DECK)
    api.write("totals.py", CODE)
    api.write("notes/ideas.md", "# Ideas\n\n- ask for the figures of July\n")
    api.ask("default", "Plan a tea tasting", thread_id="plan")
    api.ask("default", "Run `python3 totals.py` and read sales.csv", thread_id="sums")
    api("PATCH", "/threads/sums", {"title": "Which drink sells better?"})
    api.begin("careful", "Run the command: cp sales.csv backup.csv && ls -l", "asked")  # it asks first
    api.ask("default", "Write a document about tea ceremonies to ceremony.md", thread_id="tea")
    api.ask("echo", "Tea, coffee, or both? " * 60, thread_id="echo")
    api.ask("slow", "900 0", thread_id="numbers")
    for thread in ("echo", "numbers"):
        api("DELETE", f"/threads/{thread}")  # what they took stays known


def _at(page: Page, thread: str) -> None:
    page.goto(f"/#thread={thread}")
    expect(page.locator("article.chat-reply")).not_to_have_count(0)
    page.wait_for_timeout(800)


def chat(page: Page) -> None:
    _at(page, "sums")
    page.locator(".chat-call-head").first.click()
    page.locator(".chat-call").first.get_by_text("Why").click()
    page.wait_for_timeout(500)
    page.locator(".chat-items").evaluate("box => box.scrollTo(0, 0)")
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)


def question(page: Page) -> None:
    _at(page, "asked")
    page.get_by_role("alertdialog").wait_for()


def _panel(name: str, tab: str = "") -> Callable[[Page], None]:
    def go(page: Page) -> None:
        _at(page, "sums")
        side = open_panel(page, name)
        if tab:
            side.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(1_000)

    return go


def _file(name: str, view: str = "", step: str = "") -> Callable[[Page], None]:
    def go(page: Page) -> None:
        _at(page, "sums")
        open_panel(page, "Files").locator(f"[data-path='{name}']").click()
        page.get_by_role("tab", name=name.split("/")[-1]).wait_for()
        if view:
            page.get_by_role("group", name="View as").get_by_role("button", name=view).click()
        if step:
            page.get_by_role("button", name=step).click()
        page.wait_for_timeout(1_200)

    return go


def terminal(page: Page) -> None:
    _panel("Terminal")(page)
    page.keyboard.type("ls -l && python3 totals.py\n")
    page.wait_for_timeout(1_500)


def replay(page: Page) -> None:
    side = (_panel("Replay")(page), open_panel(page, "Replay"))[1]
    side.get_by_label("Deny").fill("Bash(python3 *)")
    side.get_by_role("button", name="Replay", exact=True).click()
    side.locator("li.replay-changed").first.wait_for()


def usage(page: Page) -> None:
    _panel("Usage")(page)
    side = open_panel(page, "Usage")
    side.get_by_label("Period").select_option("7")
    side.get_by_role("button", name="by agent").click()
    expect(side.locator("figure[data-chart] .chart-legend li")).to_have_count(3)


def trace(page: Page) -> None:
    _panel("Trace")(page)
    open_panel(page, "Trace").get_by_role("treeitem").filter(has_text="execute").click()
    page.wait_for_timeout(500)


def onion(page: Page) -> None:
    _panel("Agent", "Onion")(page)
    open_panel(page, "Agent").locator("svg circle[aria-label^='permissions.check']").focus()
    page.wait_for_timeout(300)


SCREENS: dict[str, Callable[[Page], None]] = {
    "chat": chat,
    "question": question,
    "slides": _file("deck.md", step="Next slide"),
    "chart": _file("sales.csv", "Chart"),
    "grid": _file("sales.csv"),
    "code": _file("totals.py"),
    "terminal": terminal,
    "agent": _panel("Agent"),
    "onion": onion,
    "hooks": _panel("Agent", "Hooks"),
    "trace": trace,
    "usage": usage,
    "approvals": _panel("Approvals"),
    "replay": replay,
}


def shoot(page: Page, name: str, scheme: str) -> None:
    path = IMAGES / f"{name}-{scheme}.png"
    page.screenshot(path=path, animations="disabled", caret="hide")
    with Image.open(path) as drawn:
        _with_few_colours(drawn.convert("RGB")).save(path, optimize=True)  # a third of the bytes
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1000} kB")


def _with_few_colours(drawn: Image.Image) -> Image.Image:
    """The same picture, with the 256 colours that it has most of: they stay as they are, and the others come close."""
    counted = drawn.getcolors(drawn.width * drawn.height) or []
    colours = [colour for _, colour in sorted(counted, reverse=True)]
    most = colours[:256]
    place = {colour: number for number, colour in enumerate(most)}
    for colour in colours[256:]:
        place[colour] = min(range(256), key=lambda number: math.dist(most[number], colour))
    made = Image.new("P", drawn.size)
    made.putpalette([part for colour in most for part in colour])
    made.putdata([place[colour] for colour in drawn.getdata()])
    return made


def main(wanted: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="wick-") as folder,
        run_story_server(Path(folder)) as served,
        launch_chromium() as browser,
    ):
        prepare(open_api_client(served))
        for scheme in ("light", "dark"):
            for device, names in ((DESK, SCREENS), (PHONE, {"phone": chat})):
                context = browser.new_context(base_url=served.url, color_scheme=scheme, **device)  # type: ignore[arg-type]
                page = context.new_page()
                sign_in(page, "ada")
                for name, go in names.items():
                    if wanted and name not in wanted:
                        continue
                    page.goto("/")
                    page.reload()
                    wait_until_loaded(page)
                    go(page)
                    shoot(page, name, scheme)
                context.close()


if __name__ == "__main__":
    main(sys.argv[1:])
