"""strands-agents: interventions, its subagent tool, session managers, its shell tool.

https://strandsagents.com/latest/documentation/docs/user-guide/concepts/agents/ (hooks, interventions, sessions)
"""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from peer import BACKGROUND, HARMFUL, HARMLESS, HARMLESS_ALIAS, NoSuchThing, Peer, call, harmful, main, plan, rewritten
from strands import Agent, tool
from strands.interventions import Deny, InterventionHandler, Proceed, Transform
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager
from strands.vended_tools import shell
from strands.vended_tools.subagent import subagent


class NoRm(InterventionHandler):
    name = "no-rm"

    def before_tool_call(self, event: Any, **kwargs: Any) -> Any:
        if harmful(str(event.tool_use["input"].get("command"))):
            return Deny(reason="nothing is deleted here")
        return Proceed()


class Expand(InterventionHandler):
    name = "expand"

    def before_tool_call(self, event: Any, **kwargs: Any) -> Any:
        def apply(event: Any) -> None:
            event.tool_use["input"]["command"] = rewritten(event.tool_use["input"]["command"])

        return Transform(apply=apply)


class Strands(Peer):
    package = "strands-agents"

    def agent(self, *interventions: Any, **options: Any) -> Agent:
        model = OpenAIModel(AsyncOpenAI(base_url=self.url, api_key="key", max_retries=0), model_id="gpt-4o")
        return Agent(model, callback_handler=None, interventions=list(interventions), **options)

    def execute(self) -> Any:
        @tool
        def execute(command: str) -> str:
            """Run a command."""
            return self.ran(command)

        return execute

    def paying(self) -> Any:
        @tool
        async def pay() -> str:
            """Pay."""
            return await self.pay()

        return pay

    async def rewrite(self) -> str:
        self.mechanism = "an intervention that denies, then one that transforms the arguments"
        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMLESS_ALIAS))
        await self.agent(NoRm(), Expand(), tools=[self.execute()]).invoke_async(asked)
        return self.mechanism

    async def subagent(self) -> str:
        self.mechanism = "an intervention of the parent agent; its vended tool subagent"
        task = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        asked = plan(call("subagent", task=task))
        await self.agent(NoRm(), tools=[self.execute(), subagent]).invoke_async(asked)
        return self.mechanism

    async def failing(self) -> str:
        self.mechanism = "no hook programs; an intervention that fails, with the default on_error"
        peer = self

        class Failing(InterventionHandler):
            name = "failing"

            def before_tool_call(self, event: Any, **kwargs: Any) -> Any:
                return peer.fails(event.tool_use["input"]["command"]) or Proceed()

        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await self.agent(Failing(), tools=[self.execute()]).invoke_async(asked)
        return self.mechanism

    async def resume(self) -> str:
        self.mechanism = "FileSessionManager, then the next message in the same session"
        sessions = FileSessionManager(session_id="pay", storage_dir=str(self.folder / "sessions"))
        agent = self.agent(tools=[self.paying()], session_manager=sessions, agent_id="agent")
        await agent.invoke_async("Please go on." if self.variant == "again" else plan(call("pay")))
        return self.mechanism

    async def budget(self) -> str:
        raise NoSuchThing("limits=… caps the turns and tokens of one invocation; invocations share nothing.")

    async def shell(self) -> str:
        raise NoSuchThing(
            "Its shell tool has no rules for commands. "
            "Cedar policies, an extra that was not tested, apply to tool calls."
        )

    async def cancelled(self) -> str:
        self.mechanism = "the task of invoke_async cancelled, then the next message to the same agent"
        agent = self.agent(tools=[self.paying()])
        await self.cancelled_once_it_runs(agent.invoke_async(plan(call("pay"))))
        await agent.invoke_async("What now?")
        return self.mechanism

    async def in_shell(self, command: str) -> str:
        self.mechanism = "its vended tool shell, on the host"
        await self.agent(tools=[shell]).invoke_async(plan(call("shell", command=command)))
        return self.mechanism

    async def background(self) -> str:
        return await self.in_shell(BACKGROUND)

    async def output(self) -> str:
        return await self.in_shell(self.flood())


if __name__ == "__main__":
    main(Strands)
