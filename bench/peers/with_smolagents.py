"""smolagents: `ToolCallingAgent` with `OpenAIModel`, in threads, since it has no async.

It answers with its own tool `final_answer`, and sends tool results to the model as text: not exactly the same work, but
the closest that it supports. Its long system prompt is replaced by that of the benchmark.
Printing off: https://huggingface.co/docs/smolagents/reference/agents
"""

from __future__ import annotations

import asyncio

from contract import MOST_STEPS, RESULT, SYSTEM, Peer, main
from rich.console import Console
from smolagents import AgentLogger, LogLevel, OpenAIModel, ToolCallingAgent, tool
from smolagents.agents import EMPTY_PROMPT_TEMPLATES
from smolagents.models import ChatMessageStreamDelta


@tool
def forecast(city: str, days: int) -> str:
    """The weather forecast for a city.

    Args:
        city: The city.
        days: The day.
    """
    return f"Day {days}: {RESULT}"


class SmolAgents(Peer):
    packages = ("smolagents", "openai")
    fresh = True

    def __init__(self, url: str) -> None:
        self.model = OpenAIModel("gpt-4o", api_base=url, api_key="key")

    def agent(self, stream: bool = False) -> ToolCallingAgent:
        return ToolCallingAgent(
            [forecast],
            self.model,
            prompt_templates={**EMPTY_PROMPT_TEMPLATES, "system_prompt": SYSTEM},
            max_steps=MOST_STEPS,
            logger=AgentLogger(LogLevel.OFF, Console(quiet=True)),
            stream_outputs=stream,
        )

    async def run(self, agent: ToolCallingAgent, question: str) -> str:
        return await asyncio.to_thread(agent.run, question)

    async def stream(self, agent: ToolCallingAgent, question: str) -> str:
        return await asyncio.to_thread(self._streamed, question)

    def _streamed(self, question: str) -> str:
        events = self.agent(stream=True).run(question, stream=True)
        return "".join([event.content or "" for event in events if isinstance(event, ChatMessageStreamDelta)])


if __name__ == "__main__":
    main(SmolAgents)
