"""A terminal that is closed while a question is open: the question is not answered."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

ASK = """
import asyncio, signal, sys
from wick.cli.terminal.prompts import ApprovalPrompt
from wick.events import ApprovalRequest

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and its processes inherit that
request = ApprovalRequest("run_1", id="1", question="May it?", about={"tool": "write_file", "args": {"path": "a"}})
print(asyncio.run(ApprovalPrompt(sys.stdout).ask(request)), file=sys.stderr)
"""


def ask_in_terminal() -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that asks in a terminal which is not its controlling one, so that no signal is sent to it."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", ASK]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, start_new_session=True)
    os.close(slave)
    shown = b""
    while b"  >" not in shown:
        shown += os.read(master, 4096)
    return process, master


@pytest.mark.parametrize("closed", [True, False])
def test_a_closed_terminal_ends_the_process_and_ctrl_d_denies(closed: bool) -> None:
    process, master = ask_in_terminal()
    if closed:
        os.close(master)
    else:
        os.write(master, b"\x04")
    said = process.communicate(timeout=60)[1].decode()
    if closed:
        assert process.returncode == -signal.SIGHUP and "deny" not in said, said
    else:
        os.close(master)
        assert process.returncode == 0 and "deny" in said, said
