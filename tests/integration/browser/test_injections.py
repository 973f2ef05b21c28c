"""S5 in a browser: untrusted text does not run and causes no request.

In CI test_everywhere.py and test_preview.py try it in every place that shows text. With WICK_FULL each text is tried in
each of these places, and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser_pages import (
    ApiClient,
    launch_chromium,
    open_api_client,
    open_page,
    open_panel,
    open_thread_id,
    run_story_server,
    send_and_wait,
    wait_until_loaded,
)
from faults.canary import Canary, canary
from faults.tally import FULL, Tally, Violated

pytestmark = pytest.mark.timeout(3_600)

# Sources of diagrams that would do the same.
DIAGRAMS = (
    "sequenceDiagram\n  A->>B: <img src={url}/sequence onerror=caught()>\n  link A: x @ javascript:caught()",
    '%%{{init: {{"securityLevel": "loose", "htmlLabels": true}}}}%%\ngraph TD\n  A["<svg onload=caught()>"] --> B\n'
    '  click A call caught()\n  click B "javascript:caught()" _self',
    '%%{{init: {{"themeCSS": "* {{fill: url({url}/css)}}"}}}}%%\ngraph TD\n  A["`**<img src=x onerror=caught()>**`"]',
    'classDiagram\n  class A["<iframe srcdoc=x onload=caught()>"]\n  callback A "caught"\n  link A "javascript:x"',
    'graph TD\n  A@{{ img: "{url}/shape", label: "x" }}\n  style A fill:url({url}/fill)',
    "gantt\n  section <script>caught()</script>\n  x :a, 2025-01-01, 1d\n  click a call caught()",
    'stateDiagram-v2\n  s1 : <img src={url}/state onerror=caught()>\n  click s1 "javascript:caught()"',
)

# Each would call `caught()`, or {url}, if it were taken for more than a text.
TEXTS = (
    "<script>caught()</script>",
    "<script src={url}/script></script>",
    "<img src={url}/img onerror=caught()>",
    "<img src=x onerror=caught()>",
    "<svg onload=caught()><image href={url}/svg /></svg>",
    "<svg><script>caught()</script><animate onbegin=caught() attributeName=x dur=1s></svg>",
    "<style>@import url({url}/import); * {{ background: url({url}/style) }}</style>",
    "<link rel=preconnect href={url}><link rel=dns-prefetch href={url}><link rel=stylesheet href={url}/link>",
    "<iframe src={url}/frame></iframe><iframe srcdoc='<script>parent.caught()</script>'></iframe>",
    "<object data={url}/object></object><embed src={url}/embed>",
    "<video src={url}/video poster={url}/poster onerror=caught()></video><audio src={url}/audio></audio>",
    "<details open ontoggle=caught()>x</details>",
    "<input autofocus onfocus=caught()>",
    "<body onload=caught()><base href={url}/>",
    "<meta http-equiv=refresh content='0;url={url}/refresh'>",
    "<form action={url}/form><button autofocus onfocus=caught()>x</button></form>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--><img src=x onerror=caught()>'>",
    "<a href=javascript:caught() ping={url}/ping>x</a><a href='java\tscript:caught()'>x</a>",
    "[x](javascript:caught()) ![x]({url}/markdown) <{url}/auto>",
    "[x](data:text/html,<script>caught()</script>) [![x]({url}/inner)]({url}/outer)",
    "![x]({url}/a.png \"onerror=caught()\") [x]: {url}/reference",
    "`<img src=x onerror=caught()>`\n\n```html\n<script>caught()</script>\n```",
    "```mermaid\ngraph TD; A[<img src={url}/mermaid onerror=caught()>]-->B; click A href \"javascript:caught()\"\n```",
    "$\\href{{javascript:caught()}}{{x}} \\includegraphics{{{url}/math}}$",
    "|a|\n|-|\n|<img src=x onerror=caught()>|",
    "</textarea></title></style></script><script>caught()</script>",
    "\"><script>caught()</script>' onmouseover=caught() x='",
    "{{{{constructor.constructor('caught()')()}}}} ${{caught()}} <%= caught() %>",
    "<template shadowrootmode=open><img src=x onerror=caught()></template>",
    "<noscript><p title='</noscript><img src=x onerror=caught()>'>",
    *(f"```mermaid\n{source}\n```" for source in DIAGRAMS),
)  # fmt: skip
KINDS = ("md", "html", "svg", "csv", "json", "txt", "mmd")


def _show_in_chat(page: Page, api: ApiClient, text: str) -> None:
    """In a conversation: user message, agent message, title and search result."""
    page.select_option("#agent", "echo")
    send_and_wait(page, text)
    api("PATCH", f"/threads/{open_thread_id(page)}", {"title": text[:400]})
    page.get_by_placeholder("Search").fill("caught")
    _drawn(page)


def _done(page: Page, api: ApiClient, text: str) -> None:
    """In the arguments and results of a tool."""
    page.select_option("#agent", "default")
    send_and_wait(page, "Run the command: echo '" + text.replace("'", "").replace("\n", " ") + "'")
    for head in page.locator(".chat-call-head").all():
        head.click()
    open_panel(page, "Trace")
    _drawn(page)


def _show_in_file(kind: str) -> Callable[[Page, ApiClient, str], None]:
    def look(page: Page, api: ApiClient, text: str) -> None:
        name = f"bait.{kind}"
        source = text.removeprefix("```mermaid\n").removesuffix("\n```")
        api.write(name, {"json": f'[{{"a": "{text}"}}]', "mmd": source}.get(kind, text))
        open_panel(page, "Files").locator(f"[data-path='{name}']").click()
        page.get_by_role("tab", name=name).wait_for()
        for view in page.get_by_role("group", name="View as").get_by_role("button").all():
            view.click()
            _drawn(page)

    look.__doc__ = f"In a file that is looked at in every way: {kind}."
    return look


def _show_shared(page: Page, api: ApiClient, text: str) -> None:
    """In a thread that is read through a link."""
    thread = api.ask("echo", text)["thread_id"]
    path = api("POST", f"/threads/{thread}/shares")["path"]
    page.goto("about:blank")
    page.goto(path)
    expect(page.locator("article.chat-reply")).to_have_count(1)
    _drawn(page)


PLACES: dict[str, Callable[[Page, ApiClient, str], None]] = {
    "a conversation": _show_in_chat,
    "a tool": _done,
    "a shared thread": _show_shared,
    **{f"a file, {kind}": _show_in_file(kind) for kind in KINDS},
}


def _drawn(page: Page) -> None:
    expect(page.locator(".waiting")).to_have_count(0)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _nothing_ran(page: Page, bird: Canary) -> None:
    if page.evaluate("window.isCaught !== undefined"):
        raise Violated("a script ran")
    bird.silent()


def runs_nothing(folder: Path, texts: tuple[str, ...]) -> None:
    with (
        canary() as bird,
        run_story_server(folder) as server,
        launch_chromium() as browser,
        Tally("S5", "texts × places in a browser") as tally,
    ):
        for place, look in PLACES.items():
            with open_page(browser, server, user="bob") as page:
                page.add_init_script("window.caught = () => { window.isCaught = true }")
                for text in texts:
                    with tally.trying(f"{text} in {place}"):
                        page.goto("/")
                        wait_until_loaded(page)
                        look(page, open_api_client(server, "bob"), text.format(url=bird.url))
                        _nothing_ran(page, bird)


if FULL:

    def test_no_text_runs_in_a_browser(tmp_path: Path) -> None:
        runs_nothing(tmp_path, TEXTS)

    def test_a_page_that_executes_content_is_detected() -> None:
        """One of these texts in a page that takes it for HTML."""
        with canary() as bird, launch_chromium() as browser:
            page = browser.new_page()
            page.add_init_script("window.caught = () => { window.isCaught = true }")
            page.goto("about:blank")
            page.set_content(TEXTS[2].format(url=bird.url))
            assert bird.heard().startswith("TCP")  # some browsers connect, and ask nothing of a machine's own ports
            page.wait_for_function("window.isCaught")
            with pytest.raises(Violated, match="a script ran"):
                _nothing_ran(page, bird)
