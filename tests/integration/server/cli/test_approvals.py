"""`wick approvals`, as a process: on this machine's data folder, and at a server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cli.command import WickCommand
from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from cli.terminal import open_terminal, shell_command
from wick import Agent, Ask, Result, Scripted, ToolCall, ToolUse, guard, tool
from wick.capabilities.permissions import Permissions
from wick.capabilities.sessions import Sessions
from wick.testing import lapse_questions


def question(place: HostCommand, thread: str) -> dict[str, Any]:
    (found,) = place.json("approvals", "--thread", thread)
    assert found["thread"] == thread
    return dict(found)


def results(place: HostCommand, thread: str) -> list[str]:
    """Return the results of tools after the run."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        told = place.json("threads", "show", thread)
        texts = [message["content"] for message in told["messages"] if message["role"] == "tool"]
        if texts and not told["run"]:
            return texts
        if place.server is None:
            assert place("run", "--thread", thread).code == 0
        time.sleep(0.05)
    raise AssertionError("the run did not end")


def test_a_question_is_listed_and_allowed(place: HostCommand) -> None:
    thread = place.say("Write 'milk' to list.txt")
    asked = question(place, thread)
    assert (asked["tool"], asked["args"]["path"]) == ("write_file", "list.txt")
    listed = place("approvals", "--thread", thread).out.splitlines()
    assert listed[0].split()[:2] == ["question", "thread"]
    assert asked["id"] in listed[1] and "list.txt" in listed[1] and re.search(r"\b23 h 5\d min", listed[1])
    done = place("approvals", "allow", asked["id"])
    assert (done.code, done.out.strip()) == (0, f"allowed: {asked['id']}"), done.err
    if place.server is None:
        assert f"wick run --thread {thread}" in done.err
    assert "list.txt" in results(place, thread)[0]
    again = place("approvals", "allow", asked["id"])
    assert again.code == 2 and asked["id"] in again.err
    assert place.json("approvals", "--thread", thread) == []


def test_a_question_is_denied_with_words(place: HostCommand) -> None:
    thread = place.say("Write 'milk' to list.txt")
    done = place("approvals", "deny", question(place, thread)["id"], "not before breakfast")
    assert done.code == 0 and done.out.startswith("denied: ")
    assert "not before breakfast" in results(place, thread)[0]


def test_the_only_question_needs_no_id(place: HostCommand) -> None:
    thread = place.say("Write 'milk' to list.txt")
    asked = question(place, thread)
    done = place("approvals", "--thread", thread, "allow")
    assert done.code == 0 and done.out.startswith(f"allowed: {asked['id']}  May write_file be used: list.txt"), done
    assert "list.txt" in results(place, thread)[0]


def test_words_without_an_id_answer_the_only_question(place: HostCommand) -> None:
    thread = place.say("Write 'milk' to list.txt")
    done = place("approvals", "--thread", thread, "deny", "not before breakfast")
    assert done.code == 0 and done.out.startswith("denied: ask_"), done
    assert "not before breakfast" in results(place, thread)[0]


def test_one_of_several_questions_is_chosen(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    assert "no pending questions" in here("approvals", "allow").err
    ids = [question(here, here.say(f"Write 'milk' to {name}.txt"))["id"] for name in ("one", "two")]
    done = here("approvals", "allow")
    assert done.code == 2 and "2 questions are pending; choose one by its id" in done.err
    assert all(id in done.out for id in ids)
    done = here("approvals", "allow", "ask_")
    assert done.code == 2 and "'ask_' is the beginning of 2 pending questions: ask_" in done.err
    start = next(ids[0][:end] for end in range(5, 17) if not ids[1].startswith(ids[0][:end]))
    done = here("approvals", "allow", start)
    assert done.code == 0 and done.out.startswith(f"allowed: {ids[0]}  May write_file be used: one.txt")
    assert [row["id"] for row in here.json("approvals")] == [ids[1]]


def test_other_arguments_and_an_explicit_host(place: HostCommand) -> None:
    thread = place.say("Write 'milk' to list.txt")
    asked = question(place, thread)["id"]
    for bad, sentence in (("[]", "--args must be a JSON object"), ("{", "--args is not valid JSON")):
        done = place("approvals", "allow", asked, "--args", bad)
        assert done.code == 2 and sentence in done.err
    done = place("approvals", "allow", asked, "--start-afresh", "--session")
    assert done.code == 2 and "use --start-afresh without another option" in done.err
    done = place("approvals", "allow", asked, "--start-afresh")  # this question is not about missing files
    assert done.code != 0 and "workspace" in done.err and "the question is still open" in done.err, done
    for misfit in ('{"path": 3}', '{"path": "other.txt"}'):
        done = place("approvals", "allow", asked, "--args", misfit)
        assert done.code == 2 and "the question is still open" in done.err, done
    changed = json.dumps({"path": "other.txt", "content": "bread"})
    done = place("approvals", "--folder", ".", "allow", asked, "--args", changed)
    assert done.code == 0 and "not checked" not in done.err, done.err
    assert done.out.strip() == f"allowed: {asked}  [write_file] {changed}"
    assert "other.txt" in results(place, thread)[0]


def test_the_program_that_asked_resumes_its_run(tmp_path: Path) -> None:
    @guard(ToolUse, match="add")
    def confirm(use: ToolUse) -> Ask:
        return Ask("Add?")

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def run(words: str) -> Result:
        sessions = Sessions(data)
        model = Scripted(ToolCall("1", "add", {"a": 1, "b": 2}) if words else "Done.")
        try:
            agent = Agent(model, name="adder", tools=[add], hooks=[sessions, confirm])
            return await agent.run(words or None, thread="t1")
        finally:
            await sessions.close()

    here, data = HostCommand(ForkedWick(tmp_path)), tmp_path / "of the program"
    assert asyncio.run(run("Add.")).outcome == "interrupted"
    for listed in (["approvals"], ["threads", "list"]):
        (row,) = json.loads(here(*listed, "--json", WICK_DATA=str(data)).out)
        assert row["agent"] == "adder"
    done = here("approvals", "allow", "--args", '{"a": 1, "b": 5}', WICK_DATA=str(data))
    assert done.code == 0 and done.out.strip().endswith('[add] {"a": 1, "b": 5}'), done
    assert "the new arguments are not checked yet" in done.err
    assert "the program that asked resumes it, with: agent.run(thread='t1')" in done.err
    result = asyncio.run(run(""))
    assert [message.text for message in result.messages.tool_messages()] == ["6"]


def test_an_expired_question_is_not_pending(tmp_path: Path) -> None:
    @tool
    def add(b: int, a: int) -> int:
        """Add two numbers."""
        return a + b

    async def ask() -> None:
        sessions = Sessions(data)
        hooks = [sessions, Permissions(mode="default")]
        await Agent(Scripted(ToolCall("1", "add", {"b": 2, "a": 1})), tools=[add], hooks=hooks).run("Add.", thread="t1")
        await sessions.close()

    async def lapse() -> None:
        sessions = Sessions(data)
        await lapse_questions(sessions, "t1")
        await sessions.close()

    here, data = HostCommand(ForkedWick(tmp_path)), tmp_path / "of the program"
    asyncio.run(ask())
    listed = here("approvals", WICK_DATA=str(data))
    assert 'May add be used: {"b": 2, "a": 1} [add]' in listed.out and listed.out.count('"b": 2') == 1, listed.out
    (asked,) = json.loads(here("approvals", "--json", WICK_DATA=str(data)).out)
    asyncio.run(lapse())
    assert here("approvals", "--json", WICK_DATA=str(data)).out.strip() == "[]"
    done = here("approvals", "allow", asked["id"], WICK_DATA=str(data))
    assert done.code == 2 and "there is no pending question" in done.err


def test_a_thread_without_a_run_to_resume(place: HostCommand) -> None:
    thread = place.say("Hello.")
    for _ in range(2):  # the first one does not change the answer of the second
        done = place("run", "--thread", thread)
        assert (done.code, done.out) == (0, ""), done
        assert done.err.endswith(f"nothing to resume: the last run of thread {thread} is completed\n")
    done = place("run", "--thread", thread, "--output", "json")
    assert (json.loads(done.out)["outcome"], done.code) == ("completed", 0)


def test_always_is_remembered(place: HostCommand) -> None:
    thread = place.say("Write 'always' to always.txt")
    assert place("approvals", "allow", question(place, thread)["id"], "--always").code == 0
    results(place, thread)
    again = place.say("Write 'always' to always.txt")
    assert place.json("approvals", "--thread", again) == []
    assert len(results(place, again)) == 1


def test_a_permanent_grant_applies_to_the_asking_folder(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    here.wick.write("elsewhere/file", "")
    thread = here.say("Write 'milk' to list.txt")
    from_elsewhere = here("approvals", "allow", question(here, thread)["id"], "--always", "--folder", "elsewhere")
    assert from_elsewhere.code == 0
    assert from_elsewhere.err.strip().endswith(f"wick run --thread {thread} --folder {here.wick.folder}")
    wrong = here("run", "--thread", thread, "--folder", "elsewhere")  # where it would write another file
    assert wrong.code == 2 and f"use --folder {here.wick.folder}" in wrong.err
    assert here("run", "--thread", thread).code == 0 and (here.wick.folder / "list.txt").is_file()
    assert here("run", "--model", "demo", "Write 'milk' to list.txt").code == 0
    assert here("run", "--model", "demo", "--folder", "elsewhere", "Write 'milk' to list.txt").code == 4


def test_questions_are_shown_as_they_arrive(place: HostCommand) -> None:
    watching = place.wick.start("approvals", "--watch", "--json", environment=place.environment)
    try:
        thread = place.say("Write 'bees' to bees.txt")
        assert watching.stdout is not None
        for raw in watching.stdout:
            if (asked := json.loads(raw))["thread"] == thread:
                break
        assert asked["args"]["path"] == "bees.txt"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130
        assert watching.stderr is not None and b"Traceback" not in watching.stderr.read()
    finally:
        watching.kill()
        watching.communicate()


def test_hints_have_the_server(place: HostCommand) -> None:
    watching = place.wick.start("approvals", "--watch", environment=place.environment)
    given = f" --server {place.server.url}" if place.server else ""
    try:
        place.say("Write 'wax' to wax.txt")
        assert watching.stdout is not None
        hint = next(line for raw in watching.stdout if "wick approvals allow" in (line := raw.decode()))
    finally:
        watching.kill()
        watching.communicate()
    assert re.fullmatch(
        rf"  wick approvals allow ask_\w+{given}  ·  wick approvals deny ask_\w+{given} 'reason'\n", hint
    )


def test_nothing_waits(tmp_path: Path) -> None:
    done = WickCommand(tmp_path)("approvals")
    assert (done.code, done.out) == (0, "") and "no pending questions" in done.err


async def test_questions_of_other_owners_are_counted(tmp_path: Path) -> None:
    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask:
        return Ask("Greet?")

    @tool
    def greet() -> str:
        """Greet."""
        return "Hello."

    sessions, model = Sessions(tmp_path / "data"), Scripted(ToolCall("1", "greet", {}))
    await Agent(model, tools=[greet], hooks=[sessions, confirm]).run("Hi.", user="ada")
    await sessions.close()
    wick = WickCommand(tmp_path)
    for command, code in ((["approvals"], 0), (["approvals", "allow"], 2)):
        done = await asyncio.to_thread(wick, *command, WICK_DATA=str(tmp_path / "data"))
        assert done.code == code and "1 question of runs with a `user=` of their own" in done.err


def test_bad_input_is_a_sentence(place: HostCommand) -> None:
    for words in (["allow", "ask_none"], ["deny", "ask_none", "why"]):
        done = place("approvals", *words)
        assert done.code == 2 and "ask_none" in done.err and done.err.count("\n") == 1
    for words in (
        ["allow", "x"],
        ["allow", "x", "--session", "--always"],
        ["allow", "x", "--source", "--step"],
        ["nonsense"],
        ["--thread"],
    ):
        assert place("approvals", *words).code == 2
    assert place("approvals", "--thread", "th_none").code == 2


@pytest.mark.parametrize("flags", [[], ["--watch"]])
def test_a_server_that_is_not_there(tmp_path: Path, flags: list[str]) -> None:
    done = HostCommand(ForkedWick(tmp_path))("approvals", *flags, "--server", "http://127.0.0.1:1")
    assert done.code == 1 and done.err.startswith("Error: ") and done.err.count("\n") == 1


CHANGED_PATH = """\
from wick import ToolUse, before

@before(ToolUse, match="write_file")
def move(use: ToolUse) -> None:
    use.args["path"] = "moved/" + use.args["path"]
"""


def test_the_arguments_are_shown_as_a_hook_changed_them(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    here.wick.write("moving.py", CHANGED_PATH)
    here.wick.write(
        "agents.yaml", "{model: demo, backend: {type: local, workdir: files}, permissions: {}, hooks: ['moving:move']}"
    )
    with open_terminal() as screen:
        words = shell_command("run", "Write 'milk' to list.txt", "--agent", "agents.yaml")
        screen.open(words, here.wick.folder, here.wick.environment)
        screen.see("? May write_file be used: moved/list.txt", "path: moved/list.txt", "content: milk", "  >")
        screen.say("y")
        screen.see("EXIT 0")
    assert (here.wick.folder / "files" / "moved" / "list.txt").read_text() == "milk\n"
    thread = json.loads(here("run", "--agent", "agents.yaml", "--output", "json", "Write 'x' to y.txt").out)["thread"]
    assert question(here, thread)["args"] == {"path": "moved/y.txt", "content": "x\n"}
    assert "moved/y.txt" in here("approvals", "--thread", thread).out
