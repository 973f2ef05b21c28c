"""A thread stores files written in a workspace, each under one name and within limits."""

from __future__ import annotations

import pytest

from wick.backends.state import State
from wick.capabilities.filesystem.tracked_files import TrackedWorkspace
from wick.constants import STATE_BYTES, STATE_FILE_BYTES
from wick.threads import Thread


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("a.txt", "a.txt"),
        ("./a//b.txt", "a/b.txt"),
        ("/workspace/a/b.txt", "a/b.txt"),
        ("/workspace//a", "a"),
        ("a..b/..c", "a..b/..c"),
        ("link/../a.txt", "link/../a.txt"),
        (" a ", " a "),
    ],
)
def test_a_file_has_one_name(path: str, key: str) -> None:
    assert TrackedWorkspace(State({}), Thread()).normalize_path(path) == key


def test_a_file_is_stored_with_its_current_content() -> None:
    thread = Thread()
    place = TrackedWorkspace(State({}), thread)
    place.track("a.txt", 3, "one")
    place.track("./a.txt", 3, "two")
    place.track("a.txt", 3, "two")
    place.track("b.bin", 1, {"content": "/w==", "encoding": "base64"})
    place.track("c.txt", 7, None)
    kept = {"a.txt": "two", "b.bin": {"content": "/w==", "encoding": "base64"}, "c.txt": {"size": 7}}
    assert thread.values["files"] == kept and len(thread.entries) == 4


@pytest.mark.parametrize("path", [".env", "a/.env.local", ".git/hooks/x", ".wick/a", "/workspace/.claude/x", ".ENV"])
def test_protected_files_are_never_stored(path: str) -> None:
    thread = Thread()
    TrackedWorkspace(State({}), thread).track(path, 6, "secret")
    assert not thread.entries


def test_a_later_run_continues_the_count_of_the_log() -> None:
    thread = Thread()
    first = TrackedWorkspace(State({}), thread)
    for number in range(STATE_BYTES // STATE_FILE_BYTES - 1):
        first.track("a.txt", STATE_FILE_BYTES, f"{number}" * STATE_FILE_BYTES)
    thread.values["other"] = {"a.txt": "x" * 1_000}  # no file
    second = TrackedWorkspace(State({}), Thread.from_json(thread.to_json()))
    second.track("b.txt", STATE_FILE_BYTES, "ü" * (STATE_FILE_BYTES // 2))
    second.track("c.txt", 1, "x")
    assert second.thread.values["files"]["b.txt"] == "ü" * (STATE_FILE_BYTES // 2)
    assert second.thread.values["files"]["c.txt"] == {"size": 1}


async def test_an_edited_file_is_read_again_unless_deleted() -> None:
    thread, backend = Thread(), State({"a.txt": "new", "b.bin": {"content": "/w==", "encoding": "base64"}})
    place = TrackedWorkspace(backend, thread)
    for path in ("a.txt", "b.bin", "gone.txt"):
        await place.track_edited(path, 3)
    await place.track_edited("a.txt", STATE_FILE_BYTES + 1)
    assert thread.values["files"] == {
        "a.txt": {"size": STATE_FILE_BYTES + 1},
        "b.bin": {"content": "/w==", "encoding": "base64"},
        "gone.txt": {"size": 3},
    }


async def test_no_file_is_stored_twice_or_against_the_policy() -> None:
    for place in (
        TrackedWorkspace(State({}), Thread(), in_thread=True),
        TrackedWorkspace(State({}), Thread(), is_tracking=False),
    ):
        place.track("a.txt", 1, "x")
        await place.track_edited("a.txt", 1)
        assert not place.thread.entries
