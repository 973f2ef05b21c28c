"""openai-agents: guardrails of tools, hooks of runs, sessions, and the sandbox agent's shell.

https://openai.github.io/openai-agents-python/guardrails/ and /sessions/, /sandbox_agents/, /human_in_the_loop/
"""

from __future__ import annotations

import json
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunHooks,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    function_tool,
    set_tracing_disabled,
    tool_input_guardrail,
)
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.capabilities import Shell
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from openai import AsyncOpenAI
from peer import BACKGROUND, HARMFUL, HARMLESS, HARMLESS_ALIAS, NoSuchThing, Peer, call, harmful, main, plan, rewritten

set_tracing_disabled(True)


@tool_input_guardrail
def no_rm(data: Any) -> ToolGuardrailFunctionOutput:
    if harmful(json.loads(data.context.tool_arguments)["command"]):
        return ToolGuardrailFunctionOutput.reject_content("nothing is deleted here")
    return ToolGuardrailFunctionOutput.allow()


class Expand(RunHooks):
    """Hooks that are not meant to change arguments; the context of the call is changed."""

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        args = json.loads(context.tool_arguments)
        context.tool_arguments = json.dumps({"command": rewritten(args["command"])})


class OpenAIAgents(Peer):
    package = "openai-agents"

    def agent(self, name: str = "agent", **options: Any) -> Agent:
        model = OpenAIChatCompletionsModel("gpt-4o", AsyncOpenAI(base_url=self.url, api_key="key", max_retries=0))
        return Agent(name, model=model, **options)

    def execute(self, *guards: Any) -> FunctionTool:
        @function_tool(tool_input_guardrails=list(guards))
        def execute(command: str) -> str:
            """Run a command."""
            return self.ran(command)

        return execute

    async def rewrite(self) -> str:
        self.mechanism = (
            "tool_input_guardrail, then RunHooks.on_tool_start that sets context.tool_arguments; "
            "no documented hook changes arguments"
        )
        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMLESS_ALIAS))
        await Runner.run(self.agent(tools=[self.execute(no_rm)]), asked, hooks=Expand())
        return self.mechanism

    async def subagent(self) -> str:
        self.mechanism = (
            "tool_input_guardrail on the tool of the parent agent; the child, by as_tool, has its own tool "
            "(a shared tool would include its guardrail)"
        )
        child = self.agent("child", tools=[self.execute()])
        agent = self.agent(tools=[self.execute(no_rm), child.as_tool("child", "Does things.")])
        task = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await Runner.run(agent, plan(call("child", input=task)))
        return self.mechanism

    async def failing(self) -> str:
        self.mechanism = "no hook programs; a tool_input_guardrail that fails"

        @tool_input_guardrail
        def failing(data: Any) -> Any:
            found = self.fails(json.loads(data.context.tool_arguments)["command"])
            return ToolGuardrailFunctionOutput.allow() if found is None else found

        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await Runner.run(self.agent(tools=[self.execute(failing)]), asked)
        return self.mechanism

    async def resume(self) -> str:
        raise NoSuchThing(
            "A RunState is saved when a run waits for an approval, and a session stores the messages; resuming after a "
            "crash needs an integration with another system (Temporal, Restate, DBOS)."
        )

    async def budget(self) -> str:
        raise NoSuchThing("max_turns limits one run; usage is counted, but there is no limit that runs share.")

    async def shell(self) -> str:
        raise NoSuchThing("Its shell tools can require approval by a callback; there are no rules for commands.")

    async def cancelled(self) -> str:
        @function_tool
        async def pay() -> str:
            """Pay."""
            return await self.pay()

        agent, session = self.agent(tools=[pay]), SQLiteSession("pay", self.folder / "session.db")
        await self.cancelled_once_it_runs(Runner.run(agent, plan(call("pay")), session=session))
        self.mechanism = (
            "the task of Runner.run(…, session=SQLiteSession) cancelled, then the next message in the session"
        )
        await Runner.run(agent, "What now?", session=session)
        return self.mechanism

    async def in_sandbox(self, command: str) -> str:
        self.mechanism = "SandboxAgent with Shell() and UnixLocalSandboxClient: its tool exec_command"
        model = OpenAIChatCompletionsModel("gpt-4o", AsyncOpenAI(base_url=self.url, api_key="key", max_retries=0))
        agent = SandboxAgent(
            "agent", model=model, capabilities=[Shell()], default_manifest=Manifest(root=str(self.work))
        )
        config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
        await Runner.run(agent, plan(call("exec_command", cmd=command)), run_config=config)
        return self.mechanism

    async def background(self) -> str:
        return await self.in_sandbox(BACKGROUND)

    async def output(self) -> str:
        return await self.in_sandbox(self.flood())


if __name__ == "__main__":
    main(OpenAIAgents)
