"""Replay a stricter policy on past runs before it is enforced."""

import asyncio

from wick import Agent, Block, Scripted, Thread, ToolCall, ToolUse, guard, tool
from wick.capabilities.permissions import Permissions
from wick.replay import replay


@tool(kind="shell")
def execute(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


def recorded(name: str, *commands: str) -> Thread:
    """A conversation of last week, when every command was fine."""
    thread = Thread(name)
    calls = [ToolCall(str(number), "execute", {"command": command}) for number, command in enumerate(commands)]
    Agent(Scripted(*calls, "Done."), tools=[execute]).run_sync("Go on.", thread=thread)
    return thread


threads = [
    recorded("th_build", "make", "make test"),
    recorded("th_ship", "git add .", "git push --force", "rm -rf build"),
    recorded("th_tidy", "ls", "rm -rf build"),
]


@guard(ToolUse, match="execute")
def no_force(use: ToolUse) -> Block | None:
    return Block("force is not allowed here") if "--force" in use.args["command"] else None


rules = Permissions(deny=["Bash(rm *)"], mode="bypassPermissions")
for name, hook in (("a guard", no_force), ("a rule", rules)):
    agent = Agent(Scripted(), tools=[execute], hooks=[hook])
    report = asyncio.run(replay(agent, threads))  # nothing is run, asked or written
    print(f"{name}: {report.uses} uses in {report.threads} threads, {len(report.changes)} would be other")
    for change in report.changes:
        print(f"  {change}")

# prints:
# a guard: 6 uses in 3 threads, 1 would be other
#   th_ship entry 8: execute was allowed, now it is blocked: force is not allowed here
# a rule: 7 uses in 3 threads, 2 would be other
#   th_ship entry 12: execute was allowed, now it is blocked: the permission rule Bash(rm *) denies this
#   th_tidy entry 8: execute was allowed, now it is blocked: the permission rule Bash(rm *) denies this
