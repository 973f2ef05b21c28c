"""The pages of the reference about files of configuration and about HTTP, made from their schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from openapi import described
from reference_fields import PARAMETERS, describe_field
from reference_text import doc, explained, field_comments, guide_options, table, type_

from wick.config import RINGS
from wick.config.keys import build_agent_schema, list_agent_keys
from wick.server.auth.access_table import ACCESS
from wick.server.settings import ENVIRONMENT, Settings

Schema = Mapping[str, Any]

GUIDE_PAGES = {  # whose tables describe the keys of an option of an agent
    "docker": "docker.md",
    "local": "sandbox.md",
    "model": "models.md",
    "settings": "agents.md",
    "state": "sandbox.md",
}
WORDS = {  # descriptions of keys that no table of the guide has
    "claude_settings.folder": "the project folder; the folder of `agents.yaml` by default",
    "claude_settings.paths": "files in place of those of the user and of the project; they need no trust",
    "claude_settings.allow_bypass": "accept the mode `bypassPermissions`",
    "backend.type": "the type of the backend",
    "backend.workdir": "the folder of the workspace",
    "fallback.models": "models in the order in which they are tried",
    "model.provider": "the provider, such as `openai` or `anthropic`",
    "model.model": "the name of the model",
    "model.api_key": "the key; by default the provider's environment variable",
    "recipes.dirs": "folders of recipes",
    "recipes.handlers": "functions that the hooks of recipes name",
}


# -- files of configuration -----------------------------------------------------------------------------------------


def agents_yaml() -> str:
    """Every key of agents.yaml, with the form of its value."""
    schema = build_agent_schema(RINGS, list_agent_keys(RINGS))
    parts = ["# agents.yaml\n", "The keys of an agent. Any value can contain `${NAME}` and `${NAME:-default}`."
             " `wick.config.schema()` returns this page as JSON Schema, for editors.\n"]  # fmt: skip
    for key, form in schema["properties"].items():
        about = f"\nA value is {_form(form)}. {explained(key)}".rstrip()
        parts += [f"## {key}\n", form.get("description", ""), f"{about}\n", _keys(key, form)]
    several = [("`agents`", "a map of ids to agents"), ("`defaults`", "default keys of all agents")]
    return "\n".join([*parts, "## Several agents in a file\n", table(("Key", "Value"), several)])


def _keys(key: str, schema: Schema) -> str:
    """The keys of a map, form by form where there are several."""
    tables = []
    for kind, rows in key_rows(key, schema):
        title = f"With `type: {kind}`:\n\n" if kind else ""
        tables.append(title + table(("Key", "Value", "Default", "Description"), rows))
    return "\n".join(tables)


def key_rows(key: str, schema: Schema) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """Yield each form of a key's map: its `type`, and its keys with their descriptions, which the guide has."""
    for form in schema.get("anyOf", [schema]):
        if properties := form.get("properties"):
            kind = str(next((one["const"] for one in properties.values() if "const" in one), ""))
            words = _option_words(key, kind)
            yield (
                kind,
                [(f"`{name}`", _form(one), _default(one), words.get(name, "")) for name, one in properties.items()],
            )


def _option_words(key: str, kind: str) -> dict[str, str]:
    ring = next((ring.kind for ring in RINGS if ring.key == key and ring.kind), "")
    found = guide_options(heading=ring) if ring else guide_options(GUIDE_PAGES.get(kind or key, "config.md"))
    own = {name.partition(".")[2]: words for name, words in WORDS.items() if name.startswith(f"{key}.")}
    return found | own


def _default(schema: Schema) -> str:
    value = schema.get("default")
    return "" if value is None else f"`{json.dumps(value)}`"


def _form(schema: Schema) -> str:
    """Return the type of a value in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_form(one) for one in schema["anyOf"] if one != {"type": "null"}))
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("pattern"):
        return "`module:name`"
    if schema.get("type") == "array":
        return f"a list of {_several(_form(schema['items']))}" if schema.get("items") else "a list"
    plain = {"string": "a text", "boolean": "`true` or `false`", "integer": "a whole number", "number": "a number",
             "object": "a map", "null": "`null`", None: "any value"}  # fmt: skip
    return plain[schema.get("type")]


def _several(words: str) -> str:
    """Return the plural: `a text` becomes `texts`."""
    return re.sub(r"\ba (whole )?(text|map|number|list)\b", r"\1\2s", words)


def server_yaml() -> str:
    """Every key of server.yaml, from the class that reads it."""
    variables = {name: variable for variable, name in ENVIRONMENT.items()}
    where = "The file is in the data folder, or at the path of `--settings`. Flags and the environment override it.\n"
    parts = ["# server.yaml\n", where, _settings(Settings, variables)]
    for name, field in Settings.model_fields.items():
        for kind in _models(field.annotation):
            parts += [f"## {name}\n", doc(kind), _settings(kind, {})]
    return "\n".join(parts)


def _models(hint: Any) -> list[Any]:
    inner = [*getattr(hint, "__args__", ()), hint]
    return [one for one in inner if isinstance(one, type) and hasattr(one, "model_fields")]


def _settings(kind: Any, variables: Mapping[str, str]) -> str:
    rows, words = [], field_comments(kind)
    for name, field in kind.model_fields.items():
        default = "required" if field.is_required() else "" if field.default_factory else f"`{_plain(field.default)}`"
        variable = [f"`{variables[name]}`" if name in variables else ""] if variables else []
        rows.append((f"`{name}`", f"`{type_(field.annotation)}`", default, *variable, words.get(name, "")))
    environment = ["Environment"] if variables else []
    return table(("Key", "Type", "Default", *environment, "Description"), rows)


def _plain(value: Any) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    return json.dumps(value, default=list)


# -- routes ---------------------------------------------------------------------------------------------------------


def http() -> str:
    """Every route, who may use it, and what it takes and gives."""
    document = json.loads(described())
    doors = table(("Method", "Route", "Role"), [(f"`{method}`", f"`{path}`", who) for method, path, who in ACCESS])
    parts = ["# HTTP routes\n", "Generated from `/openapi.json`. `WS` is a WebSocket.\n", doors]
    for path, methods in sorted(document["paths"].items()):
        for method, told in methods.items():
            parts += [f"## {method.upper()} {path}\n", *_route(told)]
    parts += ["# Schemas\n"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        about = schema.get("description", "").replace("\n", " ")
        rows = property_rows(name, schema)
        fields = table(("Field", "Type", "Default", "Description"), rows) if rows else f"It is {_shape(schema)}.\n"
        parts += [f"## {name}\n", f"{about}\n", fields]
    return "\n".join(parts)


def _route(told: Mapping[str, Any]) -> Iterable[str]:
    yield told.get("description", "") + "\n"
    if rows := parameter_rows(told):
        yield table(("Parameter", "In", "Type", "Description"), rows)
    body = told.get("requestBody", {}).get("content", {})
    if body:
        yield f"Takes {' or '.join(_content(*one) for one in body.items())}.\n"
    good = {code: answer for code, answer in told.get("responses", {}).items() if code.startswith("2")}
    for code, answer in good.items():
        what = " or ".join(_content(*one) for one in answer.get("content", {}).items())
        yield f"Responds with {code}{f' and {what}' if what else ''}.\n"


def _content(type: str, told: Mapping[str, Any]) -> str:
    return _shape(told["schema"]) if type == "application/json" and told.get("schema") else f"`{type}`"


def _shape(schema: Mapping[str, Any]) -> str:
    """A schema of the API in words, with a link to what has a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shape(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"a list of {_several(_shape(schema.get('items', {})))}"
    return _form(schema) if schema.get("type") != "object" else "an object"


def parameter_rows(operation: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the parameters of an operation, each with its place, type and description."""
    return [
        (
            f"`{one['name']}`",
            one["in"],
            _shape(one.get("schema", {})),
            one.get("description", "") or PARAMETERS.get(one["name"], ""),
        )
        for one in operation.get("parameters", [])
    ]


def property_rows(name: str, schema: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the fields of a schema, each with its type, default value and description."""
    needed, rows = schema.get("required", ()), []
    keys = (
        build_agent_schema(RINGS, list_agent_keys(RINGS))["properties"] if name in ("NewAgent", "AgentChange") else {}
    )
    for field, one in schema.get("properties", {}).items():
        default = "required" if field in needed and "default" not in one else _default(one)
        described = one.get("description", "").replace("\n", " ") or keys.get(field, {}).get("description", "")
        rows.append((f"`{field}`", _shape(one), default, described or describe_field(name, field)))
    return rows
