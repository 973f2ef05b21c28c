"""Find in a thread, and links to threads for readers without an account."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from browser_pages import ApiClient, open_page, open_thread_id, send_and_wait
from server_process import ServerProcess


def test_a_text_is_found_in_a_long_thread(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    for number in range(40):
        word = "an otter" if number in (3, 30) else "nothing"
        api.ask("echo", f"Message {number} about {word}.\n\n" + "Lorem ipsum. " * 60, thread_id="th_long")
    with open_page(browser, server) as page:
        page.goto("/#thread=th_long")
        expect(page.get_by_text("Message 39 about nothing").first).to_be_visible()
        expect(page.get_by_text("Message 3 about")).to_have_count(0)  # it is not drawn
        page.keyboard.press("Control+f")
        field = page.get_by_label("Text to find")
        expect(field).to_be_focused()
        page.keyboard.type("OTTER")
        bar = page.get_by_role("search", name="Find in this thread")
        expect(bar).to_contain_text("1 of 4")  # two messages and two replies
        expect(page.get_by_text("Message 3 about an otter").first).to_be_in_viewport()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(bar).to_contain_text("3 of 4")
        expect(page.get_by_text("Message 30 about an otter").first).to_be_in_viewport()
        assert page.evaluate("CSS.highlights.get('found').size") > 0
        page.keyboard.press("Shift+Enter")
        expect(bar).to_contain_text("2 of 4")
        api.ask("echo", "One more otter", thread_id="th_long")
        expect(bar).to_contain_text("2 of 6")  # also messages that arrive
        field.fill("beaver")
        expect(bar).to_contain_text("No matches")
        page.keyboard.press("Escape")
        expect(bar).to_have_count(0)
        expect(page.locator("#message")).to_be_focused()


def create_link(page: Page, title: str) -> str:
    page.get_by_role("button", name=f"Share {title}").first.click()
    dialog = page.get_by_role("dialog", name="Share thread")
    dialog.get_by_role("button", name="Create a link").click()
    link = dialog.get_by_label("Link", exact=True).input_value()
    assert "/#share=" in link
    return link


def test_a_link_is_read_without_an_account_and_revoked(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server) as page, open_page(browser, server, user="", refused=404) as anyone:
        send_and_wait(page, "Write hello to shared.txt and read it")
        link = create_link(page, "Write hello to shared.txt")
        requests: list[str] = []
        anyone.on("request", lambda request: requests.append(request.url))
        anyone.goto(link)
        expect(anyone.get_by_role("heading", name=re.compile("Write hello to shared.txt"))).to_be_visible()
        expect(anyone.locator("article.chat-said")).to_contain_text("Write hello to shared.txt")
        card = anyone.get_by_role("group", name=re.compile("^read_file")).first
        card.get_by_role("button").first.click()
        expect(card.get_by_label("Output", exact=True)).to_contain_text("hello")
        for name in ("Why", "Edit", "Retry", "Fork", "Open in canvas", "Sign out"):
            expect(anyone.get_by_role("button", name=name)).to_have_count(0)
        secret = link.split("=")[-1]
        asked = [url for url in requests if "/assets/" not in url]
        assert not any(secret in url for url in asked if "#" not in url), "no log contains the secret"
        assert not any(re.search(r"/(auth|threads|agents|events)", url) for url in asked), asked
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(page.get_by_role("list", name="Links")).to_have_count(0)
        anyone.reload()
        expect(anyone.get_by_role("alert")).to_contain_text("this link is not valid")
        page.get_by_role("button", name="Close", exact=True).click()
        assert open_thread_id(page)
