"""`wick threads`, as a process: on this machine's data folder, and at a server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cli.command import COMMAND, WickCommand
from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from server_process import ServerProcess


def test_a_thread_from_its_list_to_its_end(place: HostCommand, tmp_path: Path) -> None:
    thread = place.say("What is in this folder?")
    listed = place("threads", "list")
    header, *lines = listed.out.splitlines()
    assert header.split() == ["thread", "title", "agent", "folder", "updated", "state"]
    assert any(thread in line and "What is in this folder?" in line for line in lines)
    (row,) = [row for row in place.json("threads", "list") if row["id"] == thread]
    assert row["title"] == "What is in this folder?" and row["asking"] == 0 and not row["running"]

    shown = place("threads", "show", thread)
    assert shown.code == 0, shown.err
    assert "What is in this folder?" in shown.out and "→ ls" in shown.out and "assistant" in shown.out
    told = place.json("threads", "show", thread)
    assert [message["role"] for message in told["messages"]] == ["user", "assistant", "tool", "assistant"]

    first = told["messages"][0]["seq"]
    fork = place("threads", "fork", thread, "--at", str(first), "--title", "Another way")
    assert fork.code == 0, fork.err
    forked = place.json("threads", "show", fork.out.strip())
    assert forked["title"] == "Another way" and [one["role"] for one in forked["messages"]] == ["user"]
    assert place.json("threads", "fork", thread)["id"] != thread

    log = json.loads(place("threads", "export", thread).out)
    assert log["id"] == thread and log["entries"][0]["seq"] == 1
    text = place("threads", "export", thread, "--format", "markdown").out
    assert text.startswith("# What is in this folder?") and "## User" in text
    file = tmp_path / "thread.md"
    assert place("threads", "export", thread, "--format", "markdown", "-o", str(file)).out == ""
    assert file.read_text(encoding="utf-8") == text
    again = place("threads", "export", thread, "-o", str(file))
    assert again.code == 2 and "already" in again.err

    kept = place("threads", "delete", thread, stdin="n\n")
    assert kept.code == 1 and f"Delete the thread {thread} permanently?" in kept.out
    gone = place("threads", "delete", thread, fork.out.strip(), "--yes")
    assert gone.code == 0 and gone.out.split() == [thread, fork.out.strip()]
    missing = place("threads", "show", thread)
    assert missing.code == 2 and thread in missing.err


def test_waiting_threads_are_listed(place: HostCommand) -> None:
    thread = place.say("Write 'milk' to list.txt")
    rows = place.json("threads", "list", "--asking")
    assert thread in [row["id"] for row in rows] and all(row["asking"] for row in rows)
    (line,) = [line for line in place("threads", "list").out.splitlines() if thread in line]
    assert line.split()[-1] == "waiting"


def test_only_those_of_this_folder(place: HostCommand) -> None:
    if place.server is not None:
        place("run", "What is in this folder?")  # which notes where it was called
    else:
        place.say("What is in this folder?")
    assert len(place.json("threads", "list", "--here")) == 1
    place.wick.write("elsewhere/file", "")
    assert place.json("threads", "list", "--here", "--folder", "elsewhere") == []


@pytest.mark.parametrize("words", [("show", "th_none"), ("fork", "th_none"), ("export", "th_none"),
                                   ("delete", "th_none", "--yes")], ids=lambda words: words[0])  # fmt: skip
def test_a_thread_that_is_not_there_is_a_sentence(place: HostCommand, words: tuple[str, ...]) -> None:
    done = place("threads", *words)
    assert done.code == 2 and "th_none" in done.err and done.err.count("\n") == 1


WRONG = [
    ["threads", "list", "--limit", "0"],
    ["threads", "show"],
    ["threads", "fork", "th_x", "--at", "-1"],
    ["threads", "export", "th_x", "--format", "yaml"],
    ["threads", "delete"],
    ["threads", "nonsense"],
    ["threads", "list", "--folder", "/nowhere"],
    ["threads", "list", "--token-file", "token"],
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_mistake_is_a_sentence_and_exits_with_2(tmp_path: Path, words: list[str]) -> None:
    done = HostCommand(ForkedWick(tmp_path))(*words)
    assert done.code == 2 and "Error: " in done.err


def test_no_threads_and_no_threads_folder(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    done = wick("threads", "list")
    assert (done.code, done.out) == (0, "") and "no threads" in done.err
    assert wick("threads", "list", "--json").out.strip() == "[]"


def test_a_file_that_is_no_store_is_a_sentence(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    wick.write("data/threads.db", "this is no database, but a text that is long enough to be read as one" * 20)
    done = wick("threads", "list", WICK_DATA=str(wick.folder / "data"))
    assert done.code in (1, 2) and done.err.startswith("Error: ")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "ftp://here", "http://"])
def test_a_server_that_is_not_there_is_a_sentence(tmp_path: Path, url: str) -> None:
    done = HostCommand(ForkedWick(tmp_path))("threads", "list", "--server", url)
    assert done.code in (1, 2) and done.err.startswith("Error: ") and done.err.count("\n") == 1


def test_a_wrong_token_is_a_sentence(tmp_path: Path, cli_server: ServerProcess) -> None:
    place = HostCommand(ForkedWick(tmp_path), cli_server)
    place.wick.write("token", "not-the-token-of-anybody\n")
    done = place("threads", "list", "--token-file", "token")
    assert done.code == 1 and "--token-file" in done.err
    place.wick.write("token", "")
    assert "has no token;" in place("threads", "list", "--token-file", "token").err


def test_control_sequences_in_messages_are_escaped(place: HostCommand) -> None:
    thread = place.say("hello \033]0;owned\007 \033[31mred")
    for words in (["list"], ["show", thread]):
        done = place("threads", *words)
        assert done.code == 0 and "owned" in done.out and "\033" not in done.out and "\007" not in done.out


def test_a_pipe_that_breaks_is_no_error(place: HostCommand) -> None:
    thread = place.say("What is in this folder?")
    words = " ".join([*COMMAND, "threads", "show", thread])
    done = subprocess.run(
        ["sh", "-c", f"{words} | true"],
        cwd=place.wick.folder,
        env=place.wick.environment | place.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr


# -- completion -----------------------------------------------------------------------------------------------------


def completed(place: HostCommand, *words: str) -> list[str]:
    """Return bash completions of the last word."""
    told = {"_WICK_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("wick", *words)), "COMP_CWORD": str(len(words))}
    return [line.partition(",")[2] for line in place(**told).out.splitlines()]


def test_shell_completion(tmp_path: Path) -> None:
    place = HostCommand(ForkedWick(tmp_path))
    thread = place.say("What is in this folder?")
    place.wick.write("agents.yaml", "agents: {coder: {model: demo}, talker: {model: demo}}")
    assert completed(place, "thr") == ["threads"]
    assert completed(place, "threads", "e") == ["export"]
    assert completed(place, "threads", "show", thread[:5]) == [thread]
    assert completed(place, "run", "--agent", "agents.yaml:c") == ["agents.yaml:coder"]
    assert "--json" in completed(place, "threads", "list", "--j")


def test_the_next_steps_are_shown(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    thread = here.say("Plan the work")
    shown = here("threads", "show", thread).out
    assert "✓ See what is there" in shown and "· Read it again" in shown


def test_threads_are_named_by_last_and_by_a_beginning(place: HostCommand) -> None:
    thread = place.say("Hello!")
    if place.server is None:
        assert place.json("threads", "show", "last")["id"] == thread
    assert place.json("threads", "show", thread[:12])["id"] == thread
    unknown = place("threads", "show", "th_zz")
    assert unknown.code == 2 and "there is no thread 'th_zz'; list them with: wick threads list" in unknown.err
    forked = place("threads", "fork", thread[:12]).out.strip()
    deleted = place("threads", "delete", "--yes", forked[:12])
    assert (deleted.code, deleted.out.strip()) == (0, forked)
