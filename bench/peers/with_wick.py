"""wick: `Agent`, with the hooks that every agent has (tracing, limits, retry) and a raised step limit."""

from __future__ import annotations

from contract import MOST_STEPS, SYSTEM, Peer, forecast, main

from wick import Agent, Limits, tool
from wick.events import ChatModelStream
from wick.models import _http
from wick.models.openai import OpenAI


class Wick(Peer):
    packages = ("wick-agent", "aiohttp", "orjson", "pydantic")

    def __init__(self, url: str) -> None:
        self.model, self.tools = OpenAI("gpt-4o", base_url=url, api_key="key"), [tool(forecast)]

    def agent(self) -> Agent:
        return Agent(self.model, system=SYSTEM, tools=self.tools, hooks=[Limits(steps=MOST_STEPS)])

    async def run(self, agent: Agent, question: str) -> str:
        return (await agent.run(question)).text

    async def stream(self, agent: Agent, question: str) -> str:
        return "".join([event.delta async for event in agent.stream(question) if isinstance(event, ChatModelStream)])

    async def close(self) -> None:
        await _http.close()


if __name__ == "__main__":
    main(Wick)
