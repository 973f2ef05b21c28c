"""The smallest value that a JSON Schema accepts, for the arguments and answers that nobody spelled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor, inf
from typing import Any

LABEL = "offline demo model"
_DEPTH = 8  # a schema may contain itself
_FORMATS = {
    "date-time": "2000-01-01T00:00:00Z",
    "date": "2000-01-01",
    "time": "00:00:00Z",
    "duration": "PT1S",
    "email": "demo@example.com",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def instance(schema: Any, root: Any = None, depth: int = _DEPTH) -> Any:
    """A value for a schema: no key that is not required, no item too many, and our label where any text will do."""
    root = schema if root is None else root
    if {"type": "null"} in _choices(schema):
        return None
    schema = resolved(schema, root, depth)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type") or next((kind for key, kind in _TELLING.items() if key in schema), "string")
    make = _MAKERS.get(kind[0] if isinstance(kind, list) and kind else str(kind))
    return make(schema, root, depth - 1) if make and depth > 0 else None


def resolved(schema: Any, root: Any, depth: int = _DEPTH) -> Mapping[str, Any]:
    """A schema without references and choices: the first is taken."""
    if not isinstance(schema, Mapping):
        return {}
    others = [_at(root, schema["$ref"])] if "$ref" in schema else []
    others += schema.get("allOf") or []
    others += _choices(schema)[:1]
    if not others or depth <= 0:
        return schema
    whole = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
    for other in others:
        whole = _joined(resolved(other, root, depth - 1), whole)
    return whole


def _choices(schema: Any) -> list[Any]:
    return [*(schema.get("anyOf") or schema.get("oneOf") or ())] if isinstance(schema, Mapping) else []


def _at(root: Any, reference: str) -> Any:
    for key in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        root = root.get(key.replace("~1", "/").replace("~0", "~"), {}) if isinstance(root, Mapping) else {}
    return root


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*dict.fromkeys([*one["required"], *other["required"]])]
    return both


def _object(schema: Mapping[str, Any], root: Any, depth: int) -> dict[str, Any]:
    known = schema.get("properties", {})
    return {name: instance(known.get(name, {}), root, depth) for name in schema.get("required", ())}


def _array(schema: Mapping[str, Any], root: Any, depth: int) -> list[Any]:
    first, rest = schema.get("prefixItems", []), schema.get("items", {})
    count = max(schema.get("minItems", 0), len(first))
    return [instance(first[index] if index < len(first) else rest, root, depth) for index in range(count)]


def _string(schema: Mapping[str, Any], root: Any, depth: int) -> str:
    text = _FORMATS.get(schema.get("format", ""), LABEL)
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]


def _integer(schema: Mapping[str, Any], root: Any, depth: int) -> int:
    """The one next to 0."""
    over, under, step = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"), schema.get("multipleOf", 1)
    highest = min(schema.get("maximum", inf), inf if under is None else ceil(under) - 1)
    lowest = max(schema.get("minimum", -inf), -inf if over is None else floor(over) + 1)
    value = ceil(max(lowest, min(0, highest)) / step) * step
    return int(value if value <= highest else floor(highest / step) * step)


def _number(schema: Mapping[str, Any], root: Any, depth: int) -> float:
    """A whole one, if there is one within the bounds."""
    low, high = (schema.get(f"exclusive{end}", schema.get(end.lower())) for end in ("Minimum", "Maximum"))
    whole = _integer(schema, root, depth)
    if low is None or high is None or "multipleOf" in schema:
        return whole
    inclusive = "exclusiveMinimum" not in schema and "exclusiveMaximum" not in schema
    return whole if low < whole < high or (inclusive and low <= whole <= high) else (low + high) / 2


_MAKERS: dict[str, Callable[[Mapping[str, Any], Any, int], Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": lambda schema, root, depth: False,
    "null": lambda schema, root, depth: None,
}
_TELLING = {"properties": "object", "required": "object", "items": "array", "prefixItems": "array", "minimum": "number"}
