"""One of several programs that talk to the same thread, with a tool in between.

python thread_program.py <folder> <name> <how many messages> <for how many seconds it holds the thread>
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from wick import Agent, FunctionModel, ToolCall, assistant, tool
from wick.capabilities.sessions import Sessions


@tool
async def think() -> str:
    """Think."""
    await asyncio.sleep(0.005)
    return "thought"


async def reply(request: Any) -> Any:
    if request.messages[-1].role == "user":
        return assistant("", *(ToolCall(f"t{n}", "think", {}) for n in range(2)))
    return assistant(f"re: {next(m.text for m in reversed(request.messages) if m.role == 'user')}")


async def main(folder: str, name: str, count: int, lease: float) -> None:
    sessions = Sessions(folder, lease=lease)
    agent = Agent(FunctionModel(reply), tools=[think], hooks=[sessions])
    for number in range(count):
        print((await agent.run(f"{name} {number}", thread="th_1")).text, flush=True)
    await sessions.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
