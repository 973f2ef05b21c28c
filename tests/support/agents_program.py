"""Agents for tests of the server and its client: a program that serves them, for `run_server(script=AGENTS)`."""

from __future__ import annotations

AGENTS = '''
import asyncio
import os

from wick import Agent, Ask, ToolCall, ToolUse, assistant, guard, tool
from wick.models.scripted import FunctionModel
from wick.protocols import Finish, TextDelta, Usage
from wick.server import Server


class Slow:
    """Says `one two three` with a pause before each word: "3 0.1" says how many, and how long."""

    name = "slow"

    async def stream(self, request):
        count, pause = next(m.text for m in reversed(request.messages) if m.role == "user").split()
        for number in range(int(count)):
            await asyncio.sleep(float(pause))
            yield TextDelta(f"{number} ")
        yield Usage(7, int(count))
        yield Finish()


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@guard(ToolUse)
def careful(use):
    return Ask("Add these?")


def adding(request):
    """A model that adds 2 and 3, each time it is asked."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"It is {last.text}."
    return assistant("Let me see.", ToolCall("call_1", "add", {"a": 2, "b": 3}))


def failing(request):
    raise ValueError("this model fails")


server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("slow", Agent(Slow(), name="slow"))
server.register_agent("adding", lambda user: Agent(FunctionModel(adding), name="adding", tools=[add]))
server.register_agent("asking", lambda user: Agent(FunctionModel(adding), name="asking", tools=[add], hooks=[careful]))
server.register_agent("failing", Agent(FunctionModel(failing), name="failing"))
server.register_agent("default", {"model": "demo", "backend": {"type": "local"}, "recorder": True})
server.start()
'''
