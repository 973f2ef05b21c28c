"""What may be written where: options described as JSON Schema, and the check that data keeps to it.

    options_of(Limits)                 a schema of what its constructor takes
    fit(data, schema, Spot(source))    the data, or an error that names the line and the nearest known key
    for_editors(schema)                the same, for an editor, which sees `${NAME}` where a number will be

What a constructor takes stands in its signature, and only there. What cannot be written in a file is left out.
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
_WORDS = {
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


# -- describing -----------------------------------------------------------------------------------------------------


def hints(kind: Callable[..., Any]) -> dict[str, tuple[inspect.Parameter, Any]]:
    """What a class or a function takes, each with its type."""
    known = get_type_hints(kind.__init__ if isinstance(kind, type) else kind)  # type: ignore[misc]
    parameters = inspect.signature(kind).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    return {parameter.name: (parameter, known.get(parameter.name, Any)) for parameter in named}


def options_of(kind: Callable[..., Any], without: Collection[str] = (), **others: Schema) -> Schema:
    """What a class or a function takes, as far as it can be written in a file; `others` are described otherwise."""
    found = {name: _option(*taken) for name, taken in hints(kind).items() if name not in without}
    return keys({name: schema for name, schema in found.items() if schema is not None} | others)


def keys(properties: Mapping[str, Schema], **more: Any) -> Schema:
    """A map that has these keys and no others."""
    return {"type": "object", "properties": {**properties}, "additionalProperties": False, **more}


def any_of(*schemas: Schema, **more: Any) -> Schema:
    """What fits one of them."""
    flat = [one for schema in schemas for one in schema.get("anyOf", [schema])]
    different = [schema for number, schema in enumerate(flat) if schema not in flat[:number]]
    return {**different[0], **more} if len(different) == 1 else {"anyOf": different, **more}


def _option(parameter: inspect.Parameter, hint: Any) -> Schema | None:
    schema = described(hint)
    if schema is None:
        return None
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return {"type": "array", "items": schema}
    default = parameter.default
    return {**schema, "default": default} if isinstance(default, str | int | float) and default != "" else schema


def described(hint: Any) -> Schema | None:
    """A type of Python as JSON Schema; None for what is an object of a program."""
    if (isinstance(hint, type | type(None)) and hint in _PLAIN) or hint is Any:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return described(inner[0])
    if origin in (Union, UnionType):
        parts = [schema for schema in map(described, inner) if schema is not None and schema != {"type": "null"}]
        return any_of(*parts, *([{"type": "null"}] if type(None) in inner else [])) if parts else None
    if origin is Literal:
        return {"enum": [*inner]}
    return _of_origin(origin, inner)


def _of_origin(origin: Any, inner: Sequence[Any]) -> Schema | None:
    if origin is type or origin is Callable:
        return REFERENCE
    if not isinstance(origin, type):
        return None
    if issubclass(origin, os.PathLike):
        return TEXT
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": described(inner[1]) or ANYTHING}
    if issubclass(origin, Iterable):
        items = described(inner[0])
        return None if items is None else {"type": "array", "items": items}
    return None


# -- checking -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file. `above` is what leads to the part that is checked; it goes without saying."""

    source: YamlSource
    at: KeyPath = ()
    above: KeyPath = ()

    def within(self, key: str | int) -> Spot:
        return replace(self, at=(*self.at, key))

    def wrong(self, what: str) -> ConfigError:
        return self.source.error_at(self.at, what)

    def __str__(self) -> str:
        return ".".join(map(str, self.at[len(self.above) :])) or "this"


def fit(value: Any, schema: Schema, spot: Spot) -> Any:
    """The value, with numbers where the environment gave texts for them."""
    form, value = _formed(value, schema, spot)
    if isinstance(value, dict):
        return {key: fit(item, _property(key, form, spot), spot.within(key)) for key, item in value.items()}
    if isinstance(value, list):
        items = form.get("items", ANYTHING)
        return [fit(item, items, spot.within(number)) for number, item in enumerate(value)]
    return str(value) if isinstance(value, ExpandedText) else value


def _formed(value: Any, schema: Schema, spot: Spot) -> tuple[Schema, Any]:
    """The form that a value has, and the value in it."""
    forms = schema.get("anyOf", [schema])
    for one in (value, _typed(value)) if isinstance(value, ExpandedText) else (value,):
        for form in forms:
            if _takes(form, one):
                return form, one
    if isinstance(value, dict) and (objects := [form for form in forms if form.get("type") == "object"]):
        _say_which(value, objects, spot)
    raise spot.wrong(f"{spot} is {_words(forms)}, {_not(value, forms)}")


def _say_which(value: Mapping[str, Any], objects: Sequence[Schema], spot: Spot) -> None:
    """No kind of map fits: what tells them apart is missing or wrong, or something that is needed is missing."""
    for form in objects:
        lost = [key for key in form.get("required", ()) if key not in value]
        if _told(form).items() <= value.items() and lost:
            raise spot.wrong(f"{spot} has no {lost[0]!r}")
    key = next(iter(_told(objects[0])))
    kinds: Schema = {"enum": [_told(form)[key] for form in objects]}
    if key not in value:
        raise spot.wrong(f"{spot} has no {key!r}; it is {_words([kinds])}")
    fit(value[key], kinds, spot.within(key))


def _told(schema: Schema) -> dict[str, Any]:
    """The keys whose values tell one kind of map from another."""
    return {key: one["const"] for key, one in schema.get("properties", {}).items() if "const" in one}


def _takes(schema: Schema, value: Any) -> bool:
    """Whether a value has this form, as far as can be seen without looking into it."""
    if "enum" in schema or "const" in schema:
        known = schema.get("enum", [schema.get("const")])
        return any(type(value) is type(one) or isinstance(value, ExpandedText) for one in known if one == value)
    kind = schema.get("type")
    if kind is None:
        return True
    if isinstance(value, dict) and kind == "object":
        needed = {*schema.get("required", ()), *_told(schema)}
        return needed <= value.keys() and all(value[key] == const for key, const in _told(schema).items())
    return _kind(value) == kind or (kind == "number" and _kind(value) == "integer")


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS[str if isinstance(value, str) else type(value)]


def _typed(text: str) -> Any:
    """What a text from the environment is if it is no text."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if isfinite(number) else text
    return text


def _property(key: str, schema: Schema, spot: Spot) -> Schema:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", ANYTHING)
    if key not in known and others is False:
        where = f" in {spot}" if spot.at != spot.above else ""
        raise spot.within(key).wrong(f"there is no key {key!r}{where}; {nearest(key, known)}")
    found: Schema = known.get(key, others)
    return found


def nearest(word: str, known: Iterable[str], what: str = "the keys are") -> str:
    """What somebody meant who wrote a word that is not known."""
    known = [*known]
    close = get_close_matches(word, known)
    best = next((one for one in close if one.startswith(word)), close[0] if close else "")
    return f"did you mean {best!r}?" if best else f"{what} {', '.join(known)}"


def _words(forms: Iterable[Schema]) -> str:
    return " or ".join(dict.fromkeys(_word(form) for form in forms if form.get("type") != "null"))


def _word(schema: Schema) -> str:
    if "const" in schema:
        return repr(schema["const"]) if isinstance(schema["const"], str) else str(schema["const"]).lower()
    if "enum" in schema:
        return f"one of {', '.join(str(one).lower() if isinstance(one, bool) else str(one) for one in schema['enum'])}"
    return _WORDS[schema["type"]]


def _not(value: Any, forms: Iterable[Schema]) -> str:
    """What it is instead. A text from the environment is not shown: it may be a secret."""
    choices = [one for form in forms for one in form.get("enum", []) if isinstance(one, str)]
    if not choices or not isinstance(value, str) or isinstance(value, ExpandedText):
        return f"not {_WORDS[_kind(value)]}" if value is not None else "not empty"
    close = get_close_matches(value, choices, n=1)
    return f"not {value!r}" + (f"; did you mean {close[0]!r}?" if close else "")


# -- for editors ----------------------------------------------------------------------------------------------------

VARIABLE: Schema = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-.*)?\}"}


def for_editors(schema: Schema) -> Schema:
    """The schema of the file as it is written: where no text is expected, a variable may stand for the value."""
    if schema.get("type") in ("boolean", "integer", "number") or schema.keys() & {"enum", "const", "pattern"}:
        return any_of(schema, VARIABLE, **{key: schema[key] for key in ("description", "default") if key in schema})
    found = dict(schema)
    if "anyOf" in schema:
        return any_of(*map(for_editors, schema["anyOf"]), **{key: schema[key] for key in schema if key != "anyOf"})
    if "properties" in schema:
        found["properties"] = {key: for_editors(one) for key, one in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = for_editors(schema["additionalProperties"])
    if "items" in schema:
        found["items"] = for_editors(schema["items"])
    return found
