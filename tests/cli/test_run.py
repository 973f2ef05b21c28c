"""`wick run`, as a process: what it prints, and what its exit code says."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import ROOT, Wick

WATCH = """
import sys
from wick import Block, Run, before, guard

@before(Run)
def show(run):
    print([message.text for message in run.input], file=sys.stderr)

@guard(Run)
def refuse(run):
    return Block("not today") if "forbidden" in run.input[0].text else None
"""
AGENTS = "model: demo\nhooks: ['watching:show', 'watching:refuse']\n"


@pytest.fixture
def wick(tmp_path: Path) -> Wick:
    return Wick(tmp_path)


@pytest.fixture
def watched(wick: Wick) -> Wick:
    wick.write("watching.py", WATCH)
    wick.write("agents.yaml", AGENTS)
    return wick


def test_an_answer_is_printed(wick: Wick) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    done = wick("run", "Read notes.txt", "--model", "demo")
    assert done.code == 0, done.err
    assert "The meeting is on Monday." in done.out


def test_the_plain_agent_reads_the_files_of_its_folder(wick: Wick) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    done = wick("run", "Read notes.txt", "--model", "demo", "--output", "events")
    assert done.code == 0, done.err
    ends = [event for line in done.out.splitlines() if (event := json.loads(line))["event"] == "on_tool_end"]
    assert "The meeting is on Monday." in json.dumps(ends)


def test_the_plain_agent_changes_nothing_without_a_yes(wick: Wick) -> None:
    wick("run", "Write hello to new.txt", "--model", "demo")
    assert not (wick.folder / "new.txt").exists()


def test_json_says_what_the_run_came_to(wick: Wick) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    done = wick("run", "Read notes.txt", "--model", "demo", "--output", "json")
    told = json.loads(done.out)
    assert (told["outcome"], told["reason"]) == ("completed", "completed")
    assert "Monday" in told["text"] and told["run"].startswith("run_") and told["thread"].startswith("th_")


def test_events_end_with_the_only_terminal_one(wick: Wick) -> None:
    done = wick("run", "Hello!", "--model", "demo", "--output", "events")
    names = [json.loads(line)["event"] for line in done.out.splitlines()]
    assert names[0] == "on_chat_model_start" and names[-1] == "done" and names.count("done") == 1


def test_an_agent_of_a_file(watched: Wick) -> None:
    assert "['Hello!']" in watched("run", "Hello!", "--agent", "agents.yaml").err


def test_what_is_piped_in_is_the_context(watched: Wick) -> None:
    done = watched("run", "Sum up.", "--agent", "agents.yaml", stdin="a < /stdin > b\n")
    assert "Sum up.\\n\\n<stdin>\\na &lt; /stdin > b\\n</stdin>" in done.err
    assert "'caf\ufffd'" in watched("run", "--agent", "agents.yaml", stdin=b"caf\xe9").err
    assert "['only this']" in watched("run", "--agent", "agents.yaml", stdin="only this").err


def test_a_run_that_a_hook_refuses_exits_with_3(watched: Wick) -> None:
    done = watched("run", "forbidden", "--agent", "agents.yaml")
    assert (done.code, done.out.strip()) == (3, "")
    assert "stopped: blocked: not today" in done.err


def test_a_run_that_reaches_a_limit_exits_with_3(wick: Wick) -> None:
    done = wick("run", "Read notes.txt", "--model", "demo", "--max-steps", "1", "--output", "json")
    assert (done.code, json.loads(done.out)["outcome"]) == (3, "stopped")
    assert "step limit" in json.loads(done.out)["reason"]


SLOW = """
import asyncio, sys
from wick import Run, before

@before(Run)
async def wait(run):
    print("begun", file=sys.stderr, flush=True)
    await asyncio.sleep(60)
"""


def test_a_run_that_is_interrupted_exits_with_130(wick: Wick) -> None:
    wick.write("waiting.py", SLOW)
    wick.write("agents.yaml", "model: demo\nhooks: ['waiting:wait']\n")
    process = wick.start("run", "Hi", "--agent", "agents.yaml")
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, b"Traceback" in err) == (130, False), err


def test_a_run_that_fails_exits_with_1(wick: Wick) -> None:
    wick.write("agents.yaml", "model: {provider: ollama, model: none}\nretry: false\n")
    done = wick("run", "Hi", "--agent", "agents.yaml")
    assert done.code == 1 and done.err.startswith("failed: ")


def test_a_recipe(watched: Wick) -> None:
    watched.write("agents.yaml", f"{AGENTS}recipes: true\n")
    watched.write(".wick/recipes/greet.md", "Say hello to {{input}}.")
    done = watched("run", "Ada", "--recipe", "greet", "--agent", "agents.yaml")
    assert done.code == 0 and "['Say hello to Ada.']" in done.err
    assert "'Say hello to .'" in watched("run", "--recipe", "greet", "--agent", "agents.yaml").err


def test_the_plain_agent_has_the_recipes_of_its_folder(wick: Wick) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    wick.write(".wick/recipes/sum.md", "Read notes.txt")
    assert "Monday" in wick("run", "--recipe", "sum", "--model", "demo").out
    done = wick("run", "--recipe", "som", "--model", "demo")
    assert done.code == 2 and "there is no recipe 'som'" in done.err and "did you mean 'sum'?" in done.err


WRONG = {
    "say what to do, as in: wick run": ["run"],
    "there is no file gone.yaml": ["run", "hi", "--agent", "gone.yaml"],
    "has no agent 'codr'; did you mean 'coder'?": ["run", "hi", "--agent", "several.yaml:codr"],
    "has several agents; say which, as in several.yaml:coder": ["run", "hi", "--agent", "several.yaml"],
    "there is no key 'modle'; did you mean 'model'?": ["run", "hi", "--agent", "bad.yaml"],
    "Directory 'gone' does not exist": ["run", "hi", "--folder", "gone"],
    "'yaml' is not one of 'text', 'json', 'events'": ["run", "hi", "--output", "yaml"],
    "No such command 'runn'": ["runn"],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_mistake_is_a_sentence_and_exits_with_2(wick: Wick, sentence: str) -> None:
    wick.write("several.yaml", "agents: {coder: {model: demo}, talker: {model: demo}}")
    wick.write("bad.yaml", "modle: demo")
    done = wick(*WRONG[sentence])
    assert done.code == 2
    assert sentence in done.err


def test_help_loads_no_command(wick: Wick) -> None:
    done = wick("--help")
    assert done.code == 0 and "run " in done.out and "hooks " in done.out
    code = "import sys; sys.argv = ['wick', '--help']\nfrom wick.cli.frame import wick\n"
    code += "try: wick()\nexcept SystemExit: print(sorted(name for name in sys.modules if name.startswith('wick.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "wick.cli.frame" in loaded and "wick.cli.run" not in loaded and "wick.config" not in loaded


def test_the_command_is_installed_and_says_what_it_needs(wick: Wick) -> None:
    found = shutil.which("wick", path=str(Path(sys.executable).parent))
    assert found, "pip install -e '.[dev]' puts it there"
    assert "cli = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bare = "import sys; sys.modules['click'] = None\nfrom wick.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", bare], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "the command `wick` needs the package 'click'; install it with: pip install 'wick-agent[cli]'"
    )
