"""ADK's API server, with an agent and the scripted model of `serving.py`.

    python serve_adk.py FOLDER [URI]

It is the app of `adk api_server`: https://google.github.io/adk-docs/runtime/api-server/. URI is the store of its
sessions, an SQLite file if it is missing. A session is created with its first run.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any

os.environ["OTEL_SDK_DISABLED"] = "true"

from google.adk.agents import LlmAgent
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai.types import Content, FunctionCall, GenerateContentResponseUsageMetadata, Part
from serving import ANSWER_TOKENS, ARGUMENTS, CALL_ID, DELTA, DELTAS, NAME, QUESTION_TOKENS, add, serve


class Script(BaseLlm):
    """A model that requests one tool call, and replies with a text to its result."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        if stream:
            for _ in range(DELTAS):
                yield LlmResponse(content=Content(role="model", parts=[Part(text=DELTA)]), partial=True)
        parts = [Part(text=DELTA * DELTAS)]
        asked = llm_request.contents[-1].parts or []
        if not any(part.function_response for part in asked):
            parts.append(Part(function_call=FunctionCall(id=CALL_ID, name=NAME, args=dict(ARGUMENTS))))
        usage = GenerateContentResponseUsageMetadata(
            prompt_token_count=QUESTION_TOKENS, candidates_token_count=ANSWER_TOKENS
        )
        yield LlmResponse(content=Content(role="model", parts=parts), usage_metadata=usage)


class Loader(BaseAgentLoader):
    """Returns the one agent."""

    def __init__(self) -> None:
        self._agent = LlmAgent(name="bench", model=Script(model="script"), tools=[add])

    def load_agent(self, agent_name: str) -> Any:
        return self._agent

    def list_agents(self) -> list[str]:
        return ["bench"]


def main(folder: str, uri: str) -> None:
    logging.disable(logging.WARNING)  # the server logs each run
    app = get_fast_api_app(
        agents_dir=folder, agent_loader=Loader(), session_service_uri=uri, web=False, auto_create_session=True,
        artifact_service_uri="memory://", memory_service_uri="memory://",
    )  # fmt: skip
    serve(app)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else f"sqlite:///{sys.argv[1]}/adk.db")
