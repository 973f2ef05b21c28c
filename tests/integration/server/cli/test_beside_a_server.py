"""Commands and a server on one data folder: each sees the threads of the other, and neither writes into its runs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.forked_command import ForkedWick
from server_process import ServerProcess, run_server
from wick.client import ServerError, SyncClient
from wick.events import ApprovalRequest

OWNER = "owner-token-0123456789abcdef"
AGENTS = "model: demo\nbackend: {type: local}\npermissions: {allow: [Read, LS, Bash(sleep *)]}\n"
SLOW = """
import asyncio, sys
from wick import Run, before

@before(Run)
async def wait(run):
    print("begun", file=sys.stderr, flush=True)
    await asyncio.sleep(60 if "slowly" in str(run.input) else 0)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("beside"), config=AGENTS, token=OWNER) as made:
        yield made


@pytest.fixture
def wick(tmp_path: Path) -> ForkedWick:
    return ForkedWick(tmp_path)


def test_a_server_lists_command_line_threads_read_only(wick: ForkedWick, server: ServerProcess) -> None:
    data = {"WICK_DATA": str(server.folder / "data")}
    asked = wick("run", "Write hello to new.txt", "--model", "demo", "--output", "json", **data)
    thread = json.loads(asked.out)["thread"]
    with SyncClient(server.url, OWNER) as owner:
        (shown,) = [one for one in owner.threads().threads if one.id == thread]
        assert shown.agent_id == "" and shown.meta["folder"] == str(wick.folder)
        changed = owner.describe_thread(thread, meta={"agent_file": "/tmp/evil.yaml", "folder": str(wick.folder)})
        assert changed.meta["agent_file"] == "" and changed.meta["agent_name"] == "wick"  # it names code to run
        (question,) = owner.approvals(thread)
        with pytest.raises(ServerError, match="started at the command line.*wick chat --thread"):
            owner.send(thread, "Hello?")
        owner.answer(question.id, "allow", thread_id=thread)
        time.sleep(3)  # a server looks every two seconds for runs to resume
        left = owner.thread(thread)
        assert left.run_id and not left.running and not (wick.folder / "new.txt").exists()
    done = wick("run", "--thread", thread, "--model", "demo", **data)
    assert done.code == 0 and (wick.folder / "new.txt").read_text().strip() == "hello", done
    assert "cannot be resumed" not in server.log


def test_commands_show_threads_of_the_server(wick: ForkedWick, server: ServerProcess) -> None:
    data = {"WICK_DATA": str(server.folder / "data")}
    with SyncClient(server.url, OWNER) as owner:
        thread = owner.invoke("default", "Hello!").thread_id
    listed = json.loads(wick("threads", "list", "--json", **data).out)
    assert [one["agent"] for one in listed if one["id"] == thread] == ["default"]
    assert wick("run", "Hello again!", "--thread", thread, "--model", "demo", **data).code == 0
    with SyncClient(server.url, OWNER) as owner:
        said = [message.content for message in owner.thread(thread).messages if message.role == "user"]
    assert said == ["Hello!", "Hello again!"]


def test_a_run_active_at_a_server_is_not_resumed_here(wick: ForkedWick, server: ServerProcess) -> None:
    data = {"WICK_DATA": str(server.folder / "data")}
    with SyncClient(server.url, OWNER) as owner:
        stream = owner.stream("default", "Write hello to asked.txt")
        next(event for event in stream if isinstance(event, ApprovalRequest))
        done = wick("run", "--thread", stream.thread_id, "--model", "demo", **data)
        assert done.code == 2 and "has an unfinished run of a server; use --server URL" in done.err, done
        owner.cancel(stream.run_id)


def test_a_server_of_this_machine_needs_no_token_to_be_named(wick: ForkedWick, server: ServerProcess) -> None:
    data = wick.home / "data"
    data.mkdir()
    (data / "token").write_text(OWNER)
    done = wick("run", "Hello!", "--server", server.url, WICK_DATA=str(data))
    assert done.code == 0, done.err


def test_ctrl_c_cancels_the_run_at_the_server(wick: ForkedWick, server: ServerProcess) -> None:
    there = {"WICK_SERVER": server.url, "WICK_TOKEN": OWNER}
    process = wick.start("run", "Run `sleep 60`", "--output", "events", environment=there)
    try:
        assert process.stdout is not None
        events = (json.loads(line) for line in process.stdout)
        begun = next(event for event in events if event["event"] == "on_tool_start")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(30)
    assert process.returncode == 130 and b"Traceback" not in err, err
    with SyncClient(server.url, OWNER) as owner:
        assert owner.run(begun["run_id"]).outcome == "cancelled"


def test_one_program_at_a_time_writes_a_thread(wick: ForkedWick) -> None:
    wick.write("waiting.py", SLOW)
    wick.write("agents.yaml", "model: demo\nhooks: ['waiting:wait']\n")
    thread = json.loads(wick("run", "Hello!", "--agent", "agents.yaml", "--output", "json").out)["thread"]
    process = wick.start("run", "slowly", "--thread", thread)  # with its original agent
    try:
        assert process.stderr is not None and process.stderr.readline() == b"begun\n"
        second = wick("run", "Hello?", "--thread", thread)
        assert second.code == 1 and f"thread {thread} is in use by another process" in second.err, second
        assert wick("threads", "delete", thread, "--yes").code == 1
    finally:
        process.kill()
        process.communicate(timeout=30)
    third = wick("run", "Hello!", "--thread", thread)  # a killed process holds no lease
    assert third.code == 0, third
