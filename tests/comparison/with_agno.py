"""agno: tool hooks, teams, checkpoints in a database of JSON files, and the toolkit CodingTools.

https://docs.agno.com/concepts/tools/hooks, /concepts/teams, /concepts/agents/guardrails, and the text of `checkpoint`
"""

from __future__ import annotations

import inspect
from typing import Any

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.openai import OpenAIChat
from agno.team import Team
from agno.tools import tool
from agno.tools.coding import CodingTools
from peer import BACKGROUND, HARMFUL, HARMLESS, HARMLESS_ALIAS, NoSuchThing, Peer, call, harmful, main, plan, rewritten


async def _next(function_call: Any, arguments: dict[str, Any]) -> Any:
    result = function_call(**arguments)
    return await result if inspect.isawaitable(result) else result


async def no_rm(function_name: str, function_call: Any, arguments: dict[str, Any]) -> Any:
    if harmful(str(arguments.get("command"))):
        return "nothing is deleted here"
    return await _next(function_call, arguments)


async def expand(function_name: str, function_call: Any, arguments: dict[str, Any]) -> Any:
    return await _next(function_call, {"command": rewritten(arguments["command"])})


class Agno(Peer):
    package = "agno"

    def model(self) -> OpenAIChat:
        return OpenAIChat(id="gpt-4o", base_url=self.url, api_key="key", max_retries=0)

    def agent(self, **options: Any) -> Agent:
        return Agent(model=self.model(), telemetry=False, **options)

    def execute(self) -> Any:
        @tool(name="execute")
        async def execute(command: str) -> str:
            """Run a command."""
            return self.ran(command)

        return execute

    def paying(self) -> Any:
        @tool(name="pay")
        async def pay() -> str:
            """Pay."""
            return await self.pay()

        return pay

    async def rewrite(self) -> str:
        self.mechanism = (
            "tool_hooks: one that refuses, then one that forwards changed arguments, which the tool does not receive"
        )
        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMLESS_ALIAS))
        await self.agent(tools=[self.execute()], tool_hooks=[no_rm, expand]).arun(asked)
        return self.mechanism

    async def subagent(self) -> str:
        self.mechanism = "tool_hooks of a Team; a member with a tool"
        member = self.agent(name="child", id="child", role="Does things.", tools=[self.execute()])
        team = Team([member], model=self.model(), tool_hooks=[no_rm], telemetry=False)
        task = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await team.arun(plan(call("delegate_task_to_member", member_id="child", task=task)))
        return self.mechanism

    async def failing(self) -> str:
        self.mechanism = "no hook programs; a hook of tool_hooks that fails"

        async def failing(function_name: str, function_call: Any, arguments: dict[str, Any]) -> Any:
            return self.fails(arguments["command"]) or await _next(function_call, arguments)

        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await self.agent(tools=[self.execute()], tool_hooks=[failing]).arun(asked)
        return self.mechanism

    async def resume(self) -> str:
        self.mechanism = (
            'checkpoint="tool-batch" with JsonDb, then acontinue_run of the same run, which had a checkpoint'
        )
        store = JsonDb(str(self.folder / "db"))

        @tool(name="look")
        async def look() -> str:
            """Read the bill."""
            return "5 euros"

        agent = self.agent(tools=[look, self.paying()], db=store, checkpoint="tool-batch")
        if self.variant == "again":
            await agent.acontinue_run(run_id="pay", session_id="pay")
        else:
            await agent.arun(plan(call("look"), call("pay")), run_id="pay", session_id="pay")
        return self.mechanism

    async def budget(self) -> str:
        raise NoSuchThing("tool_call_limit counts the calls of one run; there is no limit that runs share.")

    async def shell(self) -> str:
        self.mechanism = 'CodingTools(allowed_commands=["touch", "echo", "true"]), which run without a shell'
        allowed = ["touch", "echo", "true"]
        tools = CodingTools(self.work, enable_run_shell=True, allowed_commands=allowed)
        commands = ("touch works", *self.bypasses())
        await self.agent(tools=[tools]).arun(plan(*(call("run_shell", command=command) for command in commands)))
        return self.mechanism

    async def cancelled(self) -> str:
        self.mechanism = "the task of arun cancelled, then the next message in the session, with add_history_to_context"
        agent = self.agent(tools=[self.paying()], db=JsonDb(str(self.folder / "db")), add_history_to_context=True)
        await self.cancelled_once_it_runs(agent.arun(plan(call("pay")), session_id="pay"))
        await agent.arun("What now?", session_id="pay")
        return self.mechanism

    async def in_shell(self, command: str) -> str:
        self.mechanism = "the tool run_shell of CodingTools, with a shell"
        tools = CodingTools(self.work, enable_run_shell=True, restrict_to_base_dir=False)
        await self.agent(tools=[tools]).arun(plan(call("run_shell", command=command)))
        return self.mechanism

    async def background(self) -> str:
        return await self.in_shell(BACKGROUND)

    async def output(self) -> str:
        return await self.in_shell(self.flood())


if __name__ == "__main__":
    main(Agno)
