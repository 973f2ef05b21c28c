"""openai-agents: `Runner.run` with the model of Chat Completions.

Tracing off: https://openai.github.io/openai-agents-python/tracing/
Chat Completions, and a custom client: https://openai.github.io/openai-agents-python/models/
"""

from __future__ import annotations

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from contract import MOST_STEPS, SYSTEM, Peer, forecast, main
from openai import AsyncOpenAI

set_tracing_disabled(True)
CONFIG = RunConfig(tracing_disabled=True)


class OpenAIAgents(Peer):
    packages = ("openai-agents", "openai")

    def __init__(self, url: str) -> None:
        client = AsyncOpenAI(base_url=url, api_key="key")
        self.model, self.tools = OpenAIChatCompletionsModel("gpt-4o", client), [function_tool(forecast)]

    def agent(self) -> Agent:
        return Agent("traveller", instructions=SYSTEM, model=self.model, tools=self.tools)

    async def run(self, agent: Agent, question: str) -> str:
        result = await Runner.run(agent, question, max_turns=MOST_STEPS, run_config=CONFIG)
        return result.final_output

    async def stream(self, agent: Agent, question: str) -> str:
        result = Runner.run_streamed(agent, question, max_turns=MOST_STEPS, run_config=CONFIG)
        texts = []
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                texts.append(event.data.delta)
        return "".join(texts)


if __name__ == "__main__":
    main(OpenAIAgents)
