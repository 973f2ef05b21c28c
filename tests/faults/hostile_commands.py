"""Hostile commands and hook programs that try to outlive their run, and planted faults that would allow it."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.tally import FULL
from kit import execute, hello_agent, tool_agent
from programs import Programs
from wick.backends import daemon_client
from wick.backends.local import Local
from wick.backends.sandbox import cgroups

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
LONG = "sleep 600"  # far longer than any test
SANDBOXES = ("bubblewrap", "landlock", "none")

# Each tries to leave a process behind; some end by themselves, some have to be stopped.
COMMANDS = {
    "a session of its own": f"setsid {LONG} & exit 0",
    "deaf to signals": f"(setsid sh -c 'trap \"\" TERM HUP INT QUIT; {LONG}' &) & exit 3",
    "forked twice": f'{PYTHON} -c \'import os; os.fork() or os.setsid() or os.fork() or os.execvp("sleep", '
    '["sleep", "600"])\'',
    "stopped": f"{LONG} & kill -STOP $!; exit 0",
    "all killed": f"({LONG} &); kill -9 -1",
    "the first one stopped": "kill -STOP 1; kill -9 1; exit 0",
    "outputs closed": f"exec >&- 2>&- <&-; {LONG} &",
    "itself stopped": f"{LONG} | {LONG} & kill -STOP $$",
    "no environment": f"env -i /usr/bin/setsid /bin/{LONG} & exit 0",
    "another name": "cp /bin/sleep $TMPDIR/other; $TMPDIR/other 600 & sleep 0.02; rm -f $TMPDIR/other",
    "holding its outputs": f"{LONG} & disown; exit 0",
    "many": f"for i in 1 2 3 4 5 6 7 8 9 10; do (setsid {LONG} &); done; exit 0",
    "forking while it is killed": "f() { (sleep 0.01; f) & }; for i in 1 2 3; do f; done; sleep 0.1; exit 0",
    "its parent killed": f"setsid {LONG} & kill -9 $PPID",
    "stuck": f"trap '' TERM; while :; do {LONG}; done",
    "printing": f"yes & setsid {LONG} & exit 0",
}
WHOLE_SYSTEM = ("all killed", "the first one stopped")  # without a PID namespace they affect all processes

HOOKS = {
    "a session of its own": f"setsid {LONG} >/dev/null 2>&1 </dev/null & cat >/dev/null",
    "deaf and stuck": f"trap '' TERM HUP INT; {LONG} & wait; {LONG}",
    "forks and exits": f"cat >/dev/null; ({LONG}; echo '{{}}') & exit 0",
    "stopped": f"cat >/dev/null; {LONG} & kill -STOP $!; echo '{{}}'",
    "crashes": f"setsid {LONG} >/dev/null 2>&1 </dev/null & exit 1",
    "kills itself": f"(setsid {LONG} >/dev/null 2>&1 </dev/null &); kill -9 $$",
    "prints without end": f"setsid {LONG} >/dev/null 2>&1 </dev/null & cat /dev/zero",
    "closes its outputs": f"exec >&- 2>&- <&-; {LONG} & exit 0",
    "no environment": f"env -i /usr/bin/setsid /bin/{LONG} >/dev/null 2>&1 </dev/null & cat >/dev/null",
    "kills its parent": f"setsid {LONG} >/dev/null 2>&1 </dev/null & kill -9 $PPID",
}


def commands(sandbox: str) -> dict[str, str]:
    return {name: text for name, text in COMMANDS.items() if sandbox == "bubblewrap" or name not in WHOLE_SYSTEM}


class Tools:
    """Runs hostile commands in every sandbox, in turn."""

    def __init__(self, folder: Path, *sandboxes: Any) -> None:
        self.backends = {sandbox: Local(folder / sandbox, sandbox=sandbox) for sandbox in sandboxes or SANDBOXES}
        self.all = itertools.cycle([(box, name) for box in self.backends for name in commands(box)])

    async def run(self) -> str:
        """The next one, to its end or its time limit."""
        sandbox, name = next(self.all)
        done = await self.backends[sandbox].execute(COMMANDS[name], timeout=0.4)
        assert done["seconds"] < (10 if FULL else 60)
        return f"{name} in {sandbox}"

    async def stop(self) -> None:
        await asyncio.gather(*(backend.stop() for backend in self.backends.values()))


class Hooks:
    """Runs agents with hostile hook programs, in turn."""

    def __init__(self, folder: Path) -> None:
        self.programs = Programs(folder)
        self.all = itertools.cycle([(event, name) for name in HOOKS for event in ("before_tool_call", "turn_end")])
        self.made: dict[tuple[str, str], Any] = {}

    async def run(self) -> str:
        """The next one, in a run of its own."""
        event, name = next(self.all)
        if (event, name) not in self.made:
            path = self.programs.folder / event / name.replace(" ", "-")
            self.programs.sh("check", event, HOOKS[name], path)
            self.made[event, name] = self.programs.executables(dirs=[path], timeout=0.4)
        made = self.made[event, name]
        agent = tool_agent(execute, made, args={"command": "ls"}) if "tool" in event else hello_agent(made)
        await agent.run("go")
        return f"{name} at {event}"


# -- faults ---------------------------------------------------------------------------------------------------------

# In wickd, which runs in its own process: kill only the process group of a command, and let no process die
# because its parent did.
GROUP_ONLY = """
import os, signal
def plant():
    from wick.workspace import processes
    def end(self, seconds):
        processes.call_quietly(os.killpg, self.child, signal.SIGKILL) if self.child else None
        self.reap()
        return True
    processes.ProcessTree.kill_all = end
    processes.prctl = lambda *_: False
    processes.kill_unknown_children = lambda known: False
"""


def plant_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wickd that is started from here on ends process groups, and not families; nor do control groups."""
    launch = daemon_client._LAUNCH.replace("from wick.wickd", f"{GROUP_ONLY}plant()\nfrom wick.wickd", 1)
    assert "plant()" in launch
    monkeypatch.setattr(daemon_client, "_LAUNCH", launch)
    monkeypatch.setattr(cgroups, "get_controllers", dict)
