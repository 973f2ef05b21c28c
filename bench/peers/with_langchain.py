"""LangChain: `create_agent`, which is a graph of LangGraph, with `ChatOpenAI` and no checkpointer.

LangSmith's tracing is off unless its variables are set: https://docs.langchain.com/oss/python/langchain/observability
The step limit:
https://reference.langchain.com/python/langchain-core/runnables/config/RunnableConfig/recursion_limit
"""

from __future__ import annotations

import os
from typing import Any

from contract import MOST_STEPS, SYSTEM, Peer, forecast, main
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_openai import ChatOpenAI

os.environ["LANGSMITH_TRACING"] = "false"
CONFIG: Any = {"recursion_limit": 10 * MOST_STEPS}


class LangChain(Peer):
    packages = ("langchain", "langgraph", "langchain-openai", "openai")

    def __init__(self, url: str) -> None:
        self.model, self.tools = ChatOpenAI(model="gpt-4o", base_url=url, api_key="key"), [tool(forecast)]

    def agent(self) -> Any:
        return create_agent(self.model, self.tools, system_prompt=SYSTEM)

    async def run(self, agent: Any, question: str) -> str:
        state = await agent.ainvoke({"messages": [{"role": "user", "content": question}]}, CONFIG)
        return state["messages"][-1].text

    async def stream(self, agent: Any, question: str) -> str:
        said = {"messages": [{"role": "user", "content": question}]}
        pieces = agent.astream(said, CONFIG, stream_mode="messages")
        return "".join([piece.text async for piece, _ in pieces])


if __name__ == "__main__":
    main(LangChain)
