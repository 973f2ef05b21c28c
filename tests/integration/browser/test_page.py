"""A real browser at the server's page: signing in, talking, answering; and its EventSource and WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import find_chromium
from server_process import ServerProcess, run_server
from wick.server.static_files import SHIPPED_PAGES

try:
    from playwright.async_api import Page, async_playwright
except ImportError:
    pytest.skip("no browser: pip install playwright", allow_module_level=True)

OFFLINE = {"OLLAMA_HOST": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An unconfigured server with the built-in small page."""
    none: dict[str, Any] = {"tokens": [], "quotas": {}, "static": str(SHIPPED_PAGES)}
    with run_server(tmp_path_factory.mktemp("page"), config=None, environment=OFFLINE, **none) as found:
        yield found


@pytest.fixture
async def page(server: ServerProcess) -> AsyncIterator[Page]:
    """A page of a new browser; an error in it fails the test."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        made = await (await browser.new_context()).new_page()
        wrong: list[str] = []
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        yield made
        await browser.close()
        expected = "the server responded with a status of 401"  # the console error for a request without sign-in
        assert [each for each in wrong if expected not in each] == []


async def signed_in(page: Page, server: ServerProcess) -> None:
    await page.goto(server.url)
    token = (server.folder / "data" / "token").read_text().strip()
    await page.fill("#token", token)
    await page.press("#token", "Enter")
    await page.wait_for_selector("#talk", state="visible")


async def send_words(page: Page, words: str) -> None:
    await page.fill("#words", words)
    await page.press("#words", "Enter")


async def test_the_link_signs_in_and_leaves_no_trace(page: Page, server: ServerProcess) -> None:
    await page.goto(server.link)
    await page.wait_for_selector("#talk", state="visible")
    assert page.url == f"{server.url}/"  # the ticket is not in the address any more
    assert await page.inner_text("#who") == "local (admin)"
    assert await page.evaluate("document.cookie") == ""  # scripts cannot read it
    await page.reload()
    await page.wait_for_selector("#talk", state="visible")
    await page.click("#out")
    await page.wait_for_selector("#sign-in", state="visible")
    await page.goto(server.link)
    await page.wait_for_selector("#trouble:has-text('once')")  # the form is visible before the ticket is refused
    assert await page.is_visible("#sign-in")


async def test_an_answer_is_streamed(page: Page, server: ServerProcess) -> None:
    await signed_in(page, server)
    await send_words(page, "Write hello to notes.txt and read it")
    await page.wait_for_selector("#log .tool >> nth=1")
    await page.wait_for_selector("#send", state="visible")
    log = await page.inner_text("#log")
    assert "write_file" in log and "read_file" in log and "hello" in log


async def test_a_question_is_answered(page: Page, server: ServerProcess) -> None:
    await signed_in(page, server)
    await send_words(page, "Run the command: curl https://example.com/install | sh")
    await page.click("#log .question button:text('Deny')")
    await page.wait_for_selector("#send", state="visible")
    assert "denied" in await page.inner_text("#log .question")


async def test_messages_are_rendered_as_text_never_html(page: Page, server: ServerProcess) -> None:
    await signed_in(page, server)
    bait = "<img src=x onerror=\"document.title='caught'\"><script>document.title='caught'</script>"
    await send_words(page, f"Write {bait} to bait.html and read it")
    await page.wait_for_selector("#log .tool")
    await page.wait_for_selector("#send", state="visible")
    assert bait in await page.inner_text("#log .user")
    assert await page.title() == "wick"
    assert await page.locator("#log img, #log script").count() == 0


async def test_the_api_is_shown(page: Page, server: ServerProcess) -> None:
    await signed_in(page, server)
    await page.goto(f"{server.url}/docs")
    await page.wait_for_selector("details")
    assert "POST /agents/{id}/stream" in await page.inner_text("#api")


EVENT_SOURCE = """async () => {
  const {ticket} = await (await fetch('/auth/tickets', {method: 'POST'})).json()
  const source = new EventSource('/agents/events?ticket=' + ticket)
  await new Promise((done, failed) => { source.onopen = done; source.onerror = failed })
  const news = new Promise((done) => source.addEventListener('agent_created', (event) => done(JSON.parse(event.data))))
  const body = JSON.stringify({agent_id: 'born', model: 'demo'})
  await fetch('/agents/', {method: 'POST', body, headers: {'Content-Type': 'application/json'}})
  const told = await news
  source.close()
  await fetch('/agents/born', {method: 'DELETE'})
  return JSON.stringify(told)
}"""
WEB_SOCKET = """async () => {
  const {ticket} = await (await fetch('/auth/tickets', {method: 'POST'})).json()
  const socket = new WebSocket(`ws://${location.host}/agents/default/terminal?ticket=${ticket}`)
  socket.binaryType = 'arraybuffer'
  let seen = ''
  await new Promise((done, failed) => {
    socket.onerror = failed
    socket.onopen = () => socket.send(new TextEncoder().encode('echo h$((40+2))i\\n'))
    socket.onmessage = (message) => {
      seen += new TextDecoder().decode(message.data)
      if (seen.includes('h42i')) done()
    }
  })
  socket.close()
  return seen
}"""


async def test_an_event_source_and_a_websocket_get_in_with_tickets(page: Page, server: ServerProcess) -> None:
    await signed_in(page, server)
    assert "born" in await page.evaluate(EVENT_SOURCE)
    assert "h42i" in await page.evaluate(WEB_SOCKET)


async def test_another_page_gets_nothing(page: Page, server: ServerProcess, tmp_path: Path) -> None:
    """A page that the user opens from elsewhere, while signed in here, neither reads nor changes anything."""
    await signed_in(page, server)
    (tmp_path / "evil.html").write_text("<title>evil</title>")
    evil = await page.context.new_page()
    await evil.goto(f"file://{tmp_path}/evil.html")
    attempt = """(url) => Promise.all([
      fetch(url + '/auth/me', {credentials: 'include'}).then(() => 'read', () => 'refused'),
      fetch(url + '/agents/', {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}'})
        .then((answer) => answer.type, () => 'refused'),
      new Promise((done) => {
        const socket = new WebSocket(url.replace('http', 'ws') + '/agents/default/terminal')
        socket.onopen = () => done('open'); socket.onerror = () => done('refused')
      }),
    ])"""
    read, _, socket = await evil.evaluate(attempt, server.url)
    assert (read, socket) == ("refused", "refused")
