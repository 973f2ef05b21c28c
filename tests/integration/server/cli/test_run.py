"""`wick run` as a process: output and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cli.command import COMMAND, ROOT, WickCommand
from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from cli.terminal import open_terminal
from cli.terminal import shell_command as line
from server_process import TOKENS, ServerProcess
from wick.cli.host.protocol import RunOutcome
from wick.cli.host.remote import RemoteHost

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
def wick(tmp_path: Path) -> ForkedWick:
    return ForkedWick(tmp_path)


@pytest.fixture
def watched(wick: WickCommand) -> WickCommand:
    wick.write("watching.py", WATCH)
    wick.write("agents.yaml", AGENTS)
    return wick


def test_an_answer_is_printed(wick: WickCommand) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    done = wick("run", "Read notes.txt", "--model", "demo")
    assert done.code == 0, done.err
    assert "The meeting is on Monday." in done.out


def test_the_plain_agent_reads_the_files_of_its_folder(wick: WickCommand) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    done = wick("run", "Read notes.txt", "--model", "demo", "--output", "events")
    assert done.code == 0, done.err
    ends = [event for line in done.out.splitlines() if (event := json.loads(line))["event"] == "on_tool_end"]
    assert "The meeting is on Monday." in json.dumps(ends)


def test_the_plain_agent_changes_nothing_without_a_yes(wick: WickCommand) -> None:
    done = wick("run", "Write hello to new.txt", "--model", "demo")
    assert done.code == 4 and "waiting for an answer to: May write_file be used: new.txt" in done.err
    assert not (wick.folder / "new.txt").exists()
    thread = done.err.split("--thread ")[1].split()[0]
    (asked,) = json.loads(wick("approvals", "--json").out)
    assert wick("approvals", "allow", asked["id"]).code == 0
    assert not (wick.folder / "new.txt").exists()  # it was not continued yet
    went_on = wick("run", "--thread", thread)
    assert went_on.code == 0 and "I wrote" in went_on.out, went_on
    assert (wick.folder / "new.txt").read_text().strip() == "hello"
    again = wick("run", "--thread", thread)
    assert again.code == 0 and again.out == ""
    assert again.err.endswith(f"nothing to resume: the last run of thread {thread} is completed\n")


def test_another_answer_is_not_an_approval(wick: WickCommand) -> None:
    asked = wick("run", "Write hello to new.txt", "--model", "demo", "--output", "json")
    thread = json.loads(asked.out)["thread"]
    done = wick("run", "Read new.txt", "--thread", thread, "--model", "demo")
    assert done.code == 0 and not (wick.folder / "new.txt").exists(), done
    assert json.loads(wick("approvals", "--json").out) == []


def test_json_has_the_outcome_of_the_run(wick: WickCommand) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    done = wick("run", "Read notes.txt", "--model", "demo", "--output", "json")
    told = json.loads(done.out)
    assert (told["outcome"], told["reason"]) == ("completed", "completed")
    assert "Monday" in told["text"] and told["run"].startswith("run_") and told["thread"].startswith("th_")


def test_events_end_with_the_only_terminal_one(wick: WickCommand) -> None:
    done = wick("run", "Hello!", "--model", "demo", "--output", "events")
    names = [json.loads(line)["event"] for line in done.out.splitlines()]
    assert names[0] == "on_chat_model_start" and names[-1] == "done" and names.count("done") == 1


def test_an_agent_of_a_file(watched: WickCommand) -> None:
    assert "['Hello!']" in watched("run", "Hello!", "--agent", "agents.yaml").err


def test_piped_input_is_context(watched: WickCommand) -> None:
    done = watched("run", "Sum up.", "--agent", "agents.yaml", stdin="a < /stdin > b\n")
    assert "Sum up.\\n\\n<stdin>\\na &lt; /stdin > b\\n</stdin>" in done.err
    assert "'caf\ufffd'" in watched("run", "--agent", "agents.yaml", stdin=b"caf\xe9").err
    assert "['only this']" in watched("run", "--agent", "agents.yaml", stdin="only this").err


def test_a_run_that_a_hook_refuses_exits_with_3(watched: WickCommand) -> None:
    done = watched("run", "forbidden", "--agent", "agents.yaml")
    assert (done.code, done.out.strip()) == (3, "")
    assert "stopped: blocked: not today" in done.err


CRASHING = """
from wick import Run, Scripted, ToolCall, assistant, before, tool

@tool
def divide(number: int) -> float:
    "Divide by zero."
    return number / 0

@before(Run)
def script(run):
    run.model = Scripted(assistant("", ToolCall("c1", "divide", {"number": 1})), "Sorry.")
"""


@pytest.mark.parametrize("verbose", [False, True])
def test_the_traceback_of_a_tool_that_crashes_is_shown_with_verbose(wick: WickCommand, verbose: bool) -> None:
    wick.write("crashing.py", CRASHING)
    wick.write("agents.yaml", "model: demo\ntools: ['crashing:divide']\nhooks: ['crashing:script']\n")
    done = wick("run", "go", "--agent", "agents.yaml", "--output", "json", *(["--verbose"] if verbose else []))
    assert (done.code, json.loads(done.out)["text"]) == (0, "Sorry."), done.err
    assert "the tool divide crashed in call c1" in done.err
    assert ("Traceback" in done.err, "return number / 0" in done.err) == (verbose, verbose)


def test_a_run_that_reaches_a_limit_exits_with_3(wick: WickCommand) -> None:
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


def test_a_run_that_is_interrupted_exits_with_130(wick: ForkedWick) -> None:
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


def test_a_run_that_fails_exits_with_1(wick: WickCommand) -> None:
    wick.write("agents.yaml", "model: {provider: ollama, model: none}\nretry: false\n")
    done = wick("run", "Hi", "--agent", "agents.yaml")
    assert done.code == 1 and done.err.startswith("failed: ")


def test_a_recipe(watched: WickCommand) -> None:
    watched.write("agents.yaml", f"{AGENTS}recipes: true\n")
    watched.write(".wick/recipes/greet.md", "Say hello to {{input}}.")
    done = watched("run", "Ada", "--recipe", "greet", "--agent", "agents.yaml")
    assert done.code == 0 and "['Say hello to Ada.']" in done.err
    assert "'Say hello to .'" in watched("run", "--recipe", "greet", "--agent", "agents.yaml").err


def test_the_plain_agent_has_the_recipes_of_its_folder(wick: WickCommand) -> None:
    wick.write("notes.txt", "The meeting is on Monday.")
    wick.write(".wick/recipes/sum.md", "Read notes.txt")
    assert "Monday" in wick("run", "--recipe", "sum", "--model", "demo").out
    done = wick("run", "--recipe", "som", "--model", "demo")
    assert done.code == 2 and "there is no recipe 'som'" in done.err and "did you mean 'sum'?" in done.err


def test_rules_of_the_command_line(wick: WickCommand) -> None:
    done = wick("run", "Write hello to new.txt", "--model", "demo", "--allow", "Write(*.txt)")
    assert done.code == 0 and (wick.folder / "new.txt").read_text().strip() == "hello", done
    denied = wick("run", "Read new.txt", "--model", "demo", "--deny", "Read(new.*)", "--allow", "Read")
    assert denied.code == 0 and "hello" not in denied.out and "Read(new.*)" in denied.out
    bad = wick("run", "hi", "--model", "demo", "--allow", "Bash(git")
    assert bad.code == 2 and bad.err.startswith("Error: the rule 'Bash(git' cannot be read")


def test_rules_apply_to_an_agent_without_permissions(wick: WickCommand) -> None:
    wick.write("agents.yaml", "model: demo\nbackend: {type: local, workdir: .}\n")
    words = ("--agent", "agents.yaml", "--deny", "Write(secret.txt)")
    assert wick("run", "Write hello to new.txt", *words).code == 0
    assert (wick.folder / "new.txt").exists()
    wick("run", "Write hello to secret.txt", *words)
    assert not (wick.folder / "secret.txt").exists()


def test_an_unenforceable_budget_stops_the_run(wick: WickCommand) -> None:
    done = wick("run", "Hello!", "--model", "demo", "--budget", "0.5")
    assert done.code == 3 and "stopped: budget: the price of offline demo model is not known" in done.err
    assert wick("run", "hi", "--budget", "0").code == 2


def test_a_thread_is_continued(place: HostCommand) -> None:
    model = () if place.server else ("--model", "demo")
    first = place("run", "Hello!", *model, "--output", "json")
    assert first.code == 0, first.err
    told = json.loads(first.out)
    assert told["outcome"] == "completed" and told["run"].startswith("run_") and told["usage"]["input_tokens"] > 0
    second = place("run", "Hello again!", *model, "--thread", told["thread"], "--output", "json")
    assert json.loads(second.out)["thread"] == told["thread"]
    said = place.json("threads", "show", told["thread"])
    assert [row["content"] for row in said["messages"] if row["role"] == "user"] == ["Hello!", "Hello again!"]
    assert said["folder"] == str(place.wick.folder)
    gone = place("run", "hi", *model, "--thread", "th_gone")
    assert gone.code == 2 and "th_gone" in gone.err


def test_run_streams_pipes_and_waits_on_both_hosts(place: HostCommand) -> None:
    model = () if place.server else ("--model", "demo")
    done = place("run", "Hello!", *model, "--output", "events", stdin="some context")
    names = [json.loads(line)["event"] for line in done.out.splitlines()]
    assert names[0] == "on_chat_model_start" and names[-1] == "done" and "on_chat_model_stream" in names
    waiting = place("run", "Write hello to new.txt", *model)
    assert waiting.code == 4 and "waiting for an answer to: May write_file be used" in waiting.err
    if place.server:
        assert f"wick approvals --server {place.server.url}; the server then continues the run" in waiting.err
        assert "wick run --thread" not in waiting.err
    (asked,) = [one for one in place.json("approvals") if one["args"]["path"] == "new.txt"]  # others ask there, too
    assert place("approvals", "deny", asked["id"], "not now").code == 0


def test_a_thread_is_continued_by_its_own_agent(cli_server: ServerProcess) -> None:
    async def talked() -> list[str]:
        host = RemoteHost(cli_server.url, TOKENS["ada"])
        try:
            first = RemoteHost(cli_server.url, TOKENS["ada"], "other")
            thread = (await _talked(first, "Hello!")).thread
            await first.close()
            assert (await host.get_agent()).agent_id == "default"  # as `wick chat` asks at its start
            return [(await _talked(host, "Again!", thread)).outcome, (await host.get_thread(thread)).agent]
        finally:
            await host.close()

    assert asyncio.run(talked()) == ["completed", "other"]


async def _talked(host: RemoteHost, words: str, thread: str = "") -> RunOutcome:
    run = host.start_run(words, thread=thread)
    async for _ in run:
        pass
    return await run.get_outcome()


@pytest.mark.parametrize("option", ["--model=demo", "--allow=Read", "--deny=Read", "--max-steps=3", "--budget=1"])
def test_server_only_options_are_refused(wick: WickCommand, cli_server: ServerProcess, option: str) -> None:
    done = wick("run", "hi", option, WICK_SERVER=cli_server.url, WICK_TOKEN=TOKENS["ada"])
    assert done.code == 2 and "the server sets the model, rules, hooks and limits" in done.err


def test_servers_that_cannot_be_used_are_sentences(wick: WickCommand, cli_server: ServerProcess) -> None:
    down = wick("run", "hi", "--server", "http://127.0.0.1:1")
    assert down.code == 1 and "cannot be reached" in down.err and "check that the server is running" in down.err
    assert wick("run", "hi", "--server", "127.0.0.1").code == 2
    assert wick("run", "hi", "--server", "http://[::1").code == 2
    nobody = wick("run", "hi", "--server", cli_server.url)
    assert nobody.code == 1 and "use --token-file FILE, or set WICK_TOKEN" in nobody.err
    data = str(wick.folder / "other data")
    nobody = wick("run", "hi", "--server", cli_server.url, WICK_DATA=data)
    assert f"needs a token, but {data}/token has none: " in nobody.err
    assert "for a server of this machine, WICK_DATA names its data folder" in nobody.err
    wick.write("other data/token", "a-token-of-another-server")
    wrong = wick("run", "hi", "--server", cli_server.url, WICK_DATA=data)
    assert f"rejected the token of {data}/token: " in wrong.err and "WICK_DATA names its data folder" in wrong.err
    wrong = wick("run", "hi", "--server", cli_server.url, WICK_TOKEN="no-token-of-this-server")
    assert wrong.code == 1 and "rejected the token of WICK_TOKEN" in wrong.err
    wick.write("wrong", "no-token-of-this-server")
    wrong = wick("run", "hi", "--server", cli_server.url, "--token-file", "wrong")
    assert wrong.code == 1 and "rejected the token of wrong: " in wrong.err and "WICK_DATA" not in wrong.err
    wick.write("token", TOKENS["ada"])
    assert wick("run", "hi", "--server", cli_server.url, "--token-file", "token").code == 0
    wick.write("none", "two words")
    assert "has no token;" in wick("run", "hi", "--server", cli_server.url, "--token-file", "none").err
    assert wick("run", "hi", "--server", cli_server.url, "--token-file", "gone").code == 1
    assert wick("run", "hi", "--token-file", "token").code == 2
    agent = wick("run", "hi", "--server", cli_server.url, "--token-file", "token", "--agent", "nobody")
    assert agent.code == 2 and "nobody" in agent.err


def test_a_reader_that_has_read_enough_is_no_error(wick: WickCommand) -> None:
    words = [*COMMAND, "run", "Hello!", "--model", "demo", "--output", "events"]
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(words)} </dev/null | head -c 1"],
        cwd=wick.folder,
        env=wick.environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == b"{" and done.stderr == b""


def test_unprintable_input_is_an_error_message(wick: WickCommand) -> None:
    wick.write("notes.txt", "na\u00efve \u2603")
    narrow = wick("run", "Read notes.txt", "--model", "demo", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert narrow.code == 0, narrow
    data = wick.folder / "data"
    data.write_text("a file where a folder should be")
    done = wick("run", "Hello!", "--model", "demo", WICK_DATA=str(data))
    assert done.code == 1 and len(done.err.splitlines()) == 1


ESCAPES = "\x1b[31mred \x1b]0;a title\x07 \x9b31m \x7f \u202e"


def test_terminal_control_sequences_are_escaped(wick: ForkedWick) -> None:
    wick.write("notes.txt", ESCAPES)
    told = wick("run", "Read notes.txt", "--model", "demo")
    assert ESCAPES in told.out  # in a pipe it is verbatim
    data = wick("run", "Read notes.txt", "--model", "demo", "--output", "json")
    assert ESCAPES in json.loads(data.out)["text"] and all(char.isprintable() or char == "\n" for char in data.out)
    thread = json.loads(data.out)["thread"]
    assert ESCAPES in wick("threads", "export", thread, "--format", "markdown").out
    seen = "".join(_printed_to_a_terminal(wick, *words) for words in _that_show(thread))
    for escape in ("\x1b[31m", "\x1b]0", "\x07", "\x9b", "\x7f", "\u202e"):
        assert escape not in seen


def _that_show(thread: str) -> list[list[str]]:
    return [
        ["run", "Read notes.txt", "--model", "demo"],
        ["threads", "show", thread],
        ["threads", "show", thread, "--json"],
        ["threads", "export", thread, "--format", "markdown"],
        ["threads", "export", f"th_{ESCAPES}"],
    ]


def _printed_to_a_terminal(wick: WickCommand, *words: str) -> str:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words],
        cwd=wick.folder,
        env=wick.environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    printed = b""
    with suppress(OSError):  # the other end was closed
        while more := os.read(ours, 65_536):
            printed += more
    os.close(ours)
    process.wait(60)
    return printed.decode(errors="replace")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_traceback(wick: ForkedWick, closed: str) -> None:
    words = shlex.join([*COMMAND, "threads", "list"])
    done = subprocess.run(
        ["bash", "-c", f"{words} {closed}"], cwd=wick.folder, env=wick.environment, capture_output=True, timeout=60
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done


def test_the_user_at_a_terminal_is_asked(wick: WickCommand) -> None:
    with open_terminal() as screen:
        command = f"{line('run', 'Write hello to new.txt', '--model', 'demo')} | cat"
        screen.open(command, wick.folder, wick.environment)
        screen.see("? May write_file be used: new.txt", "content: hello", "  >")
        screen.say("y")
        screen.see("I wrote", "EXIT 0")
    assert (wick.folder / "new.txt").exists()


def test_file_agents_and_servers_have_separate_threads(wick: WickCommand) -> None:
    """A thread created here has no agent with which a server could resume it."""
    told = json.loads(wick("run", "Hello!", "--model", "demo", "--output", "json").out)
    database = wick.home / ".local" / "share" / "wick" / "threads.db"
    with sqlite3.connect(database) as db:
        owner, meta = db.execute("SELECT owner, meta FROM threads WHERE id = ?", (told["thread"],)).fetchone()
    assert owner == "local" and json.loads(meta) == {"folder": str(wick.folder), "agent_name": "wick", "agent_file": ""}


WRONG = {
    "a prompt is missing, as in: wick run": ["run"],
    "there is no model named 'nope:nope'": ["run", "hi", "--model", "nope:nope"],
    "Error: there is no model named 'sonet'": ["run", "hi", "-m", "sonet"],  # without a line of a file
    "there is no file gone.yaml; --agent takes the path of": ["run", "hi", "--agent", "gone.yaml"],
    "/agents.yaml:coder?": ["run", "hi", "--agent", "coder"],
    "Directory 'gone-too' does not exist": ["serve", "--static", "gone-too"],
    "its agents have none, add them under `mcp`": ["mcp", "test", "github"],
    "has no agent 'codr'; did you mean 'coder'?": ["run", "hi", "--agent", "several.yaml:codr"],
    "has several agents; choose one, as in several.yaml:coder": ["run", "hi", "--agent", "several.yaml"],
    "there is no key 'modle'; did you mean 'model'?": ["run", "hi", "--agent", "bad.yaml"],
    "Directory 'gone' does not exist": ["run", "hi", "--folder", "gone"],
    "'yaml' is not one of 'text', 'json', 'events'": ["run", "hi", "--output", "yaml"],
    "there is no command 'runn'; did you mean run?": ["runn"],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_mistake_is_a_sentence_and_exits_with_2(wick: WickCommand, sentence: str) -> None:
    for name in ("several.yaml", "agents.yaml"):
        wick.write(name, "agents: {coder: {model: demo}, talker: {model: demo}}")
    wick.write("bad.yaml", "modle: demo")
    done = wick(*WRONG[sentence])
    assert done.code == 2
    assert sentence in done.err
    assert json.loads(wick("threads", "list", "--json").out) == []  # no run was started


def test_help_loads_no_command(wick: WickCommand) -> None:
    done = wick("--help")
    assert done.code == 0 and "run " in done.out and "hooks " in done.out
    code = "import sys; sys.argv = ['wick', '--help']\nfrom wick.cli.root_command import wick\n"
    code += "try: wick()\nexcept SystemExit: print(sorted(name for name in sys.modules if name.startswith('wick.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "wick.cli.root_command" in loaded and "wick.cli.commands.run" not in loaded and "wick.config" not in loaded


def test_the_installed_command_names_missing_extras(wick: WickCommand) -> None:
    found = shutil.which("wick", path=str(Path(sys.executable).parent))
    assert found, "pip install -e '.[dev]' puts it there"
    assert "cli = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bare = "import sys; sys.modules['click'] = None\nfrom wick.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", bare], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "the command `wick` needs the package 'click'; install it with: pip install 'wick-agent[cli]'"
    )


# -- hook programs ----------------------------------------------------------------------------------------------------

REFUSES = """#!/bin/sh
if [ "$1" = hook ]; then echo user_message_send; exit 0; fi
echo '{"blocked": true, "reason": "not today"}'
"""


def _program(wick: WickCommand, name: str) -> Path:
    path = wick.write(f".wick/hooks/{name}", REFUSES)
    path.chmod(0o755)
    return path


def test_hooks_that_are_not_trusted_are_named_in_one_line(wick: WickCommand) -> None:
    for name in ("one", "two", "three", "four"):
        _program(wick, name)
    done = wick("run", "What is 2 + 2?", "--model", "demo")
    assert done.code == 0
    (line,) = [line for line in done.err.splitlines() if "untrusted" in line]
    assert line.endswith(".wick/hooks/three and 1 more; review them, then run: wick hooks trust")
    assert wick("hooks", "trust", "--yes").code == 0
    done = wick("run", "What is 2 + 2?", "--model", "demo")
    assert done.code == 3 and "not today" in done.err and "untrusted" not in done.err


def test_untrusted_and_changed_handlers_of_settings_are_named_with_their_file(wick: WickCommand) -> None:
    handler = {"type": "command", "command": "./check.sh"}
    settings = wick.write(".claude/settings.json", json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [handler]}]}}))
    wick.write("check.sh", "#!/bin/sh\nexit 0\n", executable=True)
    done = wick("run", "What is 2 + 2?", "--model", "demo")
    named = "./check.sh of .claude/settings.json"
    assert done.code == 0 and done.err == f"untrusted hooks are off: {named}; review them, then run: wick hooks trust\n"
    assert wick("hooks", "trust", "--yes").code == 0
    settings.write_text(settings.read_text() + "\n")
    done = wick("run", "What is 2 + 2?", "--model", "demo")
    assert done.code == 3
    assert "hooks changed after they were trusted, and deny: .claude/settings.json; review them" in done.err


def test_settings_of_claude_code_are_used_when_they_are_wanted_and_trusted(wick: WickCommand) -> None:
    settings = {"permissions": {"allow": ["Bash(printenv*)"]}, "env": {"GREETING": "hello there"}}
    wick.write(".claude/settings.json", json.dumps(settings))
    ask = ("run", "run the command: printenv GREETING", "--model", "demo")
    done = wick(*ask, "--claude-settings")
    assert done.code == 4 and "untrusted settings are not used" in done.err and "waiting for an answer" in done.err
    assert wick("hooks", "trust", "--yes").code == 0
    assert wick(*ask).code == 4
    done = wick(*ask, "--claude-settings")
    assert done.code == 0 and "hello there" in done.out and done.err == ""
    wick.write(".claude/settings.json", "{}")
    done = wick(*ask, "--claude-settings")
    assert done.code == 2 and done.err.startswith("Error: /") and "was changed after it was trusted" in done.err


def test_the_command_that_trusts_hooks_names_another_folder(wick: WickCommand, tmp_path: Path) -> None:
    program = tmp_path / "other place" / ".wick" / "hooks" / "one"
    program.parent.mkdir(parents=True)
    program.write_text(REFUSES)
    program.chmod(0o755)
    folder = program.parents[2]
    done = wick("run", "What is 2 + 2?", "--model", "demo", "--folder", str(folder))
    assert done.err.splitlines()[0].endswith(f"then run: wick hooks trust --folder '{folder}'")


def test_a_new_hook_leaves_the_trusted_ones_on(wick: WickCommand) -> None:
    _program(wick, "one")
    assert wick("hooks", "trust", "--yes").code == 0
    _program(wick, "second")
    done = wick("run", "What is 2 + 2?", "--model", "demo")
    assert done.code == 3 and "not today" in done.err
    assert ".wick/hooks/second" in done.err and ".wick/hooks/one" not in done.err


def test_without_hooks_no_program_is_loaded(wick: WickCommand) -> None:
    _program(wick, "one")
    assert wick("hooks", "trust", "--yes").code == 0
    _program(wick, "second")
    done = wick("run", "What is 2 + 2?", "--model", "demo", "--no-hooks")
    assert done.code == 0 and done.out and "untrusted" not in done.err
    assert done.err.strip() == (
        "--no-hooks leaves out: .wick/hooks/one, .wick/hooks/second; permissions, guards and hooks in Python stay"
    )
    done = wick("run", "x", "--recipe", "r", "--no-hooks")
    assert done.code == 2 and "--recipe does not work with --no-hooks" in done.err


def test_without_hooks_those_in_python_stay(watched: WickCommand) -> None:
    done = watched("run", "forbidden", "--agent", "agents.yaml", "--no-hooks")
    assert done.code == 3 and "not today" in done.err
    watched.write("agents.yaml", "model: demo\nhooks: {UserPromptSubmit: [{hooks: [{command: exit 2}]}]}\n")
    assert watched("run", "What is 2 + 2?", "--agent", "agents.yaml").code == 3
    done = watched("run", "What is 2 + 2?", "--agent", "agents.yaml", "--no-hooks")
    assert done.code == 0 and "--no-hooks leaves out: UserPromptSubmit: exit 2;" in done.err
    watched.write("agents.yaml", "model: demo\nexecutables: programs\n")
    watched.write("programs/check", REFUSES, executable=True)
    watched.write(".claude/settings.json", "{broken")  # not read by this agent
    done = watched("run", "What is 2 + 2?", "--agent", "agents.yaml", "--no-hooks")
    assert done.code == 0 and "--no-hooks leaves out: programs/check;" in done.err


def test_broken_settings_can_be_left_out(wick: WickCommand) -> None:
    (wick.home / ".claude").mkdir()
    (wick.home / ".claude" / "settings.json").write_text("{broken")
    assert wick("run", "What is 2 + 2?", "-m", "demo").code == 2
    assert wick("run", "What is 2 + 2?", "-m", "demo", "--no-hooks").code == 0


def test_continue_takes_the_last_thread_of_the_folder(wick: WickCommand) -> None:
    refused = wick("run", "--continue", "Hello!", "-m", "demo")
    assert refused.code == 2 and "has no threads yet; start one with: wick" in refused.err
    threads = [json.loads(wick("run", "Hello!", "-m", "demo", "--output", "json").out)["thread"] for _ in range(2)]
    (wick.folder / "elsewhere").mkdir()
    assert wick("run", "Hello!", "-m", "demo", "--folder", "elsewhere").code == 0
    done = wick("run", "--continue", "What is 2 + 2?", "-m", "demo", "--output", "json")
    assert json.loads(done.out)["thread"] == threads[1]
    assert wick("run", "--continue", "--thread", threads[0], "x").code == 2


def test_continue_resumes_the_last_run(wick: WickCommand) -> None:
    assert wick("run", "Write hello to new.txt", "-m", "demo").code == 4
    (asked,) = json.loads(wick("approvals", "--json").out)
    assert wick("approvals", "allow", asked["id"]).code == 0
    assert wick("run", "--continue", "-m", "demo").code == 0
    assert (wick.folder / "new.txt").read_text().strip() == "hello"


def test_a_deleted_folder_and_another_server_are_reported(wick: WickCommand) -> None:
    gone = wick.folder / "gone"
    gone.mkdir()
    words = shlex.join([*COMMAND, "run", "hi", "-m", "demo"])
    environment = {**os.environ, **wick.environment}
    done = subprocess.run(
        ["sh", "-c", f"cd gone && rmdir ../gone && {words}"],
        cwd=wick.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "the current folder does not exist any more" in done.stderr, done.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # answers everything with 501
        thread = Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        other = wick("run", "hi", "--server", url)
        server.shutdown()
        thread.join()
    assert other.code == 2 and f"{url} is not a wick server" in other.err


def test_python_m_wick_is_the_command_and_does_not_import_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('imported from the folder')")
    command = [sys.executable, "-m", "wick", "nwe"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.startswith("Usage: wick [OPTIONS] COMMAND")
    assert "there is no command 'nwe'; did you mean new?" in done.stderr
