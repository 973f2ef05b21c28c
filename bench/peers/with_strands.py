"""strands-agents: `Agent.invoke_async` with `OpenAIModel`.

An agent stores its conversation and runs one question at a time, so each run has its own agent. A shared client, and
replies in one piece where no text is streamed (`stream=False`), are documented with `OpenAIModel`:
https://strandsagents.com/docs/api/python/strands.models.openai/
Nothing is printed and nothing trimmed: `callback_handler=None`, `NullConversationManager`.
"""

from __future__ import annotations

from contract import SYSTEM, Peer, forecast, main
from openai import AsyncOpenAI
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel


class Strands(Peer):
    packages = ("strands-agents", "openai")
    fresh = True

    def __init__(self, url: str) -> None:
        client = AsyncOpenAI(base_url=url, api_key="key")
        self.model = OpenAIModel(client, model_id="gpt-4o", stream=False)
        self.streaming = OpenAIModel(client, model_id="gpt-4o")
        self.tools = [tool(forecast)]

    def agent(self, stream: bool = False) -> Agent:
        return Agent(
            self.streaming if stream else self.model,
            system_prompt=SYSTEM,
            tools=self.tools,
            callback_handler=None,
            conversation_manager=NullConversationManager(),
        )

    async def run(self, agent: Agent, question: str) -> str:
        result = await agent.invoke_async(question)
        return result.message["content"][0]["text"]

    async def stream(self, agent: Agent, question: str) -> str:
        events = self.agent(stream=True).stream_async(question)
        return "".join([event["data"] async for event in events if "data" in event])


if __name__ == "__main__":
    main(Strands)
