"""pydantic-ai's AG-UI adapter behind Starlette, with the scripted model of `serving.py`.

    python serve_pydantic_ai.py FOLDER

https://ai.pydantic.dev/ui/ag-ui/ describes `AGUIAdapter.dispatch_request`. The client sends the whole conversation
with each request: nothing is stored. Agents are not instrumented by default: https://ai.pydantic.dev/logfire/
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from serving import ARGUMENTS, CALL_ID, DELTA, DELTAS, NAME, add, serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def write_reply(messages: list[Any], _: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Request one tool call, and reply with a text to its result."""
    for _ in range(DELTAS):
        yield DELTA
    last = messages[-1]
    if not (isinstance(last, ModelRequest) and isinstance(last.parts[0], ToolReturnPart)):
        yield {0: DeltaToolCall(name=NAME, json_args=json.dumps(ARGUMENTS), tool_call_id=CALL_ID)}


agent = Agent(FunctionModel(stream_function=write_reply), tools=[add])


async def stream(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


if __name__ == "__main__":
    serve(Starlette(routes=[Route("/", stream, methods=["POST"])]))
