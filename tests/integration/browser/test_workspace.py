"""Files and terminal: the workspace as it is, changed here and seen there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from browser_pages import ApiClient, open_page, open_panel, wait_for
from canvas_page import accept_dialogs, open_file, wait_for_text
from ports import own_port
from server_process import ServerProcess

DROP = """([path, dropped]) => {
  const data = new DataTransfer()
  for (const [name, text] of dropped) data.items.add(new File([text], name))
  const place = path ? document.querySelector(`[data-path="${path}"]`) : document.querySelector('.files-files')
  for (const kind of ['dragover', 'drop']) {
    place.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}))
  }
}"""


def listed(api: ApiClient, path: str = ".") -> list[str]:
    return [entry["name"] for entry in api("GET", "/agents/default/files/list", path=path)["entries"]]


def row(files: Any, path: str) -> Any:
    return files.locator(f'[data-path="{path}"]')


def act(files: Any, path: str, what: str) -> None:
    row(files, path).hover()
    row(files, path).get_by_role("button", name=re.compile(f"^{what} ")).click()


# -- files ------------------------------------------------------------------------------------------------------------


def test_the_tree_follows_and_changes_the_workspace(ada: Page, api: ApiClient) -> None:
    files = open_panel(ada, "Files")
    api.write("deep/er/note.txt", "x")
    row(files, "deep").click()
    row(files, "deep/er").click()
    act(files, "deep/er/note.txt", "Rename")
    ada.get_by_label("New name of note.txt").fill("letter.txt")
    for _ in range(2):  # on an impatient click
        ada.keyboard.press("Enter")
    wait_for(lambda: listed(api, "deep/er") == ["letter.txt"])
    assert api.read("deep/er/letter.txt") == "x"
    expect(row(files, "deep/er/letter.txt")).to_be_visible()
    asked = accept_dialogs(ada, yes=True)
    act(files, "deep", "Delete")
    expect(row(files, "deep")).to_have_count(0)
    assert asked == ["Delete the folder deep and everything in it permanently?"] and "deep" not in listed(api)
    api.write("later.txt", "x")
    expect(row(files, "later.txt")).to_be_visible()
    api("DELETE", "/agents/default/files", path="later.txt")
    expect(row(files, "later.txt")).to_have_count(0)


def test_files_are_dropped_into_folders_and_over_nothing_unasked(ada: Page, api: ApiClient) -> None:
    api.write("into/old.txt", "precious")
    files = open_panel(ada, "Files")
    row(files, "into").wait_for()
    ada.evaluate(DROP, ["", [["top.txt", "one"]]])
    expect(row(files, "top.txt")).to_be_visible()
    asked = accept_dialogs(ada, yes=False)
    ada.evaluate(DROP, ["into", [["old.txt", "other"], ["new.txt", "two"]]])
    expect(row(files, "into/new.txt")).to_be_visible()
    assert [api.read(path) for path in ("top.txt", "into/new.txt", "into/old.txt")] == ["one", "two", "precious"]
    assert asked == ["into/old.txt already exists. Overwrite it?"]
    chosen = {"name": "picked.txt", "mimeType": "text/plain", "buffer": b"three"}
    files.locator("input[type=file]").set_input_files(chosen)
    expect(row(files, "picked.txt")).to_be_visible()
    assert api.read("picked.txt") == "three"


def test_a_dropped_folder_is_uploaded_with_its_files(
    browser: Browser, server: ServerProcess, api: ApiClient, tmp_path: Path
) -> None:
    """As a file manager does it: the browser itself lists the folder."""
    many = {f"given/many/{number}.txt" for number in range(120)}  # a browser lists a hundred at a time
    for path in {"given/one.txt", "given/deep/er/two words.txt", *many}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"this is {path}")
    with open_page(browser, server, refused=404) as page:  # the target is empty
        files = open_panel(page, "Files")
        box = page.locator(".files-files").bounding_box()
        assert box
        where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] - 10}
        dragged = {"items": [], "files": [str(tmp_path / "given")], "dragOperationsMask": 1}
        link = page.context.new_cdp_session(page)
        for kind in ("dragEnter", "dragOver", "drop"):
            link.send("Input.dispatchDragEvent", {"type": kind, **where, "data": dragged})
        wait_for(lambda: "given" in listed(api) and {"one.txt", "deep", "many"} == {*listed(api, "given")})
        wait_for(lambda: len(listed(api, "given/many")) == 120)
        assert api.read("given/one.txt") == "this is given/one.txt"
        assert api.read("given/deep/er/two words.txt") == "this is given/deep/er/two words.txt"
        row(files, "given").click()
        expect(row(files, "given/one.txt")).to_be_visible()


def test_a_new_file_opens(ada: Page, api: ApiClient) -> None:
    api.write("there.txt", "precious")
    files = open_panel(ada, "Files")
    files.get_by_role("button", name="New file").click()
    ada.get_by_label("Path of the new file").fill("there.txt")
    ada.keyboard.press("Enter")
    expect(ada.get_by_text("there.txt already exists")).to_be_visible()
    ada.get_by_label("Path of the new file").fill("ideas.md")
    ada.keyboard.press("Enter")
    expect(ada.get_by_role("tab", name="ideas.md")).to_be_visible()
    assert (api.read("ideas.md"), api.read("there.txt")) == ("", "precious")


def test_names_are_shown_verbatim(ada: Page, api: ApiClient) -> None:
    names = ["<img src=x onerror=alert(1)>.txt", "\u202egnp.txt", "שלום.txt", "🦊 & 'q' #%?.txt", "n" * 200 + ".txt"]
    for name in names:
        api.write(f"names/{name}", f"I am {name}")
    files = open_panel(ada, "Files")
    row(files, "names").click()
    tree = files.get_by_role("tree")
    expect(tree.get_by_role("treeitem", level=2)).to_have_count(len(names))
    expect(tree.get_by_text("\ufffdgnp.txt")).to_be_visible()
    for name in names:
        tree = open_panel(ada, "Files").get_by_role("tree")
        tree.get_by_role("treeitem", name=name.replace("\u202e", "\ufffd")).click()
        expect(ada.locator(".cm-content")).to_contain_text(f"I am {name}")
    assert ada.evaluate("document.querySelectorAll('.shell-side img').length") == 0


def test_a_server_that_stumbles_closes_no_folder(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, refused=503) as page:
        api.write("open/in.txt", "x")
        files = open_panel(page, "Files")
        row(files, "open").click()
        row(files, "open/in.txt").wait_for()
        error = {"error": {"code": "unavailable", "message": "the disk rests; try again"}}
        page.route("**/files/list*", lambda route: route.fulfill(status=503, json=error))
        expect(files.get_by_role("alert")).to_contain_text("The disk rests; try again.")
        expect(row(files, "open/in.txt")).to_be_visible()
        page.unroute("**/files/list*")
        files.get_by_role("button", name="Try again").click()
        expect(files.get_by_role("alert")).to_have_count(0)
        expect(row(files, "open/in.txt")).to_be_visible()


# -- terminal ---------------------------------------------------------------------------------------------------------


def connected(page: Page) -> Any:
    panel = open_panel(page, "Terminal")
    expect(panel.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    panel.locator(".xterm-helper-textarea").focus()
    return panel


def test_the_terminal_reports_its_size(ada: Page, api: ApiClient) -> None:
    panel = connected(ada)
    drawn = panel.locator(".xterm-rows > div")
    large = wait_for(lambda: found if (found := _sized(ada, api))[0] == drawn.count() else None)
    ada.set_viewport_size({"width": 900, "height": 600})
    expect(drawn).not_to_have_count(large[0])
    wait_for(lambda: (found := _sized(ada, api))[0] == drawn.count() and found[1] < large[1])


def _sized(page: Page, api: ApiClient) -> list[int]:
    """Return rows and columns as the shell reports them."""
    api.write("size.txt", "")
    page.keyboard.type("stty size > size.txt\n")
    return [int(word) for word in wait_for(lambda: api.read("size.txt")).split()]


def test_changes_by_the_shell_appear_in_files_and_canvas(ada: Page, api: ApiClient) -> None:
    api.write("shared.txt", "by the api\n")
    open_file(ada, "shared.txt")
    connected(ada)
    ada.keyboard.type("cat shared.txt; echo by the shell >> shared.txt; mkdir -p made; echo > made/by-shell.txt\n")
    expect(ada.locator(".xterm-rows")).to_contain_text("by the api")
    files = open_panel(ada, "Files")
    row(files, "made").click()
    expect(row(files, "made/by-shell.txt")).to_be_visible()
    open_panel(ada, "Canvas")
    expect(ada.get_by_label("Text of shared.txt")).to_contain_text("by the shell")
    assert api.read("shared.txt") == "by the api\nby the shell\n"


def test_one_shell_at_a_time(ada: Page) -> None:
    sockets: list[Any] = []
    ada.on("websocket", lambda socket: sockets.append(socket))
    panel = connected(ada)
    ada.keyboard.type("echo old$((1+1))\n")
    expect(panel.locator(".xterm-rows")).to_contain_text("old2")
    panel.get_by_role("button", name="New shell").dblclick()
    expect(panel.locator(".xterm-rows")).not_to_contain_text("old2")
    connected(ada)
    ada.keyboard.type("echo new$((1+1))\n")
    expect(panel.locator(".xterm-rows")).to_contain_text("new2")
    wait_for(lambda: ada.title() and sum(not one.is_closed() for one in sockets) == 1)
    ada.keyboard.type("exit\n")
    expect(panel.get_by_role("status").filter(has_text="Shell exited")).to_be_visible()
    ada.keyboard.press("Enter")
    connected(ada)
    expect(panel.locator(".xterm-rows")).to_contain_text("new2")  # output is still to be read


def test_a_terminal_reconnects_after_a_restart(browser: Browser, server: ServerProcess, api: ApiClient) -> None:
    with open_page(browser, server, cut=True) as page:
        panel = connected(page)
        page.keyboard.type("echo before$((1+1))\n")
        expect(panel.locator(".xterm-rows")).to_contain_text("before2")
        server.kill()
        with own_port(int(server.url.rsplit(":", 1)[1])) as port:
            expect(panel.get_by_role("status").filter(has_text="Connection lost")).to_be_visible()
            server.environment["WICK_PORT"] = str(port)
            server.start()
        connected(page)
        expect(panel.locator(".xterm-rows")).to_contain_text("reconnected, with a new shell")
        page.keyboard.type("echo after$((1+1)) > after.txt\n")
        wait_for(lambda: "after.txt" in listed(api))
        wait_for_text(api, "after.txt", "after2\n")
        expect(panel.locator(".xterm-rows")).to_contain_text("before2")


def test_an_agent_without_a_workspace_shows_it(browser: Browser, server: ServerProcess) -> None:
    with open_page(browser, server, agent="echo", refused=409) as page:
        expect(open_panel(page, "Terminal").get_by_role("alert")).to_have_text(
            "The backend of this agent does not run commands. Change it in the Agent panel."
        )
        expect(open_panel(page, "Files").get_by_role("alert")).to_contain_text("switch its backend")
