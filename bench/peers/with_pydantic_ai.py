"""pydantic-ai: `Agent.run` with `OpenAIChatModel`.

Not instrumented by default: https://ai.pydantic.dev/logfire/
The request limit: https://ai.pydantic.dev/agents/#usage-limits
"""

from __future__ import annotations

from contract import MOST_STEPS, SYSTEM, Peer, forecast, main
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

LIMITS = UsageLimits(request_limit=MOST_STEPS)


class PydanticAI(Peer):
    packages = ("pydantic-ai-slim", "openai", "pydantic")

    def __init__(self, url: str) -> None:
        self.model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=url, api_key="key"))

    def agent(self) -> Agent:
        return Agent(self.model, system_prompt=SYSTEM, tools=[forecast])

    async def run(self, agent: Agent, question: str) -> str:
        return (await agent.run(question, usage_limits=LIMITS)).output

    async def stream(self, agent: Agent, question: str) -> str:
        async with agent.run_stream(question, usage_limits=LIMITS) as result:
            return "".join([text async for text in result.stream_text(delta=True, debounce_by=None)])


if __name__ == "__main__":
    main(PydanticAI)
