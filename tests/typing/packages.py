"""Names of the packages that import them when they are first used: type checkers know them all."""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel

from wick import Agent
from wick.backends import Docker, Local, State
from wick.capabilities import MCP, Budget, Critique, Fallback, Sessions, StructuredOutput, Subagents, Summarization
from wick.models import Anthropic, OpenAI, Scripted
from wick.stores import InMemory, Postgres, Sqlite


class Trip(BaseModel):
    city: str


assert_type(StructuredOutput(Trip), StructuredOutput[Trip])
assert_type(Scripted("hello").name, str)
Agent(Scripted(), hooks=[Sessions(InMemory()), Budget(tokens=1000), Critique("haiku"), Fallback("haiku", "gpt-4o")])
print(MCP, Subagents, Summarization, Anthropic, OpenAI, Docker, Local, State, Postgres, Sqlite)
