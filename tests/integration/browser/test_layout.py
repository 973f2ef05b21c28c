"""The layout: panels beside and below each other, movable borders, full width, and all of it in the address."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, Page, expect

from browser_pages import ApiClient, find_violations, open_page, open_panel, send_and_wait, wait_for
from canvas_page import open_file
from server_process import ServerProcess

FROM_END = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight"
PHONE = {"width": 390, "height": 844}


def panel(page: Page, name: str) -> Any:
    return page.get_by_role("complementary", name=name, exact=True)


def place(page: Page, name: str) -> dict[str, float]:
    box = panel(page, name).bounding_box()
    assert box is not None
    return dict(box)


def test_files_are_beside_the_canvas_and_the_terminal_is_below(ada: Page, api: ApiClient) -> None:
    api.write("notes.md", "# Notes\n")
    open_file(ada, "notes.md")
    open_panel(ada, "Terminal")
    files, canvas, terminal = (place(ada, name) for name in ("Files", "Canvas", "Terminal"))
    assert files["x"] + files["width"] <= canvas["x"] and abs(files["y"] - canvas["y"]) < 2
    assert terminal["y"] >= canvas["y"] + canvas["height"] and terminal["width"] > canvas["width"]
    assert not find_violations(ada)
    ada.get_by_role("button", name="Move up: Terminal").click()
    wait_for(lambda: place(ada, "Terminal")["y"] < place(ada, "Canvas")["y"])


def test_borders_move_by_keys_and_by_mouse_and_stay_after_a_reload(ada: Page) -> None:
    open_panel(ada, "Usage")
    border = ada.get_by_role("separator", name="Border between conversation and panels")
    before = place(ada, "Usage")["width"]
    border.focus()
    ada.keyboard.press("ArrowLeft")
    wait_for(lambda: place(ada, "Usage")["width"] > before + 20)
    by_keys = place(ada, "Usage")["width"]
    middle = border.bounding_box()
    assert middle is not None
    ada.mouse.move(middle["x"], 300)
    ada.mouse.down()
    ada.mouse.move(middle["x"] - 60, 300, steps=4)
    ada.mouse.up()
    wait_for(lambda: place(ada, "Usage")["width"] > by_keys + 40)
    by_mouse = place(ada, "Usage")["width"]
    ada.reload()
    panel(ada, "Usage").wait_for()
    wait_for(lambda: abs(place(ada, "Usage")["width"] - by_mouse) < 3)


def test_a_copied_link_restores_panels_and_tabs(ada: Page, api: ApiClient) -> None:
    for name in ("one.md", "two.md"):
        api.write(name, f"# {name}\n")
        open_file(ada, name)
    open_panel(ada, "Terminal")
    ada.get_by_role("button", name="Full width: Canvas").click()
    link = ada.url
    assert "beside=files" in link and "below=terminal" in link and "wide=true" in link
    other = ada.context.new_page()
    other.goto(link)
    for name in ("Files", "Canvas", "Terminal"):
        panel(other, name).wait_for()
    expect(other.get_by_role("tab", name=re.compile("^two.md"))).to_have_attribute("aria-selected", "true")
    expect(other.get_by_role("tab")).to_have_count(2)
    expect(other.locator("#message")).to_be_hidden()
    other.goto("about:blank")
    other.goto(link.split("#")[0] + "#panel=cellar&below=%00&wide=x&file=../../etc/passwd&show=nowhere&beside=usage")
    panel(other, "Usage").wait_for()
    expect(other.get_by_role("complementary")).to_have_count(1)
    expect(other.locator("#message")).to_be_visible()


def test_full_width_hides_the_conversation_and_returns_to_its_end(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, "\n\n".join(f"line {number}" for number in range(200)))
        open_panel(page, "Usage")
        page.get_by_role("button", name="Full width: Usage").click()
        expect(page.locator("#message")).to_be_hidden()
        assert place(page, "Usage")["width"] > 900
        page.locator("body").press("m")
        expect(page.locator("#message")).to_be_focused()
        from_end = (
            "() => (box => box.scrollHeight - box.scrollTop - box.clientHeight)(document.querySelector('.chat-items'))"
        )
        wait_for(lambda: page.evaluate(from_end) < 2)


def test_the_list_of_threads_can_be_hidden(ada: Page) -> None:
    threads = ada.get_by_role("navigation", name="Threads")
    expect(threads).to_be_visible()
    ada.get_by_role("button", name="Threads", exact=True).click()
    expect(threads).to_have_count(0)
    ada.reload()
    ada.wait_for_selector("#message")
    expect(threads).to_have_count(0)
    ada.keyboard.press("Control+b")
    expect(threads).to_be_visible()
    border = ada.get_by_role("separator", name="Border between threads and conversation")
    before = threads.bounding_box()
    border.focus()
    ada.keyboard.press("ArrowRight")
    assert before is not None
    wait_for(lambda: (threads.bounding_box() or before)["width"] > before["width"] + 10)


def test_a_phone_shows_one_panel_at_a_time(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    api.write("phone.md", "# Phone\n")
    with open_page(browser, server, viewport=PHONE, has_touch=True) as page:
        page.goto("/#panel=canvas&beside=files&below=terminal&file=phone.md")
        expect(page.get_by_role("complementary")).to_have_count(1)
        assert place(page, "Canvas")["width"] == 390
        expect(page.get_by_role("separator")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("button", name="Close Canvas").click()
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_role("button", name="Threads", exact=True).wait_for()


def test_a_form_keeps_its_entries_when_the_page_becomes_narrow_and_wide(ada: Page) -> None:
    rules = open_panel(ada, "Replay").get_by_label("Deny")
    rules.fill("Bash(git push *)")
    expect(open_panel(ada, "Terminal").get_by_label("Terminal input")).to_be_focused()  # it is when it has loaded
    rules.focus()
    for width in (PHONE["width"], 1280):
        ada.set_viewport_size({"width": width, "height": 800})
        wait_for(lambda width=width: abs(place(ada, "Replay")["width"] - width) < (1 if width < 800 else 900))
        expect(ada.get_by_role("complementary")).to_have_count(1 if width < 800 else 2)
        expect(rules).to_have_value("Bash(git push *)")
        expect(rules).to_be_focused()
        assert not find_violations(ada)
