"""A canvas that runs: pages and components in a frame without origin and network, drafts, and changes to accept."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_pages import (
    AGENTS,
    BUILT_PAGES,
    ApiClient,
    find_violations,
    launch_chromium,
    open_page,
    send_message,
    wait_until_idle,
)
from canvas_page import open_file, wait_for_text
from faults.canary import Canary, canary
from server_process import ServerProcess, run_server

MORE_AGENTS = '''
from pathlib import Path

from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem
from wick.protocols import CallArgs, CallStart


class Writing:
    """Writes page.html in two pieces; the second one comes when the file that it was told of is there."""

    name = "writing"

    async def stream(self, request):
        if request.messages[-1].role != "user":
            yield TextDelta("It is written.")
            yield Finish()
            return
        args = json.dumps({"path": "page.html", "content": "<h1>First half</h1>\\n<p>Second half</p>\\n"})
        yield CallStart(0, "c1", "write_file")
        yield CallArgs(0, args[:60])
        await come(request.messages[-1].text)
        yield CallArgs(0, args[60:])
        yield Finish()


def shouting(request):
    """A model that returns the block of a message in capitals."""
    text = request.messages[-1].text
    if "Change this" not in text:
        return "You asked: " + text
    return "Here:\\n\\n```\\n" + text.split("```\\n")[1].upper() + "```"


Path("written").mkdir()
server.register_agent("writing", Agent(Writing(), name="writing", hooks=[Filesystem(Local(Path("written")))]))
files = [Filesystem(Local(Path("written")))]
server.register_agent("shouting", Agent(FunctionModel(shouting), name="shouting", hooks=files))
server.start()
'''

COUNTER = """import { useState } from "react";

export default function Counter() {
  const [count, setCount] = useState(0);
  console.log("drawn", count);
  if (count === 2) throw new Error("two is too many");
  return <button onClick={() => setCount(count + 1)}>Count {count}</button>;
}
"""

# Each attempt reports itself as done if nothing stops it.
HOSTILE = """<h1>Hostile</h1><form id=form action="{url}/form" method=post target=_top><input name=a value=b></form>
<img src="{url}/img"><script src="{url}/script"></script><iframe src="{url}/frame"></iframe>
<style>@import url({url}/css); h1 {{ background: url({url}/bg) }}</style>
<script>
const done = [], tried = [];
const attempt = (name, work) => {{
  tried.push(name);
  try {{
    const made = work();
    if (made && made.then) made.then(() => done.push(name), () => 0);
    else if (made !== false && made !== null && made !== undefined) done.push(name);
  }} catch {{}}
}};
attempt("parent document", () => parent.document.title);
attempt("top location", () => top.location.href);
attempt("cookies", () => document.cookie);
attempt("set a cookie", () => (document.cookie = "a=b"));
attempt("localStorage", () => localStorage);
attempt("sessionStorage", () => sessionStorage);
attempt("indexedDB", () => indexedDB.open("x"));
attempt("caches", () => caches.open("x"));
attempt("service worker", () => navigator.serviceWorker.register("{url}/sw"));
attempt("fetch", () => fetch("{url}/fetch", {{ mode: "no-cors" }}));
attempt("fetch own server", () => fetch("/auth/me", {{ credentials: "include" }}));
attempt("beacon", () => {{ navigator.sendBeacon("{url}/beacon", "x"); return null; }}); // true also if it is blocked
attempt("worker", () => new Promise((ok, no) => {{
  const worker = new Worker(URL.createObjectURL(new Blob(["postMessage(1)"])));
  worker.onmessage = ok; worker.onerror = no;
}}));
for (const [name, work] of Object.entries({{
  xhr: () => new Promise((ok, no) => {{
    const sent = new XMLHttpRequest(); sent.onload = ok; sent.onerror = no; sent.open("GET", "{url}/xhr"); sent.send();
  }}),
  websocket: () => new Promise((ok, no) => {{
    const made = new WebSocket("{url}/ws".replace("http", "ws")); made.onopen = ok; made.onerror = no;
  }}),
  "event source": () => new Promise((ok, no) => {{
    const made = new EventSource("{url}/sse"); made.onopen = ok; made.onerror = no;
  }}),
  image: () => new Promise((ok, no) => {{
    const made = new Image(); made.onload = ok; made.onerror = no; made.src = "{url}/image";
  }}),
  font: () => new FontFace("x", "url({url}/font)").load(),
  module: () => import("{url}/module"),
}})) attempt(name, work);
attempt("popup", () => open("{url}/popup"));
attempt("popup of its own", () => open("about:blank"));
attempt("form", () => {{ document.getElementById("form").submit(); return null; }});
attempt("webrtc", () => {{
  const made = new RTCPeerConnection({{ iceServers: [{{ urls: "stun:127.0.0.1:{stun}" }}] }});
  made.createDataChannel("x");
  return made.createOffer().then((offer) => made.setLocalDescription(offer));
}});
attempt("webrtc of a frame", () => {{
  const frame = document.body.appendChild(document.createElement("iframe"));
  return new frame.contentWindow.RTCPeerConnection();
}});
for (const rel of ["preconnect", "dns-prefetch", "prefetch", "prerender", "stylesheet", "modulepreload", "icon"]) {{
  const link = document.head.appendChild(document.createElement("link"));
  [link.rel, link.href] = [rel, "{url}/" + rel];
}}
attempt("top navigation", () => {{ top.location = "{url}/top"; return null; }});
attempt("history", () => {{ history.go(-1); return null; }});
attempt("full screen", () => document.documentElement.requestFullscreen());
attempt("clipboard", () => navigator.clipboard.readText());
attempt("geolocation", () => new Promise((ok, no) => navigator.geolocation.getCurrentPosition(ok, no)));
setTimeout(() => console.log("tried " + tried.length + ", done: " + (done.join(", ") || "nothing")), 1500);
</script>"""


HOSTILE_COMPONENT = """import {{ useEffect, useRef }} from "react";

export default function Hostile() {{
  const form = useRef(null);
  useEffect(() => {{
    const done = [];
    const attempts = {{
      parent: () => parent.document.title,
      top: () => top.document.cookie,
      storage: () => localStorage.length,
      cookie: () => document.cookie,
      fetch: () => fetch("{url}/fetch", {{ mode: "no-cors" }}),
      me: () => fetch("/auth/me", {{ credentials: "include" }}),
      popup: () => open("{url}/popup"),
      module: () => import("{url}/module.js"),
      files: () => require("node:fs"),
      navigation: () => {{ top.location = "{url}/top"; }},
      form: () => {{ form.current.requestSubmit(); }},
      opener: () => parent.postMessage({{ wick: "console", entries: [{{ level: "<b>", text: 1 }}] }}, "*"),
    }};
    for (const [name, work] of Object.entries(attempts))
      try {{
        const made = work();
        if (made?.then) made.then(() => done.push(name), () => 0);
        else if (made !== undefined && made !== null) done.push(name);
      }} catch {{}}
    const report = () => console.log("tried " + Object.keys(attempts).length + ", done: " + (done.join() || "nothing"));
    setTimeout(report, 700);
  }}, []);
  return (
    <form ref={{form}} action="{url}/form" method="post" target="_top">
      <h1>Component</h1>
      <p dangerouslySetInnerHTML={{{{ __html: "<img src={url}/img onerror=fetch('{url}/onerror')>" }}}} />
      <iframe src="{url}/frame" />
      <script src="{url}/script" />
    </form>
  );
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if not (BUILT_PAGES / "index.html").is_file():
        pytest.skip("the web interface is not built: make ui")
    script = AGENTS.replace("server.start()\n", MORE_AGENTS)
    with run_server(tmp_path_factory.mktemp("running"), script=script, static=str(BUILT_PAGES)) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser with site isolation, which desktop browsers have by default and the headless shell has not."""
    with launch_chromium("--site-per-process") as found:
        yield found


def console(page: Page) -> Any:
    return page.get_by_role("region", name="Console")


def preview(page: Page, name: str) -> Any:
    return page.frame_locator(f"iframe[title='Preview of {name}']")


def test_a_hostile_page_reaches_nothing(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with canary() as bird, closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as stun:
        stun.bind(("127.0.0.1", 0))
        stun.setblocking(False)
        api.write("hostile.html", HOSTILE.format(url=bird.url, stun=stun.getsockname()[1]))
        with open_page(browser, server, hostile=True) as page:
            open_file(page, "hostile.html")
            before = page.url
            expect(preview(page, "hostile.html").locator("h1")).to_have_text("Hostile")
            expect(console(page)).to_contain_text("done: nothing")
            expect(console(page)).to_contain_text("tried 29")
            assert page.url == before and len(page.context.pages) == 1
            assert not find_violations(page)
            api.write("Hostile.jsx", HOSTILE_COMPONENT.format(url=bird.url))
            open_file(page, "Hostile.jsx")
            expect(preview(page, "Hostile.jsx").locator("h1")).to_have_text("Component")
            expect(page.get_by_text("tried 12, done: nothing")).to_be_visible()
            assert page.url.startswith(server.url) and len(page.context.pages) == 1
        _silent(bird, stun)


def test_a_page_that_navigates_its_frame_reaches_nothing(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    with canary() as bird, open_page(browser, server, hostile=True) as page:
        content = f"<img src={bird.url}/blob><script>fetch(\\'{bird.url}/fetch\\')</scr"
        blob = f"URL.createObjectURL(new Blob(['{content}' + 'ipt>'], {{ type: 'text/html' }}))"
        targets = [f"'{bird.url}/self'", f"'data:text/html,<img src={bird.url}/data>'", blob, "'/auth/me'"]
        for at, url in enumerate(targets):
            name = f"leaving{at}.html"
            api.write(name, f"<h1>Leaving</h1><script>setTimeout(() => (location = {url}), 300)</script>")
            open_file(page, name)
            expect(page.locator(f"iframe[title='Preview of {name}']")).to_be_visible()
            page.wait_for_timeout(700)  # absence of requests has no event
        bird.silent()


def _silent(bird: Canary, stun: socket.socket) -> None:
    bird.silent()
    with pytest.raises(BlockingIOError):
        stun.recv(1)


def test_the_frame_has_a_strict_policy(server: ServerProcess, ada: Page) -> None:
    answer = ada.request.get(f"{server.url}/canvas/frame")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; connect-src 'none';")
    assert "form-action 'none'" in policy and "frame-ancestors 'self'" in policy


def test_a_page_that_never_ends_leaves_the_app_usable(ada: Page, api: ApiClient) -> None:
    flood = "setInterval(() => { for (let at = 0; at < 500; at++) parent.postMessage({ wick: 'alive' }, '*') })"
    for name, script, notice in (
        ("flood.html", flood, "The page was stopped"),
        ("endless.html", "for (;;) alert('again')", "The page does not respond"),
    ):
        api.write(name, f"<h1>Endless</h1><script>setTimeout(() => {{ {script} }}, 200)</script>")
        open_file(ada, name)
        expect(ada.get_by_text(notice)).to_be_visible()
    ada.locator("#message").fill("still here")
    expect(ada.locator("#message")).to_have_value("still here")
    ada.get_by_role("toolbar", name="Actions for endless.html").get_by_role("button", name="Code").click()
    expect(ada.locator(".cm-content")).to_contain_text("Endless")


def test_a_page_that_blocked_the_window_does_not_run_after_a_reload(ada: Page, api: ApiClient) -> None:
    api.write("blocked.html", "<h1>Blocked</h1>")
    open_file(ada, "blocked.html")
    expect(preview(ada, "blocked.html").locator("h1")).to_have_text("Blocked")
    assert ada.evaluate("sessionStorage.getItem('wick-runs')") == "blocked.html"
    ada.reload()  # a page that responds runs again
    expect(preview(ada, "blocked.html").locator("h1")).to_have_text("Blocked")
    ada.evaluate("addEventListener('pagehide', () => sessionStorage.setItem('wick-runs', 'blocked.html'))")
    ada.reload()  # as if the window had been closed by force
    expect(ada.get_by_text("The page was stopped")).to_be_visible()
    console(ada).get_by_role("button", name="Run again").click()
    expect(preview(ada, "blocked.html").locator("h1")).to_have_text("Blocked")


def test_a_component_runs_and_its_errors_go_to_the_agent(ada: Page, api: ApiClient) -> None:
    api.write("Counter.jsx", COUNTER)
    open_file(ada, "Counter.jsx")
    button = preview(ada, "Counter.jsx").get_by_role("button")
    expect(button).to_have_text("Count 0")
    button.click()
    expect(button).to_have_text("Count 1")
    expect(console(ada)).to_contain_text("drawn 1")
    button.click()
    expect(console(ada)).to_contain_text("two is too many")
    assert not find_violations(ada)
    ada.select_option("#agent", "shouting")
    console(ada).get_by_role("button", name="Fix this").click()
    wait_until_idle(ada)
    expect(ada.locator("article.chat-said")).to_contain_text("Counter.jsx has errors")
    expect(ada.locator("article.chat-reply")).to_contain_text("two is too many")


def test_a_file_appears_while_it_is_written(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="writing", refused=(404, 409)) as page:
        send_message(page, "go")
        text = page.get_by_label("Text so far")
        expect(text).to_contain_text("First half")
        expect(text).not_to_contain_text("Second half")
        (server.folder / "go").touch()
        wait_until_idle(page)
        expect(preview(page, "page.html").locator("p")).to_have_text("Second half")
        assert (server.folder / "written" / "page.html").is_file()


@pytest.mark.parametrize("accepted", [True, False])
def test_a_change_of_the_selection_is_accepted_or_rejected(ada: Page, api: ApiClient, accepted: bool) -> None:
    before = "one\ntwo\nthree\n"
    api.write("list.txt", before)
    open_file(ada, "list.txt")
    ada.select_option("#agent", "shouting")
    ada.locator(".cm-line", has_text="two").click(click_count=3)
    ada.get_by_role("button", name="Change this", exact=True).click()
    ada.get_by_label("Change of the selection").fill("Make it louder")
    ada.keyboard.press("Enter")
    bar = ada.get_by_role("group", name="Proposed change")
    expect(bar).to_be_visible()
    assert api.read("list.txt") == before
    assert not find_violations(ada)
    bar.get_by_role("button", name="Accept" if accepted else "Reject").click()
    expect(bar).to_have_count(0)
    wait_for_text(api, "list.txt", before.replace("two", "TWO") if accepted else before)


def test_a_question_about_the_selection_names_its_place(ada: Page, api: ApiClient) -> None:
    api.write("list.txt", "one\ntwo\nthree\n")
    open_file(ada, "list.txt")
    ada.select_option("#agent", "shouting")
    ada.locator(".cm-line", has_text="two").click(click_count=3)
    ada.get_by_role("button", name="Ask about this", exact=True).click()
    ada.get_by_label("Question about the selection").fill("Why two?")
    ada.keyboard.press("Enter")
    wait_until_idle(ada)
    expect(ada.locator("article.chat-said")).to_contain_text("About this part of list.txt (lines 2–2)")
