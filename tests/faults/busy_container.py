"""A program that is busy in a container until it is killed: with a command, and with wickd a job and a terminal.

python busy_container.py IMAGE ID SERVER [FAULT]
"""

from __future__ import annotations

import asyncio
import sys

import pytest

import engines
from faults.busy_program import COMMAND
from faults.hostile_containers import plant_group_only
from wick.backends.docker import Docker


async def main(image: str, id: str, server: str) -> None:
    """Start everything, report when it runs, and wait."""
    backend = Docker(engines.find_engine().image(image), engine=engines.find_engine().url, id=id, server=server)
    going = asyncio.create_task(backend.execute(COMMAND, env={"N": "1"}))
    began = {"began-1"}
    if image == "python":
        await backend.background(COMMAND.replace("$N", "2"))
        terminal = await backend.terminal()
        await terminal.write(f"{COMMAND}\n".encode().replace(b"$N", b"3"))
        began |= {"began-2", "began-3"}
    while not began <= {entry["name"] for entry in (await backend.ls())["entries"]}:
        await asyncio.sleep(0.05)
    print("busy", flush=True)
    await asyncio.wait_for(going, 600)


if __name__ == "__main__":
    if sys.argv[4:]:
        plant_group_only(pytest.MonkeyPatch())
    asyncio.run(main(*sys.argv[1:4]))
