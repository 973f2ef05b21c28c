"""Executables: a capability made of programs, by its options and from a config."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit import echo, execute, tool_agent, tool_call, tool_calls_reply, tool_result
from local_sandbox import needs_bubblewrap
from programs import Programs
from wick import Agent, Scripted
from wick.capabilities.executables import Executables
from wick.config import load
from wick.errors import ConfigError
from wickd_process import MARK

BLOCK = {"blocked": True, "reason": "not here"}
WARM = f"""#!{sys.executable} -IS
import json, sys
if sys.argv[1] == "hook":
    print(json.dumps({{"points": ["guard_tool_use"], "protocol": "lines", "match": "execute",
                      "tools": [{{"name": "add", "description": "Add.", "parameters":
                      {{"type": "object", "properties": {{"a": {{"type": "integer"}}}}, "required": ["a"]}}}}]}}))
for line in sys.stdin if sys.argv[1] == "serve" else ():
    told = json.loads(line)
    no = {{"decision": "block", "reason": "warm no"}}
    answer = {{"output": str(told["args"]["a"] + 1)}} if told["event"] == "tool" else no
    print(json.dumps({{"id": told["id"], **answer}}), flush=True)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    assert made.remaining() == []


async def test_programs_of_every_protocol_work_in_one_agent(programs: Programs) -> None:
    programs.recording("watch", "after_tool_call")
    programs.write("warm", WARM)
    programs.write("deny.sh", "#!/bin/sh\ncat >/dev/null; echo no deletes >&2; exit 2\n", programs.folder)
    settings = {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": f"{programs.folder}/deny.sh"}]}]
    }
    executables = programs.executables(settings=settings)
    model = Scripted(tool_calls_reply(tool_call("execute", "c1", command="rm x"), tool_call("add", "c2", a=1)), "done")
    result = await Agent(model, tools=[execute], hooks=[executables]).run("go")
    await executables.close()
    told = {message.tool_call_id: message.text for message in result.messages if message.role == "tool"}
    assert told["c2"] == "2" and ("no deletes" in told["c1"] or told["c1"] == "warm no")
    assert [row["tool_user_id"] for row in programs.inputs("watch")] == ["c1", "c2"] or len(
        programs.inputs("watch")
    ) == 2


def test_programs_are_found_by_point_and_by_name(programs: Programs) -> None:
    programs.sh("a", "turn_end")
    programs.sh("b", "before_tool_call")
    programs.sh("broken", "nothing")
    made = programs.executables()
    assert [found.name for found in made.programs()] == ["a", "b"]
    for point in ("turn_end", "after_step"):
        assert [found.name for found in made.programs(point)] == ["a"]
    for point in ("before_tool_call", "PreToolUse", "before_tool_use"):
        assert [found.name for found in made.programs(point)] == ["b"]
    assert not made.programs("user_message_send")
    found = made.program("b")
    assert found is not None and (found.path, found.points) == (programs.path / "b", ("before_tool_call",))
    assert made.program("c") is None and made.program("broken") is not None


def test_events_at_one_point_have_separate_programs(programs: Programs) -> None:
    programs.sh("turn", "turn_end")
    programs.sh("stop", "agent_stop")
    programs.sh("both", '{"points": ["after_step"]}')
    made = programs.executables()

    def named(point: str) -> set[str]:
        return {found.name for found in made.programs(point)}

    assert named("turn_end") == {"turn", "both"}
    assert named("agent_stop") == named("Stop") == {"stop", "both"}
    assert named("after_step") == {"turn", "stop", "both"}


def test_every_program_is_listed_with_all_that_matters(programs: Programs) -> None:
    programs.sh("a", '{"points": ["turn_end", "guard_tool_use"]}')
    programs.sh("b", "before_tool_call")
    rows = programs.executables(fail={"b": "open"}).listed()
    assert [(row.name, row.point, row.event, row.ring, row.trust, row.fail, row.problem) for row in rows] == [
        ("a", "after_step", "turn_end", 0, "trusted", "", ""),
        ("a", "guard_tool_use", "guard_tool_use", 0, "trusted", "closed", ""),
        ("b", "before_tool_use", "before_tool_call", 1, "trusted", "open", ""),
    ]


async def test_a_program_gets_its_timeout_and_environment(programs: Programs) -> None:
    programs.sh("slow", "before_tool_call", "cat >/dev/null; sleep 600")
    agent = tool_agent(execute, programs.executables(timeout=3), args={"command": "ls"})
    assert "did not answer within 3 s" in tool_result(await agent.run("go"))
    programs.sh("slow", "before_tool_call", 'cat >/dev/null; echo "{\\"blocked\\": true, \\"reason\\": \\"$WHO\\"}"')
    executables = programs.executables(env={"WHO": "ada", MARK: programs.mark})
    assert tool_result(await tool_agent(execute, executables, args={"command": "ls"}).run("go")) == "ada"


async def test_a_program_runs_in_its_configured_folder(programs: Programs) -> None:
    place = programs.folder / "place"
    place.mkdir()
    programs.recording("check", "before_tool_call", 'echo "{\\"blocked\\": true, \\"reason\\": \\"$(pwd)\\"}"')
    agent = tool_agent(execute, programs.executables(cwd=place), args={"command": "ls"})
    assert tool_result(await agent.run("go")) == str(place)
    assert programs.inputs("check")[0]["cwd"] == str(place)


@needs_bubblewrap
async def test_in_the_sandbox_programs_find_and_answer_but_see_nothing_else(programs: Programs) -> None:
    project = programs.folder / "project"
    project.mkdir()
    secret = programs.folder / "secret"
    secret.write_text("sesame")
    say = 'echo "{\\"blocked\\": true, \\"reason\\": \\"saw $saw\\"}"'
    body = f"saw=$(cat {secret} || echo nothing); cat >/dev/null; {say}"
    programs.sh("check", "before_tool_call", body)
    for sandbox, seen in ((True, "saw nothing"), (False, "saw sesame")):
        executables = programs.executables(sandbox=sandbox, cwd=project)
        assert tool_result(await tool_agent(execute, executables, args={"command": "ls"}).run("go")) == seen


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "timeout is a number of seconds"),
        ({"timeout": True}, "timeout is a number of seconds"),
        ({"fail": {"check": "maybe"}}, "open or closed"),
        ({"brand": "acme"}, "brand is wick or kodelet"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Executables(**options)


def test_a_choice_for_a_program_that_is_not_there_is_refused(programs: Programs) -> None:
    programs.sh("check", "turn_end")
    with pytest.raises(
        ConfigError, match="fail= names the program 'chekc', which is not there; the programs are check"
    ):
        programs.executables(fail={"chekc": "closed"})


async def test_a_program_for_a_missing_tool_is_registered(programs: Programs) -> None:
    programs.write("warm", WARM)
    executables = programs.executables()
    assert tool_result(await tool_agent(echo, executables).run("go")) == "hi"
    await executables.close()


async def test_closing_ends_workers(programs: Programs) -> None:
    programs.write("warm", WARM)
    executables = programs.executables()
    assert tool_result(await tool_agent(execute, executables, args={"command": "ls"}).run("go")) == "warm no"
    await executables.close()
    assert programs.remaining() == []


# -- in a config ----------------------------------------------------------------------------------------------------


def configured(folder: Path, **keys: Any) -> Agent:
    path = folder / "agents.yaml"
    path.write_text(json.dumps({"model": {"provider": "demo"}, **keys}))  # JSON is YAML, too
    return load(path).agent()


def named(agent: Agent) -> list[str]:
    return [hook.name for hook in agent.hooks if "@" in hook.name]


def test_config_directories_are_relative_to_the_config(programs: Programs) -> None:
    programs.sh("check", "before_tool_call")
    trust = str(programs.folder / "trust.json")
    keys = {"dirs": [{"dir": "hooks", "prefix": "team/"}], "timeout": 5, "trust": trust, "fail": {"team/check": "open"}}
    agent = configured(programs.folder, executables=keys)
    assert named(agent) == ["team/check@before_tool_use", "team/check@guard_tool_use"]
    assert named(configured(programs.folder, executables={"dirs": ["./hooks"], "trust": trust}))[0].startswith("check@")


def test_a_configured_folder_is_searched_as_far_as_trusted(programs: Programs) -> None:
    programs.sh("check", "turn_end", path=programs.folder / ".wick" / "hooks")
    home = programs.folder / "home"
    keys = {"folder": ".", "home": str(home), "trust": "trust.json"}
    assert named(configured(programs.folder, executables=keys)) == []
    Executables(trust=programs.folder / "trust.json").trust.trust([programs.folder / ".wick" / "hooks" / "check"])
    assert named(configured(programs.folder, executables=keys)) == ["check@after_step"]


def test_hooks_in_a_config_that_are_a_map_are_handlers_of_events(programs: Programs) -> None:
    handlers = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}]}
    agent = configured(programs.folder, hooks=handlers)
    assert "PreToolUse@guard_tool_use" in named(agent)
    with pytest.raises(ConfigError, match="two places for handlers"):
        configured(programs.folder, hooks=handlers, executables={"settings": handlers})
    with pytest.raises(ConfigError, match="there is no event named 'Sometimes'"):
        configured(programs.folder, hooks={"Sometimes": []})


def test_programs_in_a_config_run_in_the_workspace(programs: Programs) -> None:
    programs.sh("check", "turn_end")
    path = programs.folder / "agents.yaml"
    told = {
        "model": "demo",
        "backend": {"type": "local", "workdir": "work"},
        "executables": {"dirs": "hooks", "trust": "t"},
    }
    path.write_text(json.dumps(told))
    (executables,) = [part for part in load(path).agent()._parts if isinstance(part, Executables)]
    assert executables.runner.cwd == str(programs.folder / "work")


def test_an_agent_without_the_key_has_no_programs(programs: Programs) -> None:
    programs.sh("check", "turn_end", path=programs.folder / ".wick" / "hooks")
    assert named(configured(programs.folder)) == []


@needs_bubblewrap
async def test_in_the_sandbox_programs_of_the_folder_run_and_cannot_change_each_other(programs: Programs) -> None:
    project = programs.folder / "project"
    program = programs.sh(
        "check", "before_tool_call", 'cat >/dev/null; echo >> "$0" && exit; exit 7', project / ".wick" / "hooks"
    )
    options = {"dirs": (), "folder": project, "home": programs.folder / "home", "sandbox": True}
    programs.executables(**options).trust.trust([program])
    executables = programs.executables(**options)
    assert "ended with exit code 7" in tool_result(
        await tool_agent(execute, executables, args={"command": "ls"}).run("go")
    )
