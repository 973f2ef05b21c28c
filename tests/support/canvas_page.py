"""Actions on the canvas, shared by the UI tests."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from playwright.sync_api import Page

from browser_pages import ApiClient, open_panel, wait_for


def open_file(page: Page, path: str) -> Any:
    """Open a file by the tree, its folders first; the panel of the canvas."""
    files = open_panel(page, "Files")
    *folders, name = path.split("/")
    for depth in range(len(folders)):
        folder = files.locator(f"[data-path='{'/'.join(folders[: depth + 1])}']")
        folder.wait_for()
        if folder.get_attribute("aria-expanded") == "false":
            folder.click()
    files.locator(f"[data-path='{path}']").click()
    page.get_by_role("tab", name=re.compile(f"^{re.escape(name)}")).wait_for()
    return page.get_by_role("complementary", name="Canvas")


def switch_view(page: Page, view: str) -> None:
    page.get_by_role("group", name="View as").get_by_role("button", name=view).click()


def save_file(page: Page) -> None:
    page.get_by_role("toolbar").get_by_role("button", name="Save", exact=True).click()


def accept_dialogs(page: Page, *, yes: bool) -> list[str]:
    """Accept every dialog of the browser from now on; return their messages."""
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message or dialog.type)
        dialog.accept() if yes else dialog.dismiss()

    page.on("dialog", answer)
    return asked


def wait_for_text(api: ApiClient, path: str, text: str) -> None:
    """Wait until a file has this text."""
    wait_for(lambda: api.read(path) == text)


def write_bytes(api: ApiClient, path: str, data: bytes) -> None:
    body = {"path": path, "content": b64encode(data).decode(), "encoding": "base64"}
    api("PUT", "/agents/default/files/write", body)
