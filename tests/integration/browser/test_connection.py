"""Connections break, servers start anew, windows are reloaded: nothing is lost, and nothing is shown twice."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from browser_pages import (
    ApiClient,
    open_api_client,
    open_page,
    open_thread_id,
    run_story_server,
    send_and_wait,
    send_message,
    sign_in,
    wait_for,
    wait_until_idle,
    wait_until_loaded,
)
from ports import own_port
from server_process import ServerProcess

LOST = "Connection lost"


class Wire:
    """A proxy between a browser and a server that can be cut."""

    def __init__(self, port: int) -> None:
        self._to, self._loop, self._open = port, asyncio.new_event_loop(), set[asyncio.StreamWriter]()
        self.whole = True
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._take, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.whole:
            return writer.transport.abort()
        there, onward = await asyncio.open_connection("127.0.0.1", self._to)
        self._open |= {writer, onward}
        if not self.whole:  # it was cut meanwhile
            writer.transport.abort()
            onward.transport.abort()
        await asyncio.gather(self._pass(reader, onward), self._pass(there, writer))
        self._open -= {writer, onward}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # it was cut
        finally:
            writer.transport.abort() if not self.whole else writer.close()

    def cut(self) -> None:
        """Drop every connection at once and accept none."""

        async def now() -> None:
            self.whole = False
            for writer in self._open:
                writer.transport.abort()

        self._do(now())

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self.cut()

        async def end() -> None:
            self._server.close()
            while others := asyncio.all_tasks() - {asyncio.current_task()}:  # all is cut, so each ends by itself
                await asyncio.wait(others)

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def wire(server: ServerProcess) -> Iterator[Wire]:
    made = Wire(int(server.url.rsplit(":", 1)[1]))
    yield made
    made.close()


def pieces(page: Page) -> list[str]:
    return re.findall(r"piece\d+", "\n".join(page.locator("article.chat-reply").all_inner_texts()))


def counted(most: int) -> list[str]:
    return [f"piece{number}" for number in range(most)]


def shows(page: Page, expected: list[str]) -> None:
    """Wait until exactly these texts are shown."""
    wait_for(lambda: pieces(page) == expected)


def look(page: Page) -> None:
    """Let the page poll for changes now instead of after seconds."""
    page.evaluate("dispatchEvent(new Event('online'))")


def user_texts(api: ApiClient, thread: str) -> list[str]:
    return [message["content"] for message in api.thread(thread)["messages"] if message["role"] == "user"]


# -- broken connections -----------------------------------------------------------------------------------------------


def test_a_connection_that_is_cut_is_made_again(
    browser: Browser, server: ServerProcess, wire: Wire, api: ApiClient
) -> None:
    with open_page(browser, replace(server, url=wire.url), agent="slow", cut=True) as page:
        send_message(page, "60 0.05")
        expect(page.locator("article.chat-reply")).to_contain_text("piece5")
        wire.cut()
        expect(page.get_by_text(LOST)).to_be_visible()
        send_message(page, "2 0.01")  # it is queued here and sent once
        expect(page.get_by_text("Sending…")).to_be_visible()
        wire.mend()
        expect(page.get_by_text(LOST)).to_have_count(0)
        wait_until_idle(page)
        shows(page, counted(60) + counted(2))
        assert user_texts(api, open_thread_id(page)) == ["60 0.05", "2 0.01"]
        expect(page.locator("article.chat-said")).to_have_count(2)


def test_a_run_continues_after_a_server_restart(browser: Browser, tmp_path: Any) -> None:
    with (
        own_port() as port,
        run_story_server(tmp_path, grace=0.1, environment={"WICK_PORT": str(port)}) as server,
        open_page(browser, server, agent="slow", cut=True, refused=503) as page,
    ):
        send_and_wait(page, "2 0.01")
        send_message(page, "40 0.05")
        expect(page.locator("article.chat-reply").last).to_contain_text("piece5")
        page.locator("#message").fill("half a thought")
        server.stop()
        expect(page.get_by_text(LOST)).to_be_visible()
        server.start()
        wait_until_idle(page)
        expect(page.get_by_text(LOST)).to_have_count(0)
        shows(page, counted(2) + counted(40))
        expect(page.locator("#message")).to_have_value("half a thought")
        page.locator("#message").fill("30 0.05")
        page.locator("#message").press("Enter")
        expect(page.locator("article.chat-reply").last).to_contain_text("piece5")
        server.kill()  # the stream stops in the middle of a word
        server.start()
        wait_until_idle(page)
        shows(page, counted(2) + counted(40) + counted(30))
        assert user_texts(open_api_client(server), open_thread_id(page)) == ["2 0.01", "40 0.05", "30 0.05"]


def test_a_page_opened_while_the_server_is_down_shows_it(browser: Browser, server: ServerProcess, wire: Wire) -> None:
    thread = str(open_api_client(server).ask("echo", "here I am")["thread_id"])
    with open_page(browser, replace(server, url=wire.url), cut=True) as page:
        wire.cut()
        page.evaluate(f"location.hash = 'thread={thread}'")
        expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
        wire.mend()
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("article.chat-reply")).to_contain_text("here I am")
        assert open_thread_id(page) == thread


# -- reloads, reopened threads and second windows ---------------------------------------------------------------------


def test_a_reload_in_the_middle_loses_nothing_and_doubles_nothing(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="slow") as page:
        send_message(page, "40 0.05")
        expect(page.locator("article.chat-reply")).to_contain_text("piece5")
        page.reload()
        wait_until_idle(page)
        shows(page, counted(40))
        assert page.locator("article.chat-said").count() == page.locator("article.chat-reply").count() == 1


def test_a_reopened_thread_continues_its_stream(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="slow") as page:
        send_message(page, "40 0.05")
        expect(page.locator("article.chat-reply")).to_contain_text("piece3")
        page.get_by_role("button", name="New thread").click()
        expect(page.locator(".chat-welcome")).to_be_visible()
        page.go_back()
        wait_until_idle(page)
        shows(page, counted(40))


def test_a_reload_keeps_pending_messages_and_drafts(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="patient") as page:
        send_message(page, "wait for reloaded")
        page.get_by_role("group", name=re.compile("^wait: running")).wait_for()
        send_message(page, "and think of the otters")
        expect(page.get_by_text("The agent reads this at its next step.")).to_be_visible()
        page.locator("#message").fill("half a thought")
        page.reload()
        waits = page.locator(".chat-item.chat-pending")
        expect(waits).to_contain_text("and think of the otters")
        api(
            "POST",
            f"/threads/{open_thread_id(page)}/messages",
            {"messages": [{"role": "user", "content": "and of newts"}]},
        )
        look(page)
        expect(waits).to_have_count(2)  # messages of other windows are shown, too
        expect(page.locator("#message")).to_have_value("half a thought")
        (server.folder / "reloaded").touch()
        wait_until_idle(page)
        expect(page.locator("article.chat-said")).to_have_count(3)
        expect(page.locator("article.chat-reply").last).to_contain_text(
            "reloaded / and think of the otters / and of newts"
        )


def test_two_windows_show_the_same_once(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="echo", refused=404) as one, open_page(browser, server, refused=404) as two:
        send_and_wait(one, "from the first")
        two.goto(f"/#thread={open_thread_id(one)}")
        expect(two.locator("article.chat-reply")).to_contain_text("from the first")
        send_and_wait(two, "from the second")
        look(one)
        expect(one.locator("article.chat-reply")).to_have_count(2)
        for page in (one, two):
            expect(page.locator("article.chat-said")).to_have_count(2)
        one.locator("#message").fill("half a thought")
        api("DELETE", f"/threads/{open_thread_id(one)}")
        look(one)
        expect(one.get_by_text("Thread not found")).to_be_visible()
        expect(one.locator("#message")).to_have_value("half a thought")  # it is not lost with the thread
        expect(one.locator(".chat-welcome")).to_be_visible()
        wait_for(lambda: "#thread" not in one.url)


HIDE = """hidden => {
  Object.defineProperty(document, 'visibilityState', {value: hidden ? 'hidden' : 'visible', configurable: true})
  document.dispatchEvent(new Event('visibilitychange', {bubbles: true}))
}"""


def test_a_hidden_window_disconnects_and_catches_up(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    """Its streams would be missing in visible windows: a browser has six connections per host."""
    with open_page(browser, server, agent="patient") as page:
        send_message(page, "wait for unseen.txt")
        expect(page.get_by_text("I wait.")).to_be_visible()
        thread = open_thread_id(page)
        page.evaluate(HIDE, True)
        (server.folder / "unseen.txt").touch()
        wait_for(lambda: api.thread(thread)["messages"][-1]["content"].startswith("I have heard"))
        assert page.get_by_text("I have heard").count() == 0
        page.evaluate(HIDE, False)
        replies = page.locator("article.chat-reply")  # one with a tool call, and one with its result
        expect(replies).to_contain_text(["I wait.", "I have heard: wait for unseen.txt"])
        wait_until_idle(page)
        expect(page.locator("article.chat-said")).to_have_count(1)


# -- refusals of the server -------------------------------------------------------------------------------------------


def refuse(status: int, message: str) -> Any:
    body = {"error": {"code": "refused", "message": message}}
    return lambda route: route.fulfill(status=status, json=body)


@pytest.mark.parametrize("status", [400, 413])
def test_a_refused_message_returns_to_the_input(browser: Browser, server: ServerProcess, status: int) -> None:
    with open_page(browser, server, agent="echo", refused=status) as page:
        page.route("**/stream", refuse(status, "It is too much. Say less."))
        send_message(page, "many words")
        expect(page.get_by_text("It is too much. Say less.")).to_be_visible()
        expect(page.locator("#message")).to_have_value("many words")
        expect(page.locator("article.chat-said")).to_have_count(0)
        page.unroute("**/stream")
        page.locator("#message").press("Enter")
        expect(page.locator("article.chat-reply")).to_have_text(re.compile("many words"))


def test_a_server_that_has_too_much_to_do_is_asked_again(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    left = [429, 503]

    def busy(route: Route) -> None:
        route.fulfill(status=left.pop(), body="no") if left else route.continue_()

    with open_page(browser, server, agent="echo", refused=(429, 503)) as page:
        page.route("**/stream", busy)
        send_message(page, "at last")
        wait_until_idle(page)
        assert left == [] and user_texts(api, open_thread_id(page)) == ["at last"]


def test_after_sign_out_the_user_signs_in_and_continues(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, "before")
        page.locator("#message").fill("half a thought")
        page.context.clear_cookies()
        look(page)
        page.get_by_label("Access token").wait_for()
        sign_in_again(page)
        expect(page.locator("article.chat-reply")).to_contain_text("before")
        expect(page.locator("#message")).to_have_value("half a thought")
        page.get_by_role("button", name="Sign out ada").click()
        page.get_by_label("Access token").wait_for()
        assert page.evaluate("JSON.stringify({...sessionStorage})") == "{}", "nothing stays for who comes next"
        sign_in(page, "bob")
        expect(page.locator("#message")).to_have_value("")


def sign_in_again(page: Page) -> None:
    page.get_by_label("Access token").fill("ada-token-0123456789abcdef")
    page.keyboard.press("Enter")
    wait_until_loaded(page)
