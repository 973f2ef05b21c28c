"""`wick replay`, as a process: on this machine's data folder, and at a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.forked_command import ForkedWick
from cli.hosts import HostCommand

GUARDS = """
from wick import Ask, Block, Capability, ToolUse, before, guard

@guard(ToolUse, match="ls")
def no_looking(use):
    return Block("nobody looks")

@before(ToolUse)
def no_guard(use):
    return None

class Careful(Capability):
    @guard(ToolUse)
    def careful(self, use):
        return Ask("really?")
"""


def replayed(place: HostCommand, *words: str) -> dict[str, Any]:
    done = place("replay", *words, "--json")
    told = json.loads(done.out)
    assert done.code == (3 if told["changes"] else 0), done.err
    return dict(told)


def test_nothing_changes_and_then_a_rule_does(place: HostCommand) -> None:
    thread = place.say("What is in this folder?")
    same = replayed(place, thread)
    assert (same["threads"], same["uses"], same["changes"]) == (1, 1, [])
    assert place("replay", thread).out.strip() == "1 thread, 1 tool use, asked 0 of 1 call: no changes"
    (change,) = replayed(place, thread, "--rule", "deny LS")["changes"]
    assert (change["thread"], change["tool"], change["recorded"], change["now"]) == (thread, "ls", "allow", "block")
    done = place("replay", thread, "--rule", "ask LS", "--rule", "deny Bash(rm *)")
    assert done.code == 3
    header, line = done.out.splitlines()
    assert header.split()[:3] == ["thread", "entry", "tool"] and thread in line and "ask" in line.split()
    assert "asked 1 of 1 call: 1 changed verdict" in done.err
    assert replayed(place, thread)["changes"] == []  # nothing was written


def test_all_threads_without_a_name(place: HostCommand) -> None:
    threads = {place.say("What is in this folder?") for _ in range(2)}
    found = replayed(place, "--rule", "deny LS")
    assert threads <= {change["thread"] for change in found["changes"]}


def test_guards_of_python(tmp_path: Path) -> None:
    place = HostCommand(ForkedWick(tmp_path))
    place.wick.write("mine.py", GUARDS)
    place.wick.write("agents.yaml", "model: demo\nbackend: {type: local, workdir: .}\n")
    thread = place.say("What is in this folder?")
    (change,) = replayed(place, thread, "--guard", "mine:no_looking")["changes"]
    assert (change["now"], change["reason"]) == ("block", "nobody looks")
    (change,) = replayed(place, thread, "--guard", "mine:Careful")["changes"]
    assert change["now"] == "ask"
    (change,) = replayed(place, thread, "--guard", "mine:no_looking", "--agent", "agents.yaml")["changes"]
    assert change["now"] == "block"
    done = place("replay", thread, "--guard", "mine:no_guard")
    assert done.code == 2 and "mine:no_guard is not a guard" in done.err


def test_a_server_is_sent_no_code(place: HostCommand) -> None:
    place.wick.write("mine.py", GUARDS)
    done = place("replay", "--guard", "mine:no_looking")
    if place.server is None:
        assert done.code == 0, done.err
    else:
        assert done.code == 2 and "Python guards can be replayed only on local threads" in done.err


WRONG = {
    "start it with deny, ask or allow": ["--rule", "Bash(rm *)"],
    "cannot be read": ["--rule", "deny Bash("],
    "is not written as module:name": ["--guard", "nonsense"],
    "cannot be loaded": ["--guard", "nowhere:guard"],
    "th_none": ["th_none"],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_mistake_is_a_sentence_and_exits_with_2(place: HostCommand, sentence: str) -> None:
    done = place("replay", *WRONG[sentence])
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1
