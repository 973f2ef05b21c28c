"""Files in a mapping: storage and limits. Results of operations are in tests/unit/conformance."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, MutableMapping
from posixpath import normpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick import Thread
from wick._internal.frozen import freeze
from wick.backends.state import State
from wick.backends.state_tree import InThread
from wick.constants import STATE_BYTES, STATE_FILE_BYTES
from wick.errors import BackendError
from wick.protocols import Backend, Status
from wick.workspace.workspace import Workspace


async def code_of(doing: Any) -> str:
    with pytest.raises(BackendError) as caught:
        await doing
    return caught.value.code


async def test_state_is_a_backend() -> None:
    backend: Backend = State()
    assert (backend.name, backend.workdir, backend.status) == ("state", "/workspace", Status("idle"))
    assert (backend.protection.level, backend.protection.asks) == ("strong", False)
    await backend.write("a.txt", "a")
    assert backend.status == Status("launched")


# -- storage of files -----------------------------------------------------------------------------------------------


async def test_text_is_stored_verbatim_and_bytes_as_base64() -> None:
    files: dict[str, Any] = {}
    backend = State(files)
    await backend.write("/workspace/notes/a.txt", "grüße\r\n")
    await backend.write("b.bin", b"\xff\0")
    assert files == {"notes/a.txt": "grüße\r\n", "b.bin": {"content": "/wA=", "encoding": "base64"}}


async def test_files_that_are_there_already() -> None:
    content = base64.b64encode(b"\xff\0").decode()
    backend = State({"notes/a.txt": "a", "b.bin": {"content": content, "encoding": "base64"}})
    assert (await backend.read("notes/a.txt"))["content"] == "a"
    found = await backend.read("b.bin")
    assert (found["content"], found["encoding"], found["size"]) == (content, "base64", 2)


async def test_an_empty_folder_is_stored_and_a_full_one_is_implied() -> None:
    files: dict[str, Any] = {}
    backend = State(files)
    await backend.mkdir("a/b")
    assert files == {"a/b/": ""}
    await backend.write("a/b/c.txt", "c")
    await backend.delete("a/b/c.txt")
    await backend.delete("a/b")
    assert files == {"a/": ""}
    await backend.write("d/e.txt", "e")
    await backend.move("d/e.txt", "a/e.txt")
    assert {"a/e.txt", "d/"} <= files.keys()
    assert [entry["type"] for entry in (await backend.ls())["entries"]] == ["dir", "dir"]


class Log(MutableMapping[str, Any]):
    """Stores frozen copies and counts writes, as the values of a thread do."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.told: list[str] = []

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.told.append(key)
        self.data[key] = freeze(value)

    def __delitem__(self, key: str) -> None:
        self.told.append(f"-{key}")
        del self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


async def test_every_change_is_one_word_to_the_mapping() -> None:
    files = Log()
    backend = State(files)
    await backend.write("a.bin", b"\xff")
    await backend.write("b.txt", "one")
    await backend.edit("b.txt", "one", "two")
    assert files.told == ["a.bin", "b.txt", "b.txt"]
    assert (await backend.read("a.bin"))["content"] == "/w=="
    for refused in (backend.write("b.txt/x", ""), backend.edit("b.txt", "one", ""), backend.write(".env", "")):
        await code_of(refused)
    assert files.told == ["a.bin", "b.txt", "b.txt"]
    await backend.delete("b.txt")
    assert files.told[-1] == "-b.txt"


async def test_files_in_a_thread() -> None:
    """They are saved with it, and nothing else that it keeps is a file."""
    thread = Thread()
    thread.values["todos"] = ["buy tea"]
    backend = State(InThread(thread))
    await backend.write("notes/a.txt", "kept")
    await backend.write("notes/b.txt", "gone")
    await backend.delete("notes/b.txt")
    await backend.write("todos", "a file")
    assert thread.values["todos"] == ["buy tea"]
    again = State(InThread(Thread.from_json(thread.to_json())))
    assert (await again.glob("**"))["files"] == ["notes/a.txt", "todos"]
    assert (await again.read("notes/a.txt"))["content"] == "kept"
    assert len(InThread(thread)) == 2


async def test_a_state_is_one_of_a_thread_with_the_same_rules() -> None:
    state, thread = State(protect=["locked"]), Thread()
    bound = state.of(thread)
    await bound.write("a.txt", "kept")
    assert await code_of(bound.write("locked/a.txt", "")) == "protected"
    assert thread.values["files"] == {"a.txt": "kept"}
    assert (await state.glob("**"))["files"] == (await state.of(Thread()).glob("**"))["files"] == []
    own = State({})
    assert own.of(thread) is own


async def test_a_value_of_a_thread_that_is_no_map_has_no_files() -> None:
    thread = Thread()
    thread.values["files"] = ["a.txt"]
    assert (await State(InThread(thread)).glob("**"))["files"] == []


@pytest.mark.parametrize("kept", [None, 7, [], {}, {"content": 7}, {"content": "%"}], ids=repr)
async def test_stored_values_that_are_not_files(kept: Any) -> None:
    backend = State({"a.txt": kept, "b.txt": "needle"})
    assert await code_of(backend.read("a.txt")) == "failed"
    assert [entry["name"] for entry in (await backend.ls())["entries"]] == ["a.txt", "b.txt"]
    assert [match["file"] for match in (await backend.grep("needle"))["matches"]] == ["b.txt"]
    await backend.write("a.txt", "a file now")
    assert (await backend.read("a.txt"))["content"] == "a file now"


# -- how much -------------------------------------------------------------------------------------------------------


async def test_the_largest_file() -> None:
    backend = State()
    await backend.write("a.txt", "x" * STATE_FILE_BYTES)
    assert await code_of(backend.write("b.txt", "x" * (STATE_FILE_BYTES + 1))) == "too_large"
    assert await code_of(backend.write("b.txt", "ü" * (STATE_FILE_BYTES // 2 + 1))) == "too_large"
    assert await code_of(backend.edit("a.txt", "x", "xx", occurrence="first")) == "too_large"
    assert [entry["name"] for entry in (await backend.ls())["entries"]] == ["a.txt"]


async def test_all_files_together() -> None:
    backend, count = State(), STATE_BYTES // STATE_FILE_BYTES
    for number in range(count - 1):
        await backend.write(
            f"{number}.txt", ("x" if number % 2 else "ü" * 2) * (STATE_FILE_BYTES // (1 + 3 * (number % 2 == 0)))
        )
    await backend.write("last.bin", b"\xff" * (STATE_FILE_BYTES - 200))
    assert await code_of(backend.write("more.txt", "x" * 1_000)) == "no_space"
    await backend.write("last.bin", b"\xff" * (STATE_FILE_BYTES - 200))  # in place of existing content
    await backend.delete("0.txt")
    await backend.write("more.txt", "x" * 1_000)


async def test_names_count_too() -> None:
    """Otherwise a conversation could store empty files without limit."""
    backend = State({f"{'n' * 200}/{'n' * 200}{number}": "" for number in range(STATE_BYTES // 400)})
    assert await code_of(backend.write("m" * 200, "")) == "no_space"
    assert await code_of(backend.mkdir("m" * 200)) == "no_space"


# -- rules of its own -----------------------------------------------------------------------------------------------


async def test_protected_patterns_are_configurable() -> None:
    backend = State({".env": "a=1", "locked/a.txt": "a"}, protect=["locked"])
    assert (await backend.read(".env"))["content"] == "a=1"
    assert await code_of(backend.write("locked/a.txt", "b")) == "protected"
    assert await code_of(backend.delete("locked", recursive=True)) == "protected"


async def test_a_search_uses_a_snapshot() -> None:
    files = {f"{number}.txt": "needle\n" for number in range(100)}
    backend = State(files)
    search = backend.grep("needle")
    found = await search
    assert len(found["matches"]) == 100 and not found["truncated"]


async def test_very_many_folders_are_walked_in_time() -> None:
    files = {f"{'d/' * (number % 30)}{number}/x": "needle" for number in range(10_000)}
    backend = State(files)
    found = await backend.glob("**/x")
    assert found["files"] == sorted(files) and not found["truncated"]
    assert len((await backend.ls())["entries"]) == 335


async def test_a_very_deep_folder() -> None:
    deep = "d/" * 2_000
    backend = State({f"{deep}{number}": "needle" for number in range(100)})
    assert len((await backend.glob("**"))["files"]) == 100
    assert len((await backend.grep("needle"))["matches"]) == 100


NAMES = st.sampled_from(["a", "b", "c", "é ", ".env"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join) | st.sampled_from(["a/", "", "a//b/", "./a", "a/./b"])
STEPS = st.tuples(st.sampled_from(["write", "mkdir", "delete", "tree", "move"]), PATHS, PATHS)


def _into_itself(step: tuple[str, str, str]) -> bool:
    """Refused by both, but on disk the folders on the way are made before that shows."""
    return step[0] == "move" and normpath(step[2]).startswith(f"{normpath(step[1])}/")


@given(st.lists(STEPS.filter(lambda step: not _into_itself(step)), max_size=12))
async def test_state_behaves_like_a_folder_on_disk(steps: list[tuple[str, str, str]]) -> None:
    """Any story told to both ends with the same answers, the same refusals and the same tree.

    Only `..` is left out: here it is a matter of names, on disk of what is there.
    """
    with tempfile.TemporaryDirectory() as folder:
        disk, state = Workspace(folder), State()
        try:
            for step in steps:
                assert await perform_step(state, step) == told_at_once(disk, step), step
            assert (await state.glob("**", everything=True)) == disk.glob("**", everything=True)
            for path in {path for _, *paths in steps for path in paths}:
                assert await perform_step(state, ("look", path, "")) == told_at_once(disk, ("look", path, ""))
        finally:
            disk.close()


def _wanted(workspace: Any, step: tuple[str, str, str]) -> Any:
    what, path, other = step
    return {
        "write": lambda: workspace.write(path, other),
        "mkdir": lambda: workspace.mkdir(path),
        "delete": lambda: workspace.delete(path),
        "tree": lambda: workspace.delete(path, recursive=True),
        "move": lambda: workspace.move(path, other),
        "look": lambda: workspace.ls(path),
    }[what]()


async def perform_step(backend: State, step: tuple[str, str, str]) -> Any:
    try:
        return await _wanted(backend, step)
    except BackendError as error:
        return error.code


def told_at_once(workspace: Any, step: tuple[str, str, str]) -> Any:
    try:
        return _wanted(workspace, step)
    except BackendError as error:
        return error.code
