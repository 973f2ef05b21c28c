"""deepagents: `create_deep_agent` with middleware, subagents and the backend `LocalShellBackend`.

https://docs.langchain.com/oss/python/deepagents/subagents, /backends, /human-in-the-loop
"""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import LocalShellBackend
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from peer import HARMFUL, HARMLESS, NoSuchThing, call, harmful, main, plan
from with_langchain import THREAD, LangChain, said


class DeepAgents(LangChain):
    package = "deepagents"

    def agent(self, tools: Any = (), middleware: Any = (), **options: Any) -> Any:
        return create_deep_agent(self.model(), list(tools), middleware=list(middleware), **options)

    async def subagent(self) -> str:
        self.mechanism = "interrupt_on of create_deep_agent, which subagents inherit, unlike its middleware; rejected"
        child = {"name": "child", "description": "Does things.", "system_prompt": "You do things."}
        task = plan(call("execute_command", command=HARMLESS), call("execute_command", command=HARMFUL))
        asked: Any = said(plan(call("task", description=task, subagent_type="child")))
        sure = {
            "allowed_decisions": ["approve", "reject"],
            "when": lambda request: harmful(str(request.tool_call["args"])),
        }
        saver = InMemorySaver()
        agent = self.agent(
            [self.execute()], subagents=[child], interrupt_on={"execute_command": sure}, checkpointer=saver
        )
        state = await agent.ainvoke(asked, THREAD)
        while "__interrupt__" in state:
            state = await agent.ainvoke(Command(resume={"decisions": [{"type": "reject"}]}), THREAD)
        return self.mechanism

    async def shell(self) -> str:
        raise NoSuchThing("Its permissions apply to files; for commands there is only approval by a user.")

    async def in_shell(self, command: str) -> str:
        self.mechanism = "the tool execute of LocalShellBackend"
        agent = self.agent(backend=LocalShellBackend(self.work, inherit_env=True))
        await agent.ainvoke(said(plan(call("execute", command=command))))
        return self.mechanism


if __name__ == "__main__":
    main(DeepAgents)
