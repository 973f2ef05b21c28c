"""The configuration of MCP servers; tests/integration/sandbox/capabilities/test_mcp.py connects to them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from wick.capabilities.mcp.config import McpServer, read_servers
from wick.errors import ConfigError, MissingExtra


def program(**options: Any) -> dict[str, Any]:
    return {"command": "mcp-files", **options}


def test_a_program_and_a_service() -> None:
    given = {
        "files": {"type": "stdio", "command": "mcp-files", "args": ["."], "env": {"A": "b"}, "tools": ["ls"]},
        "web_1": {"type": "http", "url": "https://example.com/mcp", "headers": {"X": "y"}, "trust": True, "seconds": 5},
    }
    assert read_servers(given) == (
        McpServer("files", "mcp-files", (".",), {"A": "b"}, tools=frozenset({"ls"})),
        McpServer("web_1", url="https://example.com/mcp", headers={"X": "y"}, trust=True, seconds=5),
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "takes servers by name"),
        ([], "takes servers by name"),
        ({"a__b": program()}, "is not a name for an MCP server"),
        ({"": program()}, "is not a name for an MCP server"),
        ({"x" * 32: program()}, "is not a name for an MCP server"),
        ({"t": "npx"}, 'described by a mapping with "command" or "url"'),
        ({"t": {}}, 'either a "command"'),
        ({"t": {"command": "a", "url": "http://b"}}, 'either a "command"'),
        ({"t": {"url": "http://b", "args": []}}, 'either a "command"'),
        ({"t": {"command": "a", "cmd": 1}}, "has no option 'cmd'"),
        ({"t": {"command": ""}}, "the name or the path of a program"),
        ({"t": {"command": "a", "args": "b"}}, "a list of texts"),
        ({"t": {"command": "a", "env": {"A": 1}}}, "texts by name"),
        ({"t": {"url": "ftp://b"}}, "like https://example.com/mcp"),
        ({"t": {"url": "http://[b"}}, "like https://example.com/mcp"),
        ({"t": {"url": "http://b", "headers": ["A"]}}, "texts by name"),
        ({"t": {"command": "a", "trust": "yes"}}, "true or false"),
        ({"t": {"command": "a", "seconds": 0}}, "a number above 0"),
        ({"t": {"command": "a", "tools": "add"}}, "a list of names"),
    ],
)
def test_servers_that_make_no_sense(given: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_servers(given)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wick-agent\[mcp\]'"):
        read_servers({"t": program()})


def test_a_password_is_not_shown() -> None:
    servers = read_servers({"t": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer hunter2"}}})
    assert "hunter2" not in repr(servers)
