"""Files beneath a folder: every operation, its errors, and no access outside."""

from __future__ import annotations

import base64
import errno
import gc
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from wick import constants
from wick.errors import BackendError
from wick.wickd import zipapp
from wick.workspace import file_ops, rooted_folder, walk, workspace
from wick.workspace import text as texts
from wick.workspace.protected import PROTECTED, ProtectedNames
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.text import build_content, read_lines, replace_text
from wick.workspace.workspace import Workspace

FULL = bool(os.environ.get("WICK_FULL"))


@pytest.fixture(params=["kernel", "kernel, no /proc", "by hand"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """A workspace with each way of path resolution, beside foreign files."""
    if request.param == "kernel, no /proc":
        monkeypatch.setattr(RootedFolder, "_read_names", lambda self, fd: None)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("OUTSIDE")
    (tmp_path / "root").mkdir()
    made = Workspace(str(tmp_path / "root"), by_hand=request.param == "by hand")
    before = snapshot(tmp_path / "outside")
    yield made
    made.close()
    assert snapshot(tmp_path / "outside") == before


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for place in sorted(folder.rglob("*")):
        data = place.read_bytes() if place.is_file() else b""
        found[str(place.relative_to(folder))] = (place.lstat().st_mode, data)
    return found


def root(files: Workspace) -> Path:
    return Path(files.root)


def code(act: Callable[[], Any]) -> str:
    with pytest.raises(BackendError) as caught:
        act()
    assert str(caught.value)
    return caught.value.code


def text(files: Workspace, path: str) -> str:
    found = files.read(path)
    assert found["encoding"] == "utf-8"
    return found["content"]


# -- reading --------------------------------------------------------------------------------------------------------


def test_reading(files: Workspace) -> None:
    files.write("a.txt", "häß\n")
    assert files.read("a.txt") == {
        "path": "a.txt",
        "content": "häß\n",
        "encoding": "utf-8",
        "size": 6,
        "offset": 0,
        "bytes": 6,
        "truncated": False,
    }
    assert text(files, f"{files.root}/a.txt") == "häß\n"


def test_a_range_is_read_exactly(files: Workspace) -> None:
    files.write("a.txt", "0123456789")
    found = files.read("a.txt", offset=2, limit=3)
    assert (found["content"], found["offset"], found["bytes"], found["truncated"]) == ("234", 2, 3, True)
    found = files.read("a.txt", offset=8, limit=100)
    assert (found["content"], found["truncated"]) == ("89", False)
    found = files.read("a.txt", offset=50)
    assert (found["content"], found["bytes"], found["size"], found["truncated"]) == ("", 0, 10, False)
    assert files.read("a.txt", limit=0)["truncated"]
    assert code(lambda: files.read("a.txt", offset=-1)) == code(lambda: files.read("a.txt", limit=-1)) == "invalid"


def test_binary_content_is_base64(files: Workspace) -> None:
    for data in (b"\x00\x01", b"caf\xe9", b"ends in half \xc3"):
        files.write("b", data)
        found = files.read("b")
        assert found["encoding"] == "base64"
        assert base64.b64decode(found["content"]) == data


def test_a_large_file_is_cut(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "FILE_READ_BYTES", 10)
    files.write("a.txt", "123456789é123")
    found = files.read("a.txt")
    assert (found["content"], found["bytes"], found["size"], found["truncated"]) == ("123456789", 9, 14, True)
    assert files.read("a.txt", limit=12)["bytes"] == 10  # the cap holds for every caller


def test_a_sparse_file_of_a_terabyte(files: Workspace) -> None:
    files.write("big", "begin\n")
    with open(root(files) / "big", "r+b") as file:
        file.truncate(1 << 40)
        file.seek((1 << 40) - 4)
        file.write(b"end\n")
    found = files.read("big", offset=(1 << 40) - 4, limit=100)
    assert (found["content"], found["size"], found["truncated"]) == ("end\n", 1 << 40, False)
    assert files.read("big")["bytes"] == constants.FILE_READ_BYTES
    assert files.stat("big")["size"] == 1 << 40
    assert code(lambda: files.lines("big")) == "binary"
    assert code(lambda: files.edit("big", "begin", "x")) == "too_large"
    assert files.grep("begin")["matches"] == []


@pytest.mark.parametrize("operation", ["read", "lines", "write", "edit", "grep"])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_special_files_are_refused(files: Workspace, operation: str, kind: str) -> None:
    place = root(files) / "odd"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(root(files))  # a socket's name must be short
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind("odd")
        finally:
            os.chdir(here)
    else:
        try:
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("needs root, to make a device")
    assert code(lambda: call(files, operation, "odd")) == "not_a_file"
    assert files.stat("odd")["type"] == files.ls()["entries"][0]["type"] == "other"
    assert files.glob("*") == {"files": [], "truncated": False}
    assert files.grep("x")["matches"] == []
    files.move("odd", "moved")
    files.delete("moved")


def test_folders_are_no_files(files: Workspace) -> None:
    files.mkdir("d")
    for operation in ("read", "lines", "write", "edit"):
        assert code(lambda operation=operation: call(files, operation, "d")) == "is_directory"  # type: ignore[misc]
        assert code(lambda operation=operation: call(files, operation, ".")) == "is_directory"  # type: ignore[misc]
    files.write("f", "x")
    assert code(lambda: files.ls("f")) == code(lambda: files.glob("*", "f")) == "not_directory"
    assert code(lambda: files.read("f/x")) == code(lambda: files.write("f/x", "")) == "not_directory"
    assert code(lambda: files.write("new/", "")) == "is_directory"


def test_missing_files_are_reported(files: Workspace) -> None:
    for operation in ("read", "lines", "edit", "ls", "stat", "delete", "move", "glob", "grep"):
        assert code(lambda operation=operation: call(files, operation, "no/such")) == "not_found"  # type: ignore[misc]


# -- lines ----------------------------------------------------------------------------------------------------------


def test_lines(files: Workspace) -> None:
    files.write("a", "one\r\ntwo\n\nfour")
    assert files.lines("a") == {
        "path": "a",
        "content": "one\r\ntwo\n\nfour",
        "offset": 0,
        "lines": 4,
        "truncated": False,
    }
    found = files.lines("a", offset=1, limit=2)
    assert (found["content"], found["lines"], found["truncated"]) == ("two\n\n", 2, True)
    assert files.lines("a", offset=9)["lines"] == 0
    assert files.lines("a", limit=0) == {"path": "a", "content": "", "offset": 0, "lines": 0, "truncated": True}
    assert code(lambda: files.lines("a", offset=-1)) == "invalid"


@given(
    parts=st.lists(st.sampled_from([b"\n", b"a", b"\r", "é".encode()]), max_size=30),
    size=st.integers(1, 7),
    offset=st.integers(0, 12),
    limit=st.none() | st.integers(0, 12),
)
def test_lines_for_any_block_size(parts: list[bytes], size: int, offset: int, limit: int | None) -> None:
    data = b"".join(parts)
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    whole = data.decode().split("\n")
    every = [f"{line}\n" for line in whole[:-1]] + [line for line in whole[-1:] if line]
    kept = every[offset:][:limit]
    found = read_lines("p", blocks, len(data), offset, limit)
    assert found["content"] == "".join(kept)
    assert found["lines"] == len(kept)
    assert found["truncated"] == (len(every) > offset + len(kept) and offset < len(every))


def test_a_very_long_line_is_cut(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LINE_BYTES", 10)
    files.write("a", "x" * 25 + "\nshort\n" + "y" * 11)
    assert files.lines("a")["content"] == "xxxxxxxxxx… [15 more bytes]\nshort\nyyyyyyyyyy… [1 more bytes]"


def test_lines_of_other_encodings(files: Workspace) -> None:
    files.write("latin", b"caf\xe9\n")
    files.write("wide", "grün\n".encode("utf-16"))
    files.write("binary", b"\0")
    assert files.lines("latin")["content"] == "café\n"
    assert files.lines("wide")["content"] == "grün\n"
    assert code(lambda: files.lines("binary")) == "binary"


def test_unrequested_lines_are_not_read(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (workspace, texts):
        monkeypatch.setattr(module, "LINES_SCAN_BYTES", 3_000_000)
    files.write("a", "one\n" + "x" * 5_000_000)
    assert files.lines("a", limit=1) == {"path": "a", "content": "one\n", "offset": 0, "lines": 1, "truncated": True}


def test_counting_lines_ends_somewhere(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (workspace, texts):
        monkeypatch.setattr(module, "LINES_SCAN_BYTES", 1_000)
    files.write("a", "x\n" * 1_000)
    assert code(lambda: files.lines("a", offset=900)) == "too_large"


# -- writing --------------------------------------------------------------------------------------------------------


def test_writing(files: Workspace) -> None:
    assert files.write("a/b/c.txt", "é") == {"path": "a/b/c.txt", "bytes_written": 2}
    assert files.write("a/b/c.txt", b"\xff\x00") == {"path": "a/b/c.txt", "bytes_written": 2}
    assert (root(files) / "a/b/c.txt").read_bytes() == b"\xff\x00"
    assert os.listdir(root(files) / "a/b") == ["c.txt"]
    assert code(lambda: files.write("x", "\ud800")) == "invalid"


def test_a_new_file_has_the_usual_mode(files: Workspace) -> None:
    files.write("a/b", "x")
    usual = root(files) / "usual"
    usual.touch()
    assert (root(files) / "a/b").stat().st_mode == usual.stat().st_mode


def test_a_replaced_file_keeps_mode_and_owner(files: Workspace) -> None:
    place = root(files) / "run.sh"
    place.write_text("old")
    place.chmod(0o750)
    if os.getuid() == 0:
        os.chown(place, 1234, 2345)
    with_attribute = True
    try:
        os.setxattr(place, "user.wick", b"kept")
    except OSError:
        with_attribute = False  # the file system has none
    before = place.stat()
    files.write("run.sh", "new")
    files.edit("run.sh", "new", "newer")
    after = place.stat()
    assert place.read_text() == "newer"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert not with_attribute or os.getxattr(place, "user.wick") == b"kept"


def test_new_content_drops_setuid_bits(files: Workspace) -> None:
    place = root(files) / "x"
    place.touch()
    place.chmod(0o4755)
    files.write("x", "new")
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


def test_a_write_is_all_or_nothing(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("a", "old")
    fd = os.open(root(files) / "a", os.O_RDONLY)
    files.write("a", "new")
    assert os.read(fd, 10) == b"old"  # an open descriptor continues with the old one
    os.close(fd)
    for failing, number in (("write", errno.ENOSPC), ("rename", errno.EDQUOT), ("fchmod", errno.EIO)):
        with monkeypatch.context() as patch:
            patch.setattr(os, failing, failure(number))
            assert code(lambda: files.write("a", "newer")) == ("failed" if failing == "fchmod" else "no_space")
        assert text(files, "a") == "new"
        assert os.listdir(root(files)) == ["a"]


def failure(number: int) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_full_disk(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs root, to mount a small file system")
    try:
        files = Workspace(str(place))
        files.write("a", "small")
        assert code(lambda: files.write("a", "x" * 1_000_000)) == "no_space"
        assert code(lambda: files.write("d/b", "x" * 1_000_000)) == "no_space"
        assert text(files, "a") == "small"
        assert files.glob("**", everything=True)["files"] == ["a"]
        files.close()
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_write_follows_a_link_inside(files: Workspace) -> None:
    files.write("d/real", "old")
    for name, target in (("link", "d/real"), ("chain", "link"), ("own", f"{files.root}/d/real"), ("d/up", "../d/real")):
        os.symlink(target, root(files) / name)
        files.write(name, f"by {name}")
        assert text(files, "d/real") == f"by {name}"
        files.edit(name, "by", "edited by")
        assert (root(files) / name).is_symlink()
    os.symlink("d/missing", root(files) / "dangling")
    files.write("dangling", "made")
    assert text(files, "d/missing") == "made"


def test_a_write_does_not_follow_a_link_outside(files: Workspace, tmp_path: Path) -> None:
    for name, target in (("a", "../outside/secret.txt"), ("b", str(tmp_path / "outside/new")), ("c", "../outside/new")):
        os.symlink(target, root(files) / name)
        assert code(lambda name=name: files.write(name, "x")) == "escapes"  # type: ignore[misc]
        assert code(lambda name=name: files.edit(name, "OUTSIDE", "x")) == "escapes"  # type: ignore[misc]
    os.symlink("round", root(files) / "round")
    assert code(lambda: files.write("round", "x")) == "loop"


def test_a_write_that_is_too_large(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "FILE_WRITE_BYTES", 10)
    assert code(lambda: files.write("a", "x" * 11)) == "too_large"
    assert files.ls()["entries"] == []


def test_unwritable_paths_are_refused(tmp_path: Path) -> None:
    """As an unprivileged user: a read-only file is kept, and so are files in a read-only folder."""
    program = """
import os, sys
from wick.workspace.workspace import Workspace
from wick.errors import BackendError
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
files = Workspace(sys.argv[1])
for act in (lambda: files.write("mine", "x"), lambda: files.write("folder/new", "x"), lambda: files.read("hidden"),
            lambda: files.delete("folder/old"), lambda: files.ls("closed")):
    try:
        act()
    except BackendError as error:
        print(error.code)
"""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        for name, mode in (("mine", 0o444), ("hidden", 0o000), ("folder/old", 0o666)):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).touch()
            (place / name).chmod(mode)
        (place / "closed").mkdir()
        for name, mode in (("folder", 0o555), ("closed", 0o000), (".", 0o755)):
            (place / name).chmod(mode)
        for name, data in zipapp.read_sources().items():
            copied = place / "code" / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(data)
        command = [shutil.which("python3", path="/usr/bin:/bin") or "", "-c", program, str(place)]
        if not command[0]:
            pytest.skip("needs a python3 that every user may run; install python3")
        done = subprocess.run(
            command, env={"PYTHONPATH": str(place / "code")}, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.stdout.split() == ["denied"] * 5, done.stderr
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(place)], check=True)
        shutil.rmtree(place)


# -- editing --------------------------------------------------------------------------------------------------------


def test_editing(files: Workspace) -> None:
    files.write("a.py", "x = 1\ny = 1\n")
    assert files.edit("a.py", "x = 1", "x = 2") == {"path": "a.py", "replacements": 1, "bytes_written": 12}
    assert text(files, "a.py") == "x = 2\ny = 1\n"


def test_invalid_edits_are_refused(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("a", "one two one")
    with pytest.raises(BackendError, match="^old_text not found in file$") as caught:
        files.edit("a", "three", "x")
    assert caught.value.code == "no_match"
    with pytest.raises(BackendError, match="occurs 2 times") as caught:
        files.edit("a", "one", "x")
    assert caught.value.code == "not_unique"
    assert code(lambda: files.edit("a", "", "x")) == "invalid"
    assert code(lambda: files.edit("a", "one", "x", occurrence="last")) == "invalid"
    files.write("b", b"one\0")
    assert code(lambda: files.edit("b", "one", "x")) == "binary"
    assert text(files, "a") == "one two one"
    monkeypatch.setattr(texts, "EDIT_BYTES", 5)
    assert code(lambda: files.edit("a", "two", "x")) == "too_large"


def test_editing_all_or_the_first(files: Workspace) -> None:
    files.write("a", "one two one aaa")
    assert files.edit("a", "one", "1", replace_all=True)["replacements"] == 2
    assert files.edit("a", "a", "b", occurrence="first")["replacements"] == 1
    assert files.edit("a", "aa", "", replace_all=True)["replacements"] == 1  # without overlaps
    assert text(files, "a") == "1 two 1 b"


@pytest.mark.parametrize(
    ("data", "old", "new", "then"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "\nb", "\nc", b"a\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\n", "", b"b\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "a\r\n", "a\r", b"a\rb\r\n"),
        (b"a\nb\r\nc\n", "a\nb", "x\ny", b"x\ny\r\nc\n"),
        (b"a\nb\r\nc\nd\n", "b\nc", "x\ny", b"a\nx\r\ny\nd\n"),
        (b"a\nb\n", "a\nb", "x\r\ny", b"x\r\ny\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        ("é€\n".encode("utf-16"), "€", "$", "é$\n".encode("utf-16")),
        (b"\xfe\xff" + "ab\r\nc".encode("utf-16-be"), "b\nc", "x\ny", b"\xfe\xff" + "ax\r\ny".encode("utf-16-be")),
        (b"caf\xe9 \xfc a", "a", "", None),
        (b"caf\xe9 \xfc x", "x", "\xe4", b"caf\xe9 \xfc \xe4"),
        (b"caf\xe9 x", "caf\xe9", "tea", b"tea x"),
        (b"\xe9 and \xc3\xa9 x", "\xe9 x", "\xe4", b"\xe9 and \xc3\xa4"),
        (b"\xff\xfe\x00", "a", "b", None),
    ],
)
def test_line_ends_and_encodings_survive(data: bytes, old: str, new: str, then: bytes | None) -> None:
    if then is None:
        with pytest.raises(BackendError):
            replace_text("p", data, old, new)
    else:
        assert replace_text("p", data, old, new)[0] == then


def test_an_edit_that_makes_a_file_enormous() -> None:
    with pytest.raises(BackendError) as caught:
        replace_text("p", b"a" * 1_000_000, "a", "x" * 1_000_000, replace_all=True)
    assert caught.value.code == "too_large"


def test_very_many_replacements(files: Workspace) -> None:
    files.write("a", "ab" * 1_000_000)
    assert files.edit("a", "a", "", replace_all=True)["replacements"] == 1_000_000
    files.write("a", "a\r\n" * 100_000 + "a\n" * 100_000)
    assert files.edit("a", "a\n", "", replace_all=True)["bytes_written"] == 0


def test_unencodable_text_is_refused(files: Workspace) -> None:
    files.write("a", b"caf\xe9")
    with pytest.raises(BackendError, match="latin-1, which cannot hold '€'"):
        files.edit("a", "caf", "5 €")


@given(
    st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=20).map("".join),
    st.lists(st.sampled_from(["a", "b", "\n"]), min_size=1, max_size=4).map("".join),
    st.sampled_from(["", "x", "x\ny", "\n"]),
)
def test_an_edit_is_an_edit_of_the_plain_text(before: str, old: str, new: str) -> None:
    """Seen without \\r, it is a replacement of that text; and no end of a line outside of it changes."""
    plain = before.replace("\r\n", "\n")
    if old not in plain:
        with pytest.raises(BackendError, match="not found"):
            replace_text("p", before.encode(), old, new, replace_all=True)
        return
    data, count = replace_text("p", before.encode(), old, new, replace_all=True)
    after = data.decode()
    assert after.replace("\r\n", "\n") == plain.replace(old, new)
    assert count == plain.count(old)
    assert "\r\r" not in after
    if "\r" not in before:
        assert "\r" not in after
    if before.count("\n") == before.count("\r\n") > 0:
        assert after.count("\n") == after.count("\r\n")


@given(st.binary(max_size=60), st.text(min_size=1, max_size=3), st.text(max_size=3))
@example(b"\xff\xfea\x00", "a", "\ud800")
@example(b"\xe9\xc3\xa9", "é", "€")
@example(b"abcde[", "[", "")
def test_bytes_outside_of_an_edit_survive(data: bytes, old: str, new: str) -> None:
    try:
        after, _ = replace_text("p", data, old, new, occurrence="first")
    except BackendError:
        return
    shorter = min(len(data), len(after))
    start = next((at for at in range(shorter) if data[at] != after[at]), shorter)
    same = (one == other for one, other in zip(data[start:][::-1], after[start:][::-1], strict=False))
    changed = len(data) - start - sum(1 for _ in takewhile(bool, same))
    assert changed <= 4 * len(old)


def test_edits_at_once_are_all_made(files: Workspace) -> None:
    files.write("a", "".join(f"<{number}>" for number in range(20)))
    threads = [threading.Thread(target=files.edit, args=("a", f"<{number}>", f"[{number}]")) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert text(files, "a") == "".join(f"[{number}]" for number in range(20))


# -- folders --------------------------------------------------------------------------------------------------------


def test_listing(files: Workspace) -> None:
    files.write("b.txt", "12345")
    files.mkdir("a")
    os.symlink("nowhere", root(files) / "c")
    assert files.ls() == {
        "path": ".",
        "entries": [
            {"name": "a", "type": "dir", "size": 0},
            {"name": "b.txt", "type": "file", "size": 5},
            {"name": "c", "type": "link", "size": 7},
        ],
        "truncated": False,
    }
    assert files.ls("a") == {"path": "a", "entries": [], "truncated": False}


def test_a_long_listing_is_cut(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "LIST_ENTRIES", 3)
    for name in "edcba":
        files.write(name, "")
    found = files.ls()
    assert ([entry["name"] for entry in found["entries"]], found["truncated"]) == (["a", "b", "c"], True)
    files.delete("a")
    files.delete("b")
    assert not files.ls()["truncated"]


def test_paths_are_normalized(files: Workspace) -> None:
    files.write("a", "123")
    os.chmod(root(files) / "a", 0o640)
    os.utime(root(files) / "a", (5, 1234.5))
    assert files.stat("a") == {"path": "a", "type": "file", "size": 3, "mode": 0o640, "modified": 1234.5}
    os.symlink("/etc/passwd", root(files) / "out")
    assert files.stat("out")["type"] == "link"
    files.mkdir("d")
    assert files.stat(".")["type"] == files.stat("d/..")["type"] == files.stat(files.root)["type"] == "dir"
    assert code(lambda: files.stat("..")) == "escapes"


def test_making_folders(files: Workspace) -> None:
    files.mkdir("a/b/c")
    files.mkdir("a/b/c")
    files.mkdir("a/new/../other/")
    assert [entry["name"] for entry in files.ls("a")["entries"]] == ["b", "new", "other"]
    files.write("file", "")
    assert code(lambda: files.mkdir("file")) == "exists"
    assert code(lambda: files.mkdir("file/x")) == "not_directory"
    os.symlink("../outside", root(files) / "out")
    os.symlink("a/b", root(files) / "in")
    os.symlink("nowhere", root(files) / "dangling")
    assert code(lambda: files.mkdir("out/x")) == "escapes"
    assert code(lambda: files.mkdir("dangling")) == "exists"
    files.mkdir("in/x")
    assert (root(files) / "a/b/x").is_dir()


def test_moving(files: Workspace) -> None:
    files.write("a/b.txt", "x")
    files.move("a/b.txt", "new/c.txt")
    assert text(files, "new/c.txt") == "x"
    files.move("new", "newer")
    files.write("other", "y")
    assert code(lambda: files.move("other", "newer/c.txt")) == "exists"
    assert code(lambda: files.move("other", "newer")) == "exists"
    assert code(lambda: files.move("newer", "newer/inside")) == "invalid"
    assert code(lambda: files.move(".", "x")) == code(lambda: files.move("newer/..", "x")) == "invalid"
    assert code(lambda: files.move("other", ".")) == "exists"
    assert code(lambda: files.move("other", "../x")) == code(lambda: files.move("../outside", "x")) == "escapes"
    assert text(files, "newer/c.txt") == "x"


def test_moving_without_renameat2(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_ops, "libc", object())
    files.write("a", "x")
    files.write("b", "y")
    assert code(lambda: files.move("a", "b")) == "exists"
    files.move("a", "c")
    assert (text(files, "b"), text(files, "c")) == ("y", "x")


def test_a_link_is_moved_and_deleted_itself(files: Workspace) -> None:
    os.symlink("../outside", root(files) / "out")
    files.move("out", "d/moved")
    assert os.readlink(root(files) / "d/moved") == "../outside"
    assert code(lambda: files.delete("d/moved/secret.txt")) == "not_found"  # from there it leads to something else
    files.delete("d/moved", recursive=True)
    assert files.ls("d")["entries"] == []


def test_deleting(files: Workspace) -> None:
    files.write("a/b/c.txt", "x")
    assert code(lambda: files.delete("a")) == "not_empty"
    assert code(lambda: files.delete(".")) == code(lambda: files.delete("a/..", recursive=True)) == "invalid"
    assert code(lambda: files.delete("..", recursive=True)) == "escapes"
    files.delete("a/b/c.txt")
    files.delete("a/b")
    files.delete("a", recursive=True)
    assert files.ls()["entries"] == []
    assert code(lambda: files.delete("a")) == "not_found"


def test_deleting_a_tree_follows_no_link(files: Workspace) -> None:
    files.write("keep/file", "kept")
    files.write("gone/x/y/z", "x")
    os.mkfifo(root(files) / "gone/fifo")
    for name, target in (("out", "../../outside"), ("keep", "../keep"), ("up", ".."), ("x/round", "round")):
        os.symlink(target, root(files) / "gone" / name)
    files.delete("gone", recursive=True)
    assert files.glob("**")["files"] == ["keep/file"]


def test_deleting_a_tree_in_batches_and_however_deep(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_ops, "BATCH", 3)
    for number in range(10):
        files.write(f"gone/f{number}", "")
        files.write(f"gone/d{number}/f", "")
    fd = os.open(root(files) / "gone", os.O_RDONLY)
    for _ in range(1_500 if FULL else 200):  # deeper than a path can be long
        os.mkdir("deep" * 10, dir_fd=fd)
        inner = os.open("deep" * 10, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    files.delete("gone", recursive=True)
    assert files.ls()["entries"] == []


def test_deleting_has_a_time_limit(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("gone/a/b/c", "")
    with monkeypatch.context() as patch:
        patch.setattr(file_ops, "DELETE_SECONDS", -1)
        assert code(lambda: files.delete("gone", recursive=True)) == "failed"
    files.delete("gone", recursive=True)
    assert files.ls()["entries"] == []


# -- searching ------------------------------------------------------------------------------------------------------


def test_globbing(files: Workspace, tmp_path: Path) -> None:
    for path in ("a.py", "src/b.py", "src/x/c.py", "src/d.md", "node_modules/e.py", "build/f.py", ".env"):
        if path == ".env":
            (root(files) / path).write_text("SECRET")
        else:
            files.write(path, "")
    files.write(".gitignore", "/build\n")
    assert files.glob("*.py") == {"files": ["a.py", "src/b.py", "src/x/c.py"], "truncated": False}
    assert files.glob("*.py", "src")["files"] == ["src/b.py", "src/x/c.py"]
    assert files.glob("x/*.py", "src")["files"] == ["src/x/c.py"]
    assert files.glob("./*.py")["files"] == files.glob(f"{files.root}/*.py")["files"] == ["a.py"]
    assert files.glob("*.py", everything=True)["files"] == [
        "a.py",
        "build/f.py",
        "node_modules/e.py",
        "src/b.py",
        "src/x/c.py",
    ]
    assert files.glob(".env")["files"] == [".env"]  # that it is there is no secret
    assert code(lambda: files.glob("/etc/*")) == "escapes"
    assert code(lambda: files.glob("../*")) == "invalid"
    assert code(lambda: files.glob("*", "..")) == "escapes"


def test_globbing_finds_links_to_files_inside(files: Workspace) -> None:
    files.write("d/real", "x")
    for name, target in (("in", "d/real"), ("out", "/etc/passwd"), ("folder", "d"), ("no", "nothing"), ("o", "o")):
        os.symlink(target, root(files) / name)
    assert files.glob("*")["files"] == ["d/real", "in"]
    assert files.glob("*", "folder")["files"] == ["d/real"]


def test_globbing_ends_somewhere(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        files.write(f"f{number}", "x")
    monkeypatch.setattr(workspace, "GLOB_FILES", 5)
    assert files.glob("*") == {"files": [f"f{number}" for number in range(5)], "truncated": True}


def test_grepping(files: Workspace) -> None:
    files.write("a.py", "one\ntwo\n")
    files.write("src/b.py", "two two\n")
    assert files.grep("two") == {
        "matches": [{"file": "a.py", "line": 2, "text": "two"}, {"file": "src/b.py", "line": 1, "text": "two two"}],
        "truncated": False,
    }
    assert files.grep("TWO", "src/b.py", ignore_case=True)["matches"][0]["file"] == "src/b.py"
    assert files.grep("two", glob="src/*")["matches"] == files.grep("two", "src")["matches"]
    assert code(lambda: files.grep("(")) == "invalid"
    assert code(lambda: files.grep("x", "..")) == "escapes"
    assert files.list_searchable() == {"files": ["a.py", "src/b.py"], "truncated": False}


def test_grepping_ends_somewhere(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("a", "x\n" * 10)
    files.write("b", "x\n" * 10)
    monkeypatch.setattr(workspace, "GREP_MATCHES", 12)
    found = files.grep("x")
    assert (len(found["matches"]), found["truncated"]) == (12, True)
    monkeypatch.setattr(walk.WalkBudget.__init__, "__defaults__", (100, 20.0, 25))
    found = files.grep("x")
    assert (len(found["matches"]), found["truncated"]) == (10, True)


def test_a_file_is_searched_up_to_its_binary_part(files: Workspace) -> None:
    files.write("a", b"x\n" * 10_000 + b"\0x\n" + b"x\n")
    assert files.grep("x")["matches"][-1]["line"] == constants.GREP_MATCHES
    files.write("b", b"y\n" * 10_000 + b"x\n\0x\nx\n")
    assert [match["line"] for match in files.grep("x", "b")["matches"]] == [10_001]


# -- protected paths ------------------------------------------------------------------------------------------------

KEPT = [".env", "sub/.env", ".env.local", ".envrc", ".git/config", ".git/hooks/x", ".wick/a", ".claude/b/c", "x/.wick"]


@pytest.fixture
def protected_files(files: Workspace) -> Workspace:
    for path in [*KEPT, "x/y/.git/hooks/pre-commit"]:
        (root(files) / path).parent.mkdir(parents=True, exist_ok=True)
        (root(files) / path).write_text("SECRET")
    for name, target in (("env", ".env"), ("git", ".git"), ("hooks", ".git/hooks"), ("chain", "git/hooks/../config")):
        os.symlink(target, root(files) / name)
    return files


@pytest.mark.parametrize(
    "path",
    [*KEPT, "env", "git/config", "git/hooks/new", "hooks/x", "chain", "hooks", "x/../.env", ".ENV", ".Git/Config"],
)
def test_protected_files_are_not_changed(protected_files: Workspace, path: str) -> None:
    before = snapshot(root(protected_files))
    assert code(lambda: protected_files.write(path, "x")) in ("protected", "is_directory")
    if path not in (".ENV", ".Git/Config", "git/hooks/new"):
        assert code(lambda: protected_files.edit(path, "SECRET", "x")) in ("protected", "is_directory")
    if not (root(protected_files) / path).is_symlink():
        refused = ("protected", "not_found") if path == ".Git/Config" else ("protected",)
        assert code(lambda: protected_files.delete(path, recursive=True)) in refused
        assert code(lambda: protected_files.move(path, "elsewhere")) in refused
        protected_files.write("new", "x")
        assert code(lambda: protected_files.move("new", path)) == "protected"
        protected_files.delete("new")
        assert code(lambda: protected_files.mkdir(f"{path}/x")) in ("protected", "not_directory")
    assert snapshot(root(protected_files)) == before


@pytest.mark.parametrize("path", [".git", "x", "sub", "x/y", "x/y/.git", ".wick", ".git/hooks"])
def test_folders_with_protected_files_are_not_moved_or_deleted(protected_files: Workspace, path: str) -> None:
    before = snapshot(root(protected_files))
    assert code(lambda: protected_files.move(path, "elsewhere")) == "protected"
    assert code(lambda: protected_files.delete(path, recursive=True)) == "protected"
    assert snapshot(root(protected_files)) == before


def test_a_tree_that_is_too_large_to_look_through_is_not_moved_or_deleted(
    files: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        files.write(f"d/e/{number}", "")
    monkeypatch.setattr(workspace, "TREE_ENTRIES", 4)
    assert code(lambda: files.move("d", "x")) == code(lambda: files.delete("d", recursive=True)) == "protected"
    files.delete("d/e/3")
    files.delete("d", recursive=True)


def test_moving_cannot_create_protected_files(files: Workspace) -> None:
    files.write("fake/hooks/pre-commit", "run me")
    files.write("other/config", "x")
    assert code(lambda: files.move("fake", ".git")) == code(lambda: files.move("other", "sub/.git")) == "protected"
    files.write("other2/fine", "x")
    files.move("other2", ".github")


@pytest.mark.parametrize("path", [".env", "env", "sub/.env", ".env.local", ".envrc", "x/../env"])
def test_secrets_are_not_read(protected_files: Workspace, path: str) -> None:
    for operation in ("read", "lines", "edit", "grep"):
        assert code(lambda operation=operation: call(protected_files, operation, path)) == "protected"  # type: ignore[misc]
    assert protected_files.stat(path)["type"] in ("file", "link")


def test_trusted_files_are_readable(protected_files: Workspace) -> None:
    assert (
        text(protected_files, ".git/config")
        == text(protected_files, "chain")
        == text(protected_files, ".wick/a")
        == "SECRET"
    )
    found = protected_files.grep("SECRET", everything=True)["matches"]
    assert {match["file"] for match in found} == {
        ".git/config",
        ".git/hooks/x",
        ".wick/a",
        ".claude/b/c",
        "x/.wick",
        "x/y/.git/hooks/pre-commit",
    }


@pytest.mark.parametrize(
    "path", ["..foo", "a..b", ".environment", "env.local", ".wicked", "git/hooks", ".gitignore", ".gitx"]
)
def test_similar_names_are_not_protected(files: Workspace, path: str) -> None:
    files.write(path, "x")
    files.edit(path, "x", "y")
    assert text(files, path) == "y"
    files.delete(path)


@pytest.mark.parametrize("name", [".ENV", ".Env.Local", ".CLAUDE", ".wi\u200cck", ".wic\u212a", ".GIT/hooks/x"])
def test_names_that_some_file_systems_take_for_the_same(name: str) -> None:
    assert ProtectedNames().is_protected(name.split("/"))


@pytest.mark.parametrize("path", ["repository/config", "repository/hooks/x", "repository/a/b", "tree/config"])
def test_a_git_directory_is_protected_under_any_name(tmp_path: Path, path: str) -> None:
    for name in (
        "repository/HEAD",
        "repository/objects/x",
        "repository/refs/x",
        "tree/HEAD",
        "tree/commondir",
        "x/HEAD",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    files = Workspace(str(tmp_path))
    assert code(lambda: files.write(path, "x")) == "protected"
    files.write("x/config", "x")  # a HEAD alone makes none
    assert code(lambda: files.write("y/HEAD", "x")) == "protected"
    files.write("y/head", "x")
    files.close()


@pytest.mark.parametrize("name", [name for name in PROTECTED if "*" not in name])
def test_each_protected_name_is_refused_at_any_depth(tmp_path: Path, name: str) -> None:
    files = Workspace(str(tmp_path))
    for path in (name, f"a/b/{name}", f"{name}/x"):
        assert code(lambda path=path: files.write(path, "x")) == "protected"
    files.write("plain", "x")
    assert code(lambda: files.move("plain", f"a/{name}")) == "protected"
    files.close()


def test_patterns_may_be_an_iterator() -> None:
    protected = ProtectedNames(pattern for pattern in PROTECTED)
    assert protected.is_protected([".wick"]) and protected.is_secret([".env"])


def test_a_long_pattern_protects_deep_paths(tmp_path: Path) -> None:
    files = Workspace(str(tmp_path), protect=("a/b/c/d/e",))
    (tmp_path / "x/a/b/c/d/e").mkdir(parents=True)
    assert code(lambda: files.delete("x", recursive=True)) == "protected"
    files.mkdir("c/d/e")
    assert code(lambda: files.move("c", "a/b/c")) == "protected"
    files.move("c", "a/b/other")
    files.close()


def test_protected_patterns_are_listed(tmp_path: Path) -> None:
    files = Workspace(str(tmp_path), protect=("secrets/*", "*.pem"))
    files.write(".env", "x")
    assert text(files, ".env") == "x"
    files.write("secrets", "not a folder")
    assert code(lambda: files.write("a/key.pem", "x")) == "protected"
    assert code(lambda: files.write("a/secrets/x/y", "x")) == "protected"
    files.close()
    assert not ProtectedNames(()).is_protected([".env"])
    assert set(PROTECTED) >= {".git", "HEAD", ".wick", ".claude", ".env", ".env.*", ".envrc"}


# -- paths ----------------------------------------------------------------------------------------------------------

OPERATIONS = [
    "ls",
    "stat",
    "read",
    "lines",
    "glob",
    "grep",
    "write",
    "edit",
    "mkdir",
    "move",
    "move to",
    "delete",
    "purge",
]


def call(files: Workspace, operation: str, path: str) -> Any:
    """Any operation on a path."""
    more: dict[str, Callable[[], Any]] = {
        "glob": lambda: files.glob("**", path, everything=True),
        "grep": lambda: files.grep("", path, everything=True),
        "write": lambda: files.write(path, "WRITTEN"),
        "edit": lambda: files.edit(path, "SIDE", "WRITTEN"),
        "move": lambda: files.move(path, "moved"),
        "move to": lambda: files.move("inside.txt", path),
        "purge": lambda: files.delete(path, recursive=True),
    }
    return more[operation]() if operation in more else getattr(files, operation)(path)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "path", ["", "a\0b", "x" * 256, "é" * 128, "/".join(["x" * 200] * 30), "a/" + "x" * 256 + "/b", "\ud800"]
)
def test_invalid_paths_are_refused(files: Workspace, operation: str, path: str) -> None:
    files.write("inside.txt", "x")
    assert code(lambda: call(files, operation, path)) == "invalid"


names = st.one_of(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60),
    st.binary(min_size=1, max_size=255)
    .map(lambda data: data.replace(b"/", b"-").replace(b"\0", b"-"))
    .map(os.fsdecode),
    st.sampled_from(
        ["..foo", "a..b", "...", " ", "  x ", "'", '"', "a\nb", "\n", "-rf", "--", "*", "?", "[a]", "{a,b}"]
    ),
    st.sampled_from(["\\", "a\\b", "$HOME", "`x`", "x" * 255, "é" * 127, "~", "#", "!", "\t", "\x7f", "x (deleted)"]),
)


def is_legal(name: str) -> bool:
    return name not in (".", "..") and len(os.fsencode(name)) <= 255 and not ProtectedNames().is_protected([name])


@settings(max_examples=2_000 if FULL else 60)
@given(name=names, folder=names, by_hand=st.booleans())
def test_legal_names_round_trip(name: str, folder: str, by_hand: bool) -> None:
    assume(is_legal(name) and is_legal(folder))
    with tempfile.TemporaryDirectory() as place:
        files = Workspace(place, by_hand=by_hand)
        path = f"{folder}/{name}"
        files.write(path, "needle\n")
        assert [entry["name"] for entry in files.ls(folder)["entries"]] == [name]
        assert files.ls()["entries"][0]["name"] == folder
        assert text(files, path) == text(files, f"{place}/{path}") == "needle\n"
        assert files.stat(path)["type"] == "file"
        assert files.edit(path, "needle", "needles")["replacements"] == 1
        assert files.glob("**", everything=True)["files"] == [path]
        assert files.grep("needle", everything=True)["matches"] == [{"file": path, "line": 1, "text": "needles"}]
        files.move(path, f"{folder}.moved" if len(os.fsencode(folder)) < 240 else "moved")
        files.delete(folder)
        files.mkdir(path)
        files.delete(folder, recursive=True)
        files.close()


# -- hostile paths --------------------------------------------------------------------------------------------------

LINKS = ["l1", "l2", "l3", "d/l4"]
parts = st.lists(st.sampled_from(["d", "e", "inside.txt", "l1", "l2", "l3", "l4", "..", ".", "", "new"]), max_size=6)
hostile = st.one_of(
    parts.map("/".join),
    st.tuples(
        st.sampled_from(["../", "/", "{root}/", "{root}/../", "{out}/", "//", "/proc/self/root{out}/"]), parts
    ).map(lambda pair: pair[0] + "/".join(pair[1])),
    st.sampled_from(
        ["{out}", "../outside", "/etc/passwd", "/proc/self/cwd", "/dev/zero", "{root}", "{root}x", "d/../.."]
    ),
)


class Playground:
    """A workspace with generated links, beside a folder that nothing may touch."""

    def __init__(self, place: Path, by_hand: bool, links: list[str]) -> None:
        self.place, self.root, self.out = place, place / "root", place / "outside"
        for folder in (self.root / "d" / "e", self.out / "d" / "e"):
            folder.mkdir(parents=True)
        for folder in (self.root, self.root / "d", self.root / "d" / "e"):
            (folder / "inside.txt").write_text("INSIDE\n")
        for folder in (self.place, self.out, self.out / "d", self.out / "d" / "e"):
            (folder / "inside.txt").write_text("OUTSIDE\n")
        for name, target in zip(LINKS, links, strict=True):
            os.symlink(self.filled(target) or ".", self.root / name)
        self.files = Workspace(str(self.root), by_hand=by_hand)
        self.before = self.beside()

    def filled(self, path: str) -> str:
        return path.replace("{root}", str(self.root)).replace("{out}", str(self.out))

    def beside(self) -> list[tuple[str, int, int, int, bytes]]:
        """Return the files beside the workspace, with access and change times."""
        found = []
        for base, folders, names in os.walk(self.place):
            if base == str(self.place):
                folders.remove("root")
            for path in (base, *(os.path.join(base, name) for name in names)):
                if path != str(self.place):
                    state = os.lstat(path)
                    data = b"" if stat.S_ISDIR(state.st_mode) else Path(path).read_bytes()
                    found.append((path, state.st_mode, state.st_ino, state.st_mtime_ns, data))
        return found

    def resolved(self, path: str) -> str:
        """Resolve a path by the rules: `escapes` as soon as it leaves, else a code, or its real path."""
        todo, at, followed = path.split("/")[::-1], self.root, 0
        if path.startswith("/"):
            if path != str(self.root) and not path.startswith(f"{self.root}/"):
                return "escapes"
            todo = path[len(str(self.root)) :].split("/")[::-1]
        while todo:
            name = todo.pop()
            if name in ("", "."):
                if not at.is_dir():
                    return "not_directory"
            elif not at.is_dir():
                return "not_directory"
            elif name == "..":
                if at == self.root:
                    return "escapes"
                at = at.parent
            elif (at / name).is_symlink():
                followed += 1
                if followed > rooted_folder.MOST_LINKS:
                    return "loop"
                target = os.readlink(at / name)
                if target.startswith("/"):
                    if target != str(self.root) and not target.startswith(f"{self.root}/"):
                        return "escapes"
                    at, target = self.root, target[len(str(self.root)) :]
                todo += target.split("/")[::-1]
            else:
                at = at / name
                if not os.path.lexists(at):
                    return "not_found"
        return str(at)


@settings(max_examples=50_000 // len(OPERATIONS) if FULL else 150)
@given(
    links=st.lists(hostile, min_size=len(LINKS), max_size=len(LINKS)),
    path=hostile,
    operation=st.sampled_from(OPERATIONS),
    by_hand=st.booleans(),
)
@example(links=["../outside", "l1/d", "l2/e", "../l3"], path="d/l4/inside.txt", operation="write", by_hand=False)
@example(links=["../outside", "l1/d", "l2/e", "../l3"], path="l1", operation="purge", by_hand=True)
@example(links=["l2", "l1", "d/l4", "../l3"], path="l3", operation="write", by_hand=False)
@example(links=["/proc/self/cwd", "/proc/self/root", ".", "."], path="l2/etc/passwd", operation="read", by_hand=False)
@example(links=["{root}/d", ".", ".", "."], path="l1/inside.txt", operation="read", by_hand=False)
def test_no_path_leads_out(links: list[str], path: str, operation: str, by_hand: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        ground = Playground(Path(place), by_hand, links)
        path = ground.filled(path)
        where = ground.resolved(path) if path else "invalid"
        try:
            result = call(ground.files, operation, path)
        except BackendError as error:
            result = error.code
        assert "OUTSIDE" not in str(result)
        assert ground.beside() == ground.before
        if operation == "read":
            kind = "is_directory" if os.path.isdir(where) else "read" if os.path.isfile(where) else where
            assert (result if isinstance(result, str) else "read") == kind
        ground.files.close()


EXCHANGE = 2
RACES = [(operation, "d/secret.txt") for operation in ("read", "lines", "write", "edit", "grep", "stat", "delete")]
RACES += [("ls", "d"), ("glob", "d"), ("grep", "d"), ("mkdir", "d/new/er"), ("purge", "d/new"), ("write", "d/new/x")]


def test_a_race_leaks_nothing(files: Workspace, tmp_path: Path) -> None:
    """A folder becomes a link to outside and a folder again, over and over, while it is read and written."""
    files.write("d/secret.txt", "INSIDE")
    os.symlink(tmp_path / "outside", tmp_path / "link")
    done = threading.Event()
    here, link = os.fsencode(root(files) / "d"), os.fsencode(tmp_path / "link")
    if rooted_folder.libc.renameat2(-100, here, -100, link, EXCHANGE):
        pytest.skip("needs a file system that can exchange two names, such as ext4")

    def swap() -> None:
        while not done.is_set():
            rooted_folder.libc.renameat2(-100, here, -100, link, EXCHANGE)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    try:
        for _ in range(20_000 if FULL else 250):
            for operation, path in RACES:
                try:
                    seen.add(str(call(files, operation, path)))
                except BackendError as error:
                    seen.add(error.code)
                    assert error.code in (
                        "not_found",
                        "escapes",
                        "loop",
                        "not_directory",
                        "failed",
                        "exists",
                        "no_match",
                    ), error
    finally:
        done.set()
        swapping.join()
    assert len(seen) > 1
    assert not [answer for answer in seen if "OUTSIDE" in answer]
    assert (tmp_path / "outside" / "secret.txt").read_text() == "OUTSIDE"


# -- the workspace itself -------------------------------------------------------------------------------------------


def test_a_workspace_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("missing", "file"):
        with pytest.raises(BackendError, match="cannot be opened"):
            Workspace(str(tmp_path / path))


def test_a_closed_workspace_reports_it(files: Workspace) -> None:
    files.write("a", "x")
    files.close()
    assert code(lambda: files.read("a")) == code(lambda: files.write("a", "y")) == "not_running"


def test_no_descriptor_is_left(files: Workspace) -> None:
    files.write("inside.txt", "x")
    os.symlink("/etc", root(files) / "out")
    gc.collect()  # descriptors of other tests are not closed meanwhile
    before = sorted(os.listdir("/proc/self/fd"))
    for operation in OPERATIONS:
        for path in ("inside.txt", "out/passwd", "no/such", "..", "d/new", "."):
            try:
                call(files, operation, path)
            except BackendError:
                files.mkdir("d")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_content_is_cut_between_characters() -> None:
    data = "ab€".encode()
    found = build_content("p", data[:4], 10, 0, exact=False)
    assert (found["content"], found["bytes"], found["truncated"]) == ("ab", 2, True)
    assert build_content("p", data[:4], 10, 0)["encoding"] == "base64"
    assert build_content("p", b"\xff\xff\xff\xff\xff", 10, 0, exact=False)["encoding"] == "base64"
