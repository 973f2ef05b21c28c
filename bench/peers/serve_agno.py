"""agno's AgentOS, with an agent on SQLite and the scripted model of `serving.py`.

    python serve_agno.py FOLDER

Telemetry is off: https://docs.agno.com/telemetry
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from agno.agent import Agent
from agno.db.sqlite import AsyncSqliteDb
from agno.models.base import Model
from agno.models.message import MessageMetrics
from agno.models.response import ModelResponse
from agno.os import AgentOS
from serving import ANSWER_TOKENS, ARGUMENTS, CALL_ID, DELTA, DELTAS, NAME, QUESTION_TOKENS, add, serve

CALL = {"id": CALL_ID, "type": "function", "function": {"name": NAME, "arguments": json.dumps(ARGUMENTS)}}
TOKENS = {"input_tokens": QUESTION_TOKENS, "output_tokens": ANSWER_TOKENS}


class Script(Model):
    """A model that requests one tool call, and replies with a text to its result."""

    def __init__(self) -> None:
        super().__init__(id="script", name="script", provider="script")

    def _last(self, messages: Any) -> ModelResponse:
        usage = MessageMetrics(**TOKENS, total_tokens=QUESTION_TOKENS + ANSWER_TOKENS)
        calls = [] if messages[-1].role == "tool" else [CALL]
        return ModelResponse(role="assistant", tool_calls=calls, response_usage=usage)

    async def ainvoke(self, messages: Any, **_: Any) -> ModelResponse:
        reply = self._last(messages)
        reply.content = DELTA * DELTAS
        return reply

    async def ainvoke_stream(self, messages: Any, **_: Any) -> AsyncIterator[ModelResponse]:  # type: ignore[override]
        for _ in range(DELTAS):
            yield ModelResponse(content=DELTA)
        yield self._last(messages)

    def invoke(self, *_: Any, **__: Any) -> ModelResponse:
        raise NotImplementedError

    invoke_stream = _parse_provider_response = _parse_provider_response_delta = invoke  # type: ignore[assignment]


def main(folder: str) -> None:
    db = AsyncSqliteDb(db_file=f"{folder}/agno.db")
    agent = Agent(id="bench", model=Script(), tools=[add], db=db, telemetry=False)
    serve(AgentOS(agents=[agent], db=db, telemetry=False).get_app())


if __name__ == "__main__":
    main(sys.argv[1])
