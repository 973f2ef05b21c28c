"""LangChain: middleware of `create_agent`, the checkpointer of LangGraph on SQLite, the shell of `ShellToolMiddleware`.

https://docs.langchain.com/oss/python/langchain/middleware, /guardrails, /multi-agent and /langgraph/durable-execution
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ShellToolMiddleware
from langchain.tools import tool
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from peer import BACKGROUND, HARMFUL, HARMLESS, HARMLESS_ALIAS, NoSuchThing, Peer, call, harmful, main, plan, rewritten


class NoRm(AgentMiddleware):
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        asked = request.tool_call
        if harmful(str(asked["args"].get("command"))):
            return ToolMessage("nothing is deleted here", tool_call_id=asked["id"], status="error")
        return await handler(request)


class Expand(AgentMiddleware):
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        args = {"command": rewritten(request.tool_call["args"]["command"])}
        return await handler(request.override(tool_call={**request.tool_call, "args": args}))


THREAD: Any = {"configurable": {"thread_id": "1"}}


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


class LangChain(Peer):
    package = "langchain"

    def model(self) -> ChatOpenAI:
        return ChatOpenAI(model="gpt-4o", base_url=self.url, api_key="key", max_retries=0)

    def agent(self, tools: Any = (), middleware: Any = (), **options: Any) -> Any:
        return create_agent(self.model(), list(tools), middleware=list(middleware), **options)

    def execute(self) -> Any:
        @tool
        def execute_command(command: str) -> str:
            """Run a command."""
            return self.ran(command)

        return execute_command

    def paying(self) -> Any:
        @tool
        async def pay() -> str:
            """Pay."""
            return await self.pay()

        return pay

    async def rewrite(self) -> str:
        self.mechanism = "middleware with wrap_tool_call that refuses, then one that forwards changed arguments"
        asked = plan(call("execute_command", command=HARMLESS), call("execute_command", command=HARMLESS_ALIAS))
        await self.agent([self.execute()], [NoRm(), Expand()]).ainvoke(said(asked))
        return self.mechanism

    async def subagent(self) -> str:
        self.mechanism = "middleware of the parent agent; its tool invokes the child, as documented for subagents"
        child = self.agent([self.execute()])

        @tool
        async def delegate(task: str) -> str:
            """Delegate a task to the child."""
            return (await child.ainvoke(said(task)))["messages"][-1].text

        task = plan(call("execute_command", command=HARMLESS), call("execute_command", command=HARMFUL))
        await self.agent([self.execute(), delegate], [NoRm()]).ainvoke(said(plan(call("delegate", task=task))))
        return self.mechanism

    async def failing(self) -> str:
        self.mechanism = "no hook programs; middleware with wrap_tool_call that fails"
        peer = self

        class Failing(AgentMiddleware):
            async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
                return peer.fails(request.tool_call["args"]["command"]) or await handler(request)

        asked = plan(call("execute_command", command=HARMLESS), call("execute_command", command=HARMFUL))
        await self.agent([self.execute()], [Failing()]).ainvoke(said(asked))
        return self.mechanism

    async def resume(self) -> str:
        self.mechanism = "AsyncSqliteSaver with durability='sync', then ainvoke(None) on the same thread_id"
        async with AsyncSqliteSaver.from_conn_string(str(self.folder / "threads.db")) as saver:
            agent = self.agent([self.paying()], checkpointer=saver)
            asked = None if self.variant == "again" else said(plan(call("pay")))
            await agent.ainvoke(asked, THREAD, durability="sync")
        return self.mechanism

    async def budget(self) -> str:
        raise NoSuchThing(
            "ModelCallLimitMiddleware counts the calls of a run or of a thread, in its state; "
            "concurrent runs share nothing."
        )

    async def shell(self) -> str:
        raise NoSuchThing("ShellToolMiddleware has policies for the environment of the shell, not for its commands.")

    async def cancelled(self) -> str:
        self.mechanism = "the task of ainvoke cancelled, then the next message on the same thread_id of a checkpointer"
        agent = self.agent([self.paying()], checkpointer=InMemorySaver())
        await self.cancelled_once_it_runs(agent.ainvoke(said(plan(call("pay"))), THREAD))
        await agent.ainvoke(said("What now?"), THREAD)
        return self.mechanism

    async def in_shell(self, command: str) -> str:
        self.mechanism = "the tool of ShellToolMiddleware, on the host"
        agent = self.agent(middleware=[ShellToolMiddleware(self.work)])
        await agent.ainvoke(said(plan(call("shell", command=command))))
        return self.mechanism

    async def background(self) -> str:
        return await self.in_shell(BACKGROUND)

    async def output(self) -> str:
        return await self.in_shell(self.flood())


if __name__ == "__main__":
    main(LangChain)
