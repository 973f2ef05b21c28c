"""Files that an operator points to, in a folder of this machine or in a backend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local_sandbox import assert_refused
from wick import Thread
from wick.backends.files import HostFolder, files_for_thread, read_bytes
from wick.backends.state import State


async def test_a_folder_is_read_and_written(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path)
    await folder.write("a/b.md", "hello")
    assert (await folder.glob("**/*.md"))["files"] == ["a/b.md"]
    assert (await folder.read("a/b.md"))["content"] == "hello"
    await folder.move("a", "c")
    await folder.delete("c", recursive=True)
    assert os.listdir(tmp_path) == []


async def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    folder, before = HostFolder(tmp_path), len(os.listdir("/dev/fd"))
    for _ in range(20):
        await folder.write("a", "x")
        await assert_refused("not_found", folder.read("b"))
    assert len(os.listdir("/dev/fd")) <= before


async def test_a_path_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("../secret")
    folder = HostFolder(tmp_path / "in")
    await assert_refused("escapes", folder.read("../secret"))
    await assert_refused("escapes", folder.read("link"))
    await assert_refused("escapes", folder.write("/etc/passwd", "x"))


async def test_one_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot be opened" in await assert_refused("not_found", HostFolder(tmp_path / "no").read("x"))


async def test_home_is_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert HostFolder("~/x").workdir == str(tmp_path / "x")


@pytest.mark.parametrize("data", [b"hello", "grün".encode(), b"\xff\0\x01", b""])
async def test_data(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert await read_bytes(HostFolder(tmp_path), "a", 100) == (data, len(data))
    assert await read_bytes(HostFolder(tmp_path), "a", 3) == (data[:3], len(data))


async def test_files_are_stored_in_a_thread() -> None:
    backend, thread = State(), Thread()
    await backend.of(thread).write("a", "x")
    assert await read_bytes(files_for_thread(backend, thread), "a", 9) == (b"x", 1)
    await assert_refused("not_found", files_for_thread(backend, Thread()).read("a"))
    own = State({"a": "y"})
    assert files_for_thread(own, thread) is own and files_for_thread(own, None) is own
