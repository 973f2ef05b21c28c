"""`wick undo`, as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.forked_command import ForkedWick

AGENT = "model: demo\nbackend: {type: local, workdir: .}\nsnapshots: true\npermissions: {mode: bypassPermissions}\n"


@pytest.fixture
def wick(tmp_path: Path) -> ForkedWick:
    found = ForkedWick(tmp_path)
    found.write("agents.yaml", AGENT)
    return found


def test_a_turn_is_shown_and_undone(wick: ForkedWick) -> None:
    assert wick("run", "--agent", "agents.yaml", "Write 'milk' to one.txt").code == 0
    file = wick.folder / "one.txt"
    shown = wick("undo", "--dry-run")
    assert shown.code == 0, shown.err
    assert "deleted one.txt" in shown.out and "-milk" in shown.out
    kept = wick("undo", stdin="n\n")
    assert (kept.code, file.exists()) == (1, True)
    done = wick("undo", "--yes")
    assert done.code == 0, done.err
    assert not file.exists()
    again = done.out.partition("to undo this: wick ")[2].split()
    assert wick(*again, "--yes", "--file", "one.txt").code == 0
    assert file.read_text() == "milk\n"


def test_an_agent_without_snapshots_is_named(wick: ForkedWick) -> None:
    wick.write("agents.yaml", AGENT.replace("snapshots: true\n", ""))
    assert wick("run", "--agent", "agents.yaml", "Write 'milk' to one.txt").code == 0
    failed = wick("undo")
    assert failed.code != 0
    assert "switch them on with `snapshots: true`" in failed.err
