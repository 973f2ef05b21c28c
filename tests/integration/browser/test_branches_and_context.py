"""Versions of a message, and the context of a message: files, threads, attachments, long pastes."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from browser_pages import (
    ApiClient,
    find_violations,
    open_page,
    open_thread_id,
    send_and_wait,
    wait_for,
    wait_until_idle,
    wait_until_loaded,
)
from server_process import ServerProcess

PASTE = """(text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  document.querySelector("#message").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
}"""


def versions(page: Page) -> str:
    return str(page.get_by_role("group", name="Versions of this message").inner_text()).replace("\n", " ")


def test_versions_of_a_message(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, "first words")
        expect(page.get_by_role("button", name="Edit")).to_have_count(1)  # the message has its entry
        page.locator("#message").press("ArrowUp")
        edit = page.get_by_label("Your message")
        expect(edit).to_be_focused()
        edit.press("Escape")
        expect(page.locator("#message")).to_be_focused()
        page.locator("#message").press("ArrowUp")
        edit.fill("second words")
        edit.press("Enter")
        wait_until_idle(page)
        expect(page.get_by_text("2/2")).to_be_visible()
        assert not find_violations(page)
        before = page.get_by_role("button", name="Previous version")
        before.focus()
        page.keyboard.press("Enter")
        expect(page.locator("article.chat-reply")).to_contain_text("first words")
        expect(page.locator("article.chat-said")).to_contain_text("1/2")
        expect(before).to_be_focused()
        expect(before).to_have_attribute("aria-disabled", "true")
        with_other = page.context.new_page()
        with_other.goto(page.url)
        wait_until_loaded(with_other)
        expect(with_other.locator("article.chat-reply")).to_contain_text("first words")
        page.locator("article.chat-said").focus()
        page.keyboard.press("ArrowRight")
        for each in (page, with_other):  # another window follows
            expect(each.locator("article.chat-reply")).to_contain_text("second words")
            expect(each.locator("article.chat-said")).to_contain_text("2/2")
        page.reload()
        expect(page.locator("article.chat-said")).to_contain_text("2/2")
        send_and_wait(page, "third words")
        page.get_by_role("button", name="Previous version").click()
        expect(page.locator("article.chat-reply")).to_have_count(1)
        page.get_by_role("button", name="Next version").click()
        expect(page.locator("article.chat-reply").last).to_contain_text("third words")


def test_files_threads_and_pastes_go_along(ada: Page, api: ApiClient) -> None:
    api.write("reports/<img src=x onerror=alert(1)>.csv", "a,b\n1,2\n")
    api.write("reports/tea sales.csv", "a,b\n1,2\n")
    api("PATCH", f"/threads/{api.ask('default', 'About capybaras')['thread_id']}", {"title": "Large rodents"})
    ada.reload()
    wait_until_loaded(ada)
    message = ada.locator("#message")
    message.press_sequentially("Read @repo")
    offered = ada.get_by_role("listbox", name="Files and threads")
    expect(offered.get_by_role("option")).to_have_count(2)
    expect(offered).to_contain_text("<img src=x onerror=alert(1)>.csv")
    assert not find_violations(ada)
    ada.keyboard.press("Escape")
    expect(offered).to_have_count(0)
    message.fill("Read ")
    message.press_sequentially("@tea")
    offered.get_by_role("option").wait_for()
    ada.keyboard.press("Enter")
    expect(message).to_have_value('Read @"reports/tea sales.csv" ')
    message.press_sequentially("@rod")
    expect(offered).to_contain_text("Large rodents")
    ada.keyboard.press("Tab")
    chips = ada.get_by_role("list", name="Attached")
    expect(chips).to_contain_text("thread-Large-rodents.md")
    expect(message).to_have_value('Read @"reports/tea sales.csv" ')
    ada.evaluate(PASTE, "many words " * 500)
    expect(chips).to_contain_text("pasted-text.txt")
    assert not find_violations(ada)
    sheet = {"name": "my sheet.csv", "mimeType": "text/csv", "buffer": b"x,y\n3,4\n"}
    ada.get_by_label("Attach files").set_input_files([sheet, sheet])
    expect(chips.get_by_role("listitem")).to_have_count(4)
    chips.get_by_role("button", name="Insert as text").click()
    expect(message).to_have_value(re.compile("many words"))
    message.fill("Sum it up")
    ada.get_by_role("button", name="Send").click()
    wait_until_idle(ada)
    said = next(one["content"] for one in api.thread(open_thread_id(ada))["messages"] if one["role"] == "user")
    assert said == (
        "Sum it up\n\nAttached: [thread-Large-rodents.md](attachments/thread-Large-rodents.md), "
        "[my_sheet.csv](attachments/my_sheet.csv), [my_sheet-2.csv](attachments/my_sheet-2.csv)"
    )
    assert api.read("attachments/my_sheet-2.csv") == "x,y\n3,4\n"
    assert "capybaras" in api.read("attachments/thread-Large-rodents.md")
    ada.locator("article.chat-said").get_by_role("link", name="my_sheet.csv").click()
    wait_for(lambda: ada.get_by_role("tab", name=re.compile("^my_sheet.csv")).count())
