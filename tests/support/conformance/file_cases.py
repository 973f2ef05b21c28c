"""Conformance cases for files: those of `wick.testing`, and those with links, protected and special files."""

from __future__ import annotations

import asyncio
import socket
import stat

import pytest

from conformance.backends import (
    FULL,
    OTHERS,
    PRIMARY,
    HostFolder,
    OnPlaces,
    WorkspaceAccess,
    assert_refused,
    in_module_loop,
    needs,
    on_host,
    on_primary,
    refusal,
    rows_in_turn,
    rows_on_host_in_turn,
    supports,
)
from wick.testing.file_cases import DO, FileCases

pytestmark = [in_module_loop, on_primary]


class TestFiles(OnPlaces, FileCases):
    pytestmark = in_module_loop


SLOW = {"docker-exec"}  # where each operation is an exec of the engine's


# -- ls -------------------------------------------------------------------------------------------------------------


@on_host
async def test_ls_shows_special_files_with_their_kind(place: HostFolder) -> None:
    place.link("link", "nowhere")
    place.fifo("pipe")
    entries = (await place.backend.ls())["entries"]
    assert [(entry["name"], entry["type"]) for entry in entries] == [("link", "link"), ("pipe", "other")]


# -- write ----------------------------------------------------------------------------------------------------------


@on_host
async def test_write_preserves_the_mode(place: HostFolder) -> None:
    place.put("run.sh", "old")
    (place.root / "run.sh").chmod(0o751)
    await place.backend.write("run.sh", "new")
    await place.backend.edit("run.sh", "new", "newer")
    assert stat.S_IMODE((place.root / "run.sh").stat().st_mode) == 0o751
    assert place.get("run.sh") == b"newer"


@on_host
@needs("links")
async def test_write_follows_a_link_inside(place: HostFolder) -> None:
    place.put("real.txt", "old")
    place.link("link.txt", "real.txt")
    await place.backend.write("link.txt", "new")
    assert (place.root / "link.txt").is_symlink() and place.get("real.txt") == b"new"


# -- glob -----------------------------------------------------------------------------------------------------------


@on_host
@needs("glob")
async def test_glob_does_not_follow_links_to_folders(place: HostFolder) -> None:
    place.put("sub/a.py", "")
    place.link("sub/loop", "..")
    place.link("away", "/etc")
    assert (await place.backend.glob("**/*.py"))["files"] == ["sub/a.py"]
    assert "passwd" not in str(await place.backend.glob("**", everything=True))


# -- mkdir, move, delete, stat --------------------------------------------------------------------------------------


@on_host
async def test_delete_removes_a_link_not_its_target(place: HostFolder) -> None:
    place.put("kept/a.txt", "a")
    place.link("tree/inside", "../kept")
    place.link("tree/outside", place.root.parent)
    await place.backend.delete("tree", recursive=True)
    assert place.paths() == {"kept/a.txt"} and place.root.parent.is_dir()


@on_host
async def test_stat_of_a_link_is_of_the_link(place: HostFolder) -> None:
    place.link("link", "/etc/passwd")
    found = await place.backend.stat("link")
    assert (found["type"], found["size"]) == ("link", len("/etc/passwd"))


# -- paths ----------------------------------------------------------------------------------------------------------


@rows_on_host_in_turn
@pytest.mark.parametrize("operation", ["ls", "read", "lines", "write", "edit", "glob", "grep", "mkdir"])
async def test_a_link_is_no_way_out(place: HostFolder, operation: str) -> None:
    outside = place.root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "a.txt").write_text("a secret\n")
    place.link("file", outside / "a.txt")
    place.link("folder", "../outside")
    place.link("chain", "folder")
    paths = ["folder", "chain"] if operation in ("ls", "glob") else ["folder/a.txt", "chain/a.txt"]
    code = refusal(place, operation, refusal(place, "links", "escapes"))
    for path in paths:
        await assert_refused(code, DO[operation](place.backend, path))
    if operation in ("read", "lines", "write", "edit", "grep"):
        await assert_refused(code, DO[operation](place.backend, "file"))
    assert [path.name for path in outside.iterdir()] == ["a.txt"]
    assert (outside / "a.txt").read_text() == "a secret\n"


@on_host
async def test_link_loops_are_refused(place: HostFolder) -> None:
    place.link("a", "b")
    place.link("b", "a")
    for operation in ("ls", "read", "lines", "write", "edit", "grep"):
        code = refusal(place, operation, refusal(place, "links", "loop"))
        await assert_refused(code, DO[operation](place.backend, "a"))
    assert (await place.backend.stat("a"))["type"] == "link"
    await place.backend.delete("a")


@on_host
@needs("links")
async def test_a_link_that_stays_inside_is_followed(place: HostFolder) -> None:
    place.put("real/a.txt", "a\n")
    place.link("there", "real")
    assert (await place.backend.read("there/a.txt"))["content"] == "a\n"
    assert (await place.backend.ls("there"))["entries"] == [{"name": "a.txt", "type": "file", "size": 2}]
    await place.backend.write("there/b.txt", "b")
    assert place.get("real/b.txt") == b"b"


@rows_on_host_in_turn
@pytest.mark.parametrize("operation", ["read", "lines", "write", "edit", "grep"])
async def test_special_files_are_not_opened(place: HostFolder, operation: str) -> None:
    place.fifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.at("sock")))
        place.own("sock")
        for path in ("pipe", "sock"):
            code = refusal(place, operation, "not_a_file")
            await asyncio.wait_for(assert_refused(code, DO[operation](place.backend, path)), 60)


NOT_UTF8 = "\udcff\udc80"
ODD = [
    *("..a", "a..b", "...", " ", "a b", " lead", "trail ", "-rf", "--help", "a\nb", "tab\there", "quote'", 'double"'),
    *("$HOME", "`id`", "$(id)", "a;b", "a&b", "a|b", "a>b", "*", "?", "[a]", "{a,b}", "!x", "#x", "~", "a\\b", "%s"),
    *("ünïcode", "日本語", "😀", "e\u0301", "\u202etxt", "\x01", "\x7f", "n" * 255, "é" * 127, NOT_UTF8, "CON"),
]


@pytest.mark.kinds(*PRIMARY, in_turn=(OTHERS,))  # every operation, on every kind
@pytest.mark.parametrize("part", range(4))
async def test_unusual_names_work_in_every_operation(place: WorkspaceAccess, part: int) -> None:
    names = ODD[part::4] if FULL or place.kind not in SLOW else ODD[part::40]
    if place.kind == "docker-exec" and NOT_UTF8 in names:
        await assert_refused("unsupported", place.backend.write(NOT_UTF8, ""))
        names = [name for name in names if name != NOT_UTF8]
    for number, name in enumerate(names):
        await _goes_through_everything(place, f"{number}", name)
    assert place.paths() == set()


async def _goes_through_everything(place: WorkspaceAccess, folder: str, name: str) -> None:
    backend, path, there = place.backend, f"{folder}/{name}", f"there/{name}"
    assert await backend.write(path, "needle\n") == {"path": path, "bytes_written": 7}
    assert place.get(path) == b"needle\n"
    assert (await backend.read(path))["content"] == "needle\n"
    assert (await backend.lines(path))["content"] == "needle\n"
    assert (await backend.ls(folder))["entries"] == [{"name": name, "type": "file", "size": 7}]
    if supports(place, "grep"):
        assert (await backend.glob("**", folder, everything=True))["files"] == [path]
        expected = [{"file": path, "line": 1, "text": "needle"}]
        assert (await backend.grep("needle", folder, everything=True))["matches"] == expected
        assert (await backend.grep("needle", path, everything=True))["matches"] == expected
    assert (await backend.stat(path))["path"] == path
    await backend.edit(path, "needle", "thread")
    await backend.move(path, there)
    assert place.paths() == {there} and place.get(there) == b"thread\n"
    await backend.mkdir(f"deep/{name}/er")
    assert (await backend.stat(f"deep/{name}"))["type"] == "dir"
    await backend.delete(there)


# -- protected paths ------------------------------------------------------------------------------------------------

PROTECTED = [
    *(".env", ".env.local", ".envrc", ".wick/config.yaml", ".claude/settings.json", ".git/hooks/pre-commit"),
    *(".git/config", "sub/.env", "sub/.git/hooks/post-merge", "a/b/.wick/x", "sub/.claude/x"),
]
SECRETS = {".env", ".env.local", ".envrc", "sub/.env"}


@rows_in_turn
@pytest.mark.parametrize("path", PROTECTED)
async def test_protected_files_cannot_be_changed(place: WorkspaceAccess, path: str) -> None:
    place.put(path, "a=1\n")
    place.put("a.txt", "a")
    for operation in ("write", "edit", "move from", "move to", "delete"):
        await assert_refused("protected", DO[operation](place.backend, path))
    folder = path.split("/")[0]
    if folder != path:
        await assert_refused("protected", place.backend.delete(folder, recursive=True))
        await assert_refused("protected", place.backend.move(folder, "elsewhere"))
    assert place.get(path) == b"a=1\n" and place.paths() == {path, "a.txt"}


@rows_in_turn
@pytest.mark.parametrize("path", PROTECTED)
async def test_protected_files_cannot_be_created(place: WorkspaceAccess, path: str) -> None:
    place.put("a.txt", "a")
    for operation in ("write", "mkdir", "move to"):
        await assert_refused("protected", DO[operation](place.backend, path))
    assert place.paths() == {"a.txt"}


@rows_in_turn
@pytest.mark.parametrize("path", PROTECTED)
async def test_only_secrets_cannot_be_read(place: WorkspaceAccess, path: str) -> None:
    place.put(path, "needle=1\n")
    if path not in SECRETS:
        assert (await place.backend.read(path))["content"] == "needle=1\n"
        assert (await place.backend.lines(path))["content"] == "needle=1\n"
        return
    await assert_refused("protected", place.backend.read(path))
    await assert_refused("protected", place.backend.lines(path))
    if supports(place, "grep"):
        await assert_refused("protected", place.backend.grep("needle", path))
        assert (await place.backend.grep("needle", everything=True))["matches"] == []


@on_host
async def test_a_link_does_not_bypass_protection(place: HostFolder) -> None:
    place.put(".env", "a=1\n")
    place.put(".git/hooks/pre-commit.sample", "a\n")
    place.link("env.txt", ".env")
    place.link("hooks", ".git/hooks")
    code = refusal(place, "links", "protected")
    await assert_refused(code, place.backend.read("env.txt"))
    await assert_refused(code, place.backend.write("env.txt", "x"))
    await assert_refused(code, place.backend.edit("env.txt", "a", "b"))
    await assert_refused(code, place.backend.write("hooks/pre-commit", "x"))
    assert place.get(".env") == b"a=1\n" and not (place.root / ".git/hooks/pre-commit").exists()


# -- links=False ----------------------------------------------------------------------------------------------------


@on_host
async def test_without_links_no_link_is_followed(place: HostFolder) -> None:
    backend = place.backend
    place.put("real/a.txt", "needle")
    place.link("folder", "real")
    place.link("real/own", place.root / "real")
    place.link("file.txt", "real/a.txt")
    place.link("dangling.txt", "real/new.txt")
    climbs = ["folder/../real/a.txt"] if supports(place, "links") else []  # else `..` is resolved by name
    for path in ("file.txt", "folder/a.txt", *climbs, "real/own/a.txt"):
        await assert_refused("linked", backend.read(path, links=False))
        await assert_refused("linked", backend.lines(path, links=False))
        await assert_refused("linked", backend.write(path, "new", links=False))
        await assert_refused("linked", backend.edit(path, "needle", "new", links=False))
        await assert_refused(refusal(place, "grep", "linked"), backend.grep("needle", path, links=False))
    await assert_refused("linked", backend.write("dangling.txt", "new", links=False))
    await assert_refused("linked", backend.write("folder/deep/new.txt", "new", links=False))
    for path in ("folder", "folder/", "real/own"):
        await assert_refused("linked", backend.ls(path, links=False))
        await assert_refused(refusal(place, "glob", "linked"), backend.glob("*", path, links=False))
        await assert_refused(refusal(place, "grep", "linked"), backend.grep("needle", path, links=False))
    assert place.get("real/a.txt") == b"needle" and not (place.root / "real/new.txt").exists()
    assert not (place.root / "real/deep").exists() and (place.root / "file.txt").is_symlink()
