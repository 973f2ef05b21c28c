"""pydantic-ai: the capability Hooks, usage limits, a local workspace.

https://ai.pydantic.dev/hooks/, /agents/#usage-limits, /multi-agent-applications/, /workspace/, /durable_execution/
"""

from __future__ import annotations

import asyncio
from typing import Any

from peer import (
    BACKGROUND,
    BUDGET_TOKENS,
    HARMFUL,
    HARMLESS,
    HARMLESS_ALIAS,
    RUNS_AT_ONCE,
    NoSuchThing,
    Peer,
    call,
    harmful,
    main,
    plan,
    rewritten,
)
from pydantic_ai import Agent, RunContext, Tool, UsageLimits, capture_run_messages
from pydantic_ai.capabilities import Hooks, LocalWorkspace
from pydantic_ai.exceptions import SkipToolExecution, ToolFailed
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RunUsage
from pydantic_ai.workspaces import WorkspaceError


def no_rm(ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
    if harmful(str(args.get("command"))):
        raise SkipToolExecution("nothing is deleted here")
    return args


def expand(ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
    return {"command": rewritten(args["command"])}


class PydanticAI(Peer):
    package = "pydantic-ai-slim"

    def agent(self, **options: Any) -> Agent:
        provider = OpenAIProvider(base_url=self.url, api_key="key")
        return Agent(OpenAIChatModel("gpt-4o", provider=provider), **options)

    def execute(self) -> Tool:
        return Tool(self.ran, name="execute", description="Run a command.")

    async def rewrite(self) -> str:
        self.mechanism = "Hooks(before_tool_execute) that refuses, then a second Hooks that returns changed arguments"
        hooks = [Hooks(before_tool_execute=no_rm), Hooks(before_tool_execute=expand)]
        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMLESS_ALIAS))
        await self.agent(tools=[self.execute()], capabilities=hooks).run(asked)
        return self.mechanism

    async def subagent(self) -> str:
        self.mechanism = "Hooks(before_tool_execute) of the parent agent; its tool runs the child with usage=ctx.usage"
        child = self.agent(tools=[self.execute()])

        async def delegate(ctx: RunContext, task: str) -> str:
            """Delegate a task to the child."""
            return (await child.run(task, usage=ctx.usage)).output

        hooks = [Hooks(before_tool_execute=no_rm)]
        agent = self.agent(tools=[self.execute(), Tool(delegate, takes_ctx=True)], capabilities=hooks)
        task = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await agent.run(plan(call("delegate", task=task)))
        return self.mechanism

    async def failing(self) -> str:
        self.mechanism = "no hook programs; a Hooks(before_tool_execute) that fails"

        def failing(ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> Any:
            return self.fails(args["command"]) or args

        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await self.agent(tools=[self.execute()], capabilities=[Hooks(before_tool_execute=failing)]).run(asked)
        return self.mechanism

    async def resume(self) -> str:
        raise NoSuchThing(
            "A conversation store saves the messages; resuming after a crash needs an integration with another "
            "system (Temporal, DBOS, Prefect), which repeats an interrupted step."
        )

    async def budget(self) -> str:
        self.mechanism = "one RunUsage passed to all runs, with UsageLimits(total_tokens_limit=…)"
        usage, limits = RunUsage(), UsageLimits(total_tokens_limit=BUDGET_TOKENS)
        runs = (self.agent().run(plan(seconds=0.5), usage=usage, usage_limits=limits) for _ in range(RUNS_AT_ONCE))
        await asyncio.gather(*runs, return_exceptions=True)
        return self.mechanism

    async def shell(self) -> str:
        raise NoSuchThing("A workspace runs every command; there are no rules for commands.")

    async def cancelled(self) -> str:
        self.mechanism = "the task of agent.run cancelled, then the messages of capture_run_messages as message_history"
        agent = self.agent(tools=[Tool(self.pay, name="pay", description="Pay.")])
        with capture_run_messages() as said:
            await self.cancelled_once_it_runs(agent.run(plan(call("pay"))))
        await agent.run("What now?", message_history=said)
        return self.mechanism

    async def in_workspace(self, command: str) -> str:
        self.mechanism = "LocalWorkspace; a tool that calls ctx.workspace.run, as its documentation shows"

        async def shell(ctx: RunContext, command: str) -> str:
            """Run a command."""
            try:
                return (await ctx.workspace.run(command, shell=True)).stdout
            except WorkspaceError as error:
                raise ToolFailed(str(error)) from error

        agent = self.agent(tools=[Tool(shell, takes_ctx=True)], capabilities=[LocalWorkspace(self.work)])
        await agent.run(plan(call("shell", command=command)))
        return self.mechanism

    async def background(self) -> str:
        return await self.in_workspace(BACKGROUND)

    async def output(self) -> str:
        return await self.in_workspace(self.flood())


if __name__ == "__main__":
    main(PydanticAI)
