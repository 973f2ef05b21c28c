"""The smallest value that is valid for a JSON Schema, for arguments and answers of the demo model.

The size of a value is limited. A schema that demands more is refused with a ModelError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any

from wick._internal.json_schema import merge_schemas
from wick.constants import DEMO_VALUE_CHARS, DEMO_VALUE_STEPS
from wick.errors import ModelError

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


@dataclass(slots=True)
class _Maker:
    """Creates one value, within a budget of characters and of visited schemas."""

    root: Any
    chars: int = DEMO_VALUE_CHARS
    steps: int = DEMO_VALUE_STEPS

    def make(self, schema: Any, depth: int) -> Any:
        if {"type": "null"} in _choices(schema):
            return None
        schema = self.resolve(schema, depth)
        for key in ("const", "default"):
            if key in schema:
                return self.copy(schema[key])
        if isinstance(choices := schema.get("enum"), list) and choices:
            return self.copy(choices[0])
        kind = schema.get("type") or next((kind for key, kind in _IMPLIED_TYPES.items() if key in schema), "string")
        kind = kind[0] if isinstance(kind, list) and kind else str(kind)
        return self.make_typed(kind, schema, depth - 1) if depth > 0 else None

    def make_typed(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        if kind == "object":
            known, value = schema.get("properties", {}), {}
            for name in schema.get("required", ()):
                self.spend(chars=len(name))
                value[name] = self.make(known.get(name, {}), depth)
            return value
        if kind == "array":
            first, rest = schema.get("prefixItems", []), schema.get("items", {})
            count = max(int(schema.get("minItems", 0)), len(first))
            self.spend(chars=count)  # before the items are created
            return [self.make(first[index] if index < len(first) else rest, depth) for index in range(count)]
        if kind == "string":
            text, least = _FORMATS.get(str(schema.get("format", "")), LABEL), int(schema.get("minLength", 0))
            self.spend(chars=max(least, len(text)))
            most = schema.get("maxLength")
            return text.ljust(least, ".")[: None if most is None else int(most)]
        if kind == "integer":
            return self.make_integer(schema)
        if kind == "number":
            return self.make_number(schema)
        return False if kind == "boolean" else None

    def make_integer(self, schema: Mapping[str, Any]) -> int:
        """Return the valid integer next to 0."""
        over, under, step = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"), schema.get("multipleOf", 1)
        highest = min(schema.get("maximum", inf), inf if under is None else ceil(under) - 1)
        lowest = max(schema.get("minimum", -inf), -inf if over is None else floor(over) + 1)
        value = ceil(max(lowest, min(0, highest)) / step) * step
        integer = int(value if value <= highest else floor(highest / step) * step)
        self.spend(chars=integer.bit_length() // 3)
        return integer

    def make_number(self, schema: Mapping[str, Any]) -> float:
        """Return an integer if one is within the bounds."""
        low, high = (schema.get(f"exclusive{end}", schema.get(end.lower())) for end in ("Minimum", "Maximum"))
        whole = self.make_integer(schema)
        if low is None or high is None or "multipleOf" in schema:
            return whole
        inclusive = "exclusiveMinimum" not in schema and "exclusiveMaximum" not in schema
        if low < whole < high or (inclusive and low <= whole <= high):
            return whole
        return float(low / 2 + high / 2)

    def resolve(self, schema: Any, depth: int) -> Mapping[str, Any]:
        self.spend(steps=1)
        if not isinstance(schema, Mapping):
            return {}
        others = []
        if "$ref" in schema:
            target, reference = self.root, str(schema["$ref"])
            for key in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
                key = key.replace("~1", "/").replace("~0", "~")
                target = target.get(key, {}) if isinstance(target, Mapping) else {}
            others.append(target)
        others += schema.get("allOf") or []
        others += _choices(schema)[:1]
        if not others or depth <= 0:
            return schema
        whole = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
        for other in others:
            whole = merge_schemas(self.resolve(other, depth - 1), whole)
            self.spend(steps=len(whole) // 10)
        return whole

    def copy(self, value: Any) -> Any:
        """Return a value that the schema contains. Each copy counts."""
        if isinstance(value, Mapping):
            return {name: self.copy(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.copy(item) for item in value]
        self.spend(chars=len(value) if isinstance(value, str) else 8)
        return value

    def spend(self, *, chars: int = 0, steps: int = 0) -> None:
        self.chars, self.steps = self.chars - chars - steps, self.steps - steps
        if self.chars < 0:
            raise ModelError(
                f"the {LABEL} writes at most {DEMO_VALUE_CHARS:,} characters for a schema, and this one asks for more"
            )
        if self.steps < 0:
            raise ModelError(f"the {LABEL} cannot write a value for a schema with so many references and branches")


def instance(schema: Any, root: Any = None) -> Any:
    """Return the smallest value for a schema: required keys only, the fewest items, LABEL as text."""
    try:
        return _Maker(schema if root is None else root).make(schema, _DEPTH)
    except (TypeError, ValueError, AttributeError, OverflowError, LookupError, ArithmeticError) as error:
        raise ModelError(f"the {LABEL} cannot write a value for this schema: {error}") from None


def _choices(schema: Any) -> list[Any]:
    return [*(schema.get("anyOf") or schema.get("oneOf") or ())] if isinstance(schema, Mapping) else []


_IMPLIED_TYPES = {
    "properties": "object",
    "required": "object",
    "items": "array",
    "prefixItems": "array",
    "minimum": "number",
}
