"""The JSON Schema of the agent options that a user may set over HTTP, for forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick.config import RINGS
from wick.config.keys import build_agent_schema, list_agent_keys
from wick.server.agents.http_policy import (
    BACKEND_TABLES,
    OPTION_TABLES,
    PLAIN_KEYS,
    SETTINGS,
    USER_MODES,
    allowed_names,
)
from wick.server.auth.identity import User

Schema = dict[str, Any]

PROGRAMS_NOTE = (
    "A server with a `command` is a program that runs on the machine of this server, outside of the sandbox. Only an "
    "admin may name one."
)
_TEXTS = {"type": "array", "items": {"type": "string"}}
_TEXT_MAP = {"type": "object", "additionalProperties": {"type": "string"}}
MCP_SERVER: Schema = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "The address of a service."},
        "headers": _TEXT_MAP,
        "command": {"type": "string", "description": "A program, in place of a service."},
        "args": _TEXTS,
        "env": _TEXT_MAP,
        "tools": {**_TEXTS, "description": "The tools to use; all of them by default."},
    },
    "additionalProperties": True,
}
# The groups of a form, in their order; other keys are in the last one.
GROUPS = {
    "Agent": (*PLAIN_KEYS, "model", "settings", "tools"),
    "Knowledge": ("skills", "memory", "context", "self_description", "mcp", "subagents"),
    "Safety": ("permissions", "limits", "budget", "backend", "filesystem", "snapshots"),
    "Hooks": (),
}


def build_agent_form(user: User) -> Schema:
    """Return the schema of the options that a user may set. A capability is a map, or true or false."""
    known = build_agent_schema(RINGS, list_agent_keys(RINGS))["properties"]
    allowed_settings = (*SETTINGS, "extra") if user.has_role("admin") else SETTINGS
    properties: dict[str, Schema] = {key: known[key] for key in (*PLAIN_KEYS, "model", "tools")}
    if not user.has_role("admin"):
        properties["model"] = {"type": "string", "description": known["model"]["description"]}
    properties["tools"] = {**known["tools"], "items": {"type": "string"}}
    properties["settings"] = _select_properties(known["settings"], allowed_settings)
    properties["backend"] = {**known["backend"], "anyOf": _select_backends(known["backend"], user)}
    for ring in RINGS:
        names = allowed_names(OPTION_TABLES, ring.key, user)
        if names is None:
            continue
        form = next(one for one in known[ring.key]["anyOf"] if one.get("properties") is not None)
        options = _select_properties(form, names)
        if ring.key == "permissions" and not user.has_role("operator"):
            options["properties"]["mode"] = {**options["properties"]["mode"], "enum": [*USER_MODES]}
        properties[ring.key] = {
            "anyOf": [{"type": "boolean"}, options],
            "description": known[ring.key]["description"],
            "x-on": ring.always,
            "x-role": next(role for role, table in OPTION_TABLES if ring.key in table),
        }
    if "mcp" in properties:
        servers = {"type": "object", "additionalProperties": MCP_SERVER}
        properties["mcp"]["anyOf"][1]["properties"]["servers"] = servers
        properties["mcp"]["x-note"] = PROGRAMS_NOTE
    for key, schema in properties.items():
        group = next((name for name, keys in GROUPS.items() if key in keys), "Hooks")
        properties[key] = {**schema, "x-group": group}
    order = [key for keys in GROUPS.values() for key in keys if key in properties]
    ordered = {key: properties[key] for key in [*order, *(key for key in properties if key not in order)]}
    return {"type": "object", "properties": ordered, "additionalProperties": False}


def _select_properties(schema: Mapping[str, Any], names: Any) -> Schema:
    properties = {name: one for name, one in schema["properties"].items() if name in names}
    return {**schema, "properties": properties}


def _select_backends(schema: Mapping[str, Any], user: User) -> list[Schema]:
    """Return the forms of a backend that a user may choose: none, or one with its type."""
    forms: list[Schema] = [{"const": False}]
    for form in schema["anyOf"]:
        kind = form.get("properties", {}).get("type", {}).get("const", "")
        names = allowed_names(BACKEND_TABLES, kind, user) if kind else None
        if names is not None:
            forms.append(_select_properties(form, {"type", *names}))
    return forms
