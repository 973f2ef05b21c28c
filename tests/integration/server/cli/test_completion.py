"""Completion in real shells: bash and zsh in a terminal, fish by its own command. Tab completes the line."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from cli.terminal import Terminal, open_terminal

STARTS = {
    "bash": ["bash --norc --noprofile -i", 'PS1="rea"; PS1+="dy> "; eval "$(wick completion bash)"'],
    "zsh": ["zsh -f -i", 'PS1="rea"; PS1+="dy> "; autoload -Uz compinit; compinit -u; eval "$(wick completion zsh)"'],
}


@dataclass
class ShellFolder:
    """A folder with a thread, a pending question and two agents, and `wick` on the PATH."""

    place: HostCommand
    thread: str
    question: str
    environment: dict[str, str]


@pytest.fixture
def folder(tmp_path: Path) -> ShellFolder:
    place = HostCommand(ForkedWick(tmp_path))
    thread = place.say("Write 'milk' to list.txt")
    (asked,) = place.json("approvals")
    place.wick.write("agents.yaml", "agents: {coder: {model: demo}, talker: {model: demo}}")
    program = tmp_path / "bin" / "wick"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wick.cli "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return ShellFolder(place, thread, asked["id"], {**place.wick.environment, "PATH": path, "TERM": "xterm"})


def require_shell(name: str) -> None:
    """Skip the test without the shell; in CI, fail."""
    if shutil.which(name) is not None:
        return
    message = f"this test needs {name}: apt-get install {name}"
    if os.environ.get("CI"):
        raise AssertionError(message)
    pytest.skip(message)


def complete_line(terminal: Terminal, line: str, completed: str) -> None:
    """Type a line and Tab, wait for the completed line, and clear it."""
    terminal.type(line)
    terminal.press("Tab")
    terminal.see(f"ready> {completed}")
    terminal.press("C-u")


@pytest.mark.parametrize("shell", STARTS)
def test_tab_completes_a_line(shell: str, folder: ShellFolder) -> None:
    require_shell(shell)
    command, setup = STARTS[shell]
    with open_terminal() as terminal:
        path = shlex.quote(folder.environment["PATH"])  # the shell of tmux may set another one
        terminal.open(f"env PATH={path} {command}", folder.place.wick.folder, folder.environment)
        terminal.say(setup)
        terminal.see("ready>")
        complete_line(terminal, "wick thr", "wick threads")
        complete_line(terminal, "wick run --thread la", "wick run --thread last")
        complete_line(terminal, f"wick threads show {folder.thread[:6]}", f"wick threads show {folder.thread}")
        complete_line(terminal, "wick approvals allow ask_", f"wick approvals allow {folder.question}")
        complete_line(terminal, "wick run --agent agents.yaml:co", "wick run --agent agents.yaml:coder")


def test_fish_completes_a_line(folder: ShellFolder) -> None:
    require_shell("fish")

    def complete(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", 'wick completion fish | source; complete --do-complete "$WICK_LINE"'],
            env={**folder.environment, "WICK_LINE": line},
            cwd=folder.place.wick.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return [row.partition("\t")[0] for row in done.stdout.splitlines()]

    assert complete("wick thr") == ["threads"]
    assert complete("wick run --thread la") == ["last"]
    assert complete(f"wick threads show {folder.thread[:6]}") == [folder.thread]
    assert complete("wick run --agent agents.yaml:co") == ["agents.yaml:coder"]


def test_another_shell_is_refused(tmp_path: Path) -> None:
    wick = ForkedWick(tmp_path)
    assert wick("completion", "bash").code == 0
    refused = wick("completion", "powershell")
    assert refused.code == 2 and "'bash', 'zsh', 'fish'" in refused.err
