"""Snapshots before tools that change files, and undo."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wick import Agent, Ask, ToolUse, guard, tool
from wick.backends.local import Local
from wick.backends.state import State
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.sessions import Sessions
from wick.capabilities.snapshots import AFRESH, FAILED, RESTORED, TAKEN, Snapshots
from wick.decisions import Allow, Question
from wick.errors import BackendError, ConfigError
from wick.messages import ToolCall
from wick.models.scripted import Scripted
from wick.operations import Result
from wick.threads import Thread


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Local]:
    (tmp_path / "workspace").mkdir()
    local = Local(tmp_path / "workspace", sandbox="none")
    yield local
    await local.stop()


@pytest.fixture
def snapshots(backend: Local, tmp_path: Path) -> Snapshots:
    return Snapshots(backend, folder=tmp_path / "snapshots")


def write(path: str, content: str, id: str = "1") -> ToolCall:
    return ToolCall(id, "write_file", {"path": path, "content": content})


async def run_agent(snapshots: Snapshots, *replies: ToolCall | str, thread: Thread | None = None) -> Result:
    agent = Agent(Scripted(*replies), hooks=[Filesystem(snapshots.backend), snapshots])
    return await agent.run("go", thread=thread)


def events(thread: Thread, name: str) -> list[dict[str, object]]:
    return [entry.data["data"] for entry in thread.entries if entry.kind == "event" and entry.data["name"] == name]


async def test_a_turn_is_undone_and_the_undo_is_undone(snapshots: Snapshots, backend: Local) -> None:
    folder = Path(backend.workdir)
    (folder / "a.txt").write_text("one\n")
    thread = (await run_agent(snapshots, write("a.txt", "two\n"), write("new/b.txt", "b", "2"), "done")).thread
    seq = snapshots.find_last_turn(thread)
    changes = {change.path: (change.kind, text) for change, text in await snapshots.diff(thread, seq)}
    assert changes["a.txt"][0] == "changed"
    assert "-two\n+one\n" in changes["a.txt"][1]
    assert changes["new/b.txt"][0] == "deleted"
    report = await snapshots.restore(thread, seq)
    assert not report.left
    assert ((folder / "a.txt").read_text(), (folder / "new").exists()) == ("one\n", False)
    assert events(thread, RESTORED)[0]["restored"] == len(report.restored)
    await snapshots.restore(thread, thread.entries[-1].seq - 1)
    assert ((folder / "a.txt").read_text(), (folder / "new" / "b.txt").read_text()) == ("two\n", "b")


async def test_each_step_and_each_file_can_be_undone(snapshots: Snapshots, backend: Local) -> None:
    folder = Path(backend.workdir)
    thread = (await run_agent(snapshots, write("a", "1"), write("a", "2", "2"), write("b", "3", "3"), "done")).thread
    taken = [entry.seq for entry, _ in snapshots.snapshot_entries(thread)]
    assert len(taken) == 4
    await snapshots.restore(thread, taken[1] - 1, ["a"])
    assert ((folder / "a").read_text(), (folder / "b").read_text()) == ("1", "3")


async def test_tools_that_only_read_take_no_snapshot(snapshots: Snapshots) -> None:
    thread = (await run_agent(snapshots, ToolCall("1", "ls", {}), "done")).thread
    assert not events(thread, TAKEN)
    with pytest.raises(BackendError, match="no snapshots, so there is nothing to undo"):
        snapshots.find_last_turn(thread)
    with pytest.raises(BackendError, match="there is no snapshot after entry 0"):
        await snapshots.diff(thread, 0)


async def test_the_snapshots_of_a_stored_thread_are_found(snapshots: Snapshots, backend: Local, tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "sessions")
    model = Scripted(write("a", "1"), "done")
    agent = Agent(model, hooks=[sessions, Filesystem(backend), snapshots])
    id = (await agent.run("go")).thread.id
    thread = await sessions.load(id)
    await snapshots.restore(thread, 0)
    assert not (Path(backend.workdir) / "a").exists()
    await sessions.close()


async def test_a_backend_without_a_folder_says_so(tmp_path: Path) -> None:
    snapshots = Snapshots(State(), folder=tmp_path / "snapshots")
    result = await run_agent(snapshots, write("a", "1"), write("b", "1", "2"), "done")
    (failed,) = events(result.thread, FAILED)
    assert failed["reason"] == "the backend state has no snapshots, as its files are not in a folder of this machine"
    assert result.text == "done"


async def test_a_required_snapshot_blocks_the_tool(tmp_path: Path) -> None:
    snapshots = Snapshots(State(), folder=tmp_path / "snapshots", required=True)
    result = await run_agent(snapshots, write("a", "1"), "done")
    assert "no snapshot could be taken" in result.thread.messages[-2].text


@tool(kind="network")
def post(text: str) -> str:
    """Post a text."""
    return "posted"


@tool
def custom() -> str:
    """Do something."""
    return "done"


async def test_tool_uses_that_left_the_machine_are_listed(snapshots: Snapshots, backend: Local) -> None:
    calls = (write("a", "1"), ToolCall("2", "post", {"text": "x"}), ToolCall("3", "custom", {}))
    agent = Agent(Scripted(*calls, "done"), tools=[post, custom], hooks=[Filesystem(backend), snapshots])
    thread = (await agent.run("go")).thread
    found = {use.tool: use.reason for use in snapshots.list_outside_uses(thread, 0, agent.tools)}
    assert found == {"post": "it uses the network", "custom": "it is code outside of the workspace"}
    assert "not known" in snapshots.list_outside_uses(thread, 0)[0].reason


def test_commands_without_a_sandbox_may_leave_the_machine(snapshots: Snapshots, backend: Local) -> None:
    thread, shell = Thread(), Filesystem(backend).tools()
    thread.append("intent", {"call": "1", "attempt": 1, "key": "k", "hash": "h", "tool": "execute"})
    assert "network" in snapshots.list_outside_uses(thread, 0, shell)[0].reason


async def test_a_folder_of_snapshots_that_cannot_be_used_is_reported(backend: Local, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = await run_agent(Snapshots(backend, folder=tmp_path / "file" / "snapshots"), write("a", "1"), "done")
    (failed,) = events(result.thread, FAILED)
    assert "is not a folder" in str(failed["reason"])
    assert result.text == "done"


async def test_a_workspace_that_is_missing_is_restored_and_an_emptied_one_is_not(
    tmp_path: Path, snapshots: Snapshots, backend: Local
) -> None:
    thread = (await run_agent(snapshots, write("a", "1"), "done")).thread
    (Path(backend.workdir) / "a").unlink()
    await run_agent(snapshots, "still empty", thread=thread)
    assert os.listdir(backend.workdir) == []
    other = Local(tmp_path / "other", sandbox="none")
    await run_agent(Snapshots(other, folder=tmp_path / "snapshots"), "restored", thread=thread)
    assert os.listdir(other.workdir) == ["a"]
    await other.stop()


async def test_a_run_asks_before_it_continues_in_an_empty_folder(
    tmp_path: Path, snapshots: Snapshots, backend: Local
) -> None:
    thread = (await run_agent(snapshots, write("a", "1"), "done")).thread
    other = Local(tmp_path / "other", sandbox="none")
    result = await run_agent(Snapshots(other, folder=tmp_path / "elsewhere"), thread=thread)
    assert result.outcome == "stopped"  # no user can answer the question
    assert "is not on this server" in result.reason
    assert os.listdir(other.workdir) == []
    await other.stop()


async def test_an_approval_tries_again_and_only_a_named_answer_starts_afresh(
    tmp_path: Path, snapshots: Snapshots, backend: Local
) -> None:
    thread = (await run_agent(snapshots, write("a", "1"), "done")).thread
    other, answers = Local(tmp_path / "other", sandbox="none"), [Allow(), Allow({"workspace": "start afresh"})]
    asked: list[str] = []

    def ask(question: Question) -> Allow:
        asked.append(question.question)
        return answers[len(asked) - 1]

    missing = Snapshots(other, folder=tmp_path / "elsewhere")
    agent = Agent(Scripted("done", "again"), hooks=[Filesystem(other), missing], ask=ask)
    result = await agent.run("go", thread=thread)
    assert result.text == "done" and len(asked) == 2 and "is not on this server" in asked[1]
    answered = [entry.data.get("args") for entry in thread.entries if entry.kind == "answered"]
    assert answered == [None, {"workspace": "start afresh"}] and len(events(thread, AFRESH)) == 1
    assert (await agent.run("go", thread=thread)).text == "again" and len(asked) == 2  # the empty folder is known now
    await other.stop()


async def test_there_is_no_snapshot_before_an_approval(snapshots: Snapshots, backend: Local) -> None:
    taken: list[int] = []

    @guard(ToolUse, match="write_file")
    def confirm(use: ToolUse) -> Ask:
        return Ask("write?")

    def ask(question: Question) -> bool:
        taken.append(len(events(question.op.run.thread, TAKEN)))
        return len(taken) > 1

    hooks = [Filesystem(backend), snapshots, confirm]
    agent = Agent(Scripted(write("a", "1", "1"), write("b", "2", "2"), "done"), hooks=hooks, ask=ask)
    thread = (await agent.run("go")).thread
    assert taken == [0, 0] and [event["when"] for event in events(thread, TAKEN)] == ["before", "end"]
    kinds = [entry.kind for entry in thread.entries]
    assert kinds.index("event") < kinds.index("intent")


def test_options_are_checked(backend: Local) -> None:
    with pytest.raises(ConfigError, match="needs a backend"):
        Snapshots(Local)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a list of patterns"):
        Snapshots(backend, exclude="build")
    with pytest.raises(ConfigError, match="at least 0"):
        Snapshots(backend, seconds=-1)


async def test_a_busy_thread_is_not_undone(snapshots: Snapshots) -> None:
    thread = (await run_agent(snapshots, write("a", "1"), "done")).thread
    thread.busy = True
    with pytest.raises(BackendError, match="cancel it, then undo"):
        await snapshots.restore(thread, 0)


async def test_snapshots_of_a_workspace_are_in_the_data_folder(
    backend: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WICK_DATA", str(tmp_path / "data"))
    await Snapshots(backend).take()
    assert len(os.listdir(tmp_path / "data" / "snapshots")) == 1
