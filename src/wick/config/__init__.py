"""Agents defined in a file, `agents.yaml`.

    model: sonnet
    system_prompt: You write code.
    backend: {type: local, workdir: ./project}
    permissions: {allow: ["Bash(git *)"]}

    agent = load("agents.yaml").agent()

A key that names a capability enables it: with its options, or with `true`; `false` disables it. The file defines one
agent, or several under `agents:` with common options under `defaults:`. It names code to run and commands to allow, so
it must be as trusted as a program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from wick._internal.factory_options import suggest_key
from wick._internal.safe_yaml import KeyPath, YamlSource, read
from wick.agent import Agent
from wick.config.builder import AgentConfig, AgentsFile
from wick.config.keys import (
    CapabilityRing,
    build_agent_schema,
    build_file_schema,
    list_agent_keys,
    read_backend_type,
)
from wick.config.options_schema import ConfigLocation, Schema, coerce_value
from wick.config.secrets import check_exposure
from wick.errors import ConfigError

# The order of the rings, outermost first. `hooks` are the hooks that the file lists.
RINGS = (
    CapabilityRing("tracing", "Tracing", always=True),
    CapabilityRing("recorder", "Recorder"),
    CapabilityRing("usage_log", "UsageLog"),
    CapabilityRing("sessions", "Sessions", short="store", yes={"store": "sessions"}, shared=True),
    CapabilityRing("limits", "Limits", always=True),
    CapabilityRing("fallback", "Fallback", short="models"),
    CapabilityRing("retry", "Retry", always=True),
    CapabilityRing("hooks"),
    CapabilityRing("executables", "Executables", short="dirs", yes={"folder": "."}),
    CapabilityRing("recipes", "Recipes", short="dirs"),
    CapabilityRing("todos", "Todos", always=True),
    CapabilityRing("filesystem", "Filesystem", backend=True),
    CapabilityRing("snapshots", "Snapshots"),
    CapabilityRing("skills", "Skills", short="paths", yes={"shipped": True}),
    CapabilityRing("memory", "Memory", short="paths", yes={"paths": ["AGENTS.md"]}),
    CapabilityRing("context", "Context", short="texts"),
    CapabilityRing("self_description", "SelfDescription", short="text"),
    CapabilityRing("metadata", "Metadata"),
    CapabilityRing("builtins", "Builtins", short="tools"),
    CapabilityRing("mcp", "MCP"),
    CapabilityRing("subagents", "Subagents", short="agents"),
    CapabilityRing("ask_user", "AskUser"),
    CapabilityRing("critique", "Critique"),
    CapabilityRing("structured_output", "StructuredOutput"),
    CapabilityRing("tool_search", "ToolSearch"),
    CapabilityRing("code_mode", "CodeMode", short="tools"),
    CapabilityRing("summarization", "Summarization", always=True),  # closest to the model
    CapabilityRing("budget", "Budget", shared=True),  # inside of retry: each attempt gets its own reservation
    CapabilityRing("information_flow", "InformationFlow"),
    CapabilityRing("permissions", "Permissions"),  # a guard: it sees the final arguments
)
BY_KEY = {ring.key: ring for ring in RINGS}
DEFAULT = "default"  # the id of an agent without a name
_ID = re.compile(r"\w[\w.-]{0,63}")


def load(path: str | os.PathLike[str] = "agents.yaml", *, environment: Mapping[str, str] | None = None) -> Config:
    """Return the agents of a file; raise a ConfigError that names the line of an error."""
    path = Path(path)
    return Config(path, read(path, os.environ if environment is None else environment))


def schema() -> Schema:
    """Return a JSON Schema of the file, for editors."""
    return build_file_schema(RINGS, _ID.pattern)


class Config:
    """The agents of a file by id, built on demand."""

    def __init__(self, path: Path, source: YamlSource) -> None:
        self.path = path
        self.agents = {
            part.id: part for part in _read_agents(AgentsFile(source, path.absolute().parent, RINGS, path.absolute()))
        }
        check_exposure(path, [(id, part.options) for id, part in self.agents.items()])
        for part in self.agents.values():
            part.siblings = [other for other in self.agents.values() if other is not part]
            part.check_model()

    def __repr__(self) -> str:
        return f"Config({str(self.path)!r}, {', '.join(self.agents)})"

    def agent(self, id: str = "") -> Agent:
        """Return the agent with this id; without an id, the only agent or the one named `default`."""
        return self.find(id).agent()

    def find(self, id: str = "") -> AgentConfig:
        """Return the configuration of an agent; without an id, of the only agent or the one named `default`."""
        wanted = id or (next(iter(self.agents)) if len(self.agents) == 1 else DEFAULT)
        if wanted in self.agents:
            return self.agents[wanted]
        if not id:
            raise ConfigError(f"{self.path} has several agents; choose one of: {', '.join(self.agents)}")
        raise ConfigError(f"{self.path} has no agent {id!r}; {suggest_key(id, self.agents, 'its agents are')}")

    async def close(self) -> None:
        """Close the resources of built agents: containers, connections, stores."""
        async with AsyncExitStack() as stack:  # a failing close does not skip the others
            for part in [part for agent in self.agents.values() for part in agent.resources]:
                if close := getattr(part, "close", None) or getattr(part, "stop", None):
                    stack.push_async_callback(close)


def _read_agents(file: AgentsFile) -> Iterator[AgentConfig]:
    """Yield the agents of a file: the only one, or those under `agents`."""
    source, data = file.source, file.source.data
    if not {"agents", "defaults"} & data.keys():
        options = _read_part(data, source, ())
        id = re.sub(r"[^\w.-]+", "-", options.get("name", "")).strip("-.")[:64].lower() or DEFAULT
        yield AgentConfig(file, id, options, ((),))
        return
    if misplaced := [key for key in data if key not in ("agents", "defaults")]:
        key, hint = misplaced[0], "put it into `defaults:` or into an agent"
        if key not in list_agent_keys(RINGS):
            hint = suggest_key(key, ("agents", "defaults"))
        raise source.error_at((key,), f"there is no key {key!r} beside agents and defaults; {hint}")
    defaults = _read_part(data.get("defaults"), source, ("defaults",))
    agents = data.get("agents")
    if not isinstance(agents, dict) or not agents:
        raise source.error_at(("agents",), "agents is a map of ids, such as `coder:`, to their options")
    for id, own in agents.items():
        at: KeyPath = ("agents", id)
        if not _ID.fullmatch(id):
            raise source.error_at(at, f"an agent's id has letters, digits, `_`, `.` and `-`, at most 64; not {id!r}")
        yield AgentConfig(file, id, merge_options(defaults, _read_part(own, source, at)), (at, ("defaults",)))


def _read_part(data: Any, source: YamlSource, at: KeyPath) -> dict[str, Any]:
    """Return the validated options of one agent, or of the defaults; {} if the part is empty."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise source.error_at(at, f"{'.'.join(map(str, at))} is a map of keys and values, such as `model: auto`")
    try:
        backend = read_backend_type(data.get("backend"))
        agent_schema = build_agent_schema(RINGS, list_agent_keys(RINGS).intersection(data), backend)
    except ConfigError as error:  # the plugin of a backend cannot be loaded
        raise source.error_at((*at, "backend"), f"backend: {error}") from None
    options: dict[str, Any] = coerce_value(data, agent_schema, ConfigLocation(source, at, at))
    for key, value in options.items():  # a short value becomes a map with its option
        ring = BY_KEY.get(key)
        if key == "subagents" and isinstance(value, dict) and "agents" not in value:
            options[key] = {"agents": value}
        elif ring is not None and ring.short and not isinstance(value, bool | dict):
            options[key] = {ring.short: [value] if key == "context" and isinstance(value, str) else value}
    return options


def merge_options(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent's options merged over the defaults: maps by key, other values as a whole."""
    merged = {**defaults, **own}
    for key in own.keys() & defaults.keys() & {*BY_KEY, "settings"}:
        if own[key] is True:
            merged[key] = defaults[key] or True
        elif isinstance(own[key], dict) and isinstance(defaults[key], dict):
            merged[key] = {**defaults[key], **own[key]}
            # An agent's permission rules do not remove default rules.
            rules = {"deny", "ask", "allow"} if key == "permissions" else set()
            for rule in rules & defaults[key].keys() & own[key].keys():
                merged[key][rule] = [*defaults[key][rule], *own[key][rule]]
    return merged
