"""JSON Schemas of options, derived from signatures, and validation of data against them.

    build_options_schema(Limits)                          a schema of the constructor's parameters
    coerce_value(data, schema, ConfigLocation(source))    the data, or an error with the line and the nearest key
    build_editor_schema(schema)                           for editors, which see `${NAME}` instead of a number

Signatures are the only source of options. Parameters that cannot be written in a file are left out.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from wick._internal.safe_yaml import ExpandedText, KeyPath, YamlSource
from wick.errors import ConfigError
from wick.protocols import Model

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
SWITCH: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object", "additionalProperties": ANYTHING}
NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
REFERENCE: Schema = {"type": "string", "pattern": NAME, "description": "something of Python, as module:name"}
MODEL: Schema = {
    "description": "A model: provider:name, a name such as sonnet, or provider, model, base_url, api_key and so on.",
    "anyOf": [
        TEXT,
        {
            "type": "object",
            "properties": dict.fromkeys(("provider", "model", "base_url", "api_key"), TEXT),
            "additionalProperties": ANYTHING,
        },
    ],
}

_PLAIN: dict[Any, Schema] = {
    str: TEXT,
    Path: TEXT,
    bool: SWITCH,
    int: WHOLE,
    float: NUMBER,
    Decimal: NUMBER,
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: ANYTHING,
    Model: MODEL,
}
_TYPE_WORDS = {
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list",
    "object": "a map of keys and values",
    "null": "null",
}
_KINDS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


# -- schemas --------------------------------------------------------------------------------------------------------


def read_hints(kind: Callable[..., Any]) -> dict[str, tuple[inspect.Parameter, Any]]:
    """Return the parameters of a class or function by name, each with its type."""
    known = get_type_hints(kind.__init__ if isinstance(kind, type) else kind)  # type: ignore[misc]
    parameters = inspect.signature(kind).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    return {parameter.name: (parameter, known.get(parameter.name, Any)) for parameter in named}


def build_options_schema(kind: Callable[..., Any], without: Collection[str] = (), **others: Schema) -> Schema:
    """Return the schema of the parameters that can be written in a file; `others` override single parameters."""
    found = {name: _build_option_schema(*taken) for name, taken in read_hints(kind).items() if name not in without}
    return build_object_schema({name: schema for name, schema in found.items() if schema is not None} | others)


def build_object_schema(properties: Mapping[str, Schema], **more: Any) -> Schema:
    """Return the schema of a map with exactly these keys."""
    return {"type": "object", "properties": {**properties}, "additionalProperties": False, **more}


def any_of(*schemas: Schema, **more: Any) -> Schema:
    """Return a schema that accepts any of these."""
    flat = [one for schema in schemas for one in schema.get("anyOf", [schema])]
    different = [schema for number, schema in enumerate(flat) if schema not in flat[:number]]
    return {**different[0], **more} if len(different) == 1 else {"anyOf": different, **more}


def _build_option_schema(parameter: inspect.Parameter, hint: Any) -> Schema | None:
    schema = build_type_schema(hint)
    if schema is None:
        return None
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return {"type": "array", "items": schema}
    default = parameter.default
    return {**schema, "default": default} if isinstance(default, str | int | float) and default != "" else schema


def build_type_schema(hint: Any) -> Schema | None:
    """Return the JSON Schema of a Python type; None for objects that a file cannot express."""
    if (isinstance(hint, type | type(None)) and hint in _PLAIN) or hint is Any:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return build_type_schema(inner[0])
    if origin in (Union, UnionType):
        parts = [
            schema for schema in map(build_type_schema, inner) if schema is not None and schema != {"type": "null"}
        ]
        return any_of(*parts, *([{"type": "null"}] if type(None) in inner else [])) if parts else None
    if origin is Literal:
        return {"enum": [*inner]}
    return _build_generic_schema(origin, inner)


def _build_generic_schema(origin: Any, inner: Sequence[Any]) -> Schema | None:
    if origin is type or origin is Callable:
        return REFERENCE
    if not isinstance(origin, type):
        return None
    if issubclass(origin, os.PathLike):
        return TEXT
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": build_type_schema(inner[1]) or ANYTHING}
    if issubclass(origin, Iterable):
        items = build_type_schema(inner[0])
        return None if items is None else {"type": "array", "items": items}
    return None


# -- validation -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigLocation:
    """A location in a file. Error messages leave out its `prefix`, the path of the validated part."""

    source: YamlSource
    at: KeyPath = ()
    prefix: KeyPath = ()

    def descend(self, key: str | int) -> ConfigLocation:
        return replace(self, at=(*self.at, key))

    def build_error(self, what: str) -> ConfigError:
        return self.source.error_at(self.at, what)

    def __str__(self) -> str:
        return ".".join(map(str, self.at[len(self.prefix) :])) or "this"


def coerce_value(value: Any, schema: Schema, spot: ConfigLocation) -> Any:
    """Return the validated value, with texts from the environment converted to their type."""
    form, value = _match_form(value, schema, spot)
    if isinstance(value, dict):
        return {
            key: coerce_value(item, _find_property_schema(key, form, spot), spot.descend(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        items = form.get("items", ANYTHING)
        return [coerce_value(item, items, spot.descend(number)) for number, item in enumerate(value)]
    return str(value) if isinstance(value, ExpandedText) else value


def _match_form(value: Any, schema: Schema, spot: ConfigLocation) -> tuple[Schema, Any]:
    """Return the alternative that a value matches, and the converted value."""
    forms = schema.get("anyOf", [schema])
    for one in (value, _parse_text(value)) if isinstance(value, ExpandedText) else (value,):
        for form in forms:
            if _is_form_of(form, one):
                return form, one
    if isinstance(value, dict) and (objects := [form for form in forms if form.get("type") == "object"]):
        _raise_mismatch(value, objects, spot)
    raise spot.build_error(f"{spot} is {_describe_forms(forms)}, {_describe_mismatch(value, forms)}")


def _raise_mismatch(value: Mapping[str, Any], objects: Sequence[Schema], spot: ConfigLocation) -> None:
    """Raise an error for a map that matches no alternative: a wrong discriminator, or a missing key."""
    for form in objects:
        lost = [key for key in form.get("required", ()) if key not in value]
        if _find_discriminators(form).items() <= value.items() and lost:
            raise spot.build_error(f"{spot} has no {lost[0]!r}")
    key = next(iter(_find_discriminators(objects[0])))
    kinds: Schema = {"enum": [_find_discriminators(form)[key] for form in objects]}
    if key not in value:
        raise spot.build_error(f"{spot} has no {key!r}; it is {_describe_forms([kinds])}")
    coerce_value(value[key], kinds, spot.descend(key))


def _find_discriminators(schema: Schema) -> dict[str, Any]:
    """Return the keys with a `const`, which distinguish one kind of map from another."""
    return {key: one["const"] for key, one in schema.get("properties", {}).items() if "const" in one}


def _is_form_of(schema: Schema, value: Any) -> bool:
    """Return True if a value has this form, without checking nested values."""
    if "enum" in schema or "const" in schema:
        known = schema.get("enum", [schema.get("const")])
        return any(type(value) is type(one) or isinstance(value, ExpandedText) for one in known if one == value)
    kind = schema.get("type")
    if kind is None:
        return True
    if isinstance(value, dict) and kind == "object":
        needed = {*schema.get("required", ()), *_find_discriminators(schema)}
        return needed <= value.keys() and all(
            value[key] == const for key, const in _find_discriminators(schema).items()
        )
    return _name_type(value) == kind or (kind == "number" and _name_type(value) == "integer")


def _name_type(value: Any) -> str:
    return "null" if value is None else _KINDS[str if isinstance(value, str) else type(value)]


def _parse_text(text: str) -> Any:
    """Return a text from the environment as a bool or number if it is one."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if isfinite(number) else text
    return text


def _find_property_schema(key: str, schema: Schema, spot: ConfigLocation) -> Schema:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", ANYTHING)
    if key not in known and others is False:
        where = f" in {spot}" if spot.at != spot.prefix else ""
        raise spot.descend(key).build_error(f"there is no key {key!r}{where}; {suggest_key(key, known)}")
    found: Schema = known.get(key, others)
    return found


def suggest_key(word: str, known: Iterable[str], what: str = "the keys are") -> str:
    """Return a hint for an unknown word: the closest known word, or all of them."""
    known = [*known]
    close = get_close_matches(word, known)
    best = next((one for one in close if one.startswith(word)), close[0] if close else "")
    return f"did you mean {best!r}?" if best else f"{what} {', '.join(known)}"


def _describe_forms(forms: Iterable[Schema]) -> str:
    return " or ".join(dict.fromkeys(_describe_form(form) for form in forms if form.get("type") != "null"))


def _describe_form(schema: Schema) -> str:
    if "const" in schema:
        return repr(schema["const"]) if isinstance(schema["const"], str) else str(schema["const"]).lower()
    if "enum" in schema:
        return f"one of {', '.join(str(one).lower() if isinstance(one, bool) else str(one) for one in schema['enum'])}"
    return _TYPE_WORDS[schema["type"]]


def _describe_mismatch(value: Any, forms: Iterable[Schema]) -> str:
    """Return a description of the wrong value. Texts from the environment are not shown: they may be secrets."""
    choices = [one for form in forms for one in form.get("enum", []) if isinstance(one, str)]
    if not choices or not isinstance(value, str) or isinstance(value, ExpandedText):
        return f"not {_TYPE_WORDS[_name_type(value)]}" if value is not None else "not empty"
    close = get_close_matches(value, choices, n=1)
    return f"not {value!r}" + (f"; did you mean {close[0]!r}?" if close else "")


# -- for editors ----------------------------------------------------------------------------------------------------

VARIABLE: Schema = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-.*)?\}"}


def build_editor_schema(schema: Schema) -> Schema:
    """Return the schema of the file for editors: a variable is allowed for every value that is not a text."""
    if schema.get("type") in ("boolean", "integer", "number") or schema.keys() & {"enum", "const", "pattern"}:
        return any_of(schema, VARIABLE, **{key: schema[key] for key in ("description", "default") if key in schema})
    found = dict(schema)
    if "anyOf" in schema:
        return any_of(
            *map(build_editor_schema, schema["anyOf"]), **{key: schema[key] for key in schema if key != "anyOf"}
        )
    if "properties" in schema:
        found["properties"] = {key: build_editor_schema(one) for key, one in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = build_editor_schema(schema["additionalProperties"])
    if "items" in schema:
        found["items"] = build_editor_schema(schema["items"])
    return found
