"""A program that is busy with commands, a job, a terminal and hook programs until it is killed.

python busy_program.py FOLDER [FAULT]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from faults.hostile_commands import HOOKS, LONG, plant_group_only
from kit import execute, tool_agent
from programs import Programs
from wick.backends.local import Local

COMMAND = f"touch began-$N; (setsid sh -c 'trap \"\" TERM HUP; {LONG}' &); setsid {LONG} & {LONG}"


async def main(folder: Path) -> None:
    """Start everything, report when it runs, and wait."""
    backends = [Local(folder / sandbox, sandbox=sandbox) for sandbox in ("bubblewrap", "none")]  # type: ignore[arg-type]
    going = [asyncio.create_task(backend.execute(COMMAND, env={"N": "1"})) for backend in backends]
    for backend in backends:
        await backend.background(COMMAND)
        terminal = await backend.terminal()
        await terminal.write(f"{COMMAND}\n".encode().replace(b"$N", b"2"))
    going.append(asyncio.create_task(_hook(folder)))
    while not all((folder / box / f"began-{n}").exists() for box in ("bubblewrap", "none") for n in (1, 2)):
        await asyncio.sleep(0.01)
    print("busy", flush=True)
    await asyncio.sleep(600)


async def _hook(folder: Path) -> None:
    """An agent that waits for a hook program."""
    programs = Programs(folder / "hooks")
    programs.sh("check", "before_tool_call", HOOKS["deaf and stuck"])
    await tool_agent(execute, programs.executables(timeout=600), args={"command": "ls"}).run("go")


if __name__ == "__main__":
    if sys.argv[2:]:
        plant_group_only(pytest.MonkeyPatch())
    asyncio.run(main(Path(sys.argv[1])))
