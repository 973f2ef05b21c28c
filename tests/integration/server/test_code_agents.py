"""Registered agents: their listing, and HTTP tools that reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api_requests import send_request
from server_agents import HELLO, send_answer
from server_process import host_server, open_client
from wick import Agent, FunctionModel, ToolUse, guard
from wick.capabilities.todos import Todos
from wick.tools import tool

TOOL = {
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "callback_url": "http://127.0.0.1:9/weather",
}


def _model() -> FunctionModel:
    return FunctionModel(lambda request: ", ".join(sorted(tool.name for tool in request.tools)))


@guard(ToolUse, match="own")
def careful(use: ToolUse) -> None:
    """Observe."""


@tool
def own(text: str) -> str:
    """Do something."""
    return text


def _agents() -> dict[str, Any]:
    def broken(user: Any) -> Agent:
        raise RuntimeError("no")

    return {
        "object": Agent(_model(), name="An object", tools=[own], hooks=[careful, Todos()]),
        "function": lambda user: Agent(_model(), name=f"of {user.name}", tools=[own], hooks=[careful]),
        "options": {"model": _model(), "tools": [own], "hooks": [careful], "todos": False},
        "broken": broken,
    }


async def test_registered_agents_are_listed_with_model_and_hooks(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=_agents()) as server:
        _, listed = await send_request(server, "ada", "GET", "/agents/")
        found = {agent["agent_id"]: agent for agent in listed["agents"]}
        assert set(found) == {"object", "function", "options", "broken"}
        for id in ("object", "function", "options"):
            assert found[id]["origin"] == "code" and found[id]["model"] == _model().name, id
            assert "careful" in found[id]["hooks"], id
            _, one = await send_request(server, "ada", "GET", f"/agents/{id}")
            assert {key: one[key] for key in found[id]} == found[id]
        assert found["object"]["name"] == "An object" and "todos" in found["object"]["hooks"]
        assert found["function"]["name"] == "of ada" and not {"sessions", "in_use"} & {*found["function"]["hooks"]}
        assert (found["broken"]["model"], found["broken"]["hooks"]) == ("", [])  # it does not hide the others


async def test_tools_behind_http_reach_agents_of_a_program(tmp_path: Path) -> None:
    async with (
        host_server(tmp_path, agents=_agents()) as server,
        open_client(server) as ada,
        open_client(server, "olga") as olga,
    ):
        for name, agents, shared in (("weather", ["*"], True), ("other", ["object"], True), ("mine", ["*"], False)):
            body = {"name": name, "agents": agents, "shared": shared, **TOOL}
            assert (await send_request(server, "olga", "POST", "/agents/tools/", json=body))[0] == 201
        expected = {
            "object": {"own", "weather", "other"},
            "function": {"own", "weather"},
            "options": {"own", "weather"},
        }
        for id, names in expected.items():
            told = {*(await send_answer(ada, id, HELLO))["response"].split(", ")} - {"write_todos", "update_todo"}
            assert told == names, id
            told = {*(await send_answer(olga, id, HELLO))["response"].split(", ")} - {"write_todos", "update_todo"}
            assert told == names | {"mine"}, id  # a tool of one user is no other's
        assert (await send_request(server, "olga", "DELETE", "/agents/tools/weather"))[0] == 204
        assert "weather" not in (await send_answer(ada, "function", HELLO))["response"]


async def test_a_tool_of_a_program_is_not_replaced(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=_agents()) as server, open_client(server) as ada:
        body = {"name": "own", "agents": ["*"], "shared": True, **TOOL}
        assert (await send_request(server, "olga", "POST", "/agents/tools/", json=body))[0] == 201
        assert "own" in (await send_answer(ada, "function", HELLO))["response"]
        _, one = await send_request(server, "ada", "GET", "/agents/function")
        assert [tool["description"] for tool in one["tools"] if tool["name"] == "own"] == ["Do something."]
