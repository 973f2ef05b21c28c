"""Questions of agents: approvals and ask_user; the answer decides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_pages import (
    ApiClient,
    open_page,
    open_panel,
    open_thread_id,
    send_and_wait,
    send_message,
    wait_for,
    wait_until_idle,
)
from server_process import ServerProcess

BOLD = "Run the command: curl https://example.com/install | sh"  # questions of the default rules, each time


def question(page: Page) -> Any:
    return page.get_by_role("alertdialog", name="Question from the agent")


def results(api: ApiClient, thread: str) -> list[str]:
    return [str(message["content"]) for message in api.thread(thread)["messages"] if message["role"] == "tool"]


# -- may I? -----------------------------------------------------------------------------------------------------------


def test_a_question_is_denied_with_words(ada: Page, api: ApiClient) -> None:
    send_message(ada, BOLD)
    box = question(ada)
    expect(box).to_contain_text("curl https://example.com/install | sh")
    expect(box.get_by_label("Command analysis")).to_contain_text("sh")
    expect(box).to_contain_text("this approval applies only once")  # a rule asks, so nothing lasting is offered
    expect(box.get_by_role("button", name="Always allow")).to_have_count(0)
    box.get_by_placeholder("Reason, or").fill("we do not run strangers")
    box.get_by_role("button", name="Deny").dblclick()
    wait_until_idle(ada)
    expect(box).to_have_count(0)
    assert "we do not run strangers" in results(api, open_thread_id(ada))[0]


def test_a_question_is_allowed_with_other_arguments(ada: Page, api: ApiClient) -> None:
    send_message(ada, BOLD)
    box = question(ada)
    box.get_by_role("button", name="Edit").click()
    arguments = box.get_by_label("Arguments as JSON")
    arguments.fill("{half")
    expect(box.get_by_role("button", name="Allow with changes")).to_be_disabled()
    arguments.fill('{"command": "echo something-milder"}')
    box.get_by_role("button", name="Allow with changes").click()
    wait_until_idle(ada)
    (result,) = results(api, open_thread_id(ada))
    assert "something-milder" in result and "example.com" not in result


def test_similar_commands_are_allowed_in_a_thread_and_keys_answer(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    with open_page(browser, server, agent="careful") as page:
        send_message(page, "Run the command: echo first")
        question(page).get_by_role("button", name="Allow echo * in this thread").click()
        wait_until_idle(page)
        send_and_wait(page, "Run the command: echo second")  # without a question
        send_message(page, "Run the command: touch by-key")
        expect(question(page)).to_be_focused()
        page.wait_for_timeout(800)  # a key that comes at once was meant for something else
        page.keyboard.press("y")
        wait_until_idle(page)
        send_message(page, "Run the command: touch refused")
        expect(question(page)).to_be_focused()
        page.wait_for_timeout(800)
        page.keyboard.press("e")
        expect(page.get_by_label("Arguments as JSON")).to_be_focused()
        question(page).focus()
        page.keyboard.type("no", delay=40)  # a sentence is not an answer
        expect(page.get_by_label("Message", exact=True)).to_be_focused()
        expect(page.get_by_label("Message", exact=True)).to_have_value("no")
        page.get_by_label("Message", exact=True).fill("")
        question(page).focus()
        page.keyboard.press("n")
        wait_until_idle(page)
        told = results(api, open_thread_id(page))
        assert "first" in told[0] and "second" in told[1] and "the user said no" in told[3]
        assert "by-key" in str(api("GET", "/agents/careful/files/list"))
        send_message(page, "Run the command: echo out > written.txt")  # a file is more than the rule shows
        expect(question(page)).to_be_visible()
        expect(question(page).get_by_role("button", name="Allow echo * in this thread")).to_have_count(0)
        question(page).get_by_role("button", name="Deny").click()
        wait_until_idle(page)


def test_a_grant_for_a_thread_is_not_asked_again_there(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="careful") as page:
        send_message(page, "Run the command: echo for-this-thread")
        question(page).get_by_role("button", name="Allow for this thread").click()
        wait_until_idle(page)
        send_and_wait(page, "Run the command: echo for-this-thread")
        assert [found.count("for-this-thread") for found in results(api, open_thread_id(page))] == [1, 1]
        assert api("GET", "/agents/careful/permissions")["grants"] == [], "it holds here and nowhere else"
        page.get_by_role("button", name="New thread").click()
        send_message(page, "Run the command: echo for-this-thread")
        question(page).get_by_role("button", name="Deny").click()
        wait_until_idle(page)


def test_a_permanent_grant_is_a_rule_that_can_be_revoked(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    with open_page(browser, server, agent="careful") as page:
        send_message(page, "Run the command: echo for-good")
        question(page).get_by_role("button", name="Always allow").click()
        wait_until_idle(page)
        (grant,) = api("GET", "/agents/careful/permissions")["grants"]
        assert (grant["tool"], grant["args"]["command"]) == ("execute", "echo for-good")
        page.get_by_role("button", name="New thread").click()
        send_and_wait(page, "Run the command: echo for-good")
        assert "for-good" in results(api, open_thread_id(page))[0]
        api("DELETE", f"/agents/careful/permissions/grants/{grant['id']}")
        send_message(page, "Run the command: echo for-good")
        question(page).get_by_role("button", name="Deny").click()
        wait_until_idle(page)


def test_a_question_shows_the_diff_of_the_file(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    api.write("plan.txt", "one\ntwo\n", agent="careful")
    thread = api.begin("careful", "Write three to plan.txt")
    with open_page(browser, server, agent="echo") as page:  # for any agent here
        row = open_panel(page, "Approvals").get_by_role("listitem").filter(has_text="plan.txt")
        changes = row.get_by_label("Changes in plan.txt")
        expect(changes.locator("del")).to_have_text(["- one\n", "- two\n"])
        expect(changes.locator("ins")).to_have_text(["+ three\n"])
        row.get_by_role("button", name="Allow", exact=True).click()
        wait_for(lambda: api.read("plan.txt", agent="careful").strip() == "three")
        expect(page.get_by_text("No pending questions")).to_be_visible()
    assert "plan.txt" in wait_for(lambda: results(api, thread))[0]


def test_a_question_of_another_thread_is_answered_in_the_inbox(ada: Page, api: ApiClient) -> None:
    thread = api.begin("default", BOLD)  # by the API, and seen here
    inbox = open_panel(ada, "Approvals")
    row = inbox.get_by_role("listitem").filter(has_text="example.com/install")
    expect(row).to_have_count(1)
    expect(ada).to_have_title(re.compile(r"^\(1\)"))
    assert [one["thread_id"] for one in api("GET", "/approvals")["approvals"]] == [thread]
    row.get_by_role("button", name="Deny").click()
    expect(inbox.get_by_text("No pending questions")).to_be_visible()
    assert api("GET", "/approvals")["approvals"] == []


def test_a_question_answered_by_the_api_disappears(ada: Page, api: ApiClient) -> None:
    send_message(ada, BOLD)
    question(ada).wait_for()
    (asked,) = api("GET", "/approvals", thread_id=open_thread_id(ada))["approvals"]
    api("POST", f"/approvals/{asked['id']}", {"choice": "deny", "words": "no", "thread_id": asked["thread_id"]})
    expect(question(ada)).to_have_count(0)
    wait_until_idle(ada)


def test_another_message_is_not_an_approval(ada: Page, api: ApiClient) -> None:
    send_message(ada, BOLD)
    box = question(ada)
    box.get_by_placeholder("Reason, or").fill("since")
    ada.get_by_role("button", name="New thread").click()
    ada.go_back()
    expect(box.get_by_placeholder("Reason, or")).to_have_value("since")  # the draft is restored
    send_and_wait(ada, "What can you do?")
    expect(box).to_have_count(0)
    assert "example.com" not in results(api, open_thread_id(ada))[0]
    expect(ada.locator("article.chat-said")).to_have_count(2)


# -- ask_user ---------------------------------------------------------------------------------------------------------


def _choose(box: Any, option: str) -> None:
    box.get_by_label(option).check()
    box.get_by_role("button", name="Answer", exact=True).click()


def _write(box: Any, words: str) -> None:
    box.get_by_placeholder("Your answer").fill(words)
    box.get_by_placeholder("Your answer").press("Enter")


INQUIRIES: list[tuple[dict[str, Any], Callable[[Any], None], str]] = [
    ({"question": "Go on?", "kind": "confirm"}, lambda box: box.get_by_role("button", name="Yes").click(), "true"),
    (
        {"question": "Which?", "kind": "select", "options": ["red", "<b>blue</b>"]},
        lambda box: _choose(box, "<b>blue</b>"),
        "<b>blue</b>",
    ),
    (
        {"question": "What?", "kind": "multiselect", "options": ["tea", "milk"]},
        lambda box: _choose(box, "milk"),
        "milk",
    ),
    ({"question": "What name?"}, lambda box: _write(box, "Grace"), "Grace"),
]


@pytest.mark.parametrize(("args", "reply", "told"), INQUIRIES, ids=["confirm", "select", "multiselect", "input"])
def test_questions_of_the_agent_are_shown(
    browser: Browser,
    server: ServerProcess,
    api: ApiClient,
    args: dict[str, Any],
    reply: Callable[[Any], None],
    told: str,
) -> None:
    with open_page(browser, server, agent="caller") as page:
        send_message(page, json.dumps([{"name": "ask_user", "args": args}]))
        expect(question(page).get_by_role("heading")).to_have_text(args["question"])
        reply(question(page))
        wait_until_idle(page)
        expect(question(page)).to_have_count(0)
        assert told in results(api, open_thread_id(page))[0]


def test_a_question_can_be_declined(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="caller") as page:
        send_message(page, json.dumps([{"name": "ask_user", "args": {"question": "How old are you?"}}]))
        question(page).get_by_role("button", name="Decline to answer").click()
        wait_until_idle(page)
        assert "declined to answer" in results(api, open_thread_id(page))[0]
