"""Code blocks, diagrams and tables in replies, documents and files."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from browser_pages import (
    ApiClient,
    find_violations,
    open_page,
    send_and_wait,
    send_message,
    wait_for,
    wait_until_idle,
)
from canvas_page import open_file, switch_view
from server_process import ServerProcess

CODE = "```python\ndef f(value: int) -> str:\n    return " + "'long' + " * 40 + "''\n```"
GRAPH = "graph TD\n  A[Start] --> B{Ready?}\n  B -->|yes| C[Done]\n  B -->|no| A"
TABLE = '| name | note |\n|---|---|\n| a | 1, or "2" |\n| **b** | `x` |'
PASTE = "navigator.clipboard.readText()"
ALLOWED = {"permissions": ["clipboard-read", "clipboard-write"]}


def test_code_is_copied_wrapped_downloaded_and_opened(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo", **ALLOWED) as page:
        send_and_wait(page, CODE)
        block = page.locator("article.chat-reply").get_by_role("figure", name="Code: python")
        expect(block.locator("[data-bar]")).to_contain_text("python")
        expect(block.locator(".hljs-keyword").first).to_have_text("def")
        block.get_by_role("button", name="Copy code").click()
        assert page.evaluate(PASTE) == CODE.removeprefix("```python\n").removesuffix("\n```")
        code = block.locator("pre")
        assert code.evaluate("(pre) => pre.scrollWidth > pre.clientWidth")
        block.get_by_role("button", name="Wrap lines").click()
        assert code.evaluate("(pre) => pre.scrollWidth <= pre.clientWidth")
        with page.expect_download() as saved:
            block.get_by_role("button", name="Download").click()
        assert saved.value.suggested_filename == "answer.py"
        assert Path(saved.value.path()).read_text(encoding="utf-8").startswith("def f(value")
        block.get_by_role("button", name="Open on the canvas").click()
        expect(page.get_by_label("Text of answer.py")).to_contain_text("def f")


def test_a_table_is_copied_as_csv_however_long_it_is(browser: Browser, server: ServerProcess) -> None:
    rows = "".join(f"| {number} | n{number} |\n" for number in range(120))
    with open_page(browser, server, agent="echo", **ALLOWED) as page:
        send_and_wait(page, f"{TABLE}\n\nand\n\n| a | b |\n|---|---|\n{rows}")
        tables = page.locator("article.chat-reply [data-table]")
        tables.first.get_by_role("button", name="Copy as CSV").click()
        assert page.evaluate(PASTE) == 'name,note\na,"1, or ""2"""\nb,x\n'
        expect(tables.last.locator("thead th")).to_have_count(2)
        expect(tables.last.locator("tbody tr")).to_have_count(120)
        tables.last.get_by_role("button", name="Copy as CSV").click()
        assert page.evaluate(PASTE) == "a,b\n" + "".join(f"{number},n{number}\n" for number in range(120))


def test_a_diagram_is_drawn_in_chat_documents_and_files(ada: Page, api: ApiClient) -> None:
    api.write("plan.mmd", GRAPH)
    api.write("notes.md", f"# Notes\n\n```mermaid\n{GRAPH}\n```\n")
    ada.select_option("#agent", "echo")
    send_and_wait(ada, f"```mermaid\n{GRAPH}\n```")
    diagram = ada.locator("article.chat-reply").get_by_role("figure", name="Diagram")
    expect(diagram.get_by_role("img")).to_be_visible()
    assert "Start" in str(diagram.get_by_role("img").get_attribute("alt"))
    diagram.get_by_role("button", name="Show the source").click()
    expect(diagram.get_by_role("figure", name="Code: mermaid")).to_contain_text("A[Start] --> B{Ready?}")
    ada.select_option("#agent", "default")
    for name in ("plan.mmd", "notes.md"):
        panel = open_file(ada, name)
        picture = panel.get_by_role("figure", name="Diagram").get_by_role("img")
        expect(picture).to_be_visible()
        box = picture.bounding_box()
        assert box is not None and box["width"] > 50 and box["height"] > 50
    api.write("plan.mmd", "graph TD\n  Other --> End")
    panel = open_file(ada, "plan.mmd")
    expect(panel.get_by_alt_text("Other")).to_be_visible()
    switch_view(ada, "Code")
    expect(ada.get_by_label("Text of plan.mmd")).to_contain_text("Other")


def test_a_diagram_follows_the_theme(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo", color_scheme="light") as page:
        send_and_wait(page, f"```mermaid\n{GRAPH}\n```")
        picture = page.locator("article.chat-reply").get_by_role("figure", name="Diagram").get_by_role("img")
        light = picture.get_attribute("src")
        page.emulate_media(color_scheme="dark")
        expect(picture).not_to_have_attribute("src", str(light))


def test_a_bad_diagram_shows_its_error_and_its_source(ada: Page) -> None:
    many = [" & ".join(f"{side}{number}" for number in range(30)) for side in "ab"]
    bad = {
        "graph TD\n  A[unclosed --> B": "Parse error",
        "graph TD\n" + "  A --> B\n" * 500: "It is too large: 5,009 letters in 501 parts",
        f"graph TD\n  {many[0]} --> {many[1]}": "Edge limit exceeded",
        "gantt\n  excludes monday,tuesday,wednesday,thursday,friday,saturday,sunday\n  DoS :2025-01-01, 1d": "",
        "no such diagram": "No diagram type detected",
    }
    ada.select_option("#agent", "echo")
    send_and_wait(ada, "\n\n".join(f"```mermaid\n{source}\n```" for source in bad))
    diagrams = ada.locator("article.chat-reply").get_by_role("figure", name="Diagram")
    for at, (source, problem) in enumerate(bad.items()):
        scroll_until_drawn(diagrams.nth(at))
        expect(diagrams.nth(at).get_by_role("alert")).to_contain_text(f"The diagram cannot be drawn. {problem}")
        expect(diagrams.nth(at).get_by_role("figure")).to_contain_text(source.split("\n")[0])
    assert ada.locator("[id^=ddiagram]").count() == 0  # nothing is left of the attempts


def scroll_until_drawn(diagram: Locator) -> None:
    """Look at a diagram. Without an input of the user, the list would return to its end while others grow."""
    diagram.page.locator("article.chat-reply").hover()

    def is_drawn() -> bool:
        diagram.page.mouse.wheel(0, -1)
        diagram.scroll_into_view_if_needed()
        return not diagram.get_by_role("status").count()

    wait_for(is_drawn)


def test_code_and_diagrams_have_no_violations(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, f"{CODE}\n\n{TABLE}\n\n```mermaid\n{GRAPH}\n```\n\n```mermaid\nx\n```")
        expect(page.locator("article.chat-reply").get_by_role("img")).to_be_visible()
        expect(page.locator("article.chat-reply").get_by_role("alert")).to_be_visible()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert find_violations(page) == []


def test_a_long_reply_is_the_same_when_it_is_read_again(ada: Page, server: ServerProcess) -> None:
    """A reply that is written part by part is drawn as one that is read as a whole."""
    section = (
        f"## Part\n\nText with $x^2$ and `code`.\n\n- one\n\n- two\n\n1. a\n2. b\n\n{TABLE}\n\n{CODE}\n\n> quote\n\n"
    )
    text = section * 3 + "see [there][1]\n\n[1]: https://example.com\n"
    ada.select_option("#agent", "echo")
    send_message(ada, text)
    wait_until_idle(ada)
    reply = ada.locator("article.chat-reply [data-markdown]")
    expect(reply.locator(".hljs-keyword")).not_to_have_count(0)
    expect(reply.get_by_role("link", name="there")).to_have_attribute("href", "https://example.com")
    expect(reply.locator("ul")).to_have_count(3)
    expect(reply.locator("ul > li")).to_have_count(6)
    expect(reply.locator(".katex")).not_to_have_count(0)
    before = reply.inner_html()
    ada.reload()
    expect(reply.locator(".hljs-keyword")).not_to_have_count(0)
    expect(reply.locator(".katex")).not_to_have_count(0)
    assert reply.inner_html() == before
