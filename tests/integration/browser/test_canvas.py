"""The canvas: edits in the browser reach the workspace and vice versa, and nothing is lost."""

from __future__ import annotations

import io
import re

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from browser_pages import ApiClient, open_page, open_panel, send_and_wait, wait_for, wait_until_loaded
from canvas_page import accept_dialogs, open_file, save_file, switch_view, wait_for_text, write_bytes
from server_process import TOKENS, ServerProcess

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"><rect width="90" height="40" fill="teal"/></svg>'


def paper(words: str) -> bytes:
    """A PDF of one page, with a font that is not in it."""
    drawn = f"BT /F1 24 Tf 40 100 Td ({words}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    made, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(made)
    return made + b"xref\n0 6\n0000000000 65535 f \n" + rows + end


def picture(width: int) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (width, 20), "teal").save(made, "PNG")
    return made.getvalue()


# -- code and documents -----------------------------------------------------------------------------------------------


def test_a_file_is_edited_saved_and_reloaded_after_external_changes(ada: Page, api: ApiClient) -> None:
    api.write("code.py", "print('one')\n")
    panel = open_file(ada, "code.py")
    editor = ada.get_by_label("Text of code.py")
    expect(editor).to_contain_text("print('one')")
    editor.click()
    ada.keyboard.press("Control+End")
    ada.keyboard.insert_text("print('two')\n")
    ada.keyboard.press("Control+s")
    wait_for_text(api, "code.py", "print('one')\nprint('two')\n")
    api.write("code.py", "print('three')\n")
    expect(editor).to_contain_text("print('three')")
    switch_view(ada, "Changes")
    changes = ada.get_by_label("Changes in code.py")
    expect(changes.locator(".cm-deletedChunk")).to_contain_text("two")
    expect(panel.get_by_label("Compare with").locator("option")).to_have_text(["previous version", "2 versions ago"])
    panel.get_by_label("Compare with").select_option("2 versions ago")
    expect(changes.locator(".cm-deletedChunk")).not_to_contain_text("two")


def test_undo_and_redo_are_kept_per_file(ada: Page, api: ApiClient) -> None:
    api.write("steps.py", "a = 1\n")
    api.write("other.py", "b = 1\n")
    open_file(ada, "steps.py")
    editor = ada.get_by_label("Text of steps.py")
    editor.click()
    ada.keyboard.press("Control+End")
    ada.keyboard.insert_text("a = 2\n")
    open_file(ada, "other.py")
    ada.get_by_role("tab", name=re.compile("^other.py")).press("ArrowLeft")
    tools = ada.get_by_role("toolbar")
    expect(editor).to_contain_text("a = 2")
    tools.get_by_role("button", name="Undo").click()
    expect(editor).not_to_contain_text("a = 2")
    expect(tools.get_by_role("button", name="Save", exact=True)).to_be_disabled()
    tools.get_by_role("button", name="Redo").click()
    expect(editor).to_contain_text("a = 2")
    with ada.expect_download() as download:
        tools.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "steps.py"
    assert download.value.path().read_text() == "a = 1\na = 2\n"
    assert api.read("steps.py") == "a = 1\n"


def test_a_file_keeps_its_line_endings(ada: Page, api: ApiClient) -> None:
    for name, text in (("all.txt", "\ufeffone\r\ntwo\r\n"), ("some.txt", "one\r\ntwo\nthree\r\n")):
        api.write(name, text)
        open_file(ada, name)
        editor = ada.get_by_label(f"Text of {name}")
        expect(editor).to_contain_text("two")
        expect(ada.get_by_role("toolbar").get_by_role("button", name="Save", exact=True)).to_be_disabled()
        editor.press("Control+Home")
        ada.keyboard.insert_text("the ")
        save_file(ada)
        wait_for_text(api, name, text.replace("one", "the one"))


def test_a_document_is_written_and_read(ada: Page, api: ApiClient) -> None:
    write_bytes(api, "notes/dot.png", picture(33))
    api.write("notes/doc.md", "# Otters\n\n![a dot](dot.png)\n")
    open_file(ada, "notes/doc.md")
    document = ada.get_by_role("article", name="doc.md")
    expect(document.get_by_role("heading", name="Otters")).to_be_visible()
    expect(document.get_by_role("img", name="a dot")).to_have_js_property("naturalWidth", 33)
    switch_view(ada, "Code")
    ada.get_by_label("Text of doc.md").click()
    ada.keyboard.press("Control+End")
    ada.keyboard.insert_text("\nThey *swim*.\n")
    switch_view(ada, "Preview")
    expect(document.locator("em")).to_have_text("swim")
    document.press("Control+s")  # wherever one is on the canvas
    wait_for(lambda: api.read("notes/doc.md").endswith("They *swim*.\n"))
    api.write("notes/doc.md", "# Beavers\n")
    expect(document.get_by_role("heading", name="Beavers")).to_be_visible()


def test_a_file_written_by_the_agent_opens(ada: Page) -> None:
    send_and_wait(ada, "Write a document about lighthouses to lights.md")
    expect(ada.get_by_role("tab", name="lights.md")).to_be_visible()
    expect(ada.locator("article.canvas-document")).to_contain_text(re.compile("lighthouse", re.I))


def test_a_long_piece_of_an_answer_opens_and_becomes_a_file(
    browser: Browser, server: ServerProcess, api: ApiClient
) -> None:
    code = "\n".join(f"line{number} = {number}" for number in range(16))
    with open_page(browser, server, agent="echo") as page:
        send_and_wait(page, f"```python\nshort = 1\n```\n\n```python\n{code}\n```")
        expect(page.get_by_role("tab")).to_have_count(1)
        expect(page.get_by_label("Text of answer.py")).to_contain_text("line15")
        page.get_by_label("Text of answer.py").press("Control+s")  # it is in no file yet: where to?
        page.select_option("#agent", "default")  # which has a workspace
        api.write("kept.py", "precious\n")
        asked = accept_dialogs(page, yes=False)
        page.get_by_label("Save as").fill("kept.py")
        with page.expect_event("dialog"):
            page.keyboard.press("Enter")
        assert "kept.py already exists" in asked[0] and api.read("kept.py") == "precious\n"
        page.get_by_label("Save as").fill("made/answer.py")
        page.keyboard.press("Enter")
        wait_for(lambda: "made" in str(api("GET", "/agents/default/files/list")))
        assert api.read("made/answer.py") == f"{code}\n"


# -- other kinds ------------------------------------------------------------------------------------------------------


def test_images_and_pdfs_are_shown_and_reloaded(ada: Page, api: ApiClient) -> None:
    write_bytes(api, "dot.png", picture(30))
    write_bytes(api, "paper.pdf", paper("Hello paper"))
    api.write("pic.svg", SVG)
    write_bytes(api, "data.bin", bytes(range(256)))
    panel = open_file(ada, "dot.png")
    expect(panel.get_by_text("30 × 20")).to_be_visible()
    write_bytes(api, "dot.png", picture(77))
    expect(panel.get_by_text("77 × 20")).to_be_visible()
    open_file(ada, "paper.pdf")
    expect(panel.locator("[data-page='1']")).to_contain_text("Hello paper")
    write_bytes(api, "paper.pdf", paper("Another paper"))
    expect(panel.locator("[data-page='1']")).to_contain_text("Another paper")
    open_file(ada, "pic.svg")
    drawn = ada.frame_locator("iframe[title='Preview of pic.svg']").locator("svg")
    expect(drawn).to_be_visible()
    api.write("pic.svg", SVG.replace('width="90"', 'width="123"'))
    expect(drawn).to_have_attribute("width", "123")
    open_file(ada, "data.bin")
    expect(panel).to_contain_text("data.bin is not text, and nothing here can show it. Download it")
    with ada.expect_download() as download:
        panel.get_by_role("button", name="Download").click()
    assert download.value.path().read_bytes() == bytes(range(256))


# -- nothing is lost --------------------------------------------------------------------------------------------------


def test_concurrent_edits_are_not_lost(ada: Page, api: ApiClient) -> None:
    api.write("both.txt", "begin\n")
    panel = open_file(ada, "both.txt")
    editor = ada.get_by_label("Text of both.txt")
    editor.press("Control+Home")
    ada.keyboard.insert_text("mine ")
    api.write("both.txt", "theirs\n")
    conflict = panel.get_by_role("alert")
    expect(conflict).to_contain_text("both.txt was changed elsewhere while you changed it here")
    save_file(ada)
    assert api.read("both.txt") == "theirs\n"
    conflict.get_by_role("button", name="Compare").click()
    expect(ada.get_by_label("Changes in both.txt")).to_contain_text("theirs")
    conflict.get_by_role("button", name="Keep my version").click()
    expect(conflict).to_have_count(0)
    save_file(ada)
    wait_for_text(api, "both.txt", "mine begin\n")


def test_closing_unsaved_changes_asks_for_confirmation(ada: Page, api: ApiClient) -> None:
    asked = accept_dialogs(ada, yes=False)
    panel = open_panel(ada, "Canvas")
    panel.get_by_label("Or create one:").fill("begun.txt")
    ada.keyboard.press("Enter")
    ada.get_by_label("Text of begun.txt").click()
    ada.keyboard.insert_text("precious")
    panel.get_by_role("button", name="Close begun.txt").click()
    assert asked == ["Close begun.txt without saving your changes?"]
    expect(ada.get_by_label("Text of begun.txt")).to_contain_text("precious")
    open_panel(ada, "Files")
    with ada.expect_event("dialog"):
        ada.evaluate("location.assign('/?again')")  # to leave, while another panel is shown
    assert asked[1:] == ["beforeunload"]
    open_panel(ada, "Canvas")
    save_file(ada)
    ada.get_by_label("Save as").press("Enter")
    wait_for(lambda: "begun.txt" in str(api("GET", "/agents/default/files/list")))
    assert "precious" in api.read("begun.txt")
    panel.get_by_role("button", name="Close begun.txt").click()
    expect(ada.get_by_role("tab")).to_have_count(0)


def test_unsaved_changes_survive_a_new_sign_in(ada: Page, api: ApiClient) -> None:
    api.write("kept.txt", "begin\n")
    open_file(ada, "kept.txt")
    ada.get_by_label("Text of kept.txt").press("Control+Home")
    ada.keyboard.insert_text("half of a thought ")
    ada.context.clear_cookies()
    ada.get_by_label("Access token").fill(TOKENS["ada"])
    ada.keyboard.press("Enter")
    wait_until_loaded(ada)
    expect(ada.get_by_label("Text of kept.txt")).to_contain_text("half of a thought begin")
    save_file(ada)
    wait_for_text(api, "kept.txt", "half of a thought begin\n")


def test_a_deleted_open_file_can_be_saved_again(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, refused=404) as ada:
        api.write("gone.txt", "begin\n")
        panel = open_file(ada, "gone.txt")
        expect(ada.get_by_label("Text of gone.txt")).to_contain_text("begin")
        api("DELETE", "/agents/default/files", path="gone.txt")
        expect(panel.get_by_text("gone.txt is no longer in the workspace. Save writes it again.")).to_be_visible()
        save_file(ada)
        wait_for(lambda: "gone.txt" in str(api("GET", "/agents/default/files/list")))
        assert api.read("gone.txt") == "begin\n"
