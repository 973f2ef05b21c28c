"""The JSON form of typed arguments, which guards read, approvals bind to and the log records.

    to_json_form(value)          the JSON data that a validated value consists of
    is_stable(schema, refs)      True if validating a value's JSON form gives the same value again

The form is read from the value itself. Custom serializers are not called: one that masks, shortens or rewrites
would show a guard other data than the tool receives. A value with unreadable content raises TypeError.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from re import Pattern
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pydantic import BaseModel, RootModel, Secret, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from wick._internal.frozen import canonical_json
from wick.constants import JSON_DEPTH

_EXACT = frozenset((str, int, bool, float, type(None)))
_SECRETS = (Secret, SecretStr, SecretBytes)
_LEAVES = (date, time, timedelta, Decimal, UUID, complex, Pattern)
_TEXTS = (IPv4Address, IPv6Address, IPv4Network, IPv6Network, tzinfo)


def to_json_form(value: Any, depth: int = JSON_DEPTH) -> Any:
    """Return the JSON data that a value consists of, in exact builtin types; raise TypeError if it has none."""
    kind = type(value)
    if kind in _EXACT:
        return value
    if depth == 0:
        raise ValueError(f"the data is nested more than {JSON_DEPTH} levels deep")
    if kind is list or kind is tuple:
        return [to_json_form(item, depth - 1) for item in value]
    if kind is dict:
        return _convert_items(value.items(), depth)
    return _convert_other(value, depth)


def _convert_other(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        return to_json_form(value.value, depth - 1)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, _SECRETS):  # guards must see the value that the tool receives
        return to_json_form(value.get_secret_value(), depth - 1)
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}  # an object, so that no text looks the same
    if isinstance(value, RootModel):
        return to_json_form(value.root, depth - 1)
    if isinstance(value, BaseModel):
        declared = type(value).model_fields.items()
        named = [(info.serialization_alias or info.alias or name, value.__dict__[name]) for name, info in declared]
        return _convert_items((*named, *(value.__pydantic_extra__ or {}).items()), depth)
    if is_dataclass(value) and not isinstance(value, type):
        return _convert_items(((item.name, getattr(value, item.name)) for item in fields(value)), depth)
    if isinstance(value, _LEAVES):
        return to_jsonable_python(value)
    if isinstance(value, os.PathLike):
        return to_json_form(os.fspath(value), depth - 1)
    if isinstance(value, _TEXTS) or any(base.__module__ == "pydantic.networks" for base in type(value).__mro__[:-1]):
        return str(value)
    if isinstance(value, Mapping):
        return _convert_items(value.items(), depth)
    if isinstance(value, list | tuple | deque):
        return [to_json_form(item, depth - 1) for item in value]
    if isinstance(value, Set):  # in the one order that does not depend on the process
        return sorted((to_json_form(item, depth - 1) for item in value), key=canonical_json)
    return _convert_attributes(value, depth)


def _convert_items(items: Any, depth: int) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for name, item in items:
        key = to_json_form(name)
        if not isinstance(key, str):
            if key is not None and not isinstance(key, bool | int | float):
                raise TypeError(f"a {type(name).__name__} cannot be the key of a JSON object")
            key = canonical_json(key).decode()
        if key in form:
            raise TypeError(f"two keys are spelled {key!r}")
        form[key] = to_json_form(item, depth - 1)
    return form


def _convert_attributes(value: Any, depth: int) -> dict[str, Any]:
    """Return the attributes and slots of an object; raise TypeError if it has none."""
    kind = type(value)
    names = dict[str, None]()
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                names[name] = None
    state = {**{name: getattr(value, name) for name in names}, **getattr(value, "__dict__", {})}
    if not state or callable(value) or isinstance(value, Iterator | type):
        raise TypeError(f"a {kind.__name__} cannot be shown as JSON data")
    return _convert_items(state.items(), depth)


# -- which schemas leave the form of a value as it is -----------------------------------------------------------------

_NATIVE = frozenset(("any", "none", "bool", "int", "float", "str", "literal", "list", "dict", "nullable"))
_SHAPES = frozenset((
    "model", "model-fields", "model-field", "typed-dict", "typed-dict-field", "dataclass", "dataclass-args",
    "dataclass-field", "default", "definitions", "definition-ref", "union",
))  # fmt: skip
_CONVERTED = frozenset((
    "decimal", "date", "time", "datetime", "timedelta", "uuid", "enum", "set", "frozenset", "tuple",
))  # fmt: skip
_SIMPLE = _NATIVE | _SHAPES
_STABLE = _SIMPLE | _CONVERTED
_NOT_SCHEMAS = frozenset(("metadata", "config", "cls", "ref", "default", "expected", "members", "tags"))


def is_stable(schema: Any, refs: Mapping[str, Any] = MappingProxyType({})) -> bool:
    """Return True if a pydantic core schema runs no function and brings no serializer.

    Validating the JSON form of such a value gives the same value again, so that it may be handed on in that form.
    """
    return _is_made_of(schema, _STABLE, refs, set())


def _is_made_of(node: Any, kinds: frozenset[str], refs: Mapping[str, Any], seen: set[str]) -> bool:
    if isinstance(node, list | tuple):
        return all(_is_made_of(item, kinds, refs, seen) for item in node)
    if not isinstance(node, dict):
        return True
    kind = node.get("type")
    if isinstance(kind, str):
        if kind not in kinds or node.get("post_init") or node.get("custom_init") or "serialization" in node:
            return False
        alias = node.get("validation_alias")
        if kind.endswith("-field") and alias is not None and alias != node.get("serialization_alias"):
            return False
        if kind == "definition-ref":
            name = node["schema_ref"]
            if name in seen:
                return True
            seen.add(name)
            return name in refs and _is_made_of(refs[name], kinds, refs, seen)
        if kind == "union":  # which member takes a value may depend on how it is spelled
            kinds = kinds & _SIMPLE
    return all(_is_made_of(item, kinds, refs, seen) for key, item in node.items() if key not in _NOT_SCHEMAS)
