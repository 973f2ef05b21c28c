"""People talk to agents in a browser: tools, questions, steering, stopping, forks, and what a reload must not lose."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from browsing import Asking, asking, finished, say, show, sign_in, talk, thread_of, until, visit
from serving import TOKENS, Served

BOLD = "Run the command: curl https://example.com/install | sh"  # what the ready rules ask about

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PASTE = """(encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0))
  const data = new DataTransfer()
  data.items.add(new File([bytes], 'dot.png', {type: 'image/png'}))
  const paste = new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})
  document.getElementById('message').dispatchEvent(paste)
}"""


def replies(page: Page) -> str:
    return "\n".join(page.locator("article.reply").all_inner_texts())


# -- signing in -------------------------------------------------------------------------------------------------------


def test_signing_in_with_a_token_and_out_again(browser: Browser, server: Served) -> None:
    with visit(browser, server, user="") as page:
        page.goto("/")
        page.get_by_label("Your token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("status")).not_to_be_empty()
        expect(page.locator("#message")).to_have_count(0)
        sign_in(page, "ada")
        assert page.evaluate("document.cookie") == ""  # no script can read it
        page.reload()
        page.wait_for_selector("#message")
        page.get_by_role("button", name="Sign out ada").click()
        page.get_by_label("Your token").wait_for()
        page.reload()
        page.get_by_label("Your token").wait_for()


def test_two_users_see_only_their_own(browser: Browser, server: Served) -> None:
    with visit(browser, server, "ada") as ada, visit(browser, server, "bob", refused=404) as bob:
        talk(ada, "Write the word heron to birds.txt")
        talk(bob, "Write the word otter to beasts.txt")
        ada.get_by_placeholder("Search").fill("otter")
        expect(ada.get_by_text("Nothing has these words in it.")).to_be_visible()
        bob.goto(f"/#thread={thread_of(ada)}")
        expect(bob.get_by_text("There is no such thread")).to_be_visible()
        expect(show(bob, "Files").get_by_text("beasts.txt")).to_be_visible()
        expect(bob.get_by_text("birds.txt")).to_have_count(0)
    assert "birds.txt" in str(asking(server, "ada")("GET", "/agents/default/files/list"))


# -- tools and questions ----------------------------------------------------------------------------------------------


def test_tools_are_cards_with_what_went_in_and_came_out(ada: Page, api: Asking) -> None:
    talk(ada, "Write hello to notes.txt and read it")
    card = ada.get_by_role("group", name=re.compile("^read_file: done"))
    card.get_by_role("button").first.click()
    expect(card).to_contain_text("notes.txt")
    expect(card).to_contain_text("hello")
    assert api.read("notes.txt").strip() == "hello"
    kept = api.thread(thread_of(ada))["messages"]
    assert [call["name"] for message in kept for call in message["tool_calls"]] == ["write_file", "read_file"]
    ada.reload()
    expect(ada.get_by_role("group", name=re.compile("^write_file: done"))).to_have_count(1)


def test_why_says_what_each_hook_said(ada: Page) -> None:
    talk(ada, "Run the command: echo reasons")
    card = ada.get_by_role("group", name=re.compile("^execute: done"))
    card.get_by_role("button").first.click()
    card.get_by_text("Why").click()
    rows = card.get_by_role("table", name="What hooks said")
    expect(rows.get_by_role("row", name=re.compile("permissions.check guard pass"))).to_have_count(1)


def test_a_question_is_denied_with_words(ada: Page, api: Asking) -> None:
    say(ada, BOLD)
    box = ada.get_by_role("alertdialog", name="The agent asks")
    expect(box).to_contain_text("curl https://example.com/install | sh")
    expect(box.get_by_label("What the command does")).to_contain_text("sh")
    box.get_by_placeholder("Why not").fill("we do not run strangers")
    box.get_by_role("button", name="Deny").click()
    finished(ada)
    expect(box).to_have_count(0)
    assert "we do not run strangers" in str(api.thread(thread_of(ada))["messages"])


def test_a_question_is_allowed_with_other_arguments(ada: Page, api: Asking) -> None:
    say(ada, BOLD)
    box = ada.get_by_role("alertdialog", name="The agent asks")
    box.get_by_role("button", name="Edit").click()
    box.get_by_label("Arguments, as JSON").fill('{"command": "echo something-milder"}')
    box.get_by_role("button", name="Allow this instead").click()
    finished(ada)
    results = [m["content"] for m in api.thread(thread_of(ada))["messages"] if m["role"] == "tool"]
    assert any("something-milder" in str(result) for result in results)


def test_a_question_of_another_thread_is_answered_in_the_inbox(ada: Page, api: Asking) -> None:
    thread = api.begin("default", BOLD)  # by the API, and seen here
    inbox = show(ada, "Approvals")
    row = inbox.get_by_role("listitem").filter(has_text="example.com/install")
    expect(row).to_have_count(1)
    assert [one["thread_id"] for one in api("GET", "/approvals")["approvals"]] == [thread]
    row.get_by_role("button", name="Deny").click()
    expect(inbox.get_by_text("Nobody waits for you")).to_be_visible()
    assert api("GET", "/approvals")["approvals"] == []


def test_a_question_that_the_api_answers_goes_away(ada: Page, api: Asking) -> None:
    say(ada, BOLD)
    box = ada.get_by_role("alertdialog", name="The agent asks")
    box.wait_for()
    (asked,) = api("GET", "/approvals", thread_id=thread_of(ada))["approvals"]
    api("POST", f"/approvals/{asked['id']}", {"choice": "deny", "words": "no", "thread_id": asked["thread_id"]})
    expect(box).to_have_count(0)


def test_what_the_agent_wants_to_know_is_asked(ada: Page) -> None:
    say(ada, "Ask me which colour I like: red or blue")
    box = ada.get_by_role("alertdialog", name="The agent asks")
    box.wait_for()
    for choice in (
        box.get_by_role("radio").first,
        box.get_by_placeholder("Your answer"),
        box.get_by_role("button", name="Yes"),
    ):
        if choice.count():
            choice.fill("blue") if choice.evaluate("e => e.placeholder === 'Your answer'") else choice.click()
            break
    if box.get_by_role("button", name="Answer").count():
        box.get_by_role("button", name="Answer", exact=True).click()
    finished(ada)
    expect(box).to_have_count(0)


# -- while it runs ----------------------------------------------------------------------------------------------------


def test_a_run_is_steered(browser: Browser, server: Served, api: Asking) -> None:
    with visit(browser, server, agent="patient") as page:
        say(page, "wait for steered")
        page.get_by_role("group", name=re.compile("^wait: working")).wait_for()
        say(page, "and think of the otters")
        expect(page.get_by_text("It hears this at its next step.")).to_be_visible()
        (server.folder / "steered").touch()
        finished(page)
        assert "I have heard: wait for steered / and think of the otters" in replies(page)
        assert page.locator("article.said").count() == 2
        assert len(api.thread(thread_of(page))["ends"]) == 1, "it was one run"


def test_a_run_is_stopped(browser: Browser, server: Served, api: Asking) -> None:
    with visit(browser, server, agent="patient") as page:
        say(page, "wait for godot")
        page.get_by_role("group", name=re.compile("^wait: working")).wait_for()
        page.get_by_role("button", name="Stop").click()
        finished(page)
        expect(page.locator(".ended")).to_contain_text("cancelled")
        assert api.thread(thread_of(page))["ends"][0]["outcome"] == "cancelled"


def test_a_reload_in_the_middle_loses_nothing_and_doubles_nothing(browser: Browser, server: Served) -> None:
    with visit(browser, server, agent="slow") as page:
        say(page, "40 0.1")
        expect(page.locator("article.reply")).to_contain_text("piece5")
        page.reload()
        expect(page.locator("article.reply")).to_contain_text("piece39")
        finished(page)
        assert replies(page).split("piece39")[0].count("piece") == 39
        assert page.locator("article.said").count() == page.locator("article.reply").count() == 1


def test_a_connection_that_breaks_is_made_again(browser: Browser, server: Served) -> None:
    with visit(browser, server, user="") as page:  # what a browser says about lost connections is no mistake of ours
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        sign_in(page, "ada")
        page.select_option("#agent", "slow")
        say(page, "40 0.1")
        expect(page.locator("article.reply")).to_contain_text("piece3")
        thread = thread_of(page)
        page.evaluate("window.stop()")  # every request of the page is cut off
        expect(page.locator("article.reply")).to_contain_text("piece39")
        finished(page)
        words = [f"piece{number}" for number in range(40)]
        assert re.findall(r"piece\d+", replies(page)) == words
        assert thread_of(page) == thread and errors == []


# -- what was said ----------------------------------------------------------------------------------------------------


def test_a_thread_is_forked_from_a_message(ada: Page, api: Asking) -> None:
    talk(ada, "Write one to fork.txt")
    talk(ada, "Write two to fork.txt")
    before = thread_of(ada)
    first = ada.locator("article.reply").first
    first.hover()
    first.get_by_role("button", name="Fork", exact=True).click()
    ada.wait_for_url(lambda url: before not in url)
    fork = api("GET", "/threads")["threads"][0]
    assert fork["id"] == thread_of(ada) != before
    expect(ada.locator("article.said")).to_have_count(1)
    assert len([m for m in api.thread(before)["messages"] if m["role"] == "user"]) == 2


def test_a_message_is_edited_and_what_came_after_is_taken_back(browser: Browser, server: Served) -> None:
    with visit(browser, server, agent="echo") as page:
        talk(page, "the first words")
        said = page.locator("article.said").first
        said.hover()
        said.get_by_role("button", name="Edit").click()
        page.get_by_label("Your message").fill("better words")
        page.get_by_role("button", name="Say this instead").click()
        expect(page.locator("article.reply")).to_have_text(re.compile("better words"))
        assert "the first words" not in page.locator(".items").inner_text()


def test_threads_are_renamed_searched_exported_and_deleted(ada: Page, api: Asking) -> None:
    talk(ada, "Write the word capybara to thread.txt")
    thread = thread_of(ada)
    row = ada.locator(".thread-row").filter(has=ada.locator("[aria-current]"))
    row.hover()
    row.get_by_role("button", name=re.compile("^Rename")).click()
    ada.get_by_label("Title").fill("About rodents")
    ada.keyboard.press("Enter")
    until(lambda: api.thread(thread)["title"] == "About rodents")
    api("PATCH", f"/threads/{thread}", {"title": "About large rodents"})  # and the other way round
    expect(ada.get_by_role("button", name="About large rodents").first).to_be_visible()
    row.hover()
    row.get_by_role("button", name=re.compile("^Export")).click()
    with ada.expect_download() as download:
        ada.get_by_text("Markdown, to read").click()
    assert "capybara" in download.value.path().read_text()
    ada.get_by_placeholder("Search").fill("capybara")
    expect(ada.get_by_role("list", name="Found").get_by_role("button")).not_to_have_count(0)
    ada.get_by_placeholder("Search").fill("")
    row.hover()
    row.get_by_role("button", name=re.compile("^Delete")).click()
    ada.get_by_role("dialog").get_by_role("button", name="Delete").click()
    until(lambda: thread not in str(api("GET", "/threads")))
    expect(ada.get_by_role("button", name="About large rodents")).to_have_count(0)


def test_a_list_of_todos_is_a_checklist(ada: Page) -> None:
    talk(ada, "Plan a garden party")
    todos = ada.locator(".todos")
    if not todos.count():  # the agent has no todos of its own: the hook brings them
        asked = show(ada, "Agent")
        asked.get_by_role("tab", name="Hooks").click()
        asked.get_by_role("switch", name="Hook todos").click()
        ada.get_by_role("button", name="New thread").click()
        talk(ada, "Plan a garden party")
    expect(todos).to_contain_text("done")


def test_a_picture_is_attached_by_pasting(browser: Browser, server: Served, api: Asking) -> None:
    with visit(browser, server, agent="echo") as page:
        page.locator("#message").fill("look at this")
        page.evaluate(PASTE, DOT)
        expect(page.get_by_role("list", name="Attached").locator("img")).to_have_count(1)
        page.get_by_role("button", name="Send").click()
        finished(page)
        sent = page.locator("article.said").get_by_role("list", name="Attached").locator("img, .chip")
        expect(sent).to_have_count(1)
        assert "image/png" in str(api.thread(thread_of(page))["messages"])


def test_a_slash_offers_skills(ada: Page) -> None:
    ada.locator("#message").press_sequentially("/sli")
    offered = ada.get_by_role("listbox", name="Skills")
    expect(offered).to_contain_text("/slides")
    ada.keyboard.press("Enter")
    expect(ada.locator("#message")).to_have_value("/slides ")


def test_the_token_is_in_no_storage(ada: Page) -> None:
    kept = ada.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, location.href, document.title])")
    assert TOKENS["ada"] not in kept
