"""google-adk: plugins, AgentTool, a resumable app with sessions in SQLite, its bash tool and its local environment.

https://google.github.io/adk-docs/plugins/, /callbacks/, /runtime/resume/, /tools/
"""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.environment import LocalEnvironment
from google.adk.models.lite_llm import LiteLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.bash_tool import BashToolPolicy, ExecuteBashTool
from google.adk.tools.environment import EnvironmentToolset
from google.genai.types import Content, FunctionResponse, Part
from peer import BACKGROUND, HARMFUL, HARMLESS, HARMLESS_ALIAS, NoSuchThing, Peer, call, harmful, main, plan, rewritten

WHO = {"user_id": "user", "session_id": "session"}
CONFIRM = "adk_request_confirmation"


class NoRm(BasePlugin):
    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        return {"error": "nothing is deleted here"} if harmful(str(tool_args.get("command"))) else None


def expand(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
    args["command"] = rewritten(args["command"])


class GoogleADK(Peer):
    package = "google-adk"

    def model(self) -> LiteLlm:
        return LiteLlm("openai/gpt-4o", api_base=self.url, api_key="key", num_retries=0)

    def agent(self, *tools: Any, name: str = "root", **options: Any) -> LlmAgent:
        return LlmAgent(name=name, model=self.model(), instruction="Do it.", tools=list(tools), **options)

    def execute(self) -> Any:
        async def execute(command: str) -> str:
            """Run a command."""
            return self.ran(command)

        return execute

    def runner(self, agent: LlmAgent, *plugins: BasePlugin, sessions: Any = None, **options: Any) -> Runner:
        app = App(name="leaks", root_agent=agent, plugins=list(plugins), **options)
        return Runner(app=app, session_service=sessions or InMemorySessionService(), auto_create_session=True)

    async def run(self, runner: Runner, text: str) -> list[Any]:
        message = Content(role="user", parts=[Part(text=text)])
        return [event async for event in runner.run_async(**WHO, new_message=message)]

    async def rewrite(self) -> str:
        self.mechanism = (
            "a plugin whose before_tool_callback refuses, then the agent's before_tool_callback that changes args"
        )
        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMLESS_ALIAS))
        await self.run(self.runner(self.agent(self.execute(), before_tool_callback=expand), NoRm("no_rm")), asked)
        return self.mechanism

    async def subagent(self) -> str:
        self.mechanism = "a plugin of the runner; the child is an AgentTool, which inherits the plugins"
        child = AgentTool(self.agent(self.execute(), name="child", description="Does things."))
        task = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await self.run(self.runner(self.agent(child), NoRm("no_rm")), plan(call("child", request=task)))
        return self.mechanism

    async def failing(self) -> str:
        self.mechanism = "no hook programs; a plugin whose before_tool_callback fails"
        peer = self

        class Failing(BasePlugin):
            async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
                return peer.fails(tool_args["command"])

        asked = plan(call("execute", command=HARMLESS), call("execute", command=HARMFUL))
        await self.run(self.runner(self.agent(self.execute()), Failing("failing")), asked)
        return self.mechanism

    async def resume(self) -> str:
        self.mechanism = "ResumabilityConfig and SqliteSessionService, then run_async with the same invocation_id"
        sessions = SqliteSessionService(str(self.folder / "sessions.db"))
        resumable = ResumabilityConfig(is_resumable=True)
        runner = self.runner(self.agent(self.paying()), sessions=sessions, resumability_config=resumable)
        if self.variant != "again":
            await self.run(runner, plan(call("pay")))
            return self.mechanism
        session = await sessions.get_session(app_name="leaks", **WHO)
        async for _ in runner.run_async(**WHO, invocation_id=session.events[-1].invocation_id):
            pass
        return self.mechanism

    def paying(self) -> Any:
        async def pay() -> str:
            """Pay."""
            return await self.pay()

        return pay

    async def budget(self) -> str:
        raise NoSuchThing("max_llm_calls counts the calls of one invocation; there is no limit that runs share.")

    async def shell(self) -> str:
        self.mechanism = 'ExecuteBashTool, allowed_command_prefixes=("touch", "echo", "true"), no shell; all confirmed'
        policy = BashToolPolicy(allowed_command_prefixes=("touch", "echo", "true"))
        runner = self.runner(self.agent(ExecuteBashTool(workspace=self.work, policy=policy)))
        commands = ("touch works", *self.bypasses())
        events = await self.run(runner, plan(*(call("execute_bash", command=command) for command in commands)))
        while asked := [one for event in events for one in event.get_function_calls() if one.name == CONFIRM]:
            answers = [FunctionResponse(id=one.id, name=CONFIRM, response={"confirmed": True}) for one in asked]
            message = Content(role="user", parts=[Part(function_response=one) for one in answers])
            events = [event async for event in runner.run_async(**WHO, new_message=message)]
        return self.mechanism

    async def cancelled(self) -> str:
        self.mechanism = "the task that reads run_async cancelled, then the next message in the session"
        runner = self.runner(self.agent(self.paying()))
        await self.cancelled_once_it_runs(self.run(runner, plan(call("pay"))))
        await self.run(runner, "What now?")
        return self.mechanism

    async def in_environment(self, command: str) -> str:
        self.mechanism = "the tool Execute of EnvironmentToolset(LocalEnvironment)"
        tools = EnvironmentToolset(environment=LocalEnvironment(working_dir=self.work))
        await self.run(self.runner(self.agent(tools)), plan(call("Execute", command=command)))
        return self.mechanism

    async def background(self) -> str:
        return await self.in_environment(BACKGROUND)

    async def output(self) -> str:
        return await self.in_environment(self.flood())


if __name__ == "__main__":
    main(GoogleADK)
