"""The trace of a run as a debugger: full requests and replies, another try in a fork, two runs side by side."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from browser_pages import ApiClient, open_page, open_panel, open_thread_id, send_and_wait, send_message, wait_until_idle
from server_process import ServerProcess


def test_a_model_call_shows_what_is_new_and_is_tried_again(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    with open_page(browser, server) as page:
        send_and_wait(page, "Write hello to traced.txt and read it")
        thread = open_thread_id(page)
        panel = open_panel(page, "Trace")
        calls = panel.locator("[role=treeitem][data-kind=model]")
        expect(calls).not_to_have_count(0)
        calls.nth(1).click()
        details = panel.get_by_role("region", name="Span")
        expect(details.get_by_role("heading", name="New in this request")).to_be_visible()
        expect(details.get_by_text("1 earlier message")).to_be_visible()
        expect(details.get_by_text("Write hello to traced.txt and read it")).to_be_hidden()  # it is folded
        details.get_by_text("1 earlier message").click()
        expect(details.get_by_text("Write hello to traced.txt and read it")).to_be_visible()
        details.get_by_role("button", name="Try again from here").click()
        expect(page.locator("#message")).to_have_value("Continue.")
        fork = open_thread_id(page)
        assert fork != thread and len(api.thread(fork)["messages"]) < len(api.thread(thread)["messages"])
        page.locator("#message").press("Enter")
        expect(page.locator("article.chat-said")).to_have_count(2)


def test_two_runs_are_side_by_side(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server) as page:
        send_and_wait(page, "What is 2 + 3?")
        send_and_wait(page, "What is 3 + 4?")
        panel = open_panel(page, "Trace")
        panel.get_by_label("Beside").select_option(index=1)
        expect(panel.get_by_role("list", name="Summary")).to_have_count(2)
        panel.get_by_label("Beside").select_option(index=0)
        expect(panel.get_by_role("list", name="Summary")).to_have_count(1)


def test_the_trace_grows_while_the_run_is_in_progress(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="patient") as page:
        send_message(page, "wait for traced.now")
        panel = open_panel(page, "Trace")
        spans = panel.get_by_role("treeitem")
        expect(spans.filter(has_text="wait").filter(has_text="running")).to_have_count(1)
        expect(spans.filter(has_text="running")).to_have_count(3)  # the run and its step, too
        expect(panel.get_by_role("list", name="Summary")).to_contain_text("running")
        before = spans.count()
        (server.folder / "traced.now").touch()
        wait_until_idle(page)
        expect(spans).to_have_count(before + 2)  # the next step, with its model call
        expect(spans.filter(has_text="running")).to_have_count(0)
