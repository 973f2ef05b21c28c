"""Test cases for the files of a backend: the same answers, and the same codes for the same mistakes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from typing import Any

import pytest

from wick.protocols import Backend
from wick.testing.workspace_cases import WorkspaceCases, WorkspaceFiles, assert_refused, needs


def same(answer: Any, expected: Any) -> None:
    """The very same JSON, with its keys in the same order."""
    assert json.dumps(answer) == json.dumps(expected)


async def plant(files: WorkspaceFiles) -> None:
    for path in TREE:
        await files.put(path, f"this is {path}\n")
    for path, text in IGNORE.items():
        await files.put(path, text)


BINARY = bytes(range(256))


RANGES = [  # offset, limit; the part of "0123456789", and True if there is more
    (0, 4, "0123", True),
    (6, 4, "6789", False),
    (6, 400, "6789", False),
    (8, None, "89", False),
    (10, 5, "", False),
    (99, 5, "", False),
    (0, 0, "", True),
]


LINES = [  # offset, limit; the lines, their number, and True if there are more
    (0, None, "one\r\ntwo\n\nfour", 4, False),
    (0, 2, "one\r\ntwo\n", 2, True),
    (1, 2, "two\n\n", 2, True),
    (3, 9, "four", 1, False),
    (4, 9, "", 0, False),
    (0, 0, "", 0, True),
]


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


class FileCases(WorkspaceCases):
    """Test cases for files, searches and paths."""

    async def test_ls(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("b.txt", "bb")
        await files.put("a.txt", "")
        await files.put("sub/c.txt", "c")
        await files.put(".hidden", "h")
        listing = await backend.ls()
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

    async def test_ls_of_an_empty_workspace(self, backend: Backend) -> None:
        same(await backend.ls(), {"path": ".", "entries": [], "truncated": False})

    async def test_ls_of_a_folder(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("sub/deep/c.txt", "ccc")
        expected = [{"name": "c.txt", "type": "file", "size": 3}]
        for path in ("sub/deep", "sub/deep/", "./sub/deep", "sub//deep", "sub/../sub/deep"):
            same(await backend.ls(path), {"path": path, "entries": expected, "truncated": False})
        absolute = f"{backend.workdir}/sub/deep"
        same(await backend.ls(absolute), {"path": absolute, "entries": expected, "truncated": False})

    async def test_ls_of_a_non_folder(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt")
        await assert_refused("not_directory", backend.ls("a.txt"))
        await assert_refused("not_found", backend.ls("nowhere"))

    async def test_read(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "grüße\n")
        same(
            await backend.read("a.txt"),
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

    async def test_read_of_bytes_is_base64(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.bin", BINARY)
        content = await backend.read("a.bin")
        assert content["encoding"] == "base64" and base64.b64decode(content["content"]) == BINARY
        assert (content["size"], content["bytes"], content["truncated"]) == (256, 256, False)

    async def test_read_of_a_range(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "0123456789")
        for offset, limit, content, more in RANGES:
            found = await backend.read("a.txt", offset=offset, limit=limit)
            assert (found["content"], found["bytes"], found["truncated"]) == (content, len(content), more)
            assert (found["size"], found["offset"]) == (10, offset)

    async def test_a_range_that_cuts_a_letter_is_base64(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "grüße")
        found = await backend.read("a.txt", offset=3, limit=2)
        assert found["encoding"] == "base64" and base64.b64decode(found["content"]) == "grüße".encode()[3:5]

    async def test_invalid_ranges_are_refused(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "0123456789")
        await assert_refused("invalid", backend.read("a.txt", offset=-1))
        await assert_refused("invalid", backend.read("a.txt", limit=-1))
        await assert_refused("invalid", backend.lines("a.txt", offset=-1))
        await assert_refused("invalid", backend.lines("a.txt", limit=-1))

    async def test_read_of_a_file_of_a_megabyte(self, backend: Backend) -> None:
        data = os.urandom(1_000_000)
        await backend.write("a.bin", data)
        content = await backend.read("a.bin")
        assert base64.b64decode(content["content"]) == data and not content["truncated"]

    async def test_lines(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "one\r\ntwo\n\nfour")
        for offset, limit, content, count, more in LINES:
            found = await backend.lines("a.txt", offset=offset, limit=limit)
            same(found, {"path": "a.txt", "content": content, "offset": offset, "lines": count, "truncated": more})

    async def test_lines_of_an_empty_file(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt")
        same(
            await backend.lines("a.txt"),
            {"path": "a.txt", "content": "", "offset": 0, "lines": 0, "truncated": False},
        )

    async def test_lines_of_a_binary_file(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.bin", BINARY)
        await assert_refused("binary", backend.lines("a.bin"))

    async def test_lines_after_a_very_long_line_are_read(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "x" * 500_000 + "\nend\n")
        found = await backend.lines("a.txt", offset=1)
        assert found["content"] == "end\n"

    async def test_write_creates_parent_folders(self, backend: Backend, files: WorkspaceFiles) -> None:
        same(await backend.write("new/deep/a.txt", "grüße"), {"path": "new/deep/a.txt", "bytes_written": 7})
        assert await files.get("new/deep/a.txt") == "grüße".encode()

    async def test_written_content_is_read(self, backend: Backend, files: WorkspaceFiles) -> None:
        contents: list[str | bytes] = ["", b"", "text", BINARY, b"\xff\xfe", "\r\n", "\ufeffbom", "\0"]
        for content in contents:
            data = content.encode() if isinstance(content, str) else content
            same(await backend.write("a", content), {"path": "a", "bytes_written": len(data)})
            assert await files.get("a") == data
            found = await backend.read("a")
            read = found["content"]
            assert (base64.b64decode(read) if found["encoding"] == "base64" else read.encode()) == data

    async def test_write_replaces(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "a longer text than before")
        await backend.write("a.txt", "short")
        assert await files.get("a.txt") == b"short" and await files.paths() == {"a.txt"}

    async def test_write_to_an_invalid_target(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("sub/a.txt", "a")
        await assert_refused("is_directory", backend.write("sub", "x"))
        await assert_refused("is_directory", backend.write(".", "x"))
        await assert_refused("not_directory", backend.write("sub/a.txt/b", "x"))
        assert await files.paths() == {"sub/a.txt"} and await files.get("sub/a.txt") == b"a"

    async def test_unencodable_text_is_refused(self, backend: Backend, files: WorkspaceFiles) -> None:
        await assert_refused("invalid", backend.write("a.txt", "half a pair: \ud800"))
        assert await files.paths() == set()

    async def test_edit(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "one two three")
        same(await backend.edit("a.txt", "two", "2"), {"path": "a.txt", "replacements": 1, "bytes_written": 11})
        assert await files.get("a.txt") == b"one 2 three"

    async def test_edit_of_a_missing_text(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "one")
        error = await assert_refused("no_match", backend.edit("a.txt", "two", "2"))
        assert str(error) == "old_text not found in file"
        assert await files.get("a.txt") == b"one"

    async def test_edit_of_a_repeated_text(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "one one one")
        error = await assert_refused("not_unique", backend.edit("a.txt", "one", "1"))
        assert "3" in str(error) and await files.get("a.txt") == b"one one one"
        same(
            await backend.edit("a.txt", "one", "1", occurrence="first"),
            {"path": "a.txt", "replacements": 1, "bytes_written": 9},
        )
        assert await files.get("a.txt") == b"1 one one"
        same(
            await backend.edit("a.txt", "one", "1", replace_all=True),
            {"path": "a.txt", "replacements": 2, "bytes_written": 5},
        )
        assert await files.get("a.txt") == b"1 1 1"

    @pytest.mark.parametrize(("before", "old", "new", "after"), EDITS)
    async def test_edit_preserves_line_endings_and_encoding(
        self, backend: Backend, files: WorkspaceFiles, before: bytes, old: str, new: str, after: bytes
    ) -> None:
        await files.put("a.txt", before)
        same(await backend.edit("a.txt", old, new), {"path": "a.txt", "replacements": 1, "bytes_written": len(after)})
        assert await files.get("a.txt") == after

    async def test_edit_of_an_invalid_target(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.bin", BINARY)
        await files.put("sub/a.txt", "a")
        await assert_refused("invalid", backend.edit("sub/a.txt", "", "x"))
        await assert_refused("binary", backend.edit("a.bin", "a", "b"))
        await assert_refused("not_found", backend.edit("nowhere", "a", "b"))
        await assert_refused("is_directory", backend.edit("sub", "a", "b"))
        assert await files.get("a.bin") == BINARY

    @pytest.mark.parametrize(("pattern", "path", "found"), GLOBS)
    @needs("glob")
    async def test_glob(
        self, backend: Backend, files: WorkspaceFiles, pattern: str, path: str, found: list[str]
    ) -> None:
        await plant(files)
        same(await backend.glob(pattern, path), {"files": found, "truncated": False})

    @needs("glob")
    async def test_glob_of_everything(self, backend: Backend, files: WorkspaceFiles) -> None:
        await plant(files)
        found = await backend.glob("**", everything=True)
        assert found == {"files": sorted({*TREE, *IGNORE}), "truncated": False}

    @needs("glob")
    async def test_invalid_globs_are_refused(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt")
        await assert_refused("invalid", backend.glob(""))
        await assert_refused("invalid", backend.glob("a\0b"))
        await assert_refused("not_found", backend.glob("*", "nowhere"))
        await assert_refused("escapes", backend.glob("*", ".."))

    @needs("grep")
    async def test_grep(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "one\nTwo two\r\nthree")
        await files.put("sub/b.txt", "no two ways\n")
        same(
            await backend.grep("two"),
            {
                "matches": [
                    {"file": "a.txt", "line": 2, "text": "Two two"},
                    {"file": "sub/b.txt", "line": 1, "text": "no two ways"},
                ],
                "truncated": False,
            },
        )

    @pytest.mark.parametrize(("pattern", "options", "found"), GREPS, ids=[f"{p} {o}" for p, o, _ in GREPS])
    @needs("grep")
    async def test_grep_options(
        self, backend: Backend, files: WorkspaceFiles, pattern: str, options: dict[str, Any], found: list[str]
    ) -> None:
        await files.put("a.py", "one\ntwo\nnaïve\nan -e here\n$HOME\n")
        await files.put("sub/b.txt", "no two ways\n")
        matches = await backend.grep(pattern, **options)
        assert [f"{match['file']}:{match['line']}" for match in matches["matches"]] == found
        assert not matches["truncated"] and await files.paths() == {"a.py", "sub/b.txt"}

    @needs("grep")
    async def test_grep_ignores_files_that_glob_ignores(self, backend: Backend, files: WorkspaceFiles) -> None:
        await plant(files)
        found = {match["file"] for match in (await backend.grep("this is"))["matches"]}
        assert found == set((await backend.glob("**"))["files"]) - set(IGNORE)
        everything = {match["file"] for match in (await backend.grep("this is", everything=True))["matches"]}
        assert everything == set(TREE)

    @needs("grep")
    async def test_grep_of_an_invalid_pattern(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "aa\n")
        for pattern in ("(", "a{2,1}", "[z-a]", r"(a)\1", "(?=a)", "\0", "*a"):
            await assert_refused("invalid", backend.grep(pattern))

    @needs("grep")
    async def test_grep_skips_binary_files(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.bin", b"needle\0needle\n")
        await files.put("b.txt", b"caf\xe9 needle\n")
        matches = (await backend.grep("needle"))["matches"]
        assert [match["file"] for match in matches] == ["b.txt"]
        assert matches[0]["text"].endswith(" needle")

    @needs("grep")
    async def test_grep_of_a_very_long_line(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "x" * 300_000 + "needle" + "y" * 300_000 + "\nneedle\n")
        matches = (await backend.grep("needle"))["matches"]
        assert [match["line"] for match in matches] == [1, 2]
        assert "needle" in matches[0]["text"] and len(matches[0]["text"]) < 10_000

    @needs("grep")
    async def test_grep_of_too_many_matches(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "needle\n" * 50_000)
        found = await backend.grep("needle")
        assert found["truncated"] and 100 <= len(found["matches"]) < 50_000
        assert [match["line"] for match in found["matches"]] == [*range(1, len(found["matches"]) + 1)]

    @needs("grep")
    async def test_grep_of_a_missing_path(self, backend: Backend) -> None:
        await assert_refused("not_found", backend.grep("a", "nowhere"))
        await assert_refused("escapes", backend.grep("a", ".."))
        same(await backend.grep("a"), {"matches": [], "truncated": False})

    async def test_mkdir(self, backend: Backend) -> None:
        await backend.mkdir("a/b/c")
        assert (await backend.stat("a/b/c"))["type"] == "dir"
        same(await backend.ls("a/b/c"), {"path": "a/b/c", "entries": [], "truncated": False})

    async def test_mkdir_of_an_existing_path(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("sub/a.txt", "a")
        await backend.mkdir("sub")  # it exists, as requested
        await assert_refused("exists", backend.mkdir("sub/a.txt"))
        await assert_refused("not_directory", backend.mkdir("sub/a.txt/b"))

    async def test_move(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "a")
        await files.put("from/deep/b.txt", "b")
        await backend.move("a.txt", "b.txt")
        await backend.move("from", "to")
        assert await files.paths() == {"b.txt", "to/deep/b.txt"} and await files.get("b.txt") == b"a"
        await assert_refused("not_found", backend.stat("from"))

    async def test_move_creates_parent_folders(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "a")
        await backend.move("a.txt", "new/deep/a.txt")
        assert await files.paths() == {"new/deep/a.txt"}

    async def test_invalid_moves_are_refused(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "a")
        await files.put("b.txt", "b")
        await files.put("sub/c.txt", "c")
        await assert_refused("exists", backend.move("a.txt", "b.txt"))
        await assert_refused("exists", backend.move("a.txt", "sub"))
        await assert_refused("not_found", backend.move("nowhere", "d.txt"))
        await assert_refused("not_directory", backend.move("a.txt", "b.txt/x"))
        await assert_refused("invalid", backend.move("sub", "sub/inside"))
        assert await files.paths() == {"a.txt", "b.txt", "sub/c.txt"}

    async def test_delete(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("sub/a.txt", "a")
        await files.put("tree/deep/b.txt", "b")
        await backend.delete("sub/a.txt")
        assert (await backend.ls("sub"))["entries"] == []
        await backend.delete("sub")
        await assert_refused("not_empty", backend.delete("tree"))
        await backend.delete("tree", recursive=True)
        same(await backend.ls(), {"path": ".", "entries": [], "truncated": False})

    async def test_delete_of_an_invalid_target(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("a.txt", "a")
        await assert_refused("not_found", backend.delete("nowhere"))
        await assert_refused("not_found", backend.delete("nowhere", recursive=True))
        await assert_refused("invalid", backend.delete(".", recursive=True))
        await assert_refused("invalid", backend.delete(backend.workdir, recursive=True))
        assert await files.paths() == {"a.txt"}

    async def test_stat(self, backend: Backend) -> None:
        before = time.time()
        await backend.write("sub/a.txt", "grüße")
        found = await backend.stat("sub/a.txt")
        assert [*found] == ["path", "type", "size", "mode", "modified"]
        assert (found["path"], found["type"], found["size"]) == ("sub/a.txt", "file", 7)
        assert found["mode"] & 0o600 == 0o600 and found["mode"] < 0o10000
        assert before - 60 < found["modified"] < time.time() + 60
        assert (await backend.stat("sub"))["type"] == "dir"
        assert (await backend.stat("."))["type"] == "dir"
        await assert_refused("not_found", backend.stat("nowhere"))

    @pytest.mark.parametrize("operation", DO)
    async def test_nothing_leaves_the_workspace(self, backend: Backend, files: WorkspaceFiles, operation: str) -> None:
        await files.put("a.txt", "a")
        await files.put("sub/b.txt", "b")
        for path in OUTSIDE:
            await assert_refused(self.expected_code(operation, "escapes"), DO[operation](backend, path))
            assert await files.paths() == {"a.txt", "sub/b.txt"}, path

    @pytest.mark.parametrize("operation", DO)
    async def test_invalid_paths_are_refused(self, backend: Backend, files: WorkspaceFiles, operation: str) -> None:
        await files.put("a.txt", "a")
        for path in NONSENSE:
            await assert_refused(self.expected_code(operation, "invalid"), DO[operation](backend, path))
            assert await files.paths() == {"a.txt"}, path

    async def test_names_like_protected_ones_are_allowed(self, backend: Backend) -> None:
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
            await backend.write(path, "x")
            assert (await backend.read(path))["content"] == "x"

    async def test_operations_run_concurrently(self, backend: Backend, files: WorkspaceFiles) -> None:
        async def story(number: int) -> str:
            path = f"sub{number % 3}/{number}.txt"
            await backend.write(path, f"I am {number}\n" * (number + 1))
            await backend.edit(path, "I am", "It is", replace_all=True)
            if self.supports("grep"):
                found = await backend.grep(f"^It is {number}$", path)
                assert len(found["matches"]) == number + 1
            return (await backend.read(path))["content"]

        told = await asyncio.gather(*map(story, range(20)))
        assert told == [f"It is {number}\n" * (number + 1) for number in range(20)]
        assert len(await files.paths()) == 20

    async def test_writes_of_one_file_never_mix(self, backend: Backend, files: WorkspaceFiles) -> None:
        texts = [str(number) * 200_000 for number in range(10)]
        await asyncio.gather(*(backend.write("a.txt", text) for text in texts))
        assert (await files.get("a.txt")).decode() in texts and await files.paths() == {"a.txt"}

    async def test_plain_paths_work_without_links(self, backend: Backend) -> None:
        assert (await backend.write("sub/new/a.txt", "needle", links=False))["bytes_written"] == 6
        assert (await backend.edit("sub/new/a.txt", "needle", "needles", links=False))["replacements"] == 1
        assert (await backend.read("sub/new/a.txt", links=False))["content"] == "needles"
        assert (await backend.lines(f"{backend.workdir}/sub/new/a.txt", links=False))["content"] == "needles"
        assert [entry["name"] for entry in (await backend.ls("sub/./new/", links=False))["entries"]] == ["a.txt"]
        if self.supports("glob"):
            assert (await backend.glob("*.txt", "sub/../sub", links=False))["files"] == ["sub/new/a.txt"]
        for path in (".", "sub", "sub/new/a.txt") if self.supports("grep") else ():
            matches = (await backend.grep("needle", path, links=False))["matches"]
            same(matches, [{"file": "sub/new/a.txt", "line": 1, "text": "needles"}])
        await assert_refused("not_found", backend.read("sub/none.txt", links=False))
