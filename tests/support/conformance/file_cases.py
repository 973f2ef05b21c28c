"""Conformance cases for files: the same answers, byte for byte, and the same codes for the same mistakes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import stat
import time
from typing import Any

import pytest

from conformance.backends import (
    FULL,
    OTHERS,
    PRIMARY,
    HostFolder,
    WorkspaceAccess,
    assert_refused,
    needs,
    on_both_greps,
    on_host,
    on_primary,
    refusal,
    rows_in_turn,
    rows_on_both_greps_in_turn,
    rows_on_host_in_turn,
    supports,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), on_primary]

BINARY = bytes(range(256))
SLOW = {"docker-exec"}  # where each operation is an exec of the engine's


def same(answer: Any, expected: Any) -> None:
    """The very same JSON, with its keys in the same order."""
    assert json.dumps(answer) == json.dumps(expected)


# -- ls -------------------------------------------------------------------------------------------------------------


async def test_ls(place: WorkspaceAccess) -> None:
    place.put("b.txt", "bb")
    place.put("a.txt", "")
    place.put("sub/c.txt", "c")
    place.put(".hidden", "h")
    listing = await place.backend.ls()
    same(
        listing,
        {
            "path": ".",
            "entries": [
                {"name": ".hidden", "type": "file", "size": 1},
                {"name": "a.txt", "type": "file", "size": 0},
                {"name": "b.txt", "type": "file", "size": 2},
                {"name": "sub", "type": "dir", "size": 0},
            ],
            "truncated": False,
        },
    )


async def test_ls_of_an_empty_workspace(place: WorkspaceAccess) -> None:
    same(await place.backend.ls(), {"path": ".", "entries": [], "truncated": False})


async def test_ls_of_a_folder(place: WorkspaceAccess) -> None:
    place.put("sub/deep/c.txt", "ccc")
    expected = [{"name": "c.txt", "type": "file", "size": 3}]
    for path in ("sub/deep", "sub/deep/", "./sub/deep", "sub//deep", "sub/../sub/deep"):
        same(await place.backend.ls(path), {"path": path, "entries": expected, "truncated": False})
    absolute = f"{place.backend.workdir}/sub/deep"
    same(await place.backend.ls(absolute), {"path": absolute, "entries": expected, "truncated": False})


async def test_ls_of_a_non_folder(place: WorkspaceAccess) -> None:
    place.put("a.txt")
    await assert_refused("not_directory", place.backend.ls("a.txt"))
    await assert_refused("not_found", place.backend.ls("nowhere"))


@on_host
async def test_ls_shows_special_files_with_their_kind(place: HostFolder) -> None:
    place.link("link", "nowhere")
    place.fifo("pipe")
    entries = (await place.backend.ls())["entries"]
    assert [(entry["name"], entry["type"]) for entry in entries] == [("link", "link"), ("pipe", "other")]


# -- read -----------------------------------------------------------------------------------------------------------


async def test_read(place: WorkspaceAccess) -> None:
    place.put("a.txt", "grüße\n")
    same(
        await place.backend.read("a.txt"),
        {
            "path": "a.txt",
            "content": "grüße\n",
            "encoding": "utf-8",
            "size": 8,
            "offset": 0,
            "bytes": 8,
            "truncated": False,
        },
    )


async def test_read_of_bytes_is_base64(place: WorkspaceAccess) -> None:
    place.put("a.bin", BINARY)
    content = await place.backend.read("a.bin")
    assert content["encoding"] == "base64" and base64.b64decode(content["content"]) == BINARY
    assert (content["size"], content["bytes"], content["truncated"]) == (256, 256, False)


RANGES = [  # offset, limit; the part of "0123456789", and True if there is more
    (0, 4, "0123", True),
    (6, 4, "6789", False),
    (6, 400, "6789", False),
    (8, None, "89", False),
    (10, 5, "", False),
    (99, 5, "", False),
    (0, 0, "", True),
]


async def test_read_of_a_range(place: WorkspaceAccess) -> None:
    place.put("a.txt", "0123456789")
    for offset, limit, content, more in RANGES:
        found = await place.backend.read("a.txt", offset=offset, limit=limit)
        assert (found["content"], found["bytes"], found["truncated"]) == (content, len(content), more)
        assert (found["size"], found["offset"]) == (10, offset)


async def test_a_range_that_cuts_a_letter_is_base64(place: WorkspaceAccess) -> None:
    place.put("a.txt", "grüße")
    found = await place.backend.read("a.txt", offset=3, limit=2)
    assert found["encoding"] == "base64" and base64.b64decode(found["content"]) == "grüße".encode()[3:5]


async def test_numbers_that_make_no_sense(place: WorkspaceAccess) -> None:
    place.put("a.txt", "0123456789")
    await assert_refused("invalid", place.backend.read("a.txt", offset=-1))
    await assert_refused("invalid", place.backend.read("a.txt", limit=-1))
    await assert_refused("invalid", place.backend.lines("a.txt", offset=-1))
    await assert_refused("invalid", place.backend.lines("a.txt", limit=-1))


async def test_read_of_a_file_of_a_megabyte(place: WorkspaceAccess) -> None:
    data = os.urandom(1_000_000)
    await place.backend.write("a.bin", data)
    content = await place.backend.read("a.bin")
    assert base64.b64decode(content["content"]) == data and not content["truncated"]


# -- lines ----------------------------------------------------------------------------------------------------------

LINES = [  # offset, limit; the lines, their number, and True if there are more
    (0, None, "one\r\ntwo\n\nfour", 4, False),
    (0, 2, "one\r\ntwo\n", 2, True),
    (1, 2, "two\n\n", 2, True),
    (3, 9, "four", 1, False),
    (4, 9, "", 0, False),
    (0, 0, "", 0, True),
]


async def test_lines(place: WorkspaceAccess) -> None:
    place.put("a.txt", "one\r\ntwo\n\nfour")
    for offset, limit, content, count, more in LINES:
        found = await place.backend.lines("a.txt", offset=offset, limit=limit)
        same(found, {"path": "a.txt", "content": content, "offset": offset, "lines": count, "truncated": more})


async def test_lines_of_an_empty_file(place: WorkspaceAccess) -> None:
    place.put("a.txt")
    same(
        await place.backend.lines("a.txt"),
        {"path": "a.txt", "content": "", "offset": 0, "lines": 0, "truncated": False},
    )


async def test_lines_of_a_binary_file(place: WorkspaceAccess) -> None:
    place.put("a.bin", BINARY)
    await assert_refused("binary", place.backend.lines("a.bin"))


async def test_a_line_that_is_very_long(place: WorkspaceAccess) -> None:
    place.put("a.txt", "x" * 500_000 + "\nend\n")
    found = await place.backend.lines("a.txt", offset=1)
    assert found["content"] == "end\n"


# -- write ----------------------------------------------------------------------------------------------------------


async def test_write_makes_a_file_with_its_folders(place: WorkspaceAccess) -> None:
    same(await place.backend.write("new/deep/a.txt", "grüße"), {"path": "new/deep/a.txt", "bytes_written": 7})
    assert place.get("new/deep/a.txt") == "grüße".encode()


async def test_written_content_is_read(place: WorkspaceAccess) -> None:
    contents: list[str | bytes] = ["", b"", "text", BINARY, b"\xff\xfe", "\r\n", "\ufeffbom", "\0"]
    for content in contents:
        data = content.encode() if isinstance(content, str) else content
        same(await place.backend.write("a", content), {"path": "a", "bytes_written": len(data)})
        assert place.get("a") == data
        found = await place.backend.read("a")
        read = found["content"]
        assert (base64.b64decode(read) if found["encoding"] == "base64" else read.encode()) == data


async def test_write_replaces(place: WorkspaceAccess) -> None:
    place.put("a.txt", "a longer text than before")
    await place.backend.write("a.txt", "short")
    assert place.get("a.txt") == b"short" and place.paths() == {"a.txt"}


async def test_write_where_no_file_can_be(place: WorkspaceAccess) -> None:
    place.put("sub/a.txt", "a")
    await assert_refused("is_directory", place.backend.write("sub", "x"))
    await assert_refused("is_directory", place.backend.write(".", "x"))
    await assert_refused("not_directory", place.backend.write("sub/a.txt/b", "x"))
    assert place.paths() == {"sub/a.txt"} and place.get("sub/a.txt") == b"a"


@on_host
async def test_write_preserves_the_mode(place: HostFolder) -> None:
    place.put("run.sh", "old")
    (place.root / "run.sh").chmod(0o751)
    await place.backend.write("run.sh", "new")
    await place.backend.edit("run.sh", "new", "newer")
    assert stat.S_IMODE((place.root / "run.sh").stat().st_mode) == 0o751
    assert place.get("run.sh") == b"newer"


@on_host
async def test_write_follows_a_link_inside(place: HostFolder) -> None:
    place.put("real.txt", "old")
    place.link("link.txt", "real.txt")
    await place.backend.write("link.txt", "new")
    assert (place.root / "link.txt").is_symlink() and place.get("real.txt") == b"new"


async def test_text_that_cannot_be_encoded(place: WorkspaceAccess) -> None:
    await assert_refused("invalid", place.backend.write("a.txt", "half a pair: \ud800"))
    assert place.paths() == set()


# -- edit -----------------------------------------------------------------------------------------------------------


async def test_edit(place: WorkspaceAccess) -> None:
    place.put("a.txt", "one two three")
    same(await place.backend.edit("a.txt", "two", "2"), {"path": "a.txt", "replacements": 1, "bytes_written": 11})
    assert place.get("a.txt") == b"one 2 three"


async def test_edit_of_a_text_that_is_not_there(place: WorkspaceAccess) -> None:
    place.put("a.txt", "one")
    error = await assert_refused("no_match", place.backend.edit("a.txt", "two", "2"))
    assert str(error) == "old_text not found in file"
    assert place.get("a.txt") == b"one"


async def test_edit_of_a_text_that_is_there_often(place: WorkspaceAccess) -> None:
    place.put("a.txt", "one one one")
    error = await assert_refused("not_unique", place.backend.edit("a.txt", "one", "1"))
    assert "3" in str(error) and place.get("a.txt") == b"one one one"
    same(
        await place.backend.edit("a.txt", "one", "1", occurrence="first"),
        {"path": "a.txt", "replacements": 1, "bytes_written": 9},
    )
    assert place.get("a.txt") == b"1 one one"
    same(
        await place.backend.edit("a.txt", "one", "1", replace_all=True),
        {"path": "a.txt", "replacements": 2, "bytes_written": 5},
    )
    assert place.get("a.txt") == b"1 1 1"


EDITS = [  # the content, the replacement, and the new content
    (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", b"x\r\ny\r\nc\r\n"),
    (b"a\r\nb\r\n", "b", "c\nd", b"a\r\nc\r\nd\r\n"),
    (b"a\nb\n", "a\nb", "c", b"c\n"),
    ("\ufeffone two".encode(), "two", "2", "\ufeffone 2".encode()),
    ("one zwölf".encode("utf-16"), "zwölf", "12", "one 12".encode("utf-16")),
    (b"caf\xe9 one", "one", "two", b"caf\xe9 two"),
    ("a 😀 b".encode(), "😀", "ok", b"a ok b"),
    (b"no end", "end", "", b"no "),
    (b"x", "x", r"\1 \g<0> $& \n", rb"\1 \g<0> $& \n"),
    (b"a.b", ".", "*", b"a*b"),
]


@rows_in_turn
@pytest.mark.parametrize(("before", "old", "new", "after"), EDITS)
async def test_edit_preserves_line_endings_and_encoding(
    place: WorkspaceAccess, before: bytes, old: str, new: str, after: bytes
) -> None:
    place.put("a.txt", before)
    same(await place.backend.edit("a.txt", old, new), {"path": "a.txt", "replacements": 1, "bytes_written": len(after)})
    assert place.get("a.txt") == after


async def test_edit_of_an_invalid_target(place: WorkspaceAccess) -> None:
    place.put("a.bin", BINARY)
    place.put("sub/a.txt", "a")
    await assert_refused("invalid", place.backend.edit("sub/a.txt", "", "x"))
    await assert_refused("binary", place.backend.edit("a.bin", "a", "b"))
    await assert_refused("not_found", place.backend.edit("nowhere", "a", "b"))
    await assert_refused("is_directory", place.backend.edit("sub", "a", "b"))
    assert place.get("a.bin") == BINARY


# -- glob -----------------------------------------------------------------------------------------------------------

TREE = [
    *("README.md", "setup.py", "src/app.py", "src/app.js", "src/deep/er/app.py", "src/deep/x.txt", "[odd].py"),
    *("node_modules/m/index.js", ".venv/lib/x.py", "__pycache__/a.py", "src/__pycache__/b.py"),
    *("ignored.log", "logs/keep.log", "logs/other.log", "built/out.py", "src/built/kept.py", ".hidden/h.py"),
]
IGNORE = {".gitignore": "*.log\n/built/\n# a comment\n", "logs/.gitignore": "!keep.log\n"}
PYTHON = [".hidden/h.py", "[odd].py", "setup.py", "src/app.py", "src/built/kept.py", "src/deep/er/app.py"]
GLOBS = [
    ("*.py", ".", PYTHON),
    ("**/*.py", ".", PYTHON),
    ("src/*.py", ".", ["src/app.py"]),
    ("src/**/*.py", ".", ["src/app.py", "src/built/kept.py", "src/deep/er/app.py"]),
    ("src/**", ".", ["src/app.js", "src/app.py", "src/built/kept.py", "src/deep/er/app.py", "src/deep/x.txt"]),
    ("**/er/*", ".", ["src/deep/er/app.py"]),
    ("src/app.{py,js}", ".", ["src/app.js", "src/app.py"]),
    ("src/app.[jp]?", ".", ["src/app.js", "src/app.py"]),
    ("src/app.[!p]*", ".", ["src/app.js"]),
    ("[[]odd[]].py", ".", ["[odd].py"]),
    ("*.py", "src", ["src/app.py", "src/built/kept.py", "src/deep/er/app.py"]),
    ("deep/*", "src", ["src/deep/x.txt"]),
    ("*.log", ".", ["logs/keep.log"]),
    ("nothing-like-this", ".", []),
]


def plant(place: WorkspaceAccess) -> None:
    for path in TREE:
        place.put(path, f"this is {path}\n")
    for path, text in IGNORE.items():
        place.put(path, text)


@rows_in_turn
@pytest.mark.parametrize(("pattern", "path", "files"), GLOBS)
@needs("glob")
async def test_glob(place: WorkspaceAccess, pattern: str, path: str, files: list[str]) -> None:
    plant(place)
    same(await place.backend.glob(pattern, path), {"files": files, "truncated": False})


@needs("glob")
async def test_glob_of_everything(place: WorkspaceAccess) -> None:
    plant(place)
    found = await place.backend.glob("**", everything=True)
    assert found == {"files": sorted({*TREE, *IGNORE}), "truncated": False}


@needs("glob")
async def test_glob_that_makes_no_sense(place: WorkspaceAccess) -> None:
    place.put("a.txt")
    await assert_refused("invalid", place.backend.glob(""))
    await assert_refused("invalid", place.backend.glob("a\0b"))
    await assert_refused("not_found", place.backend.glob("*", "nowhere"))
    await assert_refused("escapes", place.backend.glob("*", ".."))


@on_host
@needs("glob")
async def test_glob_does_not_follow_links_to_folders(place: HostFolder) -> None:
    place.put("sub/a.py", "")
    place.link("sub/loop", "..")
    place.link("away", "/etc")
    assert (await place.backend.glob("**/*.py"))["files"] == ["sub/a.py"]
    assert "passwd" not in str(await place.backend.glob("**", everything=True))


# -- grep -----------------------------------------------------------------------------------------------------------


@on_both_greps
@needs("grep")
async def test_grep(place: WorkspaceAccess) -> None:
    place.put("a.txt", "one\nTwo two\r\nthree")
    place.put("sub/b.txt", "no two ways\n")
    same(
        await place.backend.grep("two"),
        {
            "matches": [
                {"file": "a.txt", "line": 2, "text": "Two two"},
                {"file": "sub/b.txt", "line": 1, "text": "no two ways"},
            ],
            "truncated": False,
        },
    )


GREPS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("TWO", {}, []),
    ("TWO", {"ignore_case": True}, ["a.py:2", "sub/b.txt:1"]),
    ("^two", {}, ["a.py:2"]),
    ("two$", {}, ["a.py:2"]),
    ("o+n?e", {}, ["a.py:1"]),
    (r"\bw\w+s\b", {}, ["sub/b.txt:1"]),
    ("one|ways", {}, ["a.py:1", "sub/b.txt:1"]),
    ("two", {"glob": "*.py"}, ["a.py:2"]),
    ("two", {"glob": "sub/**"}, ["sub/b.txt:1"]),
    ("two", {"path": "sub"}, ["sub/b.txt:1"]),
    ("two", {"path": "sub/b.txt"}, ["sub/b.txt:1"]),
    ("naïve|ï", {}, ["a.py:3"]),
    ("-e", {}, ["a.py:4"]),
    ("--help", {}, []),
    ("$(touch boom)", {}, []),
    (r"\$HOME", {}, ["a.py:5"]),
]


@rows_on_both_greps_in_turn
@pytest.mark.parametrize(("pattern", "options", "found"), GREPS, ids=[f"{p} {o}" for p, o, _ in GREPS])
@needs("grep")
async def test_grep_in_many_ways(
    place: WorkspaceAccess, pattern: str, options: dict[str, Any], found: list[str]
) -> None:
    place.put("a.py", "one\ntwo\nnaïve\nan -e here\n$HOME\n")
    place.put("sub/b.txt", "no two ways\n")
    matches = await place.backend.grep(pattern, **options)
    assert [f"{match['file']}:{match['line']}" for match in matches["matches"]] == found
    assert not matches["truncated"] and place.paths() == {"a.py", "sub/b.txt"}


@on_both_greps
@needs("grep")
async def test_grep_ignores_files_that_glob_ignores(place: WorkspaceAccess) -> None:
    plant(place)
    found = {match["file"] for match in (await place.backend.grep("this is"))["matches"]}
    assert found == set((await place.backend.glob("**"))["files"]) - set(IGNORE)
    everything = {match["file"] for match in (await place.backend.grep("this is", everything=True))["matches"]}
    assert everything == set(TREE)


@on_both_greps
@needs("grep")
async def test_grep_of_an_invalid_pattern(place: WorkspaceAccess) -> None:
    place.put("a.txt", "aa\n")
    for pattern in ("(", "a{2,1}", "[z-a]", r"(a)\1", "(?=a)", "\0", "*a"):
        await assert_refused("invalid", place.backend.grep(pattern))


@on_both_greps
@needs("grep")
async def test_grep_skips_binary_files(place: WorkspaceAccess) -> None:
    place.put("a.bin", b"needle\0needle\n")
    place.put("b.txt", b"caf\xe9 needle\n")
    matches = (await place.backend.grep("needle"))["matches"]
    assert [match["file"] for match in matches] == ["b.txt"]
    assert matches[0]["text"].endswith(" needle")


@on_both_greps
@needs("grep")
async def test_grep_of_a_very_long_line(place: WorkspaceAccess) -> None:
    place.put("a.txt", "x" * 300_000 + "needle" + "y" * 300_000 + "\nneedle\n")
    matches = (await place.backend.grep("needle"))["matches"]
    assert [match["line"] for match in matches] == [1, 2]
    assert "needle" in matches[0]["text"] and len(matches[0]["text"]) < 10_000


@on_both_greps
@needs("grep")
async def test_grep_of_too_many_matches(place: WorkspaceAccess) -> None:
    place.put("a.txt", "needle\n" * 50_000)
    found = await place.backend.grep("needle")
    assert found["truncated"] and 100 <= len(found["matches"]) < 50_000
    assert [match["line"] for match in found["matches"]] == [*range(1, len(found["matches"]) + 1)]


@on_both_greps
@needs("grep")
async def test_grep_where_nothing_is(place: WorkspaceAccess) -> None:
    await assert_refused("not_found", place.backend.grep("a", "nowhere"))
    await assert_refused("escapes", place.backend.grep("a", ".."))
    same(await place.backend.grep("a"), {"matches": [], "truncated": False})


# -- mkdir, move, delete, stat --------------------------------------------------------------------------------------


async def test_mkdir(place: WorkspaceAccess) -> None:
    await place.backend.mkdir("a/b/c")
    assert (await place.backend.stat("a/b/c"))["type"] == "dir"
    same(await place.backend.ls("a/b/c"), {"path": "a/b/c", "entries": [], "truncated": False})


async def test_mkdir_where_something_is(place: WorkspaceAccess) -> None:
    place.put("sub/a.txt", "a")
    await place.backend.mkdir("sub")  # it exists, as requested
    await assert_refused("exists", place.backend.mkdir("sub/a.txt"))
    await assert_refused("not_directory", place.backend.mkdir("sub/a.txt/b"))


async def test_move(place: WorkspaceAccess) -> None:
    place.put("a.txt", "a")
    place.put("from/deep/b.txt", "b")
    await place.backend.move("a.txt", "b.txt")
    await place.backend.move("from", "to")
    assert place.paths() == {"b.txt", "to/deep/b.txt"} and place.get("b.txt") == b"a"
    await assert_refused("not_found", place.backend.stat("from"))


async def test_move_creates_parent_folders(place: WorkspaceAccess) -> None:
    place.put("a.txt", "a")
    await place.backend.move("a.txt", "new/deep/a.txt")
    assert place.paths() == {"new/deep/a.txt"}


async def test_move_that_cannot_be(place: WorkspaceAccess) -> None:
    place.put("a.txt", "a")
    place.put("b.txt", "b")
    place.put("sub/c.txt", "c")
    await assert_refused("exists", place.backend.move("a.txt", "b.txt"))
    await assert_refused("exists", place.backend.move("a.txt", "sub"))
    await assert_refused("not_found", place.backend.move("nowhere", "d.txt"))
    await assert_refused("not_directory", place.backend.move("a.txt", "b.txt/x"))
    await assert_refused("invalid", place.backend.move("sub", "sub/inside"))
    assert place.paths() == {"a.txt", "b.txt", "sub/c.txt"}


async def test_delete(place: WorkspaceAccess) -> None:
    place.put("sub/a.txt", "a")
    place.put("tree/deep/b.txt", "b")
    await place.backend.delete("sub/a.txt")
    assert (await place.backend.ls("sub"))["entries"] == []
    await place.backend.delete("sub")
    await assert_refused("not_empty", place.backend.delete("tree"))
    await place.backend.delete("tree", recursive=True)
    same(await place.backend.ls(), {"path": ".", "entries": [], "truncated": False})


async def test_delete_of_an_invalid_target(place: WorkspaceAccess) -> None:
    place.put("a.txt", "a")
    await assert_refused("not_found", place.backend.delete("nowhere"))
    await assert_refused("not_found", place.backend.delete("nowhere", recursive=True))
    await assert_refused("invalid", place.backend.delete(".", recursive=True))
    await assert_refused("invalid", place.backend.delete(place.backend.workdir, recursive=True))
    assert place.paths() == {"a.txt"}


@on_host
async def test_delete_removes_a_link_not_its_target(place: HostFolder) -> None:
    place.put("kept/a.txt", "a")
    place.link("tree/inside", "../kept")
    place.link("tree/outside", place.root.parent)
    await place.backend.delete("tree", recursive=True)
    assert place.paths() == {"kept/a.txt"} and place.root.parent.is_dir()


async def test_stat(place: WorkspaceAccess) -> None:
    before = time.time()
    await place.backend.write("sub/a.txt", "grüße")
    found = await place.backend.stat("sub/a.txt")
    assert [*found] == ["path", "type", "size", "mode", "modified"]
    assert (found["path"], found["type"], found["size"]) == ("sub/a.txt", "file", 7)
    assert found["mode"] & 0o600 == 0o600 and found["mode"] < 0o10000
    assert before - 60 < found["modified"] < time.time() + 60
    assert (await place.backend.stat("sub"))["type"] == "dir"
    assert (await place.backend.stat("."))["type"] == "dir"
    await assert_refused("not_found", place.backend.stat("nowhere"))


@on_host
async def test_stat_of_a_link_is_of_the_link(place: HostFolder) -> None:
    place.link("link", "/etc/passwd")
    found = await place.backend.stat("link")
    assert (found["type"], found["size"]) == ("link", len("/etc/passwd"))


# -- paths ----------------------------------------------------------------------------------------------------------

DO: dict[str, Any] = {
    "ls": lambda backend, path: backend.ls(path),
    "read": lambda backend, path: backend.read(path),
    "lines": lambda backend, path: backend.lines(path),
    "write": lambda backend, path: backend.write(path, "x"),
    "edit": lambda backend, path: backend.edit(path, "a", "b"),
    "glob": lambda backend, path: backend.glob("*", path),
    "grep": lambda backend, path: backend.grep("a", path),
    "mkdir": lambda backend, path: backend.mkdir(path),
    "move from": lambda backend, path: backend.move(path, "there"),
    "move to": lambda backend, path: backend.move("a.txt", path),
    "delete": lambda backend, path: backend.delete(path),
    "stat": lambda backend, path: backend.stat(path),
}
OUTSIDE = ["../out", "/etc/passwd", "sub/../../out", "..", "/", "/workspace-not", "sub/../.."]
NONSENSE = ["", "a\0b", "x" * 256, "sub/" + "é" * 128, "x/" * 3000 + "x"]


@pytest.mark.parametrize("operation", DO)
async def test_nothing_leaves_the_workspace(place: WorkspaceAccess, operation: str) -> None:
    place.put("a.txt", "a")
    place.put("sub/b.txt", "b")
    for path in OUTSIDE:
        await assert_refused(refusal(place, operation, "escapes"), DO[operation](place.backend, path))
        assert place.paths() == {"a.txt", "sub/b.txt"}, path


@rows_in_turn
@pytest.mark.parametrize("operation", DO)
async def test_invalid_paths_are_refused(place: WorkspaceAccess, operation: str) -> None:
    place.put("a.txt", "a")
    for path in NONSENSE:
        await assert_refused(refusal(place, operation, "invalid"), DO[operation](place.backend, path))
        assert place.paths() == {"a.txt"}, path


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
    code = refusal(place, operation, "escapes")
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
        await assert_refused(refusal(place, operation, "loop"), DO[operation](place.backend, "a"))
    assert (await place.backend.stat("a"))["type"] == "link"
    await place.backend.delete("a")


@on_host
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
    names = ODD[part::4] if FULL or place.kind not in SLOW else ODD[part::16]
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
    await assert_refused("protected", place.backend.read("env.txt"))
    await assert_refused("protected", place.backend.write("env.txt", "x"))
    await assert_refused("protected", place.backend.edit("env.txt", "a", "b"))
    await assert_refused("protected", place.backend.write("hooks/pre-commit", "x"))
    assert place.get(".env") == b"a=1\n" and not (place.root / ".git/hooks/pre-commit").exists()


async def test_names_that_only_look_protected(place: WorkspaceAccess) -> None:
    for path in (
        ".environment",
        "env",
        "a.env",
        ".gitignore",
        ".wickets",
        ".gitx/y",
        "head",
        "hooks/pre-commit",
        "config",
    ):
        await place.backend.write(path, "x")
        assert (await place.backend.read(path))["content"] == "x"


# -- many at a time -------------------------------------------------------------------------------------------------


async def test_twenty_operations_at_a_time(place: WorkspaceAccess) -> None:
    async def story(number: int) -> str:
        path = f"sub{number % 3}/{number}.txt"
        await place.backend.write(path, f"I am {number}\n" * (number + 1))
        await place.backend.edit(path, "I am", "It is", replace_all=True)
        if supports(place, "grep"):
            found = await place.backend.grep(f"^It is {number}$", path)
            assert len(found["matches"]) == number + 1
        return (await place.backend.read(path))["content"]

    told = await asyncio.gather(*map(story, range(20)))
    assert told == [f"It is {number}\n" * (number + 1) for number in range(20)]
    assert len(place.paths()) == 20


async def test_writes_of_one_file_never_mix(place: WorkspaceAccess) -> None:
    texts = [str(number) * 200_000 for number in range(10)]
    await asyncio.gather(*(place.backend.write("a.txt", text) for text in texts))
    assert place.get("a.txt").decode() in texts and place.paths() == {"a.txt"}


# -- links=False ----------------------------------------------------------------------------------------------------


async def test_without_links_a_plain_path_is_used_as_ever(place: WorkspaceAccess) -> None:
    backend = place.backend
    assert (await backend.write("sub/new/a.txt", "needle", links=False))["bytes_written"] == 6
    assert (await backend.edit("sub/new/a.txt", "needle", "needles", links=False))["replacements"] == 1
    assert (await backend.read("sub/new/a.txt", links=False))["content"] == "needles"
    assert (await backend.lines(f"{backend.workdir}/sub/new/a.txt", links=False))["content"] == "needles"
    assert [entry["name"] for entry in (await backend.ls("sub/./new/", links=False))["entries"]] == ["a.txt"]
    if supports(place, "glob"):
        assert (await backend.glob("*.txt", "sub/../sub", links=False))["files"] == ["sub/new/a.txt"]
    for path in (".", "sub", "sub/new/a.txt") if supports(place, "grep") else ():
        matches = (await backend.grep("needle", path, links=False))["matches"]
        same(matches, [{"file": "sub/new/a.txt", "line": 1, "text": "needles"}])
    await assert_refused("not_found", backend.read("sub/none.txt", links=False))


@on_host
async def test_without_links_no_link_is_followed(place: HostFolder) -> None:
    backend = place.backend
    place.put("real/a.txt", "needle")
    place.link("folder", "real")
    place.link("real/own", place.root / "real")
    place.link("file.txt", "real/a.txt")
    place.link("dangling.txt", "real/new.txt")
    for path in ("file.txt", "folder/a.txt", "folder/../real/a.txt", "real/own/a.txt"):
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
