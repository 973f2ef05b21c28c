"""LangGraph's in-memory server, with an agent and the scripted model of `serving.py`.

    python serve_langgraph.py FOLDER

It is the server of `langgraph dev --no-browser --no-reload --allow-blocking --n-jobs-per-worker 10`, without its
file of stored state: https://docs.langchain.com/langsmith/cli#dev. Tracing and the check for a newer version are
off: https://docs.langchain.com/langsmith/data-storage-and-privacy.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator
from threading import Thread
from time import sleep
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from serving import ANSWER_TOKENS, ARGUMENTS, CALL_ID, DELTA, DELTAS, NAME, QUESTION_TOKENS, add

CALL: Any = {"name": NAME, "args": ARGUMENTS, "id": CALL_ID, "type": "tool_call"}
TOKENS: Any = {"input_tokens": QUESTION_TOKENS, "output_tokens": ANSWER_TOKENS}
TOKENS["total_tokens"] = QUESTION_TOKENS + ANSWER_TOKENS
JOBS = 10


class Script(BaseChatModel):
    """A model that requests one tool call, and replies with a text to its result."""

    @property
    def _llm_type(self) -> str:
        return "script"

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        calls = [] if messages[-1].type == "tool" else [CALL]
        reply = AIMessage(DELTA * DELTAS, tool_calls=calls, usage_metadata=TOKENS)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _astream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for _ in range(DELTAS):
            yield ChatGenerationChunk(message=AIMessageChunk(DELTA))
        calls = [] if messages[-1].type == "tool" else [CALL]
        yield ChatGenerationChunk(message=AIMessageChunk("", tool_calls=calls, usage_metadata=TOKENS))

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError


model = Script()


async def call_model(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("model", call_model)
builder.add_node("tools", ToolNode([tool(add)]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()


def announce(port: int) -> None:
    """Print the port when the server responds, and end it with its input."""
    while True:
        try:
            urlopen(f"http://127.0.0.1:{port}/ok").close()
            break
        except URLError:
            sleep(0.1)
    print(port, flush=True)
    sys.stdin.read()
    os._exit(0)


def main(folder: str) -> None:
    from langgraph_api.cli import run_server

    here = os.path.abspath(__file__)
    os.chdir(folder)
    os.environ |= {"LANGSMITH_TRACING": "false", "LANGGRAPH_NO_VERSION_CHECK": "true", "LOG_LEVEL": "ERROR"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    Thread(target=announce, args=(port,), daemon=True).start()
    run_server("127.0.0.1", port, graphs={"bench": f"{here}:graph"}, n_jobs_per_worker=JOBS, allow_blocking=True,
               disable_persistence=True, server_level="ERROR")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
