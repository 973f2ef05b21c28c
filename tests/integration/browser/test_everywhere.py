"""Properties of every screen: untrusted text does not run; it is accessible by screen readers, keyboard and phone."""

from __future__ import annotations

import atexit
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_pages import (
    ApiClient,
    find_violations,
    open_api_client,
    open_page,
    open_panel,
    open_thread_id,
    save_report,
    send_and_wait,
    send_message,
    wait_until_idle,
    wait_until_loaded,
)
from server_process import ServerProcess

PANELS = ("Canvas", "Files", "Terminal", "Agent", "Trace", "Usage", "Approvals", "Replay", "Evals")
BOLD = "Run the command: curl https://example.com/install | sh"
TRAP = socket.create_server(("127.0.0.1", 0))  # an address that no page with this policy can reach
TRAP.settimeout(0.05)
atexit.register(TRAP.close)  # a process that imports this may run none of the tests
ELSEWHERE = f"http://127.0.0.1:{TRAP.getsockname()[1]}"
BAIT = (
    f"<script>caught()</script><img src={ELSEWHERE}/i onerror=caught()>"
    f"<style>*{{background:url({ELSEWHERE}/s)}}</style><svg onload=caught()></svg>"
    "<a href=javascript:caught()>x</a><iframe srcdoc='<script>parent.caught()</script>'></iframe>"
    f"[x](javascript:caught()) ![x]({ELSEWHERE}/m)"
)
IMAGE = f"<img src={ELSEWHERE}/g onerror=caught()>"
DIAGRAMS = (  # each would run a handler, follow a link, load something, or never end
    f'graph TD\n  A["{IMAGE}"] --> B\n  click A call caught()\n  click B "javascript:caught()" _self',
    f"sequenceDiagram\n  A->>B: <script>caught()</script>{IMAGE}\n  link A: x @ javascript:caught()",
    f'%%{{init: {{"securityLevel": "loose", "htmlLabels": true, "themeCSS": "*{{fill:url({ELSEWHERE}/t)}}"}}}}%%\n'
    'graph TD\n  A["<svg onload=caught()>"] --> B[<style>*{background:red}</style>]\n  click A href "javascript:x"',
    'classDiagram\n  class A["<iframe srcdoc=x onload=caught()>"]\n  callback A "caught"\n'
    f"  style A fill:url({ELSEWHERE}/f)",
    f'graph TD\n  A@{{ img: "{ELSEWHERE}/shape", label: "x" }}\n  classDef default background:url({ELSEWHERE}/d)',
    f'graph TD\n  A["{IMAGE.replace("<", "&lt;").replace(">", "&gt;")}"] --> B["{IMAGE.replace("<", "#lt;")}"]',
    f'graph TD\n  A["`**{IMAGE}**`"] -- "{IMAGE}" --> B["$$<img src=x onerror=caught()>$$"]',
    f"mindmap\n  root(({IMAGE}))\n    a[{IMAGE}]",
    f'stateDiagram-v2\n  s1 : {IMAGE}\n  note right of s1 : {IMAGE}\n  click s1 "javascript:caught()"',
    f'pie title {IMAGE}\n  "{IMAGE}" : 3',
    f'erDiagram\n  "{IMAGE}" ||--o{{ B : "{IMAGE}"',
    "gantt\n  dateFormat YYYY-MM-DD\n  section <script>caught()</script>\n  a : a, 2025-01-01, 3d\n"
    '  click a call caught()\n  click a href "javascript:caught()"',
    "gantt\n  tickInterval 1second\n  dateFormat ss\n  axisFormat %s\n  section s\n  a : a, 0, 20",
    "xychart\n  x-axis 1 --> 1\n  line [1, 2]",
)
NAME = "<img src=x onerror=caught()>.txt"


@pytest.fixture(scope="module")
def furnished(server: ServerProcess) -> ApiClient:
    """A user with data on every screen."""
    api = open_api_client(server, "olga")
    api.write("deck.md", "---\ntheme: sea\n---\n\n# A deck\n\n---\n\n## Two\n\n- a\n- b\n")
    api.write("data.csv", "name,value\na,1\nb,2\n")
    api.write("code.py", "def f() -> int:\n    return 1\n")
    api.ask("default", "Write hello to notes.txt and read it", thread_id="furnished")
    api.begin("default", BOLD, "waiting")
    save_report(server)
    return api


# -- untrusted text ---------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with watch_page(browser, server, "bob") as page:
        yield page


@contextmanager
def watch_page(browser: Browser, server: ServerProcess, user: str) -> Iterator[Page]:
    """A page in which a `caught` is noticed; `open_page` notices requests to elsewhere, and errors."""
    with open_page(browser, server, user) as page:
        page.add_init_script("window.caught = () => { window.isCaught = true }")
        page.reload()
        wait_until_loaded(page)
        yield page
        with pytest.raises(TimeoutError):
            TRAP.accept()
        assert page.evaluate("window.isCaught === undefined")
        assert (
            page.locator("[onerror], [onload], iframe[srcdoc*=caught]:not([sandbox]), a[href^=javascript]").count() == 0
        )
        assert page.locator(".chat-items script, .chat-items img:not([src^='data:']), .chat-items style").count() == 0


def test_words_and_titles_run_nothing(watched: Page, server: ServerProcess) -> None:
    watched.select_option("#agent", "echo")
    send_and_wait(watched, BAIT)  # a user message and an agent message
    for who in ("said", "reply"):
        expect(watched.locator(f"article.chat-{who}")).to_contain_text("caught()")
    open_api_client(server, "bob")("PATCH", f"/threads/{open_thread_id(watched)}", {"title": BAIT[:400]})
    expect(watched.locator(".shell-thread-row b").first).to_contain_text("<script>")
    watched.get_by_placeholder("Search").fill("caught")
    expect(watched.get_by_role("list", name="Search results")).to_contain_text("<script>")
    watched.keyboard.press("Escape")
    watched.keyboard.press("Control+k")
    expect(watched.get_by_role("listbox", name="Commands")).to_contain_text("<script>")


def test_a_shared_thread_and_a_search_run_nothing(watched: Page, server: ServerProcess) -> None:
    bob = open_api_client(server, "bob")
    bait = BAIT.replace("'", "").replace("\n", " ")
    bob.ask("default", "Run the command: echo '" + bait + "'", thread_id="bait")
    bob.ask("echo", BAIT, thread_id="bait-words")
    bob("PATCH", "/threads/bait-words", {"title": BAIT[:400]})
    watched.goto("/#thread=bait-words")
    expect(watched.locator("article.chat-reply")).to_contain_text("caught()")
    watched.keyboard.press("Control+f")
    watched.get_by_label("Text to find").fill("<script>caught()")
    expect(watched.get_by_role("search", name="Find in this thread")).to_contain_text("of")
    for thread in ("bait", "bait-words"):
        path = bob("POST", f"/threads/{thread}/shares")["path"]
        watched.goto("about:blank")
        watched.goto(path)
        expect(watched.locator("article.chat-reply").first).to_be_visible()
        for head in watched.locator(".chat-call-head").all():
            head.click()
        expect(watched.get_by_text("caught()").first).to_be_visible()
        drawn(watched)


def test_tools_files_and_errors_run_nothing(watched: Page, server: ServerProcess) -> None:
    bob = open_api_client(server, "bob")
    bob.write(NAME, BAIT)
    send_and_wait(watched, f"Run the command: echo '{BAIT.replace(chr(39), '')}'")
    for head in watched.locator(".chat-call-head").all():
        head.click()
    send_and_wait(watched, f"Read `{NAME}`")
    send_and_wait(watched, "Read `<img src=x onerror=caught()>missing.txt`")
    files = open_panel(watched, "Files")
    expect(files.locator(f"[data-path='{NAME}']")).to_be_visible()
    files.locator(f"[data-path='{NAME}']").click()
    expect(watched.get_by_label(re.compile("Text of"))).to_contain_text("caught")
    expect(open_panel(watched, "Trace").get_by_role("treeitem")).not_to_have_count(0)
    drawn(watched)
    open_panel(watched, "Agent").get_by_role("tab", name="Onion").click()
    drawn(watched)


@pytest.mark.parametrize("name", ["bait.md", "bait.html", "bait.svg", "bait.csv", "bait.json"])
def test_a_file_of_any_kind_runs_nothing(watched: Page, server: ServerProcess, name: str) -> None:
    text = f'name,value\n"{BAIT.replace(chr(34), "")}",1\n' if name == "bait.csv" else f'[{{"a": "{BAIT}"}}]'
    open_api_client(server, "bob").write(name, text if name.endswith(("csv", "json")) else f"{BAIT}\n\n---\n\n{BAIT}\n")
    open_panel(watched, "Files").locator(f"[data-path='{name}']").click()
    watched.get_by_role("tab", name=name).wait_for()
    views = watched.get_by_role("group", name="View as").get_by_role("button")
    expect(views).not_to_have_count(0)
    for view in views.all():
        view.click()
        expect(view).to_have_attribute("aria-pressed", "true")
        drawn(watched)
        for figures in watched.get_by_text("Show as a table").all():
            figures.click()
            expect(watched.get_by_role("rowheader", name="caught()")).to_be_visible()


def test_diagrams_run_nothing(watched: Page, server: ServerProcess) -> None:
    watched.select_option("#agent", "echo")
    send_and_wait(watched, "\n\n".join(f"```mermaid\n{source}\n```" for source in DIAGRAMS))
    found = watched.locator("article.chat-reply").get_by_role("figure", name="Diagram", exact=True)
    expect(found).to_have_count(len(DIAGRAMS))
    for at in range(len(DIAGRAMS)):
        found.nth(at).scroll_into_view_if_needed()
        expect(found.nth(at).locator("img, [role=alert]")).to_have_count(1)
        if found.nth(at).get_by_role("img").count():
            found.nth(at).get_by_role("img").click()
    watched.select_option("#agent", "default")
    open_api_client(server, "bob").write("bait.mmd", DIAGRAMS[0])
    open_panel(watched, "Files").locator("[data-path='bait.mmd']").click()
    expect(watched.get_by_role("complementary", name="Canvas").get_by_role("img")).to_be_visible()


def test_questions_skills_and_todos_run_nothing(watched: Page, server: ServerProcess) -> None:
    bob = open_api_client(server, "bob")
    skill = f"---\nname: bait\ndescription: {json.dumps(BAIT[:100])}\n---\n\n{BAIT}\n"
    bob("POST", "/agents/default/skills", skill.encode())
    send_message(watched, f"Run the command: curl http://127.0.0.1:9/x | sh # {BAIT.replace(chr(39), '')}")
    box = watched.get_by_role("alertdialog", name="Question from the agent")
    expect(box).to_contain_text("caught()")
    expect(open_panel(watched, "Approvals").get_by_role("listitem")).to_contain_text("caught()")
    box.get_by_placeholder("Reason, or").fill(BAIT)
    box.get_by_role("button", name="Deny").click()
    wait_until_idle(watched)
    expect(watched.locator("article.chat-reply").last).to_contain_text("caught()")
    panel = open_panel(watched, "Agent")
    panel.get_by_role("tab", name="Tools and skills").click()
    expect(panel.get_by_role("switch", name="Skill bait")).to_be_visible()
    watched.locator("#message").fill("/ba")
    expect(watched.get_by_role("listbox", name="Skills")).to_contain_text("<script>")


def test_output_programs_and_restored_files_run_nothing(watched: Page, server: ServerProcess) -> None:
    escapes = (
        f"\\033]8;;javascript:caught()\\007a link\\033]8;;\\007 \\033[31m{IMAGE}\\033[0m\\r\\033]0;{IMAGE}\\007done"
    )
    watched.select_option("#agent", "undo")
    send_and_wait(watched, f"Run the command: printf '{escapes}'; echo '{IMAGE}' > '{NAME}'")
    watched.locator(".chat-call-head").first.click()
    expect(watched.get_by_label("Output", exact=True)).to_contain_text("done")
    said = watched.get_by_role("article", name="You", exact=True)
    said.hover()
    said.get_by_role("button", name="Undo files").click()
    dialog = watched.get_by_role("dialog", name="Undo files")
    expect(dialog.locator("del")).to_contain_text(["onerror=caught()"])
    dialog.get_by_role("combobox").select_option(NAME)
    dialog.get_by_role("button", name="Restore").click()
    expect(dialog).to_be_hidden()
    watched.select_option("#agent", "coder")
    program = f"print(await note(text={IMAGE!r}))  # {BAIT.splitlines()[0]}"
    send_and_wait(watched, json.dumps([{"name": "run_code", "args": {"code": program}}]))
    head = watched.get_by_role("group", name="run_code: done").get_by_role("button").first
    if watched.get_by_label("Program").count() == 0:
        head.click()
    expect(watched.get_by_label("Program")).to_contain_text("onerror=caught()")


def test_an_eval_report_runs_nothing(browser: Browser, server: ServerProcess) -> None:
    save_report(server, words=BAIT)
    with watch_page(browser, server, "olga") as page:
        panel = open_panel(page, "Evals")
        panel.get_by_role("region", name="Table of cases").get_by_role("button", name="large-refund").click()
        case = panel.get_by_role("region", name=re.compile("^Case large-refund"))
        for calls in case.get_by_text("Arguments and result").all():
            calls.click()
        expect(case.get_by_text("<script>caught()").last).to_be_visible()
        assert panel.locator("img, script, style").count() == 0


def drawn(page: Page) -> None:
    """Wait until loading and drawing are finished."""
    expect(page.locator(".waiting")).to_have_count(0)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


# -- readers of screens -----------------------------------------------------------------------------------------------


def _thread(page: Page) -> None:
    page.goto("/#thread=furnished")
    expect(page.locator("article.chat-reply")).not_to_have_count(0)
    for head in page.locator(".chat-call-head").all():
        head.click()
    page.locator("details.chat-why summary").first.click()
    expect(page.get_by_role("table", name="Verdicts of hooks").first).to_be_visible()


def _open_question(page: Page) -> None:
    page.goto("/#thread=waiting")
    page.get_by_role("alertdialog").wait_for()


def _file(name: str) -> Callable[[Page], None]:
    def go(page: Page) -> None:
        open_panel(page, "Files").locator(f"[data-path='{name}']").click()
        page.get_by_role("tab", name=name).wait_for()

    return go


def _tab(name: str) -> Callable[[Page], None]:
    return lambda page: open_panel(page, "Agent").get_by_role("tab", name=name).click()


def _panel(name: str) -> Callable[[Page], None]:
    def go(page: Page) -> None:
        page.goto("/#thread=furnished")
        open_panel(page, name)

    return go


def _find(page: Page) -> None:
    _thread(page)
    page.keyboard.press("Control+f")
    page.get_by_label("Text to find").fill("hello")
    expect(page.get_by_role("search", name="Find in this thread")).to_contain_text("of")


def _read_shared(page: Page) -> None:
    path = page.evaluate("fetch('/threads/furnished/shares', {method: 'POST'}).then(r => r.json()).then(r => r.path)")
    page.goto("about:blank")
    page.goto(path)
    expect(page.locator("article.chat-reply")).not_to_have_count(0)
    for head in page.locator(".chat-call-head").all():
        head.click()


def _model_call(page: Page) -> None:
    _panel("Trace")(page)
    panel = open_panel(page, "Trace")
    panel.locator("[role=treeitem][data-kind=model]").last.click()
    panel.get_by_text(re.compile("earlier message")).click()


def _eval_case(page: Page) -> None:
    panel = open_panel(page, "Evals")
    panel.get_by_role("button", name="large-refund").first.click()
    for calls in panel.get_by_text("Arguments and result").all():
        calls.click()


SCREENS: dict[str, Callable[[Page], Any]] = {
    "welcome": lambda page: None,
    "thread": _thread,
    "question": _open_question,
    **{name.lower(): _panel(name) for name in PANELS},
    **{f"agent, {name.lower()}": _tab(name) for name in ("Tools and skills", "Hooks", "Onion", "Permissions")},
    **{name: _file(name) for name in ("deck.md", "data.csv", "code.py")},
    "find": _find,
    "model call": _model_call,
    "eval case": _eval_case,
    "share": lambda page: page.get_by_role("button", name=re.compile("^Share ")).first.click(),
    "shared": _read_shared,
    "palette": lambda page: page.keyboard.press("Control+k"),
    "shortcuts": lambda page: page.get_by_role("button", name="Keyboard shortcuts").click(),
}


@pytest.mark.timeout(300)
def test_no_screen_has_a_serious_violation(browser: Browser, server: ServerProcess, furnished: ApiClient) -> None:
    """All rules in the light theme, and colour rules in the dark one. A panel is checked alone."""
    found: dict[str, list[str]] = {}
    with open_page(browser, server, user="") as page:
        page.goto("/")
        page.get_by_label("Access token").wait_for()
        found["sign-in"] = _light_and_dark(page)
    with open_page(browser, server, "olga") as page:
        for name, go in SCREENS.items():
            page.goto("about:blank")
            page.goto("/")
            wait_until_loaded(page)
            go(page)
            drawn(page)
            is_panel = name in map(str.lower, PANELS) or name.startswith("agent, ")
            found[name] = _light_and_dark(page, "aside[data-shows]" if is_panel else "body")
    assert {name: lines for name, lines in found.items() if lines} == {}


def _light_and_dark(page: Page, within: str = "body") -> list[str]:
    page.emulate_media(color_scheme="light")
    found = find_violations(page, within=within)
    page.emulate_media(color_scheme="dark")
    drawn(page)
    return found + find_violations(page, "color-contrast", within=within)


# -- keys, phones, the dark -------------------------------------------------------------------------------------------


def test_everything_can_be_done_with_keys(browser: Browser, server: ServerProcess, furnished: ApiClient) -> None:
    with open_page(browser, server, user="") as page:
        keys = page.keyboard
        page.goto("/")
        page.get_by_label("Access token").wait_for()
        keys.type("olga-token-0123456789abcdef")
        keys.press("Enter")
        wait_until_loaded(page)
        page.locator("#message:focus").wait_for()
        keys.type("Run the command: curl http://127.0.0.1:9/keys | sh")
        keys.press("Enter")
        box = page.get_by_role("alertdialog", name="Question from the agent")
        box.wait_for()
        expect(box).to_be_focused()
        keys.press("Tab")  # the question is readable
        tab_to(page, "Allow y")
        keys.press("Enter")
        wait_until_idle(page)
        for number, panel in enumerate(PANELS, 1):
            keys.press(f"Alt+{number}")
            page.get_by_role("complementary", name=panel, exact=True).wait_for()
            if panel == "Terminal":
                keys.press("F6")
        keys.press("F6")  # a terminal takes the focus when it is connected
        shown = page.get_by_role("complementary")
        for left in reversed(range(shown.count())):  # each press closes one; the terminal is below the others
            keys.press("Escape")
            expect(shown).to_have_count(left)
        keys.press("Control+k")
        keys.type("theme: dark")
        keys.press("Enter")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.locator(".chat-items").focus()
        keys.press("?")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        keys.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.locator(".chat-items").focus()
        keys.press("k")
        expect(page.locator("article:focus")).to_have_count(1)
        before = open_thread_id(page)
        tab_to(page, "Fork")
        keys.press("Enter")
        page.wait_for_url(lambda url: before not in url)
        keys.press("n")
        expect(page.locator(".chat-welcome")).to_be_visible()
        keys.press("Escape")
        keys.press("Control+k")
        keys.type("switch to echo")
        keys.press("Enter")
        expect(page.locator("#agent")).to_have_value("echo")
        keys.press("Control+k")
        keys.type("search threads")
        keys.press("Enter")
        expect(page.locator("#search")).to_be_focused()
        tab_to(page, "Delete")
        keys.press("Enter")
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
        keys.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)


def tab_to(page: Page, name: str, most: int = 40) -> None:
    """Press Tab until the named element has the focus."""
    named = "(one) => one.textContent.trim() || one.title"
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"({named})(document.activeElement)") == name:
            return
    raise AssertionError(f"the tab key does not lead to {name!r} in {most} steps")


def test_a_phone_is_wide_enough(browser: Browser, server: ServerProcess, furnished: ApiClient) -> None:
    phone = {"width": 390, "height": 844}
    with open_page(browser, server, "olga", viewport=phone, has_touch=True) as page:
        send_and_wait(page, "Write hello to phone.txt and read it")
        for panel in PANELS:
            page.get_by_role("button", name="Menu").click()
            if panel == PANELS[0]:
                assert find_violations(page) == []
            page.get_by_role("dialog", name="Menu").get_by_role("button", name=panel).click()
            page.get_by_role("complementary", name=panel, exact=True).wait_for()
            drawn(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, panel
            page.get_by_role("button", name=f"Close {panel}", exact=True).click()
        page.get_by_role("button", name="Threads").click()
        page.get_by_role("button", name="New thread").click()
        expect(page.locator(".chat-welcome")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_is_dark_and_stays_so(browser: Browser, server: ServerProcess, tmp_path: Path) -> None:
    with open_page(browser, server) as page:
        light = _brightness(page)
        for _ in range(2):  # system, light, dark
            page.get_by_role("button", name=re.compile("^Theme:")).click()
        assert _brightness(page) < 0.3 < 0.7 < light
        page.reload()
        page.wait_for_selector("#message")
        assert _brightness(page) < 0.3
    with open_page(browser, server, color_scheme="dark") as page:
        assert _brightness(page) < 0.3, "as the system says, where nobody has chosen"


def _brightness(page: Page) -> float:
    colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    red, green, blue = [float(part) for part in re.findall(r"[\d.]+", colour)[:3]]
    return (red + green + blue) / 3 / 255


def test_the_page_has_security_headers(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, user="") as page:
        answer = page.goto("/")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy and "img-src 'self' data: blob:" in policy
        assert answer.headers["cache-control"] == "no-cache"
        page.get_by_label("Access token").wait_for()
        script = page.locator("script[src]").first.get_attribute("src")
        assert script is not None
        kept = page.request.get(script)
        assert "immutable" in kept.headers["cache-control"] and kept.headers["content-encoding"] == "gzip"
