"""The keys of `agents.yaml` as JSON Schema, for validation and for editors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import getdoc
from typing import Any

from wick._internal.plugins import find_plugin, find_plugins
from wick.capabilities._child_agents.definitions import KEYS as DEFINITION
from wick.config.options_schema import (
    ANYTHING,
    MODEL,
    NUMBER,
    OBJECT,
    REFERENCE,
    SWITCH,
    TEXT,
    TEXTS,
    WHOLE,
    Schema,
    any_of,
    build_editor_schema,
    build_object_schema,
    build_options_schema,
)
from wick.errors import ConfigError
from wick.protocols import SETTINGS
from wick.tools import HttpTool

BACKENDS = {
    "local": "wick.backends.local:Local",
    "docker": "wick.backends.docker:Docker",
    "state": "wick.backends.state:State",
}


@dataclass(frozen=True, slots=True)
class CapabilityRing:
    """A key of the file and the capability that it configures."""

    key: str
    kind: str = ""  # its class, in wick.capabilities.<key>
    always: bool = False  # enabled unless the value is `false`
    backend: bool = False  # enabled if, and only if, there is a backend
    short: str = ""  # the option for a value that is not a map
    yes: Mapping[str, Any] = field(default_factory=dict, hash=False)  # options for the value `true`
    shared: bool = False  # one instance for all agents if it is in `defaults:`

    def load_class(self) -> Callable[..., Any]:
        """Return the class of the capability."""
        return load_own(f"wick.capabilities.{self.key}:{self.kind}")  # type: ignore[no-any-return]


def load_own(name: str) -> Any:
    """Import and return an object of wick, by `module:name`."""
    module, _, kind = name.partition(":")
    return getattr(import_module(module), kind)


def load_backend_class(type: str) -> Callable[..., Any]:
    """Return the class of a backend, or the factory of a plugin."""
    if type in BACKENDS:
        return load_own(BACKENDS[type])  # type: ignore[no-any-return]
    if (plugin := find_plugin("wick.backends", type)) is None:
        raise ConfigError(f"there is no backend {type!r}; the backends are {', '.join(BACKENDS)}")
    return plugin.load()  # type: ignore[no-any-return]


def read_backend_type(value: Any) -> str:
    """Return the type of a configured backend, or an empty text if neither wick nor a plugin provides it.

    Raise a ConfigError if it is the misspelt name of a plugin's: the schema knows only those of wick.
    """
    named = value.get("type") if isinstance(value, dict) else value
    if not isinstance(named, str):
        return ""
    if named in BACKENDS or find_plugin("wick.backends", named) is not None:
        return named
    installed = sorted({plugin.name for plugin in find_plugins("wick.backends")})
    if close := get_close_matches(named, installed, n=1):
        raise ConfigError(f"there is no backend {named!r}; did you mean {close[0]!r}?")
    return ""


def build_file_schema(rings: tuple[CapabilityRing, ...], id: str) -> Schema:
    """Return a JSON Schema of the file, for editors."""
    several = {"agents": {"type": "object", "additionalProperties": any_of({"$ref": "#/$defs/agent"}, {"type": "null"}),
                          "minProperties": 1, "propertyNames": {"pattern": f"^{id}$"}},
               "defaults": any_of({"$ref": "#/$defs/agent"}, {"type": "null"})}  # fmt: skip
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agents.yaml",
        "description": "Agents of wick: one, or several under `agents` with common options under `defaults`.",
        "type": "object",
        "minProperties": 1,
        "if": {"anyOf": [{"required": ["agents"]}, {"required": ["defaults"]}]},
        "then": build_object_schema(several, required=["agents"]),
        "else": {"$ref": "#/$defs/agent"},
        "$defs": {"agent": build_editor_schema(build_agent_schema(rings, list_agent_keys(rings)))},
    }


def list_agent_keys(rings: Iterable[CapabilityRing]) -> frozenset[str]:
    """Return every key of an agent."""
    return frozenset((*_PLAIN, *(ring.key for ring in rings), "backend"))


@cache
def build_agent_schema(rings: tuple[CapabilityRing, ...], used: frozenset[str], backend: str = "") -> Schema:
    """Return the schema of an agent. Only used keys are described, so that other capabilities are not imported.

    `backend` is the only type of backend to describe; without it, all types of wick are described.
    """
    parts: dict[str, Schema] = {**_PLAIN, "backend": ANYTHING, **{ring.key: ANYTHING for ring in rings}}
    if "backend" in used:
        parts["backend"] = _build_backend_schema(backend)
    parts |= {ring.key: _build_ring_schema(ring) for ring in rings if ring.key in used and ring.kind}
    parts["hooks"] = any_of(_HOOKS, _EVENTS, description="Hooks of your own, or programs by the events they handle.")
    return build_object_schema(parts, description="An agent.")


def _build_ring_schema(ring: CapabilityRing) -> Schema:
    kind = ring.load_class()
    if ring.key == "subagents":  # definitions with options, or definitions alone, by name
        listed = any_of(TEXT, TEXTS)
        known = {**dict.fromkeys((*DEFINITION, "system_prompt"), TEXT), "tools": listed, "without": listed}
        known |= {"model": MODEL, "hooks": _HOOKS, "settings": _PLAIN["settings"]}
        known["output_type"] = any_of(OBJECT, REFERENCE)
        definition = build_object_schema(known, required=["description"])
        by_name: Schema = {"type": "object", "additionalProperties": definition}
        agents = any_of(TEXT, {"type": "array", "items": any_of(TEXT, definition)}, by_name)
        schemas = [{**build_options_schema(kind, agents=agents), "required": ["agents"]}, by_name]
    else:
        others = {"interactor": any_of({"enum": ["terminal"]}, REFERENCE)} if ring.key == "ask_user" else {}
        schemas = [build_options_schema(kind, ("backend",), **others)]
    short = schemas[0]["properties"][ring.short] if ring.short else {"anyOf": []}
    forms = [form for form in short.get("anyOf", [short]) if form != {"type": "null"}]
    texts = [TEXT] if ring.key == "context" else []
    doc = (getdoc(kind) or "").partition("\n")[0]
    return any_of(SWITCH, *texts, *schemas, *forms, description=doc)


@cache
def _build_backend_schema(only: str = "") -> Schema:
    without: dict[str, tuple[str, ...]] = {"local": ("path",), "docker": ("owner", "server"), "state": ("files",)}
    forms = []
    for type in [only] if only else BACKENDS:
        others = {"workdir": TEXT} if type == "local" else {}
        known = build_options_schema(load_backend_class(type), without.get(type, ()), **others)
        needs = ["type", "image"] if type == "docker" else ["type"]
        forms.append(build_object_schema({"type": {"const": type}, **known["properties"]}, required=needs))
    plugins = [only] if only and only not in BACKENDS else []
    names: Schema = {"enum": ["local", "state", *plugins]}  # `docker` needs an image
    return any_of({"const": False}, names, *forms, description="Where files are and commands run.")


_HTTP_TOOL = {**build_options_schema(HttpTool), "required": ["name", "description", "parameters", "callback_url"]}
_HOOKS: Schema = {
    "description": "Hooks and capabilities of your own: module:name, or the name of one that is installed.",
    "type": "array",
    "items": any_of(TEXT, OBJECT),
}
_EVENTS: Schema = {
    "description": "Programs by the events they handle, as in Claude Code's settings.",
    "type": "object",
    "additionalProperties": {"type": "array", "items": OBJECT},
}
_PLAIN: dict[str, Schema] = {
    "name": {**TEXT, "description": "The name of the agent."},
    "model": MODEL,
    "system_prompt": {**TEXT, "description": "The system prompt of the model."},
    "claude_settings": any_of(
        SWITCH,
        TEXTS,
        build_object_schema({"folder": TEXT, "paths": TEXTS, "allow_bypass": SWITCH}),
        description="Settings files of Claude Code: the default ones, or those of paths.",
    ),
    "context_window": {**WHOLE, "description": "How many tokens the model can take in; summaries are made below it."},
    "examples": {**TEXTS, "description": "Prompts to start with, which the web interface offers in a new thread."},
    "tools": {
        "description": "Built-in tools, installed ones, functions as module:name, and tools behind HTTP.",
        "type": "array",
        "items": any_of(TEXT, _HTTP_TOOL),
    },
    "deps": {**REFERENCE, "description": "A function of the run that returns the deps of tools and hooks."},
    "settings": build_object_schema(
        {**dict.fromkeys(SETTINGS, ANYTHING), "temperature": NUMBER, "max_tokens": WHOLE, "top_p": NUMBER,
         "parallel_tool_calls": SWITCH, "stop": any_of(TEXT, TEXTS), "extra": OBJECT},
        description="Parameters of each model request.",
    ),
}  # fmt: skip
