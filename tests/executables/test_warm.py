"""Programs that are kept: every point and answer, and every way in which one can fail."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kit import User, call, calls, echo, echoer, entries, execute, result_of, results, talker
from wick import Agent, Scripted, Thread, ToolUse, before, tool
from wick.backends.sandbox.choosing import choose
from wick.capabilities.executables import Executables
from wick.errors import ModelError
from wick.executables.running import Runner
from wick.executables.serving import Failed, Serving
from wick.executables.trust import Trust

# What every program here is made of: a test gives `answer(call)`, or a `serve()` of its own.
SCRIPT = """#!{python} -IS
import json, os, sys, time

HOOK, HERE = json.loads({hook!r}), {here!r}

def say(answer):
    print(json.dumps(answer), flush=True)

def answer(call):
    return {{}}

def serve():
    for line in sys.stdin:
        call = json.loads(line)
        with open(HERE + "/seen", "a") as seen:
            seen.write(line)
        said = answer(call)
        if said is not None:
            say({{"id": call["id"], **said}})

{body}

if sys.argv[1:] == ["hook"]:
    say(HOOK)
else:
    with open(HERE + "/starts", "a") as starts:
        starts.write(str(os.getpid()) + "\\n")
    serve()
"""


class Kept:
    """A program in a folder of its own."""

    def __init__(self, folder: Path, body: str, name: str = "check", **hook: Any) -> None:
        self.folder, self.dir = folder, folder / "hooks"
        self.dir.mkdir(exist_ok=True)
        self.path = self.dir / name
        told = json.dumps({"protocol": "lines", **hook})
        self.path.write_text(SCRIPT.format(python=sys.executable, hook=told, here=str(folder), body=body))
        self.path.chmod(0o755)
        self.serving: Serving | None = None
        self.capability: Executables | None = None

    def alone(self, *, timeout: float = 20, sandbox: bool = False, **options: Any) -> Serving:
        runner = Runner(cwd=self.folder, timeout=timeout, sandbox=sandbox)
        self.serving = Serving([str(self.path), "serve"], runner, **options)
        return self.serving

    def in_agent(self, **options: Any) -> Executables:
        self.capability = Executables([self.dir], **options)
        return self.capability

    @property
    def starts(self) -> list[int]:
        file = self.folder / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    @property
    def seen(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "seen").read_text().splitlines()]

    def told(self, event: str) -> dict[str, Any]:
        """What it was told of the first such event."""
        return next(call for call in self.seen if call["event"] == event)


Make = Callable[..., Kept]


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes programs; afterwards none of their processes is left."""
    made: list[Kept] = []

    def make(body: str = "", **hook: Any) -> Kept:
        made.append(Kept(tmp_path, body, **hook))
        return made[-1]

    yield make
    for kept in made:
        for what in filter(None, (kept.serving, kept.capability)):
            await what.close()
        assert not [pid for pid in kept.starts if runs(pid)]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def problem(serving: Serving, *, timeout: float = 20, **request: Any) -> str:
    """What a call that fails says."""
    with pytest.raises(Failed) as failure:
        await serving.ask({"event": "x", **request}, timeout=timeout)
    return str(failure.value)


# -- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("lines", "*", "id")
async def test_it_is_started_once_and_each_call_gets_the_answer_with_its_id(program: Make) -> None:
    kept = program("def answer(call): return {'said': call['n']}")
    serving = kept.alone()
    assert [await serving.ask({"event": "x", "n": n}, timeout=20) for n in range(5)] == [{"said": n} for n in range(5)]
    assert len(kept.starts) == 1
    assert len({call["id"] for call in kept.seen}) == 5


@pytest.mark.shows("lines", "*", "many-in-flight")
async def test_many_calls_are_in_flight_and_are_answered_in_any_order(program: Make) -> None:
    body = """
def serve():
    calls = [json.loads(sys.stdin.readline()) for _ in range(20)]
    for call in reversed(calls):
        say({"id": call["id"], "said": call["n"]})
    sys.stdin.read()
"""
    serving = program(body).alone()
    answers = await asyncio.gather(*(serving.ask({"event": "x", "n": n}, timeout=20) for n in range(20)))
    assert [answer["said"] for answer in answers] == [*range(20)]


async def test_calls_that_come_at_once_start_one_process(program: Make) -> None:
    kept = program()
    serving = kept.alone()
    await asyncio.gather(*(serving.ask({"event": "x"}, timeout=20) for _ in range(50)))
    assert len(kept.starts) == 1


async def test_long_texts_and_odd_characters_come_through(program: Make) -> None:
    serving = program("def answer(call): return {'said': call['text']}").alone()
    for text in ("ü🙂\u2028\n\r\t\0", "x" * 900_000):
        assert await serving.ask({"event": "x", "text": text}, timeout=20) == {"said": text}


async def test_what_it_says_on_its_standard_error_is_in_nobodys_way(program: Make) -> None:
    body = "def answer(call):\n    for _ in range(20): os.write(2, b'x' * 1_000_000)\n    return {'done': True}"
    assert await program(body).alone().ask({"event": "x"}, timeout=20) == {"done": True}


async def test_an_answer_to_a_call_that_nobody_waits_for_any_more_is_no_failure(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(call.get('s', 0))\n    return {}")
    serving = kept.alone()
    waiting = asyncio.ensure_future(serving.ask({"event": "x", "s": 0.3}, timeout=20))
    await asyncio.sleep(0.1)
    waiting.cancel()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 1


async def test_it_gets_a_clean_environment_and_its_folder(program: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    kept = program("def answer(call): return {'env': [*os.environ], 'cwd': os.getcwd()}")
    answer = await kept.alone().ask({"event": "x"}, timeout=20)
    assert "PATH" in answer["env"] and "SECRET_TOKEN" not in answer["env"]
    assert answer["cwd"] == str(kept.folder.resolve())


async def test_it_runs_in_the_sandbox(program: Make) -> None:
    if choose("auto").protection(False, "").asks:
        pytest.skip("there is no sandbox here: install bubblewrap")
    body = f"def answer(call): return {{'sees': os.path.exists({str(Path(__file__))!r}), 'runs': True}}"
    kept = program(body)
    kept.path.write_text(kept.path.read_text().replace(sys.executable, "/usr/bin/python3"))  # it sees only the system's
    if shutil.which("/usr/bin/python3") is None:
        pytest.skip("there is no /usr/bin/python3 here: install python3")
    answer = await kept.alone(sandbox=True).ask({"event": "x"}, timeout=20)
    assert answer == {"sees": False, "runs": True}
    (kept.folder / "starts").unlink()  # it has written down a number that means nothing out here


def test_each_event_loop_has_a_process_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "")
    serving = kept.alone()
    for _ in range(2):
        assert asyncio.run(serving.ask({"event": "x"}, timeout=20)) == {}
    assert len(kept.starts) == 2
    assert not [pid for pid in kept.starts if runs(pid)]


# -- failures -------------------------------------------------------------------------------------------------------

FAILURES = {
    "crash": ("def answer(call): sys.exit('oh no')", "ended with exit code 1: oh no"),
    "signal": ("def answer(call): os.kill(os.getpid(), 9)", "SIGKILL"),
    "cannot start": ("def serve(): raise OSError('no disk')", "OSError: no disk"),
    "ends without a word": ("def serve(): sys.stdin.readline()", "ended with exit code 0"),
    "no JSON": ("def answer(call): print('allowed!', flush=True)", "something that is no JSON: 'allowed!'"),
    "no object": ("def answer(call): print('[]', flush=True)", "answered with a JSON list"),
    "half a line": ("def answer(call): print('{\"id\"', flush=True)", "something that is no JSON"),
    "no id": ("def answer(call): say({})", "a line without the id of a call"),
    "an id of another kind": ("def answer(call): say({'id': int(call['id'])})", "a line without the id of a call"),
    "another id": ("def answer(call): say({'id': 'x7'})", "answered a call that nobody made (id 'x7')"),
    "a field twice": ('def answer(call): print(\'{"id": 1, "id": 2}\', flush=True)', "'id' is there twice"),
    "an empty line": ("def answer(call): print(flush=True)", "a line without the id of a call"),
    "not UTF-8": ("def answer(call): os.write(1, b'\\xff\\n')", "no UTF-8"),
    "a line without end": ("def answer(call): os.write(1, b'x' * 2_000_000)", "a line of more than 1 MB"),
    "100 MB": ("def answer(call):\n    for _ in range(100): os.write(1, b'x' * 1_000_000)", "a line of more than 1 MB"),
    "closes its input": ("def answer(call): os.close(0); time.sleep(1000)", "closed its input"),
    "closes its output": ("def answer(call): os.close(1); time.sleep(1000)", "closed its output"),
    "forks and exits": ("def answer(call):\n    if os.fork(): os._exit(0)\n    time.sleep(1000)", "exit code 0"),
}


@pytest.mark.shows("lines", "*", "crash")
@pytest.mark.shows("lines", "*", "broken-line")
@pytest.mark.parametrize(("body", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_a_program_that_fails_fails_the_call_and_is_started_again(
    program: Make, body: str, sentence: str
) -> None:
    kept = program(body)
    serving = kept.alone()
    assert sentence in await problem(serving)
    assert sentence in await problem(serving)
    assert len(kept.starts) == 2
    assert not runs(kept.starts[0])


@pytest.mark.shows("lines", "*", "timeout")
async def test_a_call_that_takes_too_long_fails_and_so_do_the_others_each_with_a_sentence(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(call['s'])\n    return {}")
    serving = kept.alone()
    assert await serving.ask({"event": "x", "s": 0}, timeout=20) == {}
    late, other = await asyncio.gather(problem(serving, timeout=0.2, s=1000), problem(serving, s=0))
    assert late == "did not answer within 0.2 s"
    assert other == "was ended, for it did not answer another call in time"
    assert await serving.ask({"event": "x", "s": 0}, timeout=20) == {}
    assert len(kept.starts) == 2
    assert not runs(kept.starts[0])


async def test_an_answer_that_comes_too_late_is_for_nobody(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(call['s'])\n    return {'s': call['s']}")
    serving = kept.alone()
    assert "did not answer" in await problem(serving, timeout=0.3, s=0.6)
    await asyncio.sleep(0.5)
    assert await serving.ask({"event": "x", "s": 0}, timeout=20) == {"s": 0}


async def test_a_second_answer_ends_it_and_the_calls_that_are_open_fail(program: Make) -> None:
    body = """
def answer(call):
    if call["event"] == "twice":
        say({"id": call["id"]})
        time.sleep(0.2)
        say({"id": call["id"], "decision": "block"})
    return {} if call["event"] == "x" else None
"""
    kept = program(body)
    serving = kept.alone()
    assert await serving.ask({"event": "twice"}, timeout=20) == {}
    assert await problem(serving, event="waits") == "answered twice (id '1')"
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 2


async def test_one_that_does_not_read_holds_up_nobody_else(program: Make) -> None:
    serving = program("def serve(): time.sleep(1000)").alone()
    calls = [problem(serving, timeout=1, text="x" * 1_000_000) for _ in range(20)]
    turns, work = 0, asyncio.gather(*calls)
    while not work.done():
        await asyncio.sleep(0.01)
        turns += 1
    said = await work
    assert turns > 20
    assert any("waiting that it does not read" in sentence for sentence in said)
    assert any("did not answer within 1 s" in sentence for sentence in said)


@pytest.mark.shows("lines", "*", "back-off")
async def test_one_that_keeps_dying_is_not_started_again_and_again(program: Make) -> None:
    kept = program("def serve(): sys.exit(5)")
    serving = kept.alone()
    said = [await problem(serving) for _ in range(100)]
    assert said[0].startswith("ended with exit code 5")
    assert said[-1].startswith("keeps failing (it ended with exit code 5) and is not started again for")
    assert len(kept.starts) < 8


async def test_one_that_answers_again_is_forgiven(program: Make) -> None:
    kept = program("def answer(call): return sys.exit(5) if call['dies'] else {}")
    serving = kept.alone()
    for _ in range(6):
        assert "exit code 5" in await problem(serving, dies=True)
        assert await serving.ask({"event": "x", "dies": False}, timeout=20) == {}


@pytest.mark.shows("lines", "*", "idle")
async def test_one_that_nobody_asks_is_stopped_and_started_again_when_somebody_does(program: Make) -> None:
    kept = program()
    serving = kept.alone(idle=0.2)
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    async with asyncio.timeout(20):
        while runs(kept.starts[0]):
            await asyncio.sleep(0.02)
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 2


async def test_one_that_works_on_a_call_is_not_idle(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(0.6)\n    return {}")
    assert await kept.alone(idle=0.1).ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 1


async def test_a_file_that_is_gone_or_another_is_noticed_at_the_next_call(program: Make) -> None:
    kept = program("def answer(call): return {'version': 1}")
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {"version": 1}
    kept.path.write_text(kept.path.read_text().replace("'version': 1", "'version': 22"))
    assert await serving.ask({"event": "x"}, timeout=20) == {"version": 22}
    kept.path.unlink()
    assert await problem(serving) == "stands no longer where it was"
    async with asyncio.timeout(20):
        while any(map(runs, kept.starts)):
            await asyncio.sleep(0.02)


async def test_what_is_open_when_it_is_stopped_fails(program: Make) -> None:
    serving = program("def answer(call): time.sleep(1000)").alone()
    waiting = asyncio.ensure_future(problem(serving))
    await asyncio.sleep(0.3)
    await serving.close()
    assert await waiting == "was stopped"


async def test_a_process_that_somebody_else_ended_is_started_again(program: Make) -> None:
    kept = program()
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    os.kill(kept.starts[0], signal.SIGKILL)
    async with asyncio.timeout(20):
        while runs(kept.starts[0]):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert await serving.ask({"event": "x"}, timeout=20) == {}


async def test_one_that_nobody_has_any_more_ends(program: Make) -> None:
    kept = program()
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    kept.serving = None
    del serving
    gc.collect()
    async with asyncio.timeout(20):
        while runs(kept.starts[0]):
            await asyncio.sleep(0.02)


async def test_whatever_fails_meanwhile_each_call_gets_its_own_answer_or_a_sentence(program: Make) -> None:
    body = """
import random
def answer(call):
    whim = random.Random(call["n"] + os.getpid()).random()
    if whim < 0.02:
        os._exit(9)
    if whim < 0.04:
        print("garbage", flush=True)
    return {"said": call["n"]}
"""
    serving, answered, failed = program(body).alone(), 0, 0

    async def ask(n: int) -> None:
        nonlocal answered, failed
        try:
            assert await serving.ask({"event": "x", "n": n}, timeout=20) == {"said": n}
            answered += 1
        except Failed as failure:
            assert str(failure)
            failed += 1

    for start in range(0, 320, 32):
        await asyncio.gather(*(ask(n) for n in range(start, start + 32)))
    assert answered + failed == 320 and answered > 0


# -- tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("lines", "*", "event")
@pytest.mark.shows("lines", "*", "run")
@pytest.mark.shows("lines", "*", "thread")
@pytest.mark.shows("lines", "*", "agent")
@pytest.mark.shows("lines", "*", "user")
@pytest.mark.shows("lines", "*", "cwd")
@pytest.mark.shows("lines", "*", "decision")
@pytest.mark.shows("lines", "*", "reason")
async def test_a_program_decides_by_anything_that_every_event_tells(program: Make, tmp_path: Path) -> None:
    """It repeats what it was told as its reason, so each of these changes what happens."""
    body = "def answer(call): return {'decision': 'block', 'reason': json.dumps(call)}"
    hooks = program(body, points=["guard_tool_use"]).in_agent(folder=tmp_path, home=tmp_path / "home")
    thread, folder = Thread(), str(tmp_path.resolve())  # noqa: ASYNC240
    result = await echoer(hooks, name="bob").run("go", thread=thread, user="eve")
    told = json.loads(result_of(result))
    assert told["event"] == "guard_tool_use"
    assert told["run"].startswith("run_") and told["thread"] == thread.id
    assert (told["agent"], told["user"], told["cwd"]) == ("bob", "eve", folder)


@pytest.mark.shows("lines", "hook", "points")
@pytest.mark.shows("lines", "hook", "protocol")
async def test_it_is_asked_at_the_points_that_it_named_and_kept(program: Make) -> None:
    kept = program(points=["before_tool_use", "after_run"])
    await echoer(kept.in_agent()).run("go")
    assert [call["event"] for call in kept.seen] == ["before_tool_use", "after_run"]
    assert len(kept.starts) == 1


@pytest.mark.shows("lines", "hook", "match")
async def test_what_it_matches_are_tools_and_all_else_it_sees(program: Make) -> None:
    kept = program("def answer(call): return {}", points=["guard_tool_use", "before_run"], match="Bash")
    model = Scripted(calls(call("execute", "1", command="ls"), call("echo", "2", text="hi")), "done")
    await Agent(model, tools=[execute, echo], hooks=[kept.in_agent()]).run("go")
    assert [(seen["event"], seen.get("tool")) for seen in kept.seen] == [
        ("before_run", None),
        ("guard_tool_use", "execute"),
    ]


@pytest.mark.shows("lines", "guard_tool_use", "tool")
@pytest.mark.shows("lines", "guard_tool_use", "args")
async def test_a_guard_refuses_what_it_sees(program: Make) -> None:
    body = """
def answer(call):
    if call["tool"] == "execute" and "--force" in call["args"]["command"]:
        return {"decision": "block", "reason": "force is not allowed"}
    return {}
"""
    hooks = program(body, points=["guard_tool_use"]).in_agent()
    model = Scripted(calls(call("execute", "1", command="git push --force"), call("execute", "2", command="ls")), "ok")
    result = await Agent(model, tools=[execute], hooks=[hooks]).run("go")
    assert results(result) == ["force is not allowed", "ran ls"]


@pytest.mark.shows("lines", "guard_tool_use", "question")
@pytest.mark.parametrize("agrees", [True, False])
async def test_a_guard_has_the_user_asked(program: Make, agrees: bool) -> None:
    body = "def answer(call): return {'decision': 'ask', 'question': 'Really?'}"
    user = User(agrees)
    result = await echoer(program(body, points=["guard_tool_use"]).in_agent(), ask=user).run("go")
    assert user.question.question == "Really?"
    assert (result_of(result) == "hi") is agrees


@pytest.mark.shows("lines", "before_tool_use", "tool")
@pytest.mark.shows("lines", "before_tool_use", "args")
async def test_before_a_tool_it_changes_the_arguments(program: Make) -> None:
    body = "def answer(call): return {'args': {'text': call['tool'] + call['args']['text']}}"
    result = await echoer(program(body, points=["before_tool_use"]).in_agent()).run("go")
    assert result_of(result) == "echohi"


@pytest.mark.shows("lines", "before_tool_use", "question")
async def test_before_a_tool_it_has_the_user_asked(program: Make) -> None:
    body = "def answer(call): return {'decision': 'ask', 'question': 'Echo?'}"
    user = User(False)
    result = await echoer(program(body, points=["before_tool_use"]).in_agent(), ask=user).run("go")
    assert user.question.question == "Echo?"
    assert result_of(result) != "hi"


async def test_it_is_asked_again_about_what_was_changed_after_it_had_looked(program: Make) -> None:
    body = "def answer(call): return {'decision': 'block', 'reason': 'bad'} if call['args']['text'] == 'evil' else {}"
    kept = program(body, points=["before_tool_use"])

    @before(ToolUse)
    def turn_evil(use: ToolUse) -> None:
        use.args["text"] = "evil"

    assert result_of(await echoer(kept.in_agent(), turn_evil).run("go")) == "bad"
    assert [seen["args"]["text"] for seen in kept.seen] == ["hi", "evil"]


async def test_what_it_says_before_a_tool_is_not_what_it_says_as_a_guard(program: Make) -> None:
    body = "def answer(call): return {'decision': 'block', 'reason': 'no'} if call['event'][0] == 'g' else {}"
    hooks = program(body, points=["before_tool_use", "guard_tool_use"]).in_agent()
    assert result_of(await echoer(hooks).run("go")) == "no"


@pytest.mark.shows("lines", "after_tool_use", "tool")
@pytest.mark.shows("lines", "after_tool_use", "args")
@pytest.mark.shows("lines", "after_tool_use", "result")
async def test_after_a_tool_it_changes_the_result(program: Make) -> None:
    body = (
        "def answer(call): return {'result': ' '.join((call['tool'], call['args']['text'], call['result']['output']))}"
    )
    assert result_of(await echoer(program(body, points=["after_tool_use"]).in_agent()).run("go")) == "echo hi hi"


@pytest.mark.shows("lines", "after_tool_use", "error")
async def test_after_a_tool_it_sees_the_error(program: Make) -> None:
    @tool
    def fails() -> str:
        """Fails."""
        raise ValueError("no luck")

    body = "def answer(call): return {'result': {'error': 'it says: ' + call['result']['error']}}"
    hooks = program(body, points=["after_tool_use"]).in_agent()
    model = Scripted(calls(call("fails", x=1)), "done")
    result = await Agent(model, tools=[tool(fails.fn, parameters={"type": "object"})], hooks=[hooks]).run("go")
    assert result_of(result).startswith("it says: ") and "x" in result_of(result)


# -- runs, steps and model calls ------------------------------------------------------------------------------------


@pytest.mark.shows("lines", "before_run", "input")
@pytest.mark.shows("lines", "before_run", "system")
async def test_before_a_run_it_changes_what_is_asked_and_the_system_prompt(program: Make) -> None:
    body = """
def answer(call):
    return {"input": call["input"][0]["content"] + "!", "system": call["system"] + " Be kind."}
"""
    model = Scripted("hello")
    await Agent(model, system="You are Bob.", hooks=[program(body, points=["before_run"]).in_agent()]).run("hi")
    (request,) = model.requests
    assert request.messages[0].text == "hi!"
    assert request.system == "You are Bob. Be kind."


@pytest.mark.shows("lines", "guard_run", "input")
@pytest.mark.shows("lines", "guard_run", "system")
async def test_a_guard_of_runs_turns_somebody_away(program: Make) -> None:
    body = """
def answer(call):
    bad = "secret" in call["input"][0]["content"]
    return {"decision": "block", "reason": "not for " + call["system"]} if bad else {}
"""
    hooks = program(body, points=["guard_run"]).in_agent()
    agent = talker(hooks, system="Bob")
    assert (await agent.run("tell me a secret")).reason == "blocked: not for Bob"
    assert (await agent.run("hi")).text == "hello"


@pytest.mark.shows("lines", "after_run", "result")
async def test_after_a_run_it_sees_the_result(program: Make) -> None:
    body = "def answer(call): return {'result': call['result']['text'] + ', ' + call['result']['outcome']}"
    assert (await talker(program(body, points=["after_run"]).in_agent()).run("hi")).text == "hello, completed"


@pytest.mark.shows("lines", "before_step", "number")
async def test_before_a_step_it_ends_the_run(program: Make) -> None:
    body = "def answer(call): return {'decision': 'stop', 'reason': 'enough'} if call['number'] > 1 else {}"
    result = await echoer(program(body, points=["before_step"]).in_agent()).run("go")
    assert result.reason == "stop requested: enough"
    assert results(result) == ["hi"]


@pytest.mark.shows("lines", "guard_step", "number")
async def test_a_guard_of_steps_ends_the_run(program: Make) -> None:
    body = "def answer(call): return {'decision': 'block', 'reason': 'enough'} if call['number'] > 1 else {}"
    assert (await echoer(program(body, points=["guard_step"]).in_agent()).run("go")).reason == "blocked: enough"


@pytest.mark.shows("lines", "after_step", "number")
@pytest.mark.shows("lines", "after_step", "result")
@pytest.mark.shows("lines", "after_step", "message")
async def test_after_a_step_it_sends_the_model_back_to_work(program: Make) -> None:
    body = """
def answer(call):
    again = call["result"]["decision"] == "stop" and call["number"] < 2
    return {"decision": "continue", "message": "not yet"} if again else {}
"""
    model = Scripted("one", "two")
    result = await Agent(model, hooks=[program(body, points=["after_step"]).in_agent()]).run("go")
    assert result.text == "two"
    assert model.requests[1].messages[-1].text == "not yet"


@pytest.mark.shows("lines", "before_model_call", "system")
@pytest.mark.shows("lines", "before_model_call", "messages")
async def test_before_a_model_call_it_changes_the_system_prompt(program: Make) -> None:
    body = "def answer(call): return {'system': call['system'] + call['messages'][0]['content']}"
    model = Scripted("hello")
    await Agent(model, system="Bob", hooks=[program(body, points=["before_model_call"]).in_agent()]).run("hi")
    assert model.requests[0].system == "Bobhi"


@pytest.mark.shows("lines", "guard_model_call", "system")
@pytest.mark.shows("lines", "guard_model_call", "messages")
async def test_a_guard_of_model_calls_says_what_may_be_sent(program: Make) -> None:
    body = """
def answer(call):
    bad = call["system"] == "Bob" and "secret" in call["messages"][-1]["content"]
    return {"decision": "block", "reason": "not to this model"} if bad else {}
"""
    agent = talker(program(body, points=["guard_model_call"]).in_agent(), system="Bob")
    assert (await agent.run("a secret")).reason == "blocked: not to this model"
    assert (await agent.run("hi")).text == "hello"


@pytest.mark.shows("lines", "after_model_call", "result")
async def test_after_a_model_call_it_changes_the_reply(program: Make) -> None:
    body = "def answer(call): return {'result': call['result']['text'].upper()}"
    assert (await talker(program(body, points=["after_model_call"]).in_agent()).run("hi")).text == "HELLO"


@pytest.mark.shows("lines", "after_model_call", "error")
async def test_after_a_model_call_it_heals_an_error(program: Make) -> None:
    body = "def answer(call): return {'result': 'sorry: ' + call['error']}"
    model = Scripted(ModelError("no network"))
    result = await Agent(model, hooks=[program(body, points=["after_model_call"]).in_agent()]).run("hi")
    assert result.text == "sorry: no network"


@pytest.mark.shows("lines", "after_run", "error")
async def test_after_a_run_it_sees_what_it_failed_of(program: Make) -> None:
    kept = program("def answer(call): return {'result': 'sorry: ' + call['error']}", points=["after_run"])
    model = Scripted(ModelError("no network"))
    result = await Agent(model, hooks=[kept.in_agent()]).run("hi")
    assert result.text == "sorry: no network"


@pytest.mark.shows("lines", "wrap_run", "phase", "result")
@pytest.mark.shows("lines", "wrap_model_call", "phase", "result")
@pytest.mark.shows("lines", "wrap_tool_use", "phase")
@pytest.mark.parametrize("point", ["wrap_run", "wrap_model_call", "wrap_tool_use"])
async def test_around_an_operation_it_is_asked_before_and_after(program: Make, point: str) -> None:
    kept = program(points=[point])
    await echoer(kept.in_agent()).run("go")
    assert [call["phase"] for call in kept.seen][:2] == ["before", "after"]
    assert ["result" in call for call in kept.seen][:2] == [False, True]


@pytest.mark.shows("lines", "wrap_tool_use", "result")
async def test_around_a_tool_it_answers_instead_of_it(program: Make) -> None:
    hooks = program("def answer(call): return {'result': 'from a cache'}", points=["wrap_tool_use"]).in_agent()
    assert result_of(await echoer(hooks).run("go")) == "from a cache"


# -- failures in an agent -------------------------------------------------------------------------------------------

DECIDING = ["before_run", "guard_run", "before_step", "guard_step", "before_model_call", "guard_model_call"]


@pytest.mark.parametrize("point", DECIDING)
async def test_one_that_decides_and_fails_has_not_agreed_to_a_run_a_step_or_a_model_call(
    program: Make, point: str
) -> None:
    hooks = program("def answer(call): sys.exit(3)", points=[point]).in_agent()
    result = await talker(hooks).run("hi")
    assert result.reason == "blocked: the hook program check ended with exit code 3, so it has not agreed"


@pytest.mark.parametrize(("body", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_one_that_decides_and_fails_has_not_agreed_to_a_tool(program: Make, body: str, sentence: str) -> None:
    told = result_of(await echoer(program(body, points=["guard_tool_use"]).in_agent()).run("go"))
    assert told.startswith("the hook program check ") and told.endswith(", so it has not agreed")
    assert sentence in told


async def test_one_that_fails_before_a_tool_has_not_agreed_and_is_not_asked_again(program: Make) -> None:
    kept = program("def answer(call): sys.exit(3)", points=["before_tool_use"])
    told = result_of(await echoer(kept.in_agent()).run("go"))
    assert told == "the hook program check ended with exit code 3, so it has not agreed"
    assert len(kept.seen) == 1


@pytest.mark.parametrize("point", ["before_tool_use", "guard_tool_use"])
async def test_one_that_says_what_cannot_be_said_has_not_agreed(program: Make, point: str) -> None:
    hooks = program("def answer(call): return {'verdict': 'fine'}", points=[point]).in_agent()
    assert f"the field 'verdict', which {point} does not have" in result_of(await echoer(hooks).run("go"))


async def test_one_that_says_that_it_failed_has_not_agreed_and_goes_on(program: Make) -> None:
    kept = program("def answer(call): return {'error': 'no disk'}", points=["guard_tool_use"])
    hooks = kept.in_agent()
    for _ in range(2):
        assert (
            result_of(await echoer(hooks).run("go")) == "the hook program check failed: no disk, so it has not agreed"
        )
    assert len(kept.starts) == 1


async def test_one_that_is_too_slow_has_not_agreed(program: Make) -> None:
    hooks = program("def answer(call): time.sleep(1000)", points=["guard_tool_use"]).in_agent(timeout=0.5)
    told = result_of(await echoer(hooks).run("go"))
    assert told == "the hook program check did not answer within 0.5 s, so it has not agreed"


async def test_one_that_vanished_has_not_agreed(program: Make) -> None:
    kept = program(points=["guard_tool_use"])
    hooks = kept.in_agent()
    assert result_of(await echoer(hooks).run("go")) == "hi"
    shutil.rmtree(kept.dir)
    assert result_of(await echoer(hooks).run("go")).endswith(", so it has not agreed")


async def test_one_that_came_with_a_folder_runs_when_it_is_trusted_and_as_long_as_it_stays_the_same(
    program: Make, tmp_path: Path
) -> None:
    kept = program(points=["guard_tool_use"])
    (tmp_path / "project" / ".wick").mkdir(parents=True)
    kept.dir.rename(tmp_path / "project" / ".wick" / "hooks")
    kept.path = tmp_path / "project" / ".wick" / "hooks" / "check"
    trust = Trust(tmp_path / "trust.json")

    def capability() -> Executables:
        return Executables(folder=tmp_path / "project", home=tmp_path / "home", trust=trust)

    assert result_of(await echoer(capability()).run("go")) == "hi"
    assert kept.starts == []
    trust.trust([kept.path])
    kept.capability = trusted = capability()
    assert result_of(await echoer(trusted).run("go")) == "hi"
    assert len(kept.starts) == 1
    kept.path.write_text(kept.path.read_text() + "# changed\n")
    assert result_of(await echoer(trusted).run("go")).endswith(", so it has not agreed")
    assert len(kept.starts) == 1


@pytest.mark.parametrize("point", ["after_tool_use", "after_step", "after_model_call", "after_run"])
async def test_one_that_only_looks_and_fails_is_logged(
    program: Make, caplog: pytest.LogCaptureFixture, point: str
) -> None:
    hooks = program("def answer(call): sys.exit(3)", points=[point]).in_agent()
    thread = Thread()
    with caplog.at_level(logging.WARNING, "wick"):
        result = await echoer(hooks).run("go", thread=thread)
    assert (result.text, results(result)) == ("done", ["hi"])
    assert "the hook program check ended with exit code 3; the run goes on" in caplog.text
    logged = [event["data"] for event in entries(thread, "event") if event["name"] == "hook_failed"]
    assert logged[0] == {"hook": "check", "problem": "ended with exit code 3"}


async def test_a_failure_lets_pass_where_that_was_chosen(program: Make) -> None:
    hooks = program("def answer(call): sys.exit(3)", points=["guard_tool_use"]).in_agent(fail={"check": "open"})
    assert result_of(await echoer(hooks).run("go")) == "hi"


# -- tools that it brings -------------------------------------------------------------------------------------------

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


@pytest.mark.shows("lines", "hook", "tools")
async def test_it_brings_tools(program: Make) -> None:
    body = "def answer(call): return {'output': call['args']['a'] + call['args']['b']}"
    kept = program(body, tools=[ADD])
    model = Scripted(calls(call("add", a=2, b=3)), "done")
    assert result_of(await Agent(model, hooks=[kept.in_agent()]).run("go")) == "5"
    assert model.requests[0].tools[0].description == "Add two numbers."
    assert kept.told("tool")["tool"] == "add"


async def test_a_tool_of_a_program_is_guarded_like_any_other(program: Make) -> None:
    body = "def answer(call): return {'output': 'ran'} if call['event'] == 'tool' else {'decision': 'block'}"
    hooks = program(body, tools=[ADD], points=["guard_tool_use"]).in_agent()
    result = await Agent(Scripted(calls(call("add", a=1, b=1)), "done"), hooks=[hooks]).run("go")
    assert result_of(result) == "a hook program refused it and gave no reason"


TOOL_FAILURES = {
    "error": ("def answer(call): return {'error': 'no such file'}", "no such file"),
    "neither": ("def answer(call): return {}", 'answered neither {"output": …} nor {"error": …}'),
    "crash": ("def answer(call): sys.exit(4)", "the hook program check ended with exit code 4"),
}


@pytest.mark.parametrize(("body", "sentence"), TOOL_FAILURES.values(), ids=TOOL_FAILURES)
async def test_a_tool_of_a_program_that_fails(program: Make, body: str, sentence: str) -> None:
    hooks = program(body, tools=[ADD]).in_agent()
    result = await Agent(Scripted(calls(call("add", a=1, b=1)), "done"), hooks=[hooks]).run("go")
    assert sentence in result_of(result)


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
    assert result_of(await echoer(hooks).run("go")) == said
    await hooks.close()
