"""wick: guards, hook programs, sessions, a budget, permissions and the tools of a workspace."""

from __future__ import annotations

import asyncio

from peer import (
    BACKGROUND,
    BUDGET_TOKENS,
    HARMFUL,
    HARMLESS,
    HARMLESS_ALIAS,
    REQUEST_TOKENS,
    RUNS_AT_ONCE,
    Peer,
    call,
    harmful,
    main,
    plan,
    rewritten,
)

from wick import Agent, Block, Run, Thread, Tool, ToolUse, before, guard, tool
from wick.backends.local import Local
from wick.capabilities.budget import Budget
from wick.capabilities.executables import Executables
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.permissions import Permissions
from wick.capabilities.sessions import Sessions
from wick.models.openai import OpenAI

PROGRAM = """#!/bin/sh
[ "$1" = hook ] && echo before_tool_call && exit
if grep -q 'rm '; then
    touch {0}/failing
    {1}
fi
exit 0
"""
FAILURES = {"crash": "kill -SEGV $$", "hang": "sleep 3600", "garbage": "echo 'is this JSON?'"}


@guard(ToolUse)
def no_rm(use: ToolUse) -> Block | None:
    return Block("nothing is deleted here") if harmful(str(use.args.get("command"))) else None


@before(ToolUse, match="execute")
def expand(use: ToolUse) -> None:
    use.args["command"] = rewritten(use.args["command"])


class Wick(Peer):
    package = "wick-agent"

    def model(self) -> OpenAI:
        return OpenAI("gpt-4o", base_url=self.url, api_key="key")

    def execute(self) -> Tool:
        return tool(self.ran, name="execute", description="Run a command.")

    async def rewrite(self) -> str:
        agent = Agent(self.model(), tools=[self.execute()], hooks=[no_rm, expand])
        await agent.run(plan(call("execute", command=HARMLESS), call("execute", command=HARMLESS_ALIAS)))
        return "@guard(ToolUse), then @before(ToolUse) that changes the arguments"

    async def subagent(self) -> str:
        child = Agent(self.model(), tools=[self.execute()], name="child")

        @tool
        async def delegate(task: str, run: Run) -> str:
            """Delegate a task to the child."""
            return (await child.run(task, parent=run)).text

        task = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await Agent(self.model(), tools=[delegate], hooks=[no_rm]).run(plan(call("delegate", task=task)))
        return "@guard(ToolUse) of the parent agent; its tool runs a child with its own tool"

    async def failing(self) -> str:
        program = self.folder / "hooks" / "no_rm"
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM.format(self.folder, FAILURES[self.variant]))
        program.chmod(0o755)
        agent = Agent(self.model(), tools=[self.execute()], hooks=[Executables([program.parent], timeout=5)])
        await agent.run(plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL)))
        return "a hook program in a folder of Executables"

    async def resume(self) -> str:
        agent = Agent(self.model(), tools=[tool(self.pay)], hooks=[Sessions(self.folder / "store", lease=1)])
        if self.variant == "again":
            await agent.run(thread="th_pay")
        else:
            await agent.run(plan(call("pay")), thread="th_pay")
        return "Sessions (SQLite), then agent.run(thread=id) without input"

    async def budget(self) -> str:
        budget = Budget(tokens=BUDGET_TOKENS, reserve=REQUEST_TOKENS)
        agents = [Agent(self.model(), hooks=[budget]) for _ in range(RUNS_AT_ONCE)]
        await asyncio.gather(*(agent.run(plan(seconds=0.5)) for agent in agents))
        return "one Budget(tokens=…) in the hooks of all agents"

    def workspace(self) -> Local:
        return Local(self.work)

    async def shell(self) -> str:
        rules = Permissions(deny=["Bash(rm *)"], mode="bypassPermissions")
        agent = Agent(self.model(), hooks=[Filesystem(self.workspace()), rules], ask=lambda question: False)
        await agent.run(plan(*(call("execute", command=command) for command in ("touch works", *self.bypasses()))))
        return 'Permissions(deny=["Bash(rm *)"], mode="bypassPermissions"); the user denies all questions'

    async def cancelled(self) -> str:
        agent, thread = Agent(self.model(), tools=[tool(self.pay)]), Thread()
        await self.cancelled_once_it_runs(agent.run(plan(call("pay")), thread=thread))
        await agent.run("What now?", thread=thread)
        return "the task of agent.run(…, thread=thread) cancelled, then the next message in the thread"

    async def background(self) -> str:
        await Agent(self.model(), hooks=[Filesystem(self.workspace())]).run(plan(call("execute", command=BACKGROUND)))
        return "the tool execute of Filesystem(Local(…))"

    async def output(self) -> str:
        await Agent(self.model(), hooks=[Filesystem(self.workspace())]).run(plan(call("execute", command=self.flood())))
        return "the tool execute of Filesystem(Local(…))"


if __name__ == "__main__":
    main(Wick)
