"""Typical user code with a server: all of it passes mypy --strict."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from wick import Agent, Scripted, tool
from wick.server import Server, User


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def for_each(user: User) -> Agent:
    return Agent(Scripted(f"Hello, {user.name}."), tools=[add])


server = Server(host="127.0.0.1", port=0, data=Path("data"), config="agents.yaml", quotas={"runs": 5})
assert_type(server.register_agent("one", {"model": "sonnet", "tools": ["add"]}).register_tool(add), Server)
assert_type(server.register_agent("two", Agent(Scripted("Hi."))).register_agent("each", for_each), Server)
assert_type(server.shutdown(), None)
Server("server.yaml", token="secret", tokens=[{"name": "ada", "role": "user", "sha256": "…"}])
