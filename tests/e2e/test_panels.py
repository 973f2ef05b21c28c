"""Terminal, agent, trace, usage and replay: what the browser changes the API reads, and the other way round."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import engines
from browsing import Asking, asking, finished, say, show, talk, thread_of, until, visit
from serving import Served


def about(page: Page, tab: str) -> Any:
    panel = show(page, "Agent")
    panel.get_by_role("tab", name=tab).click()
    return panel


def test_the_terminal_is_a_shell_in_the_workspace(ada: Page, api: Asking) -> None:
    panel = show(ada, "Terminal")
    expect(panel.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    ada.keyboard.type("echo typed$((20+22)) > term.txt\n")
    until(lambda: "term.txt" in str(api("GET", "/agents/default/files/list")))
    until(lambda: api.read("term.txt") == "typed42\n")
    api.write("from-api.txt", "seen in the shell")
    ada.keyboard.type("cat from-api.txt\n")
    expect(panel.locator(".xterm-rows")).to_contain_text("seen in the shell")


def test_a_hook_that_is_switched_changes_what_happens(browser: Browser, server: Served) -> None:
    root = asking(server, "root")
    with visit(browser, server, "root") as page:
        panel = about(page, "Hooks")
        switch = panel.get_by_role("switch", name="Hook builtins")
        expect(switch).to_be_checked()
        before = _tools(root)
        switch.click()
        expect(switch).not_to_be_checked()
        assert root.hook("builtins")["on"] is False
        assert before - _tools(root) == {"calculate", "datetime"}, "the tools that it brings are gone"
        root("PATCH", "/agents/default/hooks", {"hooks": {"builtins": None}})
        expect(switch).to_be_checked()


def _tools(api: Asking) -> set[str]:
    return {tool["name"] for tool in api("GET", "/agents/default")["tools"]}


def test_a_rule_that_is_added_blocks_the_next_call(browser: Browser, server: Served) -> None:
    olga = asking(server, "olga")  # it takes an operator
    with visit(browser, server, "olga") as page:
        talk(page, "Run the command: echo forbidden-words")
        panel = about(page, "Permissions")
        panel.get_by_label("Kind of rule").select_option("deny")
        panel.get_by_label("Rule", exact=True).fill("Bash(echo forbidden*)")
        panel.get_by_role("button", name="Add").click()
        until(lambda: "echo forbidden*" in str(olga("GET", "/agents/default/permissions")))
        talk(page, "Run the command: echo forbidden-words")
        results = [m["content"] for m in olga.thread(thread_of(page))["messages"] if m["role"] == "tool"]
        assert "forbidden-words" in results[0] and "exit" not in results[-1], results
        panel.get_by_role("button", name=re.compile("Remove deny")).click()
        until(lambda: "echo forbidden*" not in str(olga("GET", "/agents/default/permissions")))


def test_a_grant_is_given_and_taken_back(ada: Page, api: Asking) -> None:
    say(ada, "Run the command: curl http://127.0.0.1:9/x | sh")
    ada.get_by_role("alertdialog").get_by_role("button", name="Always allow this").click()
    finished(ada)
    assert len(api("GET", "/agents/default/permissions")["grants"]) == 1
    panel = about(ada, "Permissions")
    panel.get_by_role("button", name="Take back execute").click()
    until(lambda: api("GET", "/agents/default/permissions")["grants"] == [])


def test_a_skill_is_switched(ada: Page, api: Asking) -> None:
    panel = about(ada, "Tools and skills")
    switch = panel.get_by_role("switch", name="Skill slides")
    expect(switch).to_be_checked()
    switch.click()
    until(lambda: not _skill(api, "slides")["enabled"])
    api("PATCH", "/agents/default/skills", {"enable": ["slides"]})
    expect(switch).to_be_checked()


def _skill(api: Asking, name: str) -> Any:
    return next(one for one in api("GET", "/agents/default/skills")["skills"] if one["name"] == name)


def test_the_onion_is_drawn_as_the_server_has_it(ada: Page, api: Asking) -> None:
    talk(ada, "Run the command: echo rings")
    panel = about(ada, "Onion")
    found = api("GET", "/agents/default/onion")["operations"]
    use = next(one for one in found if one["operation"] == "tool_use")
    rings = panel.locator("svg .ring circle")
    expect(rings).to_have_count(len(use["rings"]) + len(use["guards"]))
    ring = panel.locator("svg circle[aria-label*='permissions']").first
    ring.focus()
    expect(panel.locator("figcaption")).to_contain_text("permissions")


def test_the_backend_is_stopped_and_started(ada: Page, api: Asking) -> None:
    panel = about(ada, "Overview")
    place = panel.get_by_role("region", name="Where it works")
    expect(place).to_contain_text(api("GET", "/agents/default/backend")["workdir"])
    place.get_by_role("button", name=re.compile("Start|Restart")).click()
    expect(place.get_by_role("status")).to_have_text("launched")
    assert api("GET", "/agents/default/backend")["status"] == "launched"
    api("POST", "/agents/default/container", {"action": "stop"})
    expect(place.get_by_role("status")).to_have_text("idle")


def test_the_agent_moves_into_a_container_and_back(browser: Browser, server: Served) -> None:
    engine = engines.here()
    engine.image("python")
    with visit(browser, server, "root") as page:
        root = asking(server, "root")
        place = about(page, "Overview").get_by_role("region", name="Where it works")
        place.get_by_role("button", name="Local Docker").click()
        until(lambda: root("GET", "/agents/default/backend")["mode"] == "remote")
        place.get_by_role("button", name="This machine").click()
        until(lambda: root("GET", "/agents/default/backend")["mode"] == "local")


def test_the_trace_of_a_run_is_a_waterfall(ada: Page, api: Asking) -> None:
    talk(ada, "Run the command: echo traced")
    reply = ada.locator("article.reply").last
    reply.hover()
    reply.get_by_role("button", name="Trace", exact=True).click()
    panel = show(ada, "Trace")
    spans = panel.get_by_role("treeitem")
    expect(spans.filter(has_text="execute").first).to_be_visible()
    run = api("GET", f"/threads/{thread_of(ada)}/runs")["runs"][-1]
    assert run["traced"] and api("GET", f"/runs/{run['run_id']}/trace")["spans"]
    panel.get_by_role("tree").focus()
    ada.keyboard.press("ArrowDown")
    expect(panel.locator(".span.chosen")).to_have_count(1)


def test_usage_is_what_the_server_counted(ada: Page, api: Asking) -> None:
    api.ask("default", "What can you do?")
    panel = show(ada, "Usage")
    runs = api("GET", "/usage")["total"]["runs"]
    expect(panel.locator("dl.totals")).to_contain_text(str(runs))
    talk(ada, "What can you do?")
    expect(panel.locator("dl.totals")).to_contain_text(str(runs + 1))
    expect(panel.locator("figure.chart svg")).to_be_visible()


def test_replay_says_what_a_rule_would_have_stopped(ada: Page, api: Asking) -> None:
    talk(ada, "Run the command: echo replayed")
    panel = show(ada, "Replay")
    panel.get_by_label("Deny").fill("Bash(echo replayed*)")
    panel.get_by_role("button", name="See what would have been different").click()
    changed = panel.locator("li.changed")
    expect(changed).to_have_count(1)
    expect(changed).to_contain_text("would be blocked")
    assert "replayed" not in str(api("GET", "/agents/default/permissions")["rules"]), "nothing was changed"


@pytest.mark.parametrize("panel", ["Canvas", "Files", "Terminal", "Agent", "Trace", "Usage", "Approvals", "Replay"])
def test_a_panel_that_has_nothing_yet_says_what_to_do(browser: Browser, server: Served, panel: str) -> None:
    with visit(browser, server, "bob") as page:
        side = show(page, panel)
        expect(side.locator(".side-body")).not_to_be_empty()
        expect(side.get_by_text("cannot be shown")).to_have_count(0)
