"""The dialog "Undo files": the diff before, a turn and a single file, what is not undone; narrow, dark, accessible."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page, expect

from browser_pages import ApiClient, find_violations, open_page, send_and_wait, wait_for
from server_process import ServerProcess


def open_undo(page: Page, number: int) -> Any:
    """Open the dialog at a message of the user, counted from 0."""
    message = page.get_by_role("article", name="You", exact=True).nth(number)
    message.hover()
    message.get_by_role("button", name="Undo files").click()
    return page.get_by_role("dialog", name="Undo files")


def list_files(api: ApiClient) -> list[str]:
    return [entry["name"] for entry in api("GET", "/agents/undo/files/list")["entries"]]


def test_a_turn_and_a_file_are_undone_after_their_diff(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, agent="undo") as page:
        send_and_wait(page, "Write 'milk' to list.txt")
        send_and_wait(page, "Run the command: echo eggs > list.txt; echo tea > new.txt; echo jam > other.txt")
        dialog = open_undo(page, 1)
        expect(dialog.locator("del")).to_contain_text(["eggs", "tea", "jam"])
        expect(dialog.locator("ins")).to_contain_text(["milk"])
        expect(dialog.get_by_text("Not undone")).to_be_visible()
        expect(dialog.get_by_role("listitem")).to_contain_text("commands have a network")
        assert api.read("list.txt", agent="undo").strip() == "eggs", "nothing changes before the button is pressed"
        dialog.get_by_role("combobox").select_option("new.txt")
        expect(dialog.locator("del")).to_contain_text(["tea"])
        dialog.get_by_role("button", name="Restore").click()
        expect(dialog).to_be_hidden()
        wait_for(lambda: list_files(api) == ["list.txt", "other.txt"])
        open_undo(page, 1).get_by_role("button", name="Restore").click()
        wait_for(lambda: list_files(api) == ["list.txt"])
        assert api.read("list.txt", agent="undo").strip() == "milk"
        expect(open_undo(page, 1).get_by_text("as they were before this message")).to_be_visible()


def test_the_dialog_fits_a_phone_and_has_no_violation_in_light_and_dark(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    words = "a line that is much longer than the screen of a phone, and so must not widen the page; " * 3
    api.ask(
        "undo", f"Write '{words}' to a/folder/with-a-long-name/and-a-file-with-a-long-name.txt", thread_id="undo-phone"
    )
    api.ask("undo", "Run the command: touch first second; mkdir empty", thread_id="undo-phone")
    with open_page(browser, server, agent="undo", viewport={"width": 390, "height": 844}) as page:
        page.goto("/#thread=undo-phone")
        dialog = open_undo(page, 0)
        expect(dialog.get_by_role("button", name="Restore")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert dialog.evaluate("(found) => found.scrollWidth <= found.clientWidth")
        violations = find_violations(page)
        page.emulate_media(color_scheme="dark")
        assert violations + find_violations(page) == []
