"""An agent whose program pays, with a question for each payment. It is killed while the question waits.

python paying_program.py FOLDER SECONDS        start the run, and exit by itself after SECONDS without an answer
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from wick import Agent, Ask, Scripted, ToolCall, ToolUse, assistant, guard, tool
from wick.capabilities import CodeMode, Sessions

THREAD = "th_pay"
PROGRAM = """\
import asyncio
total = 0
for number in range(3):
    total += await note(number=number)
results = await asyncio.gather(pay(amount=total), note(number=10))
print(results)
print(await pay(amount=total + 7), await note(number=11))
"""
EFFECTS = ["note 0", "note 1", "note 2", "note 10", "pay 3", "pay 10", "note 11"]
OUTPUT = "['paid 3', 10]\npaid 10 11"


def make_agent(folder: Path, sessions: Sessions, *replies: Any) -> tuple[Agent, list[float]]:
    """Return the agent, and a list to which each payment adds the time of its start."""
    paid: list[float] = []

    def record(effect: str) -> None:
        with open(folder / "effects", "a") as file:
            file.write(effect + "\n")

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(time.perf_counter())
        record(f"pay {amount}")
        return f"paid {amount}"

    @tool
    async def note(number: int) -> int:
        """Note a number."""
        record(f"note {number}")
        return number

    @guard(ToolUse, match="pay")
    def ask(use: ToolUse) -> Ask:
        return Ask(f"pay {use.args['amount']}?")

    model = Scripted(*replies, "done", spare=True)
    return Agent(model, tools=[pay, note], hooks=[CodeMode(seconds=60), ask, sessions]), paid


def first_reply() -> Any:
    return assistant("", ToolCall("p", "run_code", {"code": PROGRAM}))


async def main(folder: Path, patience: float) -> None:
    sessions = Sessions(folder / "db", patience=patience, lease=1.0)
    agent, _ = make_agent(folder, sessions, first_reply())
    async for event in agent.stream("pay", thread=THREAD):
        if event.event == "on_approval_request":
            print("waiting", flush=True)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
