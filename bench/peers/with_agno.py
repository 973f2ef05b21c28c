"""agno: `Agent.arun` with `OpenAIChat`, no database and no history.

Telemetry off: https://docs.agno.com/telemetry
"""

from __future__ import annotations

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from contract import SYSTEM, Peer, forecast, main


class Agno(Peer):
    packages = ("agno", "openai")

    def __init__(self, url: str) -> None:
        self.model = OpenAIChat(id="gpt-4o", base_url=url, api_key="key")

    def agent(self) -> Agent:
        return Agent(model=self.model, system_message=SYSTEM, tools=[forecast], telemetry=False)

    async def run(self, agent: Agent, question: str) -> str:
        return (await agent.arun(question)).content

    async def stream(self, agent: Agent, question: str) -> str:
        pieces = agent.arun(question, stream=True)
        return "".join([piece.content async for piece in pieces if piece.event == "RunContent"])


if __name__ == "__main__":
    main(Agno)
