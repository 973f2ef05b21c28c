"""Configuration of MCP servers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from wick import constants
from wick.errors import ConfigError, MissingExtra

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,30}")
_KEYS = {"command", "args", "env", "cwd", "url", "headers", "tools", "trust", "seconds", "type"}
_OF_A_PROGRAM, _OF_A_SERVICE = {"command", "args", "env", "cwd"}, {"url", "headers"}


@dataclass(frozen=True, slots=True)
class McpServer:
    """The address, allowed tools and trust of an MCP server."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: frozenset[str] | None = None  # None: all of its tools
    trust: bool = False  # use its annotations, such as read-only
    seconds: float = constants.MCP_SECONDS


def read_servers(servers: Any) -> tuple[McpServer, ...]:
    """Return the servers of a configuration; raise a ConfigError for an invalid one."""
    if not isinstance(servers, Mapping) or not servers:
        raise ConfigError('MCP(servers=…) takes servers by name: {"files": {"command": "mcp-files", "args": ["."]}}')
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", "mcp", "a connection to an MCP server")
    return tuple(_read_server(name, given) for name, given in servers.items())


def _read_server(name: Any, given: Any) -> McpServer:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name for an MCP server; use letters, digits, - and single _, at most 31")
    if not isinstance(given, Mapping):
        raise ConfigError(f'the MCP server {name} is described by a mapping with "command" or "url", not {given!r}')
    if unknown := sorted(map(str, given.keys() - _KEYS)):
        raise ConfigError(f"the MCP server {name} has no option {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
    program, service = _OF_A_PROGRAM & given.keys(), _OF_A_SERVICE & given.keys()
    if ("command" in given) == ("url" in given) or (program and service):
        raise ConfigError(f'the MCP server {name} is either a "command" (args, env, cwd) or a "url" (headers)')
    options = {key: value for key, value in given.items() if key != "type"}
    for key, value in options.items():
        if not _CHECKS[key](value):
            raise ConfigError(f"the MCP server {name} has {key}={value!r}; it must be {_EXPECTED[key]}")
    for key, kind in (("args", tuple), ("tools", frozenset), ("env", dict), ("headers", dict)):
        if key in options:
            options[key] = kind(options[key])
    return McpServer(name, **options)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(item, str) for item in value)


def _is_text_map(value: Any) -> bool:
    return isinstance(value, Mapping) and _are_texts([*value, *value.values()])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_url(value: Any) -> bool:
    try:
        return isinstance(value, str) and urlsplit(value).scheme in ("http", "https") and bool(urlsplit(value).hostname)
    except ValueError:
        return False


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "command": _is_text,
    "args": _are_texts,
    "env": _is_text_map,
    "cwd": _is_text,
    "url": _is_url,
    "headers": _is_text_map,
    "tools": _are_texts,
    "trust": lambda value: isinstance(value, bool),
    "seconds": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > 0,
}
_EXPECTED = {
    "command": "the name or the path of a program",
    "args": "a list of texts",
    "env": "texts by name",
    "cwd": "a folder",
    "url": "like https://example.com/mcp",
    "headers": "texts by name",
    "tools": "a list of names",
    "trust": "true or false",
    "seconds": "a number above 0",
}
