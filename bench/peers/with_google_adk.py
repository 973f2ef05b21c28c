"""google-adk: `InMemoryRunner` with `LiteLlm`, its client for models with OpenAI's wire format.

LiteLLM: https://google.github.io/adk-docs/agents/models/litellm/
No limit of model calls, streaming: https://google.github.io/adk-docs/runtime/runconfig/
"""

from __future__ import annotations

from contract import SYSTEM, Peer, forecast, main
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part

ONE_PIECE, STREAMED = RunConfig(max_llm_calls=0), RunConfig(max_llm_calls=0, streaming_mode=StreamingMode.SSE)


class GoogleADK(Peer):
    packages = ("google-adk", "litellm", "openai")

    def __init__(self, url: str) -> None:
        self.model = LiteLlm("openai/gpt-4o", api_base=url, api_key="key")

    def agent(self) -> InMemoryRunner:
        agent = LlmAgent(name="traveller", model=self.model, instruction=SYSTEM, tools=[forecast])
        return InMemoryRunner(agent, app_name="bench")

    async def run(self, agent: InMemoryRunner, question: str, config: RunConfig = ONE_PIECE) -> str:
        session = await agent.session_service.create_session(app_name="bench", user_id="user")
        texts = []
        asked = Content(role="user", parts=[Part(text=question)])
        async for event in agent.run_async(user_id="user", session_id=session.id, new_message=asked, run_config=config):
            if (event.partial or config is ONE_PIECE) and event.content and event.content.parts:
                texts += [part.text for part in event.content.parts if part.text]
        return "".join(texts)

    async def stream(self, agent: InMemoryRunner, question: str) -> str:
        return await self.run(agent, question, STREAMED)


if __name__ == "__main__":
    main(GoogleADK)
