"""Sessions in memory and in SQLite, and the options of sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.session_cases import *  # noqa: F403
from wick import Agent, Scripted
from wick.capabilities.sessions import Sessions
from wick.errors import ConfigError
from wick.stores.in_memory import InMemory


@pytest.mark.parametrize(
    "options", [{"busy": "panic"}, {"unknown": "guess"}, {"patience": -1}, {"lease": 0}], ids=lambda row: str(row)
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Sessions(InMemory(), **options)


def test_a_folder_gets_a_sqlite_store_and_runs_over_several_event_loops(tmp_path: Path) -> None:
    def talk(*replies: str) -> Agent:
        return Agent(Scripted(*replies), hooks=[Sessions(tmp_path / "sessions")])

    talker = talk("1", "2")
    assert talker.run_sync("one", thread="th_1").text == "1"
    assert talker.run_sync("two", thread="th_1").text == "2"
    thread = talk("3").run_sync("three", thread="th_1").thread
    assert thread is not None and [message.text for message in thread.messages][::2] == ["one", "two", "three"]
    assert (tmp_path / "sessions" / "threads.db").stat().st_mode & 0o777 == 0o600
