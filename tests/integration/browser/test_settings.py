"""The first page, the model picker and the settings: keys, agents, users and tokens."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browser_pages import ApiClient, find_violations, open_api_client, open_page, send_and_wait, wait_until_loaded
from server_process import ServerProcess

KEY = "sk-browser-0123456789abcdef"
BAIT = "<img src=x onerror=caught()><script>caught()</script>[x](javascript:caught())"
PIECES = (
    b'data: {"choices":[{"index":0,"delta":{"content":"From %s."}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
SHOTS = os.environ.get("WICK_SHOTS", "")  # a folder for screenshots


class Provider(BaseHTTPRequestHandler):
    """A provider on loopback: it knows one key."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        known = self.headers["Authorization"] == f"Bearer {KEY}"
        reply = PIECES % (b"large" if b'"large"' in body else b"small")
        if not known:
            reply = b'{"error": {"message": "Incorrect API key provided: %s"}}' % self.headers["Authorization"].encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "text/event-stream" if known else "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.fixture
def root(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with open_page(browser, server, "root", refused=(400, 403, 409)) as page:  # invalid and outdated agents
        yield page


@pytest.fixture
def admin(server: ServerProcess) -> ApiClient:
    return open_api_client(server, "root")


def open_settings(page: Page, tab: str) -> Locator:
    page.keyboard.press("Control+,")
    panel = page.get_by_role("complementary", name="Settings", exact=True)
    panel.get_by_role("tab", name=tab).click()
    return panel


def look(page: Page, name: str, phone: bool = True) -> None:
    """Check that a screen is accessible, and does not scroll sideways on a phone; take screenshots if wanted.

    A panel that moves to the width of a phone starts anew, so a form in use is looked at with `phone=False`.
    """
    assert find_violations(page) == []
    size = page.viewport_size
    for theme, width in (("light", 1280), ("dark", 1280), ("light", 390))[: 3 if phone else 2]:
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"{name}-{theme}-{width}.png")
    page.emulate_media(color_scheme="light")
    if size:
        page.set_viewport_size(size)


def test_the_first_page_offers_prompts_and_names_the_model(root: Page, ada: Page) -> None:
    root.select_option("#agent", "default")
    examples = root.get_by_role("list", name="Examples").get_by_role("button")
    expect(examples).not_to_have_count(0)
    look(root, "first")
    examples.first.click()
    expect(root.locator("#message")).to_be_focused()
    expect(root.locator("#message")).to_have_value(re.compile(r"\w+"))
    expect(root.get_by_text("A demo model answers")).to_be_visible()
    root.get_by_role("button", name="Add a key").click()
    expect(root.get_by_role("complementary", name="Settings", exact=True)).to_be_visible()
    expect(ada.get_by_text("Ask an admin to add a key")).to_be_visible()
    expect(ada.locator("#message")).to_be_focused()


def test_a_key_is_tested_stored_and_used(root: Page, admin: ApiClient, provider: str) -> None:
    panel = open_settings(root, "Models and keys")
    row = panel.locator("details", has_text="gateway")
    row.locator("summary").click()
    row.get_by_label("Key of gateway").fill("sk-wrong-0123456789abcdef")
    row.get_by_label("Models that users may choose").fill("small\nlarge")
    row.get_by_label("Address").fill(provider)
    row.get_by_role("button", name="Test").click()
    expect(row.get_by_role("status")).to_contain_text("did not reply")
    expect(row.get_by_role("status")).not_to_contain_text("sk-wrong")
    row.get_by_label("Key of gateway").fill(KEY)
    row.get_by_role("button", name="Test").click()
    expect(row.get_by_role("status")).to_contain_text("replied in")
    row.get_by_role("button", name="Save").click()
    expect(row.locator("summary")).to_contain_text("stored")
    expect(row.get_by_label("Key of gateway")).to_have_value("")
    look(root, "keys")
    assert KEY not in root.content()
    admin("POST", "/agents/", {"agent_id": "kept", "model": "gateway:small"})
    root.reload()
    root.select_option("#agent", "kept")
    expect(root.get_by_label("Model", exact=True)).to_be_visible()
    send_and_wait(root, "Hello")
    expect(root.get_by_role("article").get_by_text("From small.")).to_be_visible()
    root.get_by_label("Model", exact=True).select_option("gateway:large")
    send_and_wait(root, "Hello again")
    expect(root.get_by_role("article").get_by_text("From large.")).to_be_visible()
    root.reload()
    expect(root.get_by_label("Model", exact=True)).to_have_value("gateway:large")
    look(root, "picker")
    admin("DELETE", "/settings/providers/gateway")


def test_an_agent_is_made_changed_and_shown_as_yaml(root: Page, admin: ApiClient) -> None:
    panel = open_settings(root, "Agents")
    panel.get_by_role("button", name="New agent").click()
    form = panel.get_by_role("form", name="Agent")
    form.get_by_label("id", exact=True).fill("helper")
    form.get_by_label("system prompt").fill("Help briefly.")
    form.get_by_label("model", exact=True).fill("demo")
    form.get_by_label("calculate").check()
    form.locator("summary", has_text="limits").click()
    form.get_by_label("State of limits").select_option("on")
    form.get_by_label("steps").fill("0.5")
    form.locator("summary", has_text="mcp").click()
    expect(form.get_by_text("Only an admin may name one")).to_be_visible()
    look(root, "agent", phone=False)
    form.get_by_label("steps").fill("5")
    form.locator("summary", has_text="permissions").click()
    form.get_by_label("State of permissions").select_option("on")
    form.get_by_label("deny").fill("Bash(rm *)\nNothing(")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("permissions")
    look(root, "agent-errors", phone=False)
    form.get_by_label("deny").fill("Bash(rm *)")
    form.get_by_role("button", name="Save").click()
    expect(panel.get_by_role("button", name="Edit helper")).to_be_visible()
    expect(root.locator("#agent")).to_have_value("helper")
    config = admin("GET", "/agents/helper/config")
    assert config["options"]["permissions"] == {"deny": ["Bash(rm *)"]} and config["options"]["limits"] == {"steps": 5}

    panel.get_by_role("button", name="Edit helper").click()
    form.get_by_label("name", exact=True).first.fill("The helper")
    change = "(options) => fetch('/agents/helper', options).then((response) => response.status)"
    headers = {"Content-Type": "application/json", "If-Match": "1"}
    assert root.evaluate(change, {"method": "PUT", "headers": headers, "body": '{"model": "demo"}'}) == 200
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("changed in the meantime")
    form.get_by_role("button", name="Cancel").click()
    panel.get_by_role("button", name="Show helper as YAML").click()
    expect(panel.locator("pre")).to_contain_text("agents:")
    look(root, "yaml", phone=False)


def test_users_and_tokens(root: Page, server: ServerProcess) -> None:
    panel = open_settings(root, "Users and tokens")
    panel.get_by_label("User name").fill("eve")
    panel.get_by_label("What it is for").fill(BAIT)
    panel.get_by_role("button", name="Create the token").click()
    token = panel.locator(".settings-token").inner_text()
    look(root, "users", phone=False)
    request = Request(f"{server.url}/auth/me", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=30) as response:
        me = json.load(response)
    assert (me["username"], me["role"]) == ("eve", "user")
    panel.get_by_role("button", name="Done").click()
    assert token not in root.content()
    root.once("dialog", lambda dialog: dialog.accept())
    panel.get_by_role("button", name="Revoke").click()
    expect(panel.get_by_role("button", name="Revoke")).to_have_count(0)


def test_untrusted_text_does_not_run_in_the_settings(root: Page, admin: ApiClient) -> None:
    root.add_init_script("window.caught = () => { window.ran = true }")
    root.reload()
    wait_until_loaded(root)
    options = {"name": BAIT, "system_prompt": BAIT, "model": "demo", "examples": [BAIT], "context": {"texts": [BAIT]}}
    admin("POST", "/agents/", {"agent_id": "bait", **options})
    panel = open_settings(root, "Agents")
    panel.get_by_role("button", name=re.compile("as YAML")).first.wait_for()
    panel.get_by_label(f"Show {BAIT} as YAML").click()
    expect(panel.locator("pre")).to_contain_text("caught()")
    panel.get_by_label(f"Edit {BAIT}").click()
    expect(panel.get_by_label("system prompt")).to_have_value(BAIT)
    root.select_option("#agent", "bait")
    expect(root.get_by_role("list", name="Examples").get_by_role("button")).to_contain_text("caught()")
    assert not root.evaluate("window.ran")
    admin("DELETE", "/agents/bait")


def test_a_user_has_only_their_own_agents_in_the_settings(ada: Page) -> None:
    ada.keyboard.press("Control+,")
    panel = ada.get_by_role("complementary", name="Settings", exact=True)
    expect(panel.get_by_role("tab")).to_have_text(["Agents"])
    panel.get_by_role("button", name="New agent").click()
    form = panel.get_by_role("form", name="Agent")
    expect(form.locator("summary", has_text="permissions")).to_be_visible()
    expect(form.locator("summary", has_text="mcp")).to_have_count(0)
    expect(form.get_by_label("for all users")).to_have_count(0)
