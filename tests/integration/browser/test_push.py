"""A window shows at once what happens elsewhere: messages, questions, files, agents. Nothing is polled meanwhile."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, Request, expect

from browser_pages import ApiClient, open_page, open_thread_id, send_and_wait, wait_for
from server_process import ServerProcess


def count_polls(page: Page) -> list[str]:
    """Return the list of requests for the lists of threads, which grows."""
    polls: list[str] = []

    def note(request: Request) -> None:
        if request.method == "GET" and re.search(r"/threads(\?|$)", request.url):
            polls.append(request.url)

    page.on("request", note)
    return polls


def test_another_window_shows_a_message_and_a_new_thread(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as one, open_page(browser, server) as two:
        send_and_wait(one, "from the first")
        expect(two.locator(".shell-thread", has_text="from the first")).to_be_visible()
        two.goto(f"/#thread={open_thread_id(one)}")
        expect(two.locator("article.chat-reply")).to_contain_text("from the first")
        polls = count_polls(two)
        for number in range(5):
            send_and_wait(one, f"number {number}")
            expect(two.locator("article.chat-reply").last).to_contain_text(f"number {number}")
        expect(two.locator("article.chat-said")).to_have_count(6)
        assert polls == []


def test_questions_files_and_agents_of_elsewhere_are_shown(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    with open_page(browser, server, user="bob") as other, open_page(browser, server) as page:
        page.get_by_role("button", name="Files", exact=True).click()
        tree = page.get_by_role("tree")
        api("PUT", "/agents/default/files/write", {"path": "pushed.txt", "content": "new"})
        expect(tree.get_by_text("pushed.txt")).to_be_visible()
        api("DELETE", "/agents/default/files", path="pushed.txt")
        expect(tree.get_by_text("pushed.txt")).to_have_count(0)
        api("POST", "/agents/", {"agent_id": "pushed", "model": "demo"})
        expect(page.locator("#agent option", has_text="pushed")).to_have_count(1)
        api("DELETE", "/agents/pushed")
        expect(page.locator("#agent option", has_text="pushed")).to_have_count(0)
        expect(other.locator("#agent option", has_text="pushed")).to_have_count(0)


def test_windows_of_one_browser_share_a_connection(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as one:
        streams: list[str] = []
        two = one.context.new_page()
        two.on("request", lambda request: streams.append(request.url) if request.url.endswith("/events") else None)
        two.goto("/")
        two.wait_for_selector("#message")
        send_and_wait(one, "shared")
        expect(two.locator(".shell-thread", has_text="shared")).to_be_visible()
        assert streams == []
        thread = open_thread_id(one)
        with two.expect_request("**/events"):
            one.goto("about:blank")  # the second window takes over
        two.goto(f"/#thread={thread}")
        expect(two.locator("article.chat-reply").last).to_contain_text("shared")
        send_and_wait(two, "alone")
        expect(two.locator("article.chat-reply").last).to_contain_text("alone")


HIDE = """hidden => {
  Object.defineProperty(document, 'visibilityState', {value: hidden ? 'hidden' : 'visible', configurable: true})
  document.dispatchEvent(new Event('visibilitychange', {bubbles: true}))
}"""
# Headless Chromium grants the permission, but reports that it is denied.
RECORD = """window.shown = []
const Real = window.Notification
window.Notification = class extends Real {
  static get permission() { return 'granted' }
  constructor(title, options) { super(title, options); window.shown.push({title, body: options.body, it: this}) }
}"""


def list_shown(page: Page) -> list[list[str]]:
    return list(page.evaluate("window.shown.map(one => [one.title, one.body])"))


def test_a_hidden_window_notifies_of_questions_and_ends(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    with open_page(browser, server, agent="careful", permissions=["notifications"]) as page:
        page.add_init_script(RECORD)
        page.reload()
        page.wait_for_selector("#message")
        bell = page.get_by_role("button", name="Desktop notifications")
        expect(bell).to_have_attribute("aria-pressed", "false")  # the user switches them on
        bell.click()
        expect(bell).to_have_attribute("aria-pressed", "true")
        page.reload()
        expect(bell).to_have_attribute("aria-pressed", "true")
        api.ask("echo", "while it is seen")
        expect(page.locator(".shell-thread", has_text="while it is seen")).to_be_visible()
        assert list_shown(page) == []
        page.evaluate(HIDE, True)
        thread = api.begin("careful", "Run the command: touch notified")
        wait_for(lambda: len(list_shown(page)) == 1)
        assert list_shown(page)[0][0].endswith("needs approval") and "touch notified" in list_shown(page)[0][1]
        page.evaluate("window.shown[0].it.onclick()")
        expect(page.get_by_role("alertdialog")).to_contain_text("touch notified")
        (asked,) = api("GET", "/approvals")["approvals"]
        api("POST", f"/approvals/{asked['id']}", {"choice": "allow"})
        wait_for(lambda: len(list_shown(page)) == 2)
        assert list_shown(page)[1][1] == "The run has ended." and asked["thread_id"] == thread


def test_a_visible_window_keeps_the_others_quiet(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="echo", permissions=["notifications"]) as page:
        page.add_init_script(RECORD)
        page.reload()
        page.get_by_role("button", name="Desktop notifications").click()
        other = page.context.new_page()
        other.goto("/")
        other.wait_for_selector("#message")
        page.evaluate(HIDE, True)
        api.ask("echo", "seen elsewhere")
        expect(other.locator(".shell-thread", has_text="seen elsewhere")).to_be_visible()
        expect(page.locator(".shell-thread", has_text="seen elsewhere")).to_have_count(1)
        assert list_shown(page) == []
