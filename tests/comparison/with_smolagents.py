"""smolagents: `ToolCallingAgent`, which has only step callbacks, managed agents and a memory.

https://huggingface.co/docs/smolagents/reference/agents and /tutorials/memory, /tutorials/secure_code_execution
"""

from __future__ import annotations

import asyncio
from typing import Any

from peer import NoSuchThing, Peer, call, main, plan
from rich.console import Console
from smolagents import AgentLogger, LogLevel, OpenAIModel, Tool, ToolCallingAgent

NO_GUARD = "Callbacks run after a step, when its tools have run; no hook runs before a tool and can refuse it."
NO_SHELL = "It has no tool for commands; its code agents run Python."


class SmolAgents(Peer):
    package = "smolagents"

    async def rewrite(self) -> str:
        raise NoSuchThing(NO_GUARD)

    async def subagent(self) -> str:
        raise NoSuchThing(NO_GUARD)

    async def failing(self) -> str:
        raise NoSuchThing(NO_GUARD)

    async def resume(self) -> str:
        raise NoSuchThing("The memory of an agent is in its process; there is no checkpoint to resume from.")

    async def budget(self) -> str:
        raise NoSuchThing("max_steps limits one run; there is no limit that runs share.")

    async def shell(self) -> str:
        raise NoSuchThing(NO_SHELL)

    async def cancelled(self) -> str:
        self.mechanism = "agent.interrupt() while a tool runs, then the next message with reset=False"
        peer = self

        class Pay(Tool):
            name, description, inputs, output_type = "pay", "Pay.", {}, "string"

            def forward(self) -> str:
                peer.ran("pay")
                agent.interrupt()
                return "paid"

        model = OpenAIModel("gpt-4o", api_base=self.url, api_key="key", client_kwargs={"max_retries": 0})
        agent: Any = ToolCallingAgent([Pay()], model, logger=AgentLogger(LogLevel.OFF, Console(quiet=True)))
        try:
            await asyncio.to_thread(agent.run, plan(call("pay")))
        except Exception as stopped:
            print(stopped)
        await asyncio.to_thread(agent.run, "What now?", reset=False)
        return self.mechanism

    async def background(self) -> str:
        raise NoSuchThing(NO_SHELL)

    async def output(self) -> str:
        raise NoSuchThing(NO_SHELL)


if __name__ == "__main__":
    main(SmolAgents)
