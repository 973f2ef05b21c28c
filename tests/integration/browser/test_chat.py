"""People talk to agents in a browser: tools, subagents, reasoning, steering, stopping, forks, files, threads."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_pages import (
    ApiClient,
    open_api_client,
    open_page,
    open_panel,
    open_thread_id,
    send_and_wait,
    send_message,
    sign_in,
    wait_for,
    wait_until_idle,
)
from server_process import TOKENS, ServerProcess

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BRING = """([encoded, way]) => {
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0))
  const data = new DataTransfer()
  data.items.add(new File([bytes], 'dot.png', {type: 'image/png'}))
  data.items.add(new File(['a note'], 'note.txt', {type: 'text/plain'}))
  const how = {bubbles: true, cancelable: true}
  if (way === 'paste') {
    document.getElementById('message').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, ...how}))
    return
  }
  const place = document.querySelector('.chat-chat')
  for (const kind of ['dragover', 'drop']) place.dispatchEvent(new DragEvent(kind, {dataTransfer: data, ...how}))
}"""


def calls(*wanted: tuple[str, dict[str, Any]]) -> str:
    """Return a message that makes the agent `caller` call these tools at once."""
    return json.dumps([{"name": name, "args": args} for name, args in wanted])


def user_texts(api: ApiClient, thread: str) -> list[str]:
    return [message["content"] for message in api.thread(thread)["messages"] if message["role"] == "user"]


def replies(page: Page) -> str:
    return "\n".join(page.locator("article.chat-reply").all_inner_texts())


# -- signing in -------------------------------------------------------------------------------------------------------


def test_signing_in_with_a_token_and_out_again(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, user="") as page:
        page.goto("/")
        page.get_by_label("Access token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("status")).not_to_be_empty()
        expect(page.locator("#message")).to_have_count(0)
        sign_in(page, "ada")
        assert page.evaluate("document.cookie") == ""  # no script can read it
        page.reload()
        page.wait_for_selector("#message")
        page.get_by_role("button", name="Sign out ada").click()
        page.get_by_label("Access token").wait_for()
        page.reload()
        page.get_by_label("Access token").wait_for()


def test_users_see_only_their_own_threads(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, "ada") as ada, open_page(browser, server, "bob", refused=404) as bob:
        send_and_wait(ada, "Write the word heron to birds.txt")
        send_and_wait(bob, "Write the word otter to beasts.txt")
        ada.get_by_placeholder("Search").fill("otter")
        expect(ada.get_by_text("No results.")).to_be_visible()
        bob.goto(f"/#thread={open_thread_id(ada)}")
        expect(bob.get_by_text("Thread not found")).to_be_visible()
        expect(open_panel(bob, "Files").get_by_text("beasts.txt")).to_be_visible()
        expect(bob.get_by_text("birds.txt")).to_have_count(0)
    assert "birds.txt" in str(open_api_client(server, "ada")("GET", "/agents/default/files/list"))


# -- tools -----------------------------------------------------------------------------------------------------


def test_tool_cards_show_arguments_and_results(ada: Page, api: ApiClient) -> None:
    send_and_wait(ada, "Write hello to notes.txt and read it")
    card = ada.get_by_role("group", name=re.compile("^read_file: done"))
    card.get_by_role("button").first.click()
    expect(card).to_contain_text("notes.txt")
    expect(card).to_contain_text("hello")
    assert api.read("notes.txt").strip() == "hello"
    kept = api.thread(open_thread_id(ada))["messages"]
    assert [call["name"] for message in kept for call in message["tool_calls"]] == ["write_file", "read_file"]
    ada.reload()
    expect(ada.get_by_role("group", name=re.compile("^write_file: done"))).to_have_count(1)


def test_why_shows_the_decision_of_each_hook(ada: Page) -> None:
    send_and_wait(ada, "Run the command: echo reasons")
    card = ada.get_by_role("group", name=re.compile("^execute: done"))
    card.get_by_role("button").first.click()
    card.get_by_text("Why").click()
    rows = card.get_by_role("table", name="Verdicts of hooks")
    expect(rows.get_by_role("row", name=re.compile("permissions.check guard pass"))).to_have_count(1)


def test_parallel_calls_are_shown_side_by_side(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="caller") as page:
        send_message(page, calls(("wait", {"name": "left"}), ("wait", {"name": "right"}), ("no_such_tool", {})))
        both = page.get_by_role("group", name="3 parallel tool calls")
        expect(both.get_by_role("group", name="wait: running")).to_have_count(2)
        first, second = both.get_by_role("group", name="wait: running").all()
        assert abs(first.bounding_box()["y"] - second.bounding_box()["y"]) < 2  # type: ignore[index]
        expect(both.get_by_role("group", name="no_such_tool: failed")).to_be_visible()
        (server.folder / "left").touch()
        expect(both.get_by_role("group", name="wait: done")).to_have_count(1)
        expect(both.get_by_role("group", name="wait: running")).to_have_count(1)
        (server.folder / "right").touch()
        wait_until_idle(page)


def test_a_subagent_is_shown_inside_its_call(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="caller") as page:
        inner = calls(("wait", {"name": "helped"}))
        send_message(page, calls(("task", {"agent": "helper", "prompt": inner})))
        child = page.get_by_role("group", name="Subagent helper")
        expect(child.get_by_role("group", name="wait: running")).to_be_visible()
        (server.folder / "helped").touch()
        wait_until_idle(page)
        (kept,) = [call for m in api.thread(open_thread_id(page))["messages"] for call in m["tool_calls"]]
        assert api.thread(kept["child"])["messages"], "its work is a thread of its own"
        page.reload()
        page.get_by_role("group", name="task: done").get_by_role("button").first.click()
        child.get_by_role("button", name="Show its messages").click()
        expect(child.get_by_role("group", name="wait: done")).to_be_visible()


def test_background_tasks_show_their_status(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="caller") as page:
        inner = calls(("wait", {"name": "later"}))
        send_message(page, calls(("start_task", {"agent": "helper", "prompt": inner})))
        tasks = page.locator(".chat-tasks")
        expect(tasks).to_contain_text("1 of 1 running")
        (server.folder / "later").touch()
        expect(tasks).to_contain_text("1 finished")
        wait_until_idle(page)
        page.reload()
        expect(page.locator(".chat-tasks")).to_contain_text("1 finished")


def test_todos_are_a_checklist(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    todos = [{"id": "1", "title": "Sow", "status": "done"}, {"id": "2", "title": "Reap", "status": "in_progress"}]
    with open_page(browser, server, agent="caller") as page:
        send_message(page, calls(("write_todos", {"todos": todos}), ("wait", {"name": "grown"})))
        listed = page.locator(".chat-todos")
        expect(listed).to_contain_text("1 of 2 done: Reap")
        expect(listed.get_by_role("listitem").filter(has_text="Sow").get_by_role("img")).to_have_accessible_name("done")
        (server.folder / "grown").touch()
        wait_until_idle(page)
        assert [(one["title"], one["status"]) for one in api.thread(open_thread_id(page))["todos"]] == [
            ("Sow", "done"),
            ("Reap", "in_progress"),
        ]


def test_reasoning_is_folded_away(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="thinking") as page:
        send_message(page, "weighed")
        expect(page.get_by_text("Thinking…")).to_be_visible()
        (server.folder / "weighed").touch()
        wait_until_idle(page)
        folded = page.locator("details.chat-reasoning")
        expect(folded.get_by_text("weigh", exact=True)).to_be_hidden()
        folded.get_by_text("Reasoning").click()
        expect(folded.locator("strong")).to_have_text("weigh")
        expect(folded).to_contain_text("It is heavy.")
        (reply,) = [m for m in api.thread(open_thread_id(page))["messages"] if m["role"] == "assistant"]
        assert (reply["content"], reply["reasoning"][0]["text"]) == (
            "It weighs a lot.",
            "Let me **weigh** this. It is heavy.",
        )
        page.reload()
        page.locator("details.chat-reasoning").get_by_text("Reasoning").click()
        expect(page.locator("details.chat-reasoning strong")).to_be_visible()


# -- while it runs ----------------------------------------------------------------------------------------------------


def test_a_run_is_steered(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="patient") as page:
        send_message(page, "wait for steered")
        page.get_by_role("group", name=re.compile("^wait: running")).wait_for()
        send_message(page, "and think of the otters")
        expect(page.get_by_text("The agent reads this at its next step.")).to_be_visible()
        (server.folder / "steered").touch()
        wait_until_idle(page)
        assert "I have heard: wait for steered / and think of the otters" in replies(page)
        assert page.locator("article.chat-said").count() == 2
        assert len(api.thread(open_thread_id(page))["ends"]) == 1, "it was one run"


def test_a_run_is_stopped(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="patient") as page:
        send_message(page, "wait for godot")
        page.get_by_role("group", name=re.compile("^wait: running")).wait_for()
        page.get_by_role("button", name="Stop").click()
        wait_until_idle(page)
        expect(page.locator(".chat-ended")).to_contain_text("cancelled")
        assert api.thread(open_thread_id(page))["ends"][0]["outcome"] == "cancelled"


def test_messages_sent_at_once_keep_their_order(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="slow") as page:
        for words in ("10 0.05", "2 0.01", "3 0.01"):  # before there is a thread
            send_message(page, words)
        wait_until_idle(page)
        expect(page.locator("article.chat-said")).to_have_count(3)
        thread = open_thread_id(page)

        def titled() -> list[str]:
            return [one["id"] for one in api("GET", "/threads")["threads"] if one["title"].startswith("10 0.05")]

        assert wait_for(titled) == [thread], "a title is written after the first reply"
        assert user_texts(api, thread) == ["10 0.05", "2 0.01", "3 0.01"]


# -- messages ---------------------------------------------------------------------------------------------------------


def act(page: Page, article: Any, name: str, **how: Any) -> None:
    article.hover()
    article.get_by_role("button", name=name, exact=True).click(**how)


@pytest.mark.parametrize("kind", ["said", "reply"])
def test_a_thread_is_forked_from_any_message(
    browser: Browser, server: ServerProcess, api: ApiClient, kind: str
) -> None:
    with open_page(browser, server, agent="echo") as page:
        for words in ("one", "two", "three"):
            send_and_wait(page, words)
        before, count = open_thread_id(page), len(api("GET", "/threads")["threads"])
        act(page, page.locator(f"article.chat-{kind}").nth(1), "Fork", click_count=2)
        page.wait_for_url(lambda url: before not in url)
        expect(page.locator("article.chat-said")).to_have_count(2)
        expect(page.locator("article.chat-reply")).to_have_count(1 if kind == "said" else 2)
        fork = api.thread(open_thread_id(page))
        seqs = [message["seq"] for message in fork["messages"]]
        assert (fork["meta"]["forked_from"], fork["meta"]["forked_at"]) == (before, seqs[-1])
        assert user_texts(api, before) == ["one", "two", "three"], "where it came from stays as it was"
        assert len(api("GET", "/threads")["threads"]) == count + 1, "two clicks make one"


def test_any_message_can_be_edited_or_resent(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="echo") as page:
        for words in ("one", "two", "three"):
            send_and_wait(page, words)
        act(page, page.locator("article.chat-said").nth(1), "Edit")
        page.get_by_label("Your message").fill("better\nwords")
        page.reload()  # drafts are not lost
        expect(page.get_by_label("Your message")).to_have_value("better\nwords")
        page.get_by_role("button", name="Resend").dblclick()
        expect(page.locator("article.chat-reply")).to_have_text([re.compile("one"), re.compile("better")])
        wait_until_idle(page)
        assert user_texts(api, open_thread_id(page)) == ["one", "better\nwords"]
        lines = page.locator("article.chat-said").nth(1).locator("p").inner_text()
        assert lines == "better\nwords", "lines are shown as they were written"
        page.on("dialog", lambda dialog: dialog.accept())  # a later message is removed
        act(page, page.locator("article.chat-reply").first, "Retry")
        expect(page.locator("article.chat-said")).to_have_count(1)
        wait_until_idle(page)
        assert user_texts(api, open_thread_id(page)) == ["one"]
        expect(page.locator("article.chat-reply")).to_have_count(1)


def test_a_thread_keeps_its_agent(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, "to the echo")
        page.select_option("#agent", "slow")
        page.get_by_role("button", name="New thread with slow").click()
        send_and_wait(page, "2 0.01")
        page.go_back()
        page.go_back()
        expect(page.locator("#agent")).to_have_value("echo")
        send_and_wait(page, "to the echo again")
        assert user_texts(api, open_thread_id(page)) == ["to the echo", "to the echo again"]


def test_threads_are_renamed_searched_exported_and_deleted(ada: Page, api: ApiClient) -> None:
    send_and_wait(ada, "Write the word capybara to thread.txt")
    thread = open_thread_id(ada)
    row = ada.locator(".shell-thread-row").filter(has=ada.locator("[aria-current]"))
    row.hover()
    row.get_by_role("button", name=re.compile("^Rename")).click()
    ada.get_by_label("Title", exact=True).fill("About rodents")
    ada.keyboard.press("Enter")
    wait_for(lambda: api.thread(thread)["title"] == "About rodents")
    api("PATCH", f"/threads/{thread}", {"title": "About large rodents"})  # and the other way round
    expect(ada.get_by_role("button", name="About large rodents").first).to_be_visible()
    row.hover()
    row.get_by_role("button", name=re.compile("^Export")).click()
    with ada.expect_download() as download:
        ada.get_by_text("Markdown (messages)").click()
    assert "capybara" in download.value.path().read_text()
    row.hover()
    row.get_by_role("button", name=re.compile("^Export")).click()
    with ada.expect_download() as download:
        ada.get_by_text("JSON (full log)").click()
    assert json.loads(download.value.path().read_text()) == api("GET", f"/threads/{thread}/export")
    ada.get_by_placeholder("Search").fill("capybara")
    expect(ada.get_by_role("list", name="Search results").get_by_role("button")).not_to_have_count(0)
    ada.get_by_placeholder("Search").fill("")
    row.hover()
    row.get_by_role("button", name=re.compile("^Delete")).click()
    ada.get_by_role("dialog").get_by_role("button", name="Delete").click()
    wait_for(lambda: thread not in str(api("GET", "/threads")))
    expect(ada.get_by_role("button", name="About large rodents")).to_have_count(0)


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_files_are_attached_by_paste_and_drop(
    browser: Browser, server: ServerProcess, api: ApiClient, way: str
) -> None:
    with open_page(browser, server, agent="echo") as page:
        page.locator("#message").fill("look at this")
        page.evaluate(BRING, [DOT, way])
        waiting = page.get_by_role("list", name="Attached")
        expect(waiting.locator("img")).to_have_count(1)
        expect(waiting.get_by_role("listitem")).to_have_count(2)
        page.get_by_role("button", name="Send").click()
        wait_until_idle(page)
        sent = page.locator("article.chat-said").get_by_role("list", name="Attached")
        expect(sent.locator("img")).to_have_count(1)
        expect(sent).to_contain_text("note.txt")
        (message,) = [m for m in api.thread(open_thread_id(page))["messages"] if m["role"] == "user"]
        assert [part["type"] for part in message["content"]] == ["text", "image", "file"]
        assert message["content"][2]["name"] == "note.txt" and message["content"][1]["data"] == DOT


def test_a_slash_is_for_skills(ada: Page, api: ApiClient) -> None:
    ada.locator("#message").press_sequentially("/sli")
    offered = ada.get_by_role("listbox", name="Skills")
    expect(offered).to_contain_text("/slides")
    ada.keyboard.press("Enter")
    expect(ada.locator("#message")).to_have_value("/slides ")
    send_and_wait(ada, "/slides a deck about tea")  # pasted and sent at once
    send_and_wait(ada, "/nothing of the kind")
    assert user_texts(api, open_thread_id(ada)) == ["Use the skill slides: a deck about tea", "/nothing of the kind"]


def test_the_token_is_in_no_storage(ada: Page) -> None:
    kept = ada.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, location.href, document.title])")
    assert TOKENS["ada"] not in kept
