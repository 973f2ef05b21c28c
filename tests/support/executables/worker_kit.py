"""Shared by the worker program tests: programs of a few lines, and ways to fail."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from wick.capabilities.executables import Executables
from wick.hook_programs.runner import Runner
from wick.hook_programs.worker import ProgramFailed, ProgramWorker

# The frame of every program here: a test supplies `answer(call)` or its own `serve()`.
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


class WorkerProgram:
    """A program in a folder of its own."""

    def __init__(self, folder: Path, body: str, name: str = "check", **hook: Any) -> None:
        self.folder, self.dir = folder, folder / "hooks"
        self.dir.mkdir(exist_ok=True)
        self.path = self.dir / name
        told = json.dumps({"protocol": "lines", **hook})
        self.path.write_text(SCRIPT.format(python=sys.executable, hook=told, here=str(folder), body=body))
        self.path.chmod(0o755)
        self.serving: ProgramWorker | None = None
        self.capability: Executables | None = None

    def alone(self, *, timeout: float = 20, sandbox: bool = False, **options: Any) -> ProgramWorker:
        runner = Runner(cwd=self.folder, timeout=timeout, sandbox=sandbox)
        self.serving = ProgramWorker([str(self.path), "serve"], runner, **options)
        return self.serving

    def in_agent(self, **options: Any) -> Executables:
        self.capability = Executables([self.dir], **options)
        return self.capability

    @property
    def starts(self) -> list[int]:
        file = self.folder / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "seen").read_text().splitlines()]

    def first_call(self, event: str) -> dict[str, Any]:
        """Return its input for the first such event."""
        return next(call for call in self.calls if call["event"] == event)


Make = Callable[..., WorkerProgram]


def run_agent(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def wait_until_ended(*pids: int) -> bool:
    """Return True if these processes end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(30):
            while any(map(run_agent, pids)):
                await asyncio.sleep(0.02)
    return not any(map(run_agent, pids))


async def failure_message(serving: ProgramWorker, *, timeout: float = 20, **request: Any) -> str:
    """Return the message of a failing call."""
    with pytest.raises(ProgramFailed) as failure:
        await serving.ask({"event": "x", **request}, timeout=timeout)
    return str(failure.value)


# The behaviour of a program and its message.
FAILURES = {
    "crash": ("def answer(call): sys.exit('oh no')", "ended with exit code 1: oh no"),
    "signal": ("def answer(call): os.kill(os.getpid(), 9)", "SIGKILL"),
    "cannot start": ("def serve(): raise OSError('no disk')", "OSError: no disk"),
    "ends without a word": ("def serve(): sys.stdin.readline()", "ended with exit code 0"),
    "no JSON": ("def answer(call): print('allowed!', flush=True)", "something that is not JSON: 'allowed!'"),
    "no object": ("def answer(call): print('[]', flush=True)", "answered with a JSON list"),
    "half a line": ("def answer(call): print('{\"id\"', flush=True)", "something that is not JSON"),
    "no id": ("def answer(call): say({})", "a line without the id of a call"),
    "an id of another kind": ("def answer(call): say({'id': int(call['id'])})", "a line without the id of a call"),
    "another id": ("def answer(call): say({'id': 'x7'})", "answered a call that was not made (id 'x7')"),
    "a field twice": ('def answer(call): print(\'{"id": 1, "id": 2}\', flush=True)', "'id' is there twice"),
    "an empty line": ("def answer(call): print(flush=True)", "a line without the id of a call"),
    "not UTF-8": ("def answer(call): os.write(1, b'\\xff\\n')", "not UTF-8"),
    "a line without end": ("def answer(call): os.write(1, b'x' * 2_000_000)", "a line of more than 1 MB"),
    "100 MB": ("def answer(call):\n    for _ in range(100): os.write(1, b'x' * 1_000_000)", "a line of more than 1 MB"),
    "closes its input": ("def answer(call): os.close(0); time.sleep(1000)", "closed its input"),
    "closes its output": ("def answer(call): os.close(1); time.sleep(1000)", "closed its output"),
    "forks and exits": ("def answer(call):\n    if os.fork(): os._exit(0)\n    time.sleep(1000)", "exit code 0"),
}
