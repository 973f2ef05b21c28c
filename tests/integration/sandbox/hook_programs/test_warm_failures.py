"""Worker programs in an agent: failures, tools they provide, other languages."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from executables.worker_kit import FAILURES, Make
from kit import echo_agent, hello_agent, thread_entries, tool_call, tool_calls_reply, tool_result, tool_results
from wick import Agent, Scripted, Thread
from wick.capabilities.executables import Executables
from wick.hook_programs.trust import Trust

# -- failures in an agent -------------------------------------------------------------------------------------------

DECIDING = ["before_run", "guard_run", "before_step", "guard_step", "before_model_call", "guard_model_call"]


@pytest.mark.parametrize("point", DECIDING)
async def test_one_that_decides_and_fails_has_not_agreed_to_a_run_a_step_or_a_model_call(
    program: Make, point: str
) -> None:
    hooks = program("def answer(call): sys.exit(3)", points=[point]).in_agent()
    result = await hello_agent(hooks).run("hi")
    assert result.reason == "blocked: the hook program check ended with exit code 3, so it has not agreed"


@pytest.mark.parametrize(("body", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_one_that_decides_and_fails_has_not_agreed_to_a_tool(program: Make, body: str, sentence: str) -> None:
    told = tool_result(await echo_agent(program(body, points=["guard_tool_use"]).in_agent()).run("go"))
    assert told.startswith("the hook program check ") and told.endswith(", so it has not agreed")
    assert sentence in told


async def test_one_that_fails_before_a_tool_has_not_agreed_and_is_not_asked_again(program: Make) -> None:
    kept = program("def answer(call): sys.exit(3)", points=["before_tool_use"])
    told = tool_result(await echo_agent(kept.in_agent()).run("go"))
    assert told == "the hook program check ended with exit code 3, so it has not agreed"
    assert len(kept.calls) == 1


@pytest.mark.parametrize("point", ["before_tool_use", "guard_tool_use"])
async def test_an_unserializable_answer_denies(program: Make, point: str) -> None:
    hooks = program("def answer(call): return {'verdict': 'fine'}", points=[point]).in_agent()
    assert f"the field 'verdict', which {point} does not have" in tool_result(await echo_agent(hooks).run("go"))


async def test_a_reported_failure_denies_and_the_worker_continues(program: Make) -> None:
    kept = program("def answer(call): return {'error': 'no disk'}", points=["guard_tool_use"])
    hooks = kept.in_agent()
    for _ in range(2):
        assert (
            tool_result(await echo_agent(hooks).run("go"))
            == "the hook program check failed: no disk, so it has not agreed"
        )
    assert len(kept.starts) == 1


async def test_one_that_is_too_slow_has_not_agreed(program: Make) -> None:
    body = "def answer(call): return time.sleep(1000) if os.path.exists(HERE + '/slow') else {}"
    kept = program(body, points=["guard_tool_use"])
    hooks = kept.in_agent()
    assert tool_result(await echo_agent(hooks).run("go")) == "hi"  # it has started
    (kept.folder / "slow").touch()
    hooks.runner.timeout = 0.5
    told = tool_result(await echo_agent(hooks).run("go"))
    assert told == "the hook program check did not answer within 0.5 s, so it has not agreed"


async def test_one_that_vanished_has_not_agreed(program: Make) -> None:
    kept = program(points=["guard_tool_use"])
    hooks = kept.in_agent()
    assert tool_result(await echo_agent(hooks).run("go")) == "hi"
    shutil.rmtree(kept.dir)
    assert tool_result(await echo_agent(hooks).run("go")).endswith(", so it has not agreed")


async def test_a_workspace_worker_runs_while_trusted_and_unchanged(program: Make, tmp_path: Path) -> None:
    kept = program(points=["guard_tool_use"])
    (tmp_path / "project" / ".wick").mkdir(parents=True)
    kept.dir.rename(tmp_path / "project" / ".wick" / "hooks")
    kept.path = tmp_path / "project" / ".wick" / "hooks" / "check"
    trust = Trust(tmp_path / "trust.json")

    def capability() -> Executables:
        return Executables(folder=tmp_path / "project", home=tmp_path / "home", trust=trust)

    assert tool_result(await echo_agent(capability()).run("go")) == "hi"
    assert kept.starts == []
    trust.trust([kept.path])
    kept.capability = trusted = capability()
    assert tool_result(await echo_agent(trusted).run("go")) == "hi"
    assert len(kept.starts) == 1
    kept.path.write_text(kept.path.read_text() + "# changed\n")
    assert tool_result(await echo_agent(trusted).run("go")).endswith(", so it has not agreed")
    assert len(kept.starts) == 1


@pytest.mark.parametrize("point", ["after_tool_use", "after_step", "after_model_call", "after_run"])
async def test_a_failing_observer_is_logged(program: Make, caplog: pytest.LogCaptureFixture, point: str) -> None:
    hooks = program("def answer(call): sys.exit(3)", points=[point]).in_agent()
    thread = Thread()
    with caplog.at_level(logging.WARNING, "wick"):
        result = await echo_agent(hooks).run("go", thread=thread)
    assert (result.text, tool_results(result)) == ("done", ["hi"])
    assert "the hook program check ended with exit code 3; the run continues" in caplog.text
    logged = [event["data"] for event in thread_entries(thread, "event") if event["name"] == "hook_failed"]
    assert logged[0] == {"hook": "check", "problem": "ended with exit code 3"}


async def test_a_failure_passes_if_fail_open(program: Make) -> None:
    hooks = program("def answer(call): sys.exit(3)", points=["guard_tool_use"]).in_agent(fail={"check": "open"})
    assert tool_result(await echo_agent(hooks).run("go")) == "hi"


# -- tools that it brings -------------------------------------------------------------------------------------------

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


@pytest.mark.shows("lines", "hook", "tools")
async def test_a_worker_provides_tools(program: Make) -> None:
    body = "def answer(call): return {'output': call['args']['a'] + call['args']['b']}"
    kept = program(body, tools=[ADD])
    model = Scripted(tool_calls_reply(tool_call("add", a=2, b=3)), "done")
    assert tool_result(await Agent(model, hooks=[kept.in_agent()]).run("go")) == "5"
    assert model.requests[0].tools[0].description == "Add two numbers."
    assert kept.first_call("tool")["tool"] == "add"


async def test_a_tool_of_a_program_is_guarded_like_any_other(program: Make) -> None:
    body = "def answer(call): return {'output': 'ran'} if call['event'] == 'tool' else {'decision': 'block'}"
    hooks = program(body, tools=[ADD], points=["guard_tool_use"]).in_agent()
    result = await Agent(Scripted(tool_calls_reply(tool_call("add", a=1, b=1)), "done"), hooks=[hooks]).run("go")
    assert tool_result(result) == "a hook program refused it and gave no reason"


TOOL_FAILURES = {
    "error": ("def answer(call): return {'error': 'no such file'}", "no such file"),
    "neither": ("def answer(call): return {}", 'answered neither {"output": …} nor {"error": …}'),
    "crash": ("def answer(call): sys.exit(4)", "the hook program check ended with exit code 4"),
}


@pytest.mark.parametrize(("body", "sentence"), TOOL_FAILURES.values(), ids=TOOL_FAILURES)
async def test_a_tool_of_a_program_that_fails(program: Make, body: str, sentence: str) -> None:
    hooks = program(body, tools=[ADD]).in_agent()
    result = await Agent(Scripted(tool_calls_reply(tool_call("add", a=1, b=1)), "done"), hooks=[hooks]).run("go")
    assert sentence in tool_result(result)


# -- other languages ------------------------------------------------------------------------------------------------

NODE = """#!/usr/bin/env node
if (process.argv[2] === 'hook') {
  console.log(JSON.stringify({ points: ['guard_tool_use'], protocol: 'lines' }));
} else {
  require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const call = JSON.parse(line);
    console.log(JSON.stringify({ id: call.id, decision: 'block', reason: `node says no to ${call.args.text}` }));
  });
}
"""
SHELL = """#!/bin/sh
[ "$1" = hook ] && echo '{"points": ["guard_tool_use"], "protocol": "lines"}' && exit
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/^{"id": *"\\([0-9]*\\)".*/\\1/')
  printf '{"id": "%s", "decision": "block", "reason": "sh says no"}\\n' "$id"
done
"""


@pytest.mark.parametrize(("name", "text", "said"), [("node", NODE, "node says no to hi"), ("sh", SHELL, "sh says no")])
async def test_a_program_in_another_language(tmp_path: Path, name: str, text: str, said: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} here: install it")
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / name).write_text(text)
    (tmp_path / "hooks" / name).chmod(0o755)
    hooks = Executables([tmp_path / "hooks"])
    assert tool_result(await echo_agent(hooks).run("go")) == said
    await hooks.close()
