"""Validation against untrusted JSON Schemas: bounded at registration, and metered during validation.

    checker = SchemaChecker(schema)              ConfigError if it is not a JSON Schema, or too costly to check
    checker.find_problems(data, steps=1_000)     the problems of a value; TooCostly after that many steps

jsonschema evaluates every reference and every branch, so a small schema can ask for any amount of work. Registration
bounds the size of a schema, its expansion through references and branches, and its patterns. Validation counts each
keyword that it evaluates, each item that it visits and each byte that it compares, and stops at a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

from pydantic import ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from wick._internal.frozen import canonical_json
from wick.constants import (
    SCHEMA_BRANCHES,
    SCHEMA_BYTES,
    SCHEMA_EXPANSION,
    SCHEMA_PATTERN_SIZE,
    SCHEMA_PATTERNS_SIZE,
    SCHEMA_VALUES,
)
from wick.errors import ConfigError, MissingExtra

Problem = tuple[str, str, Any, Any, Any]  # where, keyword, its value, the instance, the schema around it


class TooCostly(Exception):
    """Raised if checking a value takes more steps than allowed."""


# -- keywords -------------------------------------------------------------------------------------------------------

_ONE = frozenset((  # a schema
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
))  # fmt: skip
_LIST = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))  # schemas
_MAP = frozenset(("$defs", "definitions", "properties", "patternProperties", "dependentSchemas"))  # schemas by name
_COUNTS = frozenset(f"{end}{what}" for end in ("min", "max") for what in ("Length", "Items", "Properties", "Contains"))
_NUMBERS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_SWITCHES = frozenset(("uniqueItems", "deprecated", "readOnly", "writeOnly"))
_TEXTS = frozenset((
    *("title", "description", "$comment", "format", "pattern", "contentEncoding", "contentMediaType", "$schema"),
    *("$id", "$anchor", "$dynamicAnchor", "$ref", "$dynamicRef", "$recursiveRef"),
))  # fmt: skip
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_DATA = frozenset(("default", "examples", "enum", "const", "discriminator"))  # no schema in these
_IN_PLACE = frozenset((*_REFERENCES, "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"))
_UNEVALUATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_UNCHECKED = frozenset(("$defs", "definitions", "contentSchema"))  # not evaluated, only referred to
_OLD_DRAFTS = ("http://json-schema.org/draft-04", "http://json-schema.org/draft-03")  # `exclusiveMinimum` is a switch


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_schema, value))


def _is_map_of(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(fits, value.values()))


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_ONE, ("a schema", _is_schema)),
    "items": ("a schema, or a list of schemas", lambda value: _is_schema(value) or _are_schemas(value)),
    **dict.fromkeys(_LIST, ("a list of schemas", lambda value: _are_schemas(value) and bool(value))),
    **dict.fromkeys(_MAP, ("a map of names to schemas", lambda value: _is_map_of(value, _is_schema))),
    **dict.fromkeys(
        _COUNTS, ("a whole number from 0 up", lambda value: _is_number(value) and value >= 0 and value == int(value))
    ),
    **dict.fromkeys(_NUMBERS, ("a number", _is_number)),
    "multipleOf": ("a number above 0", lambda value: _is_number(value) and value > 0),
    **dict.fromkeys(_SWITCHES, ("true or false", lambda value: isinstance(value, bool))),
    **dict.fromkeys(_TEXTS, ("a text", lambda value: isinstance(value, str))),
    "type": (
        f"one or several of {', '.join(sorted(_TYPES))}",
        lambda value: (
            value in _TYPES
            if isinstance(value, str)
            else value != [] and _are_texts(value) and _TYPES.issuperset(value)
        ),
    ),
    "enum": ("a list", lambda value: isinstance(value, list)),
    "required": ("a list of names", _are_texts),
    "dependentRequired": ("a map of names to lists of names", lambda value: _is_map_of(value, _are_texts)),
    "dependencies": (
        "a map of names to schemas or lists of names",
        lambda value: _is_map_of(value, lambda one: _is_schema(one) or _are_texts(one)),
    ),
}


# -- bounds of a schema ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _SchemaGraph:
    """The nodes of a schema and the edges between them, read in one walk."""

    root: dict[str, Any]
    nodes: dict[int, Any] = field(default_factory=dict)
    in_place: dict[int, list[int]] = field(default_factory=dict)  # edges to schemas of the same value
    deeper: dict[int, list[int]] = field(default_factory=dict)  # edges to schemas of its parts
    factor: dict[int, int] = field(default_factory=dict)
    anchors: dict[str, Any] = field(default_factory=dict)
    patterns: int = 0
    values: int = 0

    def read(self) -> None:
        """Walk the schema; ConfigError for a keyword that has no valid value, or for too many values."""
        todo: list[Any] = [self.root]
        while todo:
            node = todo.pop()
            if id(node) in self.nodes:
                continue
            self.nodes[id(node)], self.in_place[id(node)], self.deeper[id(node)] = node, [], []
            self.factor[id(node)] = 3 if _UNEVALUATED & node.keys() else 1  # they evaluate all in-place schemas again
            for keyword, value in node.items():
                self._check_form(keyword, value)
                for child in _list_children(keyword, value):
                    if keyword not in _UNCHECKED:
                        edges = self.in_place if keyword in _IN_PLACE or keyword == "dependencies" else self.deeper
                        edges[id(node)].append(id(child))
                    todo.append(child)
                if keyword in _REFERENCES:
                    target = self.resolve_reference(str(value))
                    if isinstance(target, dict):
                        self.in_place[id(node)].append(id(target))
                        todo.append(target)

    def _check_form(self, keyword: str, value: Any) -> None:
        known = _FORMS.get(keyword)
        draft = str(self.root.get("$schema", ""))
        if keyword in ("exclusiveMinimum", "exclusiveMaximum") and draft.startswith(_OLD_DRAFTS):
            known = _FORMS["uniqueItems"]  # true or false
        if known is not None and not known[1](value):
            raise ConfigError(f"a tool's parameters are not a JSON Schema: {keyword[:60]!r} must be {known[0]}")
        self.values += 1 + (len(value) if isinstance(value, list | dict) else 0)
        if self.values > SCHEMA_VALUES:
            raise ConfigError(f"the schema has more than {SCHEMA_VALUES:,} keywords and names; make it smaller")
        if keyword == "pattern":
            self.patterns += _pattern_size(value)
            if self.patterns > SCHEMA_PATTERNS_SIZE:
                raise ConfigError("the patterns of the schema are too large together; use fewer or shorter ones")

    def resolve_reference(self, reference: str) -> Any:
        """Return the target of a reference; only targets inside this schema are allowed."""
        if not reference.startswith("#"):
            raise ConfigError(f"a tool's parameters refer to {reference[:200]!r}; include the target in the schema")
        place: Any = self.root
        if reference == "#":
            return place
        if not reference.startswith("#/"):
            place = self._find_anchors().get(reference[1:])
        else:
            for part in unquote(reference[2:]).split("/"):
                part = part.replace("~1", "/").replace("~0", "~")
                if isinstance(place, list) and part.isdecimal() and len(part) < 6 and int(part) < len(place):
                    place = place[int(part)]
                else:
                    place = place.get(part) if isinstance(place, dict) else None
        if not _is_schema(place):
            raise ConfigError(f"the schema refers to {reference[:200]!r}, and there is no schema at that place")
        return place

    def _find_anchors(self) -> dict[str, Any]:
        todo: list[Any] = [] if self.anchors else [self.root]
        self.anchors.setdefault("", self.root)
        while todo:
            node = todo.pop()
            for word in _ANCHORS if isinstance(node, dict) else ():
                if isinstance(node.get(word), str):
                    self.anchors.setdefault(node[word], node)
            todo += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return self.anchors

    def check_expansion(self) -> None:
        """Refuse reference cycles over the same value, and expansion beyond the limits."""
        branches = self._count_expanded(self.in_place, SCHEMA_BRANCHES, circles=False)
        if max(branches.values()) > SCHEMA_BRANCHES:
            raise _too_costly_error("one value would be checked against", SCHEMA_BRANCHES)
        both = {node: [*self.in_place[node], *self.deeper[node]] for node in self.nodes}
        if self._count_expanded(both, SCHEMA_EXPANSION, circles=True)[id(self.root)] > SCHEMA_EXPANSION:
            raise _too_costly_error("written out, it has", SCHEMA_EXPANSION)

    def _count_expanded(self, edges: Mapping[int, list[int]], most: int, *, circles: bool) -> dict[int, int]:
        """Count the nodes that each node expands to; nodes that refer to each other are counted once."""
        sizes: dict[int, int] = {}
        for group in _find_components(edges):
            members = {*group}
            if not circles and (len(group) > 1 or group[0] in edges[group[0]]):
                raise ConfigError("the schema refers to itself in a circle that never ends; refer to it in a property")
            out = [sizes[end] * self.factor[node] for node in group for end in edges[node] if end not in members]
            sizes |= dict.fromkeys(group, min(len(group) + sum(out), most + 1))
        return sizes


def _too_costly_error(what: str, most: int) -> ConfigError:
    return ConfigError(
        f"the schema is too costly to check: {what} more than {most:,} schemas; "
        "use fewer branches (anyOf, oneOf, allOf), and fewer references in them"
    )


def _list_children(keyword: str, value: Any) -> list[dict[str, Any]]:
    if keyword in _ONE or keyword in _LIST:
        found = value if isinstance(value, list) else [value]
    elif keyword in _MAP or keyword == "dependencies":
        found = [*value.values()]
    else:
        return []
    return [child for child in found if isinstance(child, dict)]


def _find_components(edges: Mapping[int, list[int]]) -> Iterator[list[int]]:
    """Yield the strongly connected components of a graph, each after those that it leads to (Tarjan)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for start in edges:
        work = [(start, iter(edges[start]))] if start not in number else []
        while work:
            node, ends = work[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                path.append(node)
                on_path.add(node)
            for end in ends:
                if end not in number:
                    work.append((end, iter(edges[end])))
                    break
                if end in on_path:
                    low[node] = min(low[node], number[end])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    group = [path.pop()]
                    while group[-1] != node:
                        group.append(path.pop())
                    on_path.difference_update(group)
                    yield group


# -- patterns -------------------------------------------------------------------------------------------------------

# ECMA-262 means ASCII by these; the Unicode classes of the engine are hundreds of states each.
_ASCII = {"w": "[A-Za-z0-9_]", "W": "[^A-Za-z0-9_]", "d": "[0-9]", "D": "[^0-9]", "b": r"(?-u:\b)", "B": r"(?-u:\B)"}
_CLASS, _PROPERTY = 12, 400  # states of a class of characters, and of a Unicode property
_TOKEN = re.compile(
    r"(?P<property>\\[pP](?:\{[^}]*\}|.))|\\x\{[^}]*\}|\\u\{[^}]*\}|\\.|\{(?P<least>\d{1,9})(?P<most>,\d{0,9})?\}"
    r"|\(\?<?[=!]|\(\?P?<\w+>|\(\?[a-zA-Z-]*:?|.",
    re.DOTALL,
)


def _pattern_size(pattern: str) -> int:
    """Estimate the states of a compiled pattern; ConfigError if there are too many, 0 if they cannot be counted."""
    sizes, last, in_class = [0], 0, False  # of each open group, and of the last atom
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if in_class:
            in_class = text != "]"
            last += _PROPERTY if token["property"] else 0
            sizes[-1] += 0 if in_class else last
            continue
        if text == "{" or (text[-1] != ">" and text.startswith("(?") and "x" in text):
            return 0  # `{,9}`, or blanks in a count
        if token["least"] and last:
            most = token["most"]
            times = int(token["least"]) + 1 if most in (None, ",") else int(most[1:])
            sizes[-1], last = sizes[-1] + last * max(times - 1, 0), last * max(times, 1)
        elif text.startswith("("):
            sizes.append(0)
            last = 0
        elif text == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif text == "[":
            in_class, last = True, _CLASS
        elif text not in "*+?|^$":
            last = _PROPERTY if token["property"] else _CLASS if text in (".", r"\W", r"\D", r"\s", r"\S") else 1
            sizes[-1] += last
        if sum(sizes) > SCHEMA_PATTERN_SIZE:
            raise ConfigError(f"the pattern {pattern[:60]!r} is too large; use smaller counts in its {{…}}")
    return max(sum(sizes), 1)


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> tuple[SchemaValidator | None, int]:
    """Compile a pattern for an engine without backtracking; None if its syntax is not known, or its size."""
    ascii_only = re.sub(r"\\(.)", lambda found: _ASCII.get(found[1], found[0]), pattern, flags=re.DOTALL)
    try:
        size = _pattern_size(pattern)
        return (SchemaValidator(core_schema.str_schema(pattern=ascii_only)) if size else None), size
    except (SchemaError, ConfigError):
        return None, 0


# -- metering -------------------------------------------------------------------------------------------------------

_steps: ContextVar[list[int]] = ContextVar("steps")  # left to spend

_LEAVES = frozenset((
    *("type", "enum", "const", "required", "dependentRequired", "multipleOf", "divisibleBy", "not", "contains"),
    *_COUNTS, *_NUMBERS,
))  # fmt: skip
_ITEMS = frozenset((
    *("items", "prefixItems", "additionalItems", "additionalProperties", "propertyNames", "contains"),
    *_UNEVALUATED,
))  # fmt: skip


def spend_steps(steps: int) -> None:
    """Count steps of the check that is running."""
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise TooCostly


def _meter_keyword(keyword: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Count a keyword before it is evaluated. A leaf's error quotes the instance, so that its length counts too."""
    items, squares, leaf = keyword in _ITEMS, keyword in _UNEVALUATED, keyword in _LEAVES

    def evaluate(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        cost = 1
        if isinstance(value, list | dict):
            cost += len(value) if not leaf else _count_values(value) // 2
        if items and isinstance(instance, list | dict):
            cost += len(instance)
            cost += len(instance) ** 2 // 20 if squares else 0  # jsonschema searches a list for each name
        spend_steps(cost)
        found = fn(validator, value, instance, schema)
        return _meter_errors(found) if leaf or value is False else found

    return evaluate


def _meter_errors(errors: Any) -> Iterator[Any]:
    for error in errors or ():
        spend_steps(len(error.message) // 200)
        yield error


def _count_values(value: Any) -> int:
    """Count the values in a keyword's value. A schema is small, so that this takes no longer than to compare them."""
    if isinstance(value, dict):
        return 1 + sum(map(_count_values, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_count_values, value))
    return 1


def _check_any_of(validator: Any, branches: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    """Check branches without the errors of each, which jsonschema would hold in memory."""
    if not any(validator.evolve(schema=branch).is_valid(instance) for branch in branches):
        yield _validation_error("fits none of them")


def _check_one_of(validator: Any, branches: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    if sum(validator.evolve(schema=branch).is_valid(instance) for branch in branches) != 1:
        yield _validation_error("does not fit exactly one of them")


def _check_not(validator: Any, branch: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.evolve(schema=branch).is_valid(instance):
        yield _validation_error("fits it")


def _check_type(validator: Any, types: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check a type. jsonschema would write the whole instance into its message, which blocks for a large one."""
    if not any(validator.is_type(instance, kind) for kind in ([types] if isinstance(types, str) else types)):
        yield _validation_error("is of another type")


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, str):
        return
    engine, size = _compile_pattern(pattern)
    if engine is None:
        return  # the tool must check it itself
    spend_steps(size * len(instance) // 5_000)
    try:
        engine.validate_python(instance)
    except ValidationError:
        yield _validation_error("does not match")


def _check_unique(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[Any]:
    if not unique or not isinstance(instance, list):
        return
    seen = set()
    for item in instance:
        spelled = canonical_json(item)
        spend_steps(1 + len(spelled) // 1_000)
        if spelled in seen:
            yield _validation_error("has an item twice")
            return
        seen.add(spelled)


def _validation_error(words: str) -> Any:
    from jsonschema import exceptions

    return exceptions.ValidationError(words)


_OWN = {
    "anyOf": _check_any_of,
    "oneOf": _check_one_of,
    "not": _check_not,
    "type": _check_type,
    "pattern": _check_pattern,
    "uniqueItems": _check_unique,
}


# -- checking -------------------------------------------------------------------------------------------------------


class SchemaChecker:
    """A JSON Schema that is bounded, with a validator that counts its steps."""

    __slots__ = ("_validator",)

    def __init__(self, schema: dict[str, Any]) -> None:
        if len(canonical_json(schema)) > SCHEMA_BYTES:
            raise ConfigError(f"the schema is longer than {SCHEMA_BYTES:,} bytes; make it smaller")
        try:
            from jsonschema import validators
            from referencing import Registry
        except ImportError:
            raise MissingExtra("schema", "jsonschema", "a tool with a JSON Schema of its own") from None
        shape = _SchemaGraph(schema)
        shape.read()
        shape.check_expansion()
        kind: Any = validators.validator_for(schema, default=validators.validator_for({}))
        if "extends" in kind.VALIDATORS:  # draft 3: its own keywords are not read here
            kind = validators.Draft4Validator
        known = {keyword: _meter_keyword(keyword, _OWN.get(keyword, fn)) for keyword, fn in kind.VALIDATORS.items()}
        extend: Any = validators.extend
        # A registry of its own: the default one fetches a reference that leads elsewhere.
        self._validator = extend(kind, known)(_SchemaRewriter(shape).rewrite(), registry=Registry())

    def find_problems(self, data: Any, steps: int, most: int) -> list[Problem]:
        """Return the first problems of a value; TooCostly once the steps are spent."""
        token = _steps.set([steps])
        try:
            errors = islice(self._validator.iter_errors(data), most)
            return [
                (".".join(map(str, one.absolute_path)), one.validator, one.validator_value, one.instance, one.schema)
                for one in errors
            ]
        finally:
            _steps.reset(token)


@dataclass(slots=True)
class _SchemaRewriter:
    """A schema rewritten from the nodes that `_SchemaGraph` has read, so that nothing else is ever evaluated.

    Keywords that are not evaluated are left out: a reference could make a schema of data or of a map of names.
    Names are not matched by patterns, which would need `re` on names that a model made up. A nested `$schema` would
    replace the metered validator by another, and `$id` would change where references lead.
    """

    shape: _SchemaGraph
    targets: dict[int, str] = field(default_factory=dict)  # the pointer of each schema that is referred to

    def rewrite(self) -> dict[str, Any]:
        """Return the whole schema; schemas that are referred to are in its `$defs`."""
        root = self.shape.root
        referred: list[dict[str, Any]] = []
        self.targets[id(root)] = "#"
        for node in self.shape.nodes.values():
            for word in _REFERENCES:
                target = self.shape.resolve_reference(node[word]) if word in node else root
                if isinstance(target, dict) and id(target) not in self.targets:
                    self.targets[id(target)] = f"#/$defs/{len(referred)}"
                    referred.append(target)
        defs = {str(number): self._rewrite_node(node) for number, node in enumerate(referred)}
        return {**self._rewrite_node(root), "$defs": {**defs, "True": True, "False": False}}

    def _format_pointer(self, target: Any) -> str:
        return self.targets[id(target)] if isinstance(target, dict) else f"#/$defs/{target}"

    def _rewrite_schema(self, schema: Any) -> Any:
        """Return a schema in the place of another; one that is referred to is written out once."""
        if not isinstance(schema, dict):
            return schema
        return {"$ref": self._format_pointer(schema)} if id(schema) in self.targets else self._rewrite_node(schema)

    def _rewrite_node(self, node: Mapping[str, Any]) -> dict[str, Any]:
        drop = {"$schema", "$id", *_UNCHECKED, *_ANCHORS}
        if "patternProperties" in node:
            drop |= {"patternProperties", "additionalProperties", "unevaluatedProperties"}
        rewritten: dict[str, Any] = {}
        for keyword, value in node.items():
            if keyword in _REFERENCES:
                rewritten["$ref"] = self._format_pointer(self.shape.resolve_reference(value))
            elif keyword in drop or (keyword not in _FORMS and keyword not in _DATA):
                continue
            elif (keyword in _ONE or keyword in _LIST) and isinstance(value, list):
                rewritten[keyword] = [*map(self._rewrite_schema, value)]
            elif keyword in _ONE or keyword in _LIST:
                rewritten[keyword] = self._rewrite_schema(value)
            elif keyword in _MAP or keyword == "dependencies":
                rewritten[keyword] = {name: self._rewrite_schema(schema) for name, schema in value.items()}
            else:
                rewritten[keyword] = value
        return rewritten


def merge_schemas(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with the properties and required names of both. Of other keywords those of the second count."""
    merged = {**first, **second}
    for key in ("properties", "$defs"):
        if key in first and key in second:
            merged[key] = {**first[key], **second[key]}
    if "required" in first and "required" in second:
        merged["required"] = [*dict.fromkeys([*first["required"], *second["required"]])]
    return merged
