"""A real browser and a real server for the UI tests: Debian's Chromium, by Playwright.

with run_story_server(folder) as server     a server with scripted agents
with launch_chromium() as browser           a browser
with open_page(browser, server) as page     a signed-in user; an error in the page fails the test
open_api_client(server, "ada")              the same server, by its API
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chromium import find_chromium
from server_process import TOKENS, ServerProcess, run_server
from wick.evals.report import EvalCaseRow, EvalReport, compare_results, summarize_variant
from wick.evals.storage import store_report
from wick.server.static_files import BUILT_PAGES

try:
    from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
except ImportError:
    pytest.skip("no browser: pip install playwright", allow_module_level=True)

AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE_MS = 60_000  # machines are busy; nothing here waits longer than it has to
FRAME = "/canvas/frame"  # a page on the canvas may fail in every way
KEPT = ("csp", "origin")  # why the browser itself keeps a request from being sent

AGENTS = '''
import asyncio
import json
import os

from wick import Agent, Ask, ToolCall, ToolUse, assistant, guard, tool
from wick.capabilities.ask_user import AskUser
from wick.capabilities.code_mode import CodeMode
from wick.capabilities.recorder import Recorder
from wick.capabilities.subagents import Subagents
from wick.capabilities.todos import Todos
from wick.models.scripted import FunctionModel
from wick.protocols import Finish, ReasoningDelta, TextDelta, Usage
from wick.server import Server
from wick.server.agents.default_agent import EMBEDDED
from wick.capabilities._child_agents.definitions import Subagent


class Slow:
    """Says numbers with a pause before each: "30 0.1" says how many, and how long."""

    name = "slow"

    async def stream(self, request):
        count, pause = next(m.text for m in reversed(request.messages) if m.role == "user").split()[:2]
        for number in range(int(count)):
            await asyncio.sleep(float(pause))
            yield TextDelta(f"piece{number} ")
        yield Usage(7, int(count))
        yield Finish()


async def come(name):
    """Wait until there is a file of that name in the folder of the server."""
    for _ in range(1200):
        if os.path.exists(name):
            return True
        await asyncio.sleep(0.05)
    return False


@tool
async def wait(name: str) -> str:
    """Wait until there is a file of that name in the folder of the server."""
    return f"{name} is there" if await come(name) else "it never came"


class Thinking:
    """A model that streams reasoning, and its answer once the file named in the message exists."""

    name = "thinking"

    async def stream(self, request):
        yield ReasoningDelta("Let me **weigh** this.")
        await come(request.messages[-1].text)
        yield ReasoningDelta(" It is heavy.")
        yield TextDelta("It weighs a lot.")
        yield Finish()


def calling(request):
    """A model that makes the calls of the message, `[{"name": …, "args": {…}}]`, or repeats its text."""
    last = request.messages[-1]
    if last.role != "user" or not last.text.startswith("["):
        return "You said: " + last.text if last.role == "user" else "It is done: " + last.text
    calls = json.loads(last.text)
    made = [ToolCall(f"c{len(request.messages)}_{at}", one["name"], one["args"]) for at, one in enumerate(calls)]
    return assistant("I do it.", *made)


def caller(user):
    helper = Subagent("helper", "Helps", "You help.", tools=["wait"])
    return Agent(FunctionModel(calling), name="caller", tools=[wait], hooks=[AskUser(), Todos(), Subagents([helper])])


@tool
async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@guard(ToolUse, match="pay")
def ask_before_payments(use):
    return Ask("Pay it?")


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def coder(user):
    """An agent that runs the calls of the message, `run_code` among them."""
    return Agent(FunctionModel(calling), name="coder", tools=[note, pay], hooks=[CodeMode(), ask_before_payments])


def patient(request):
    """A model that waits for a file, and then repeats all user messages."""
    last = request.messages[-1]
    if last.role == "user" and last.text.startswith("wait for "):
        return assistant("I wait.", ToolCall(f"call_{len(request.messages)}", "wait", {"name": last.text.split()[-1]}))
    heard = [m.text for m in request.messages if m.role == "user"]
    return "I have heard: " + " / ".join(heard)


def echoing(request):
    """A model that returns the last user message unchanged."""
    return next(m.text for m in reversed(request.messages) if m.role == "user")


server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("default", {**EMBEDDED["default"], "model": "demo"})
server.register_agent("careful", {**EMBEDDED["default"], "model": "demo", "permissions": {"mode": "default"}})
undo = {"backend": {"type": "local", "network": True}, "snapshots": True, "permissions": {"mode": "bypassPermissions"}}
server.register_agent("undo", {**EMBEDDED["default"], "model": "demo", **undo})
server.register_agent("thinking", Agent(Thinking(), name="thinking"))
server.register_agent("caller", caller)
server.register_agent("coder", coder)
server.register_agent("slow", Agent(Slow(), name="slow"))
hooks = [Recorder()]
server.register_agent("patient", lambda user: Agent(FunctionModel(patient), name="patient", tools=[wait], hooks=hooks))
server.register_agent("echo", lambda user: Agent(FunctionModel(echoing), name="echo"))
server.start()
'''


def run_story_server(folder: Path, **more: Any) -> AbstractContextManager[ServerProcess]:
    """A server with the built UI, a working agent, and some scripted ones."""
    if not (BUILT_PAGES / "index.html").is_file():
        pytest.skip("the web interface is not built: make ui")
    return run_server(folder, script=AGENTS, static=str(BUILT_PAGES), **more)


@contextmanager
def launch_chromium(*flags: str) -> Iterator[Browser]:
    found = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", *flags])
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Browser,
    server: ServerProcess,
    user: str = "ada",
    agent: str = "",
    refused: int | tuple[int, ...] = 401,
    cut: bool = False,
    hostile: bool = False,
    **options: Any,
) -> Iterator[Page]:
    """Open a page of a signed-in user. It sends requests only to its own server and has no errors.

    `refused` is the status of requests that are meant to fail, beside those of who is not signed in yet, and `cut` says
    that connections are meant to break: a browser complains about both. `hostile` ignores errors: a page on the
    canvas attempts forbidden actions there.
    """
    # An animation is drawn by the processor, 60 times a second.
    options = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **options}
    context = browser.new_context(base_url=server.url, **options)
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    if not hostile:
        page.on("pageerror", lambda error: wrong.append(str(error)) if FRAME not in (error.stack or "") else None)
        page.on("console", lambda message: wrong.extend(_describe_errors(message)))
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: asked.remove(request.url) if request.failure in KEPT else None)
    try:
        if user:
            sign_in(page, user)
            if agent:
                page.select_option("#agent", agent)
        yield page
        statuses = [401, *(refused if isinstance(refused, tuple) else (refused,))]
        # Chromium breaks connections when an interface appears on the machine, as of a container in another test.
        excused = [
            *(f"a status of {status}" for status in statuses),
            "net::ERR_" if cut else "net::ERR_NETWORK_CHANGED",
        ]
        wrong = [each for each in wrong if not any(one in each for one in excused)]
        elsewhere = [url for url in asked if not url.startswith((server.url, "data:", "blob:", "about:"))]
        assert not wrong and not elsewhere, (wrong, elsewhere)
    finally:
        context.close()


def _is_expected(message: ConsoleMessage) -> bool:
    """Return True if a console error is handled by the page: a blocked preview, or a file that was deleted."""
    url = message.location["url"]
    if "a status of 404" in message.text and re.search(r"/agents/[^/]+/files", url):
        return True
    return url == "about:srcdoc" or "'about:srcdoc'" in message.text or FRAME in url or FRAME in message.text


def sign_in(page: Page, user: str) -> None:
    page.goto("/")
    page.get_by_label("Access token").fill(TOKENS.get(user, user))
    page.keyboard.press("Enter")
    wait_until_loaded(page)


def wait_until_loaded(page: Page) -> None:
    """Wait until the page has loaded the agents."""
    page.wait_for_selector("#message")
    expect(page.locator("#agent option")).not_to_have_count(0)


def send_message(page: Page, words: str) -> None:
    page.locator("#message").fill(words)
    page.locator("#message").press("Enter")


def send_and_wait(page: Page, words: str) -> None:
    """Send a message and wait for the answer."""
    send_message(page, words)
    wait_until_idle(page)


def wait_until_idle(page: Page) -> None:
    """Wait until nothing runs any more in the thread that is open, and its end is drawn."""
    expect(page.locator(".chat-item:not(.chat-pending)")).not_to_have_count(0)
    expect(page.locator(".chat-composer .chat-stop, article[aria-busy=true], .chat-item.chat-pending")).to_have_count(0)


def save_report(
    server: ServerProcess, name: str = "nightly", thread: str = "", words: str = "more than 100 needs a person"
) -> None:
    """Store an eval report with a regression in the data folder of a server. `words` are of a hook and a model."""
    checks = {
        True: {"name": "blocked", "passed": True, "score": 1.0, "detail": ""},
        False: {"name": "blocked", "passed": False, "score": 0.0, "detail": "refund was not blocked"},
    }
    block = {"decision": "blocked", "hook": "no_large_sums", "reason": words}
    calls = {
        True: {"tool": "refund", "args": {"order": 7, "amount": 2000}, **block, "output": block["reason"]},
        False: {"tool": "refund", "args": {"order": 7, "amount": 2000}, "decision": "ran", "output": "refunded"},
    }

    def result(passed: bool) -> dict[str, Any]:
        figures = {"score": 1.0 if passed else 0.67, "steps": 2, "tokens": 1_240, "cost": 0.0041}
        text = f"I may not do that: {words}." if passed else "Done."
        answer = {"outcome": "completed", "reason": "completed", "text": text}
        return {"passed": passed, **figures, **answer, "checks": [checks[passed]], "calls": [calls[passed]]}

    passing = {"guarded": result(True), "unguarded": result(True)}
    failing = {"guarded": result(True), "unguarded": result(False)}
    large = {"id": "large-refund", "input": "Refund 2,000 dollars for order 7.", "thread": thread, "results": failing}
    rows = [{"id": "small-refund", "input": "Refund order 7.", "results": passing}, large]
    cases = [EvalCaseRow.model_validate(row) for row in rows]
    names = {"guarded": "shop:agent", "unguarded": "shop:unguarded"}
    variants = [summarize_variant(variant, agent, cases) for variant, agent in names.items()]
    report = EvalReport(suite="refunds", planned=4, variants=variants, cases=cases)
    compare_results(report, None)
    store_report(server.folder / "data", name, report)


def open_panel(page: Page, panel: str) -> Any:
    """Open a panel, and give its place in the page."""
    side = page.get_by_role("complementary", name=panel, exact=True)
    if not side.count():
        page.get_by_role("navigation", name="Panels").get_by_role("button", name=panel).click()
    side.wait_for()
    return side


def open_thread_id(page: Page) -> str:
    """The id of the thread that is open."""
    page.wait_for_url(re.compile("#thread="))
    return str(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('thread')"))


# -- the same server, by its API --------------------------------------------------------------------------------------


@dataclass
class ApiClient:
    """A client of the API without a browser."""

    url: str
    token: str

    def __call__(self, method: str, path: str, body: Any = None, /, **query: Any) -> Any:
        """Return the response as data; raise for a refusal. A body is JSON or bytes."""
        asked = self.url + urllib.parse.quote(path, safe="/")
        if query:
            asked += "?" + urllib.parse.urlencode(query)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        request = urllib.request.Request(asked, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(text) if text else None

    def ask(self, agent: str, words: str, **more: Any) -> Any:
        return self("POST", f"/agents/{agent}/invoke", {"messages": [{"role": "user", "content": words}], **more})

    def begin(self, agent: str, words: str, thread: str = "") -> str:
        """Send a message without waiting for the answer; return the id of the thread."""
        body = {"messages": [{"role": "user", "content": words}], **({"thread_id": thread} if thread else {})}
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/agents/{agent}/stream", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.headers["X-Thread-Id"])

    def read(self, path: str, agent: str = "default") -> str:
        return str(self("GET", f"/agents/{agent}/files/read", path=path)["content"])

    def write(self, path: str, content: str, agent: str = "default") -> None:
        self("PUT", f"/agents/{agent}/files/write", {"path": path, "content": content})

    def hook(self, name: str, agent: str = "default") -> Any:
        return next(hook for hook in self("GET", f"/agents/{agent}/hooks")["hooks"] if hook["name"] == name)

    def thread(self, id: str) -> Any:
        return self("GET", f"/threads/{id}")


def open_api_client(server: ServerProcess, user: str = "ada") -> ApiClient:
    return ApiClient(server.url, TOKENS[user])


def wait_for(check: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true result of `check()`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.1)
    raise AssertionError(f"it did not happen within {seconds} s")


# -- accessibility ----------------------------------------------------------------------------------------------------


def find_violations(page: Page, *rules: str, within: str = "body") -> list[str]:
    """Return serious violations found by axe-core, one per line, for these rules or all."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make ui")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = page.locator(within).evaluate("(element, options) => axe.run(element, options)", options)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def _describe_errors(message: ConsoleMessage) -> list[str]:
    """Return an unexpected error of the console with its address."""
    if message.type != "error" or _is_expected(message):
        return []
    return [f"{message.text} {message.location['url']}"]
