"""Programs of code mode: each call is shown below the line that made it, live; a question is about one call."""

from __future__ import annotations

import json

from playwright.sync_api import Browser, Locator, expect

from browser_pages import find_violations, open_api_client, open_page, open_thread_id, send_message, wait_until_idle
from server_process import ServerProcess

PROGRAM = """\
first = await note(text="one")
for amount in (3, 4):
    print(await pay(amount=amount))
print(first)
"""


def test_a_program_shows_its_calls_and_asks_about_single_ones(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="coder") as page:
        send_message(page, json.dumps([{"name": "run_code", "args": {"code": PROGRAM}}]))
        program = page.get_by_label("Program")

        def line(number: int) -> Locator:
            return program.locator("> li").nth(number - 1)

        expect(line(1).get_by_role("group", name="note: done")).to_be_visible()
        expect(line(3).get_by_role("group", name="pay: needs approval")).to_be_visible()
        question = page.get_by_role("alertdialog", name="Question from the agent")
        expect(question).to_contain_text("Pay it?")
        assert find_violations(page) == []
        question.get_by_role("button", name="Edit").click()
        question.get_by_label("Arguments as JSON").fill('{"amount": 5}')
        question.get_by_role("button", name="Allow with changes").click()
        expect(line(3).get_by_role("group", name="pay: done")).to_be_visible()
        question.get_by_role("button", name="Deny").click()
        expect(line(3).get_by_role("group", name="pay: denied by ada")).to_be_visible()
        wait_until_idle(page)
        thread = open_thread_id(page)
        page.reload()  # the same from the stored thread; a failed call is open
        expect(line(1).get_by_role("group", name="note: done")).to_be_visible()
        expect(line(3).get_by_role("group", name="pay: done")).to_be_visible()
        denied = line(3).get_by_role("group", name="pay: denied by ada")
        if denied.get_by_text("Why").count() == 0:
            denied.get_by_role("button", name="pay").click()
        denied.get_by_text("Why").click()
        expect(denied).to_contain_text("ask_before_payments")
    messages = open_api_client(server).thread(thread)["messages"]
    (text,) = (message["content"] for message in messages if message["role"] == "tool")
    assert "PermissionError" in text and "paid 5" in text
    calls = messages[1]["tool_calls"][0]["calls"]
    assert [(call["name"], call["lines"], call["output"]) for call in calls][:2] == [
        ("note", [1, 1], "noted one"),
        ("pay", [3, 3], "paid 5"),
    ]
