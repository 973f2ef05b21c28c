"""Foreign JSON Schemas: bounded at registration, metered in use, and otherwise equal to jsonschema."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wick._internal import json_schema
from wick._internal.frozen import freeze
from wick._internal.json_schema import SchemaChecker, TooCostly
from wick.constants import SCHEMA_STEPS
from wick.errors import ConfigError, InvalidArgs
from wick.tools import tool

BRANCHES = ("anyOf", "oneOf", "allOf")


def whole(x: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": x}, **more}


def doubled(depth: int, link: Any) -> dict[str, Any]:
    """Return a schema whose definitions refer to the next one twice."""
    levels = {f"n{at}": link({"$ref": f"#/$defs/n{at + 1}"}) for at in range(depth)}
    return whole({"$ref": "#/$defs/n0"}, **{"$defs": {**levels, f"n{depth}": {"const": "never"}}})


LINKS: dict[str, Any] = {
    **{key: lambda next, key=key: {key: [next, next]} for key in BRANCHES},
    "if": lambda next: {"if": next, "then": next, "else": next},
    "not": lambda next: {"not": next, "allOf": [next]},
    "dependentSchemas": lambda next: {"dependentSchemas": {"a": next, "b": next}},
    "dependencies": lambda next: {"dependencies": {"a": next, "b": next}},
    "properties": lambda next: {"properties": {"a": next, "b": next}},
    "items": lambda next: {"prefixItems": [next, next]},
    "both": lambda next: {"items": next, "contains": next},
    "names": lambda next: {"additionalProperties": next, "properties": {"a": next}},
    "unevaluated": lambda next: {"unevaluatedProperties": False, "anyOf": [next]},
    "anchored": lambda next: {"anyOf": [next, {"allOf": [next]}]},
}


@pytest.mark.parametrize("depth", [18, 25, 40])
@pytest.mark.parametrize("link", LINKS)
def test_an_exponential_schema_is_refused_at_registration(link: str, depth: int) -> None:
    with pytest.raises(ConfigError, match="too costly to check"):
        SchemaChecker(doubled(depth, LINKS[link]))


@pytest.mark.parametrize("link", LINKS)
def test_a_schema_that_multiplies_a_little_is_taken(link: str) -> None:
    assert isinstance(SchemaChecker(doubled(4, LINKS[link])).find_problems({"x": 1}, SCHEMA_STEPS, 6), list)


def anchored(depth: int, word: str, anchor: str) -> dict[str, Any]:
    levels = {f"n{at}": {anchor: f"a{at}", "anyOf": [{word: f"#a{at + 1}"}] * 2} for at in range(depth)}
    return whole({word: "#a0"}, **{"$defs": {**levels, "last": {anchor: f"a{depth}", "const": 1}}})


@pytest.mark.parametrize(("word", "anchor"), [("$ref", "$anchor"), ("$dynamicRef", "$dynamicAnchor")])
def test_anchors_count_as_references(word: str, anchor: str) -> None:
    with pytest.raises(ConfigError, match="too costly"):
        SchemaChecker(anchored(20, word, anchor))
    checker = SchemaChecker(anchored(3, word, anchor))
    assert not checker.find_problems({"x": 1}, SCHEMA_STEPS, 6)
    assert checker.find_problems({"x": 2}, SCHEMA_STEPS, 6)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (whole({}, **{"$ref": "#"}), "in a circle"),
        (whole({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}}), "in a circle"),
        (whole({"$ref": "#nobody"}), "there is no schema at that place"),
        (whole({"$ref": "#/properties"}), None),
        (whole({"enum": ["x" * 250_000]}), "longer than"),
        (whole({"enum": [*range(20_000)]}), "keywords and names"),
        (whole({"pattern": r"(\w{100}){100}"}), "pattern"),
        (whole({"pattern": r"\p{L}{50}"}), "pattern"),
        (whole({"pattern": "(((a{50}){50}){50}){50}"}), "pattern"),
        (whole({"pattern": "a{100000000}"}), "pattern"),
        (whole({"allOf": [{"pattern": f"a{{4000}}{n}"} for n in range(10)]}), "patterns"),
        (whole({"minLength": -1}), "not a JSON Schema: 'minLength' must be"),
        (whole({"required": True}), "not a JSON Schema"),
        (whole({"anyOf": []}), "not a JSON Schema"),
        (whole({"type": "text"}), "not a JSON Schema"),
        (whole({"multipleOf": 0}), "not a JSON Schema"),
    ],
)
def test_schema_errors_are_reported(schema: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert SchemaChecker(schema)
        return
    with pytest.raises(ConfigError, match=words):
        SchemaChecker(schema)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


REPEATED = [{"properties": {"a": {"$ref": "#"}}}] * 2
COSTLY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "recursion": ({"type": "object", "allOf": REPEATED}, nested(60)),
    "recursion that fails": (
        {"type": "object", "anyOf": REPEATED, "properties": {"a": {"minProperties": 1}}},
        nested(60),
    ),
    "items": (whole({"items": {}}), {"x": [1] * 200_000}),
    "many properties": (whole({"items": {"properties": {f"p{n}": {} for n in range(3_000)}}}), {"x": [{}] * 1_000}),
    "enum": (whole({"items": {"anyOf": [{"enum": [*range(8_000)]}, {}]}}), {"x": [-1] * 1_000}),
    "const": (whole({"items": {"const": [[0] * 9] * 900}}), {"x": [[[0] * 9] * 900] * 200}),
    "uniqueItems": (whole({"allOf": [{"uniqueItems": True}] * 1_000}), {"x": [*range(10_000)]}),
    "unevaluated": ({"type": "object", "unevaluatedProperties": {}}, {str(n): 1 for n in range(5_000)}),
    "contains": (whole({"items": {"not": {"contains": {"contains": {"const": 1}}}}}), {"x": [[[0] * 50] * 50] * 50}),
    "pattern": (whole({"pattern": "(a|b|c){900}x"}), {"x": "a" * 1_000_000}),
    "messages": (whole({"anyOf": [{"minItems": 9_999_999}] * 1_500}), {"x": ["y" * 10] * 50_000}),
    "propertyNames": (
        {"type": "object", "propertyNames": {"anyOf": [*[{"const": "x"}] * 300, {}]}},
        dict.fromkeys(map(str, range(1_000))),
    ),
}


def uncounted(case: str) -> bool:
    """Return True if a costly check is not stopped."""
    schema, value = COSTLY[case]
    try:
        SchemaChecker(schema).find_problems(value, SCHEMA_STEPS, 6)
    except TooCostly:
        return False
    return True


@pytest.mark.parametrize("case", COSTLY)
def test_a_large_value_times_a_schema_is_stopped_at_the_limit(case: str) -> None:
    assert not uncounted(case)


def test_an_uncounted_keyword_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "_meter_keyword", lambda keyword, fn: fn)
    assert uncounted("items")


def test_a_nested_dialect_does_not_replace_the_metered_validator() -> None:
    old = "http://json-schema.org/draft-07/schema#"
    schema = whole({"$schema": old, "pattern": "(a+)+$", "items": {}}, **{"$schema": old})
    checker = SchemaChecker(schema)
    assert checker.find_problems({"x": "a" * 60 + "!"}, SCHEMA_STEPS, 6)  # `re` would need longer than the sun has
    with pytest.raises(TooCostly):
        checker.find_problems({"x": [1] * 200_000}, SCHEMA_STEPS, 6)


# Nodes that a validator would read as schemas, at places that are not schemas by their keyword.
HIDDEN: dict[str, Callable[[Any], Any]] = {
    "a property": lambda node: {"properties": dict.fromkeys(json_schema._DATA, node)},
    "a property of a map": lambda node: {"properties": {"x": {"$ref": "#/properties"}, "items": node}},
    "a default": lambda node: {"properties": {"x": {"$ref": "#/default"}}, "default": node},
    "a constant": lambda node: {"properties": {"x": {"$ref": "#/$defs/a/const"}}, "$defs": {"a": {"const": node}}},
    "a definition": lambda node: {"properties": {"x": {"$ref": "#/$defs/enum"}}, "$defs": {"enum": node}},
    "a dependency": lambda node: {
        "dependentSchemas": {name: {"properties": {name: node}} for name in json_schema._DATA}
    },
    "another keyword": lambda node: {"properties": {"x": {"$ref": "#/own/const"}}, "own": {"const": node}},
    "draft 3": lambda node: {"$schema": "http://json-schema.org/draft-03/schema#", "extends": [node]},
}
PLANTS: dict[str, tuple[dict[str, Any], Any]] = {
    "names by `re`": ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 60 + "!": 1}),
    "another dialect": ({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}, "a" * 60 + "!"),
    "another base": ({"$id": "http://127.0.0.1:1/", "$ref": "#/$defs/b"}, 1),
    "a circle": ({"extends": {"$ref": "#"}}, 1),
}


def strange_nodes(schema: Any) -> list[Any]:
    """Return the nodes of a schema, as jsonschema would evaluate it, that no rewritten schema has."""
    todo, found, seen = [schema], [], set()
    words = {"patternProperties", "$schema", "$id", "extends", "disallow", "$dynamicRef", "$anchor"}
    while todo:
        node = todo.pop()
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        found += [node] if words & node.keys() else []
        for keyword, value in node.items():
            todo += json_schema._list_children(keyword, value)
            if keyword == "$ref":
                place = schema
                for part in value.split("/")[1:]:
                    place = place[part]
                todo.append(place)
    return found


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("place", HIDDEN)
def test_nothing_but_a_rewritten_schema_is_evaluated(place: str, plant: str) -> None:
    node, value = PLANTS[plant]
    checker = SchemaChecker(freeze({**HIDDEN[place](node), "$defs": {"b": {}, **HIDDEN[place](node).get("$defs", {})}}))
    assert strange_nodes(checker._validator.schema) == []
    names = ("x", *json_schema._DATA, "properties")
    for data in [{name: value} for name in names] + [{"items": value}, {"x": {"items": value}}]:
        checker.find_problems(data, SCHEMA_STEPS, 6)


def test_an_unrewritten_node_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema._SchemaRewriter, "rewrite", lambda self: self.shape.root)
    for place in ("a property", "a default", "a definition", "a constant"):
        assert strange_nodes(SchemaChecker(HIDDEN[place](PLANTS["names by `re`"][0]))._validator.schema)


@pytest.mark.parametrize(
    "pattern", [r"(?x)(?:.{ 90 }){ 90 }", r"(?ix:a{9 0 0})", r"(?:a{,900}){,900}", r"(?:a{0000000900}){0000000900}"]
)
def test_a_pattern_of_unknown_size_is_not_compiled(pattern: str) -> None:
    assert json_schema._compile_pattern(pattern) == (None, 0)
    assert SchemaChecker(whole({"pattern": pattern})).find_problems({"x": "b"}, SCHEMA_STEPS, 6) == []


@pytest.mark.parametrize(
    "pattern", [r"^[^{}]+$", r"^\{a\}$", r"^[{]a{1,2}[}]$", r"^(?P<x>a)$", r"^(?:[x-z]{2}|(?i:b))+$"]
)
def test_a_pattern_with_braces_that_are_no_count_is_compiled(pattern: str) -> None:
    assert SchemaChecker(whole({"pattern": pattern})).find_problems({"x": "{{{"}, SCHEMA_STEPS, 6)


def test_a_switch_of_an_old_dialect_is_taken() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#"}
    checker = SchemaChecker(whole({"minimum": 1, "exclusiveMinimum": True}, **old))
    assert checker.find_problems({"x": 1}, 100, 6) and not checker.find_problems({"x": 2}, 100, 6)


# -- the same verdict as jsonschema -----------------------------------------------------------------------------------


def any_schema(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.1:
        return chance.choice([True, False, {}, {"type": "string"}, {"const": 1}, {"enum": [1, "a", None, [1], True]}])
    found: dict[str, Any] = {}
    for _ in range(chance.randint(1, 3)):
        key = chance.choice(KEYWORDS)
        found[key] = one_value(chance, key, depth - 1)
    return found


KEYWORDS = [
    *(*BRANCHES, "not", "if", "then", "else", "properties", "items", "prefixItems", "contains", "required", "$ref"),
    *("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "dependentSchemas"),
    *("dependentRequired", "type", "minimum", "maxLength", "minItems", "uniqueItems", "pattern", "multipleOf"),
]


def one_value(chance: random.Random, key: str, depth: int) -> Any:
    match key:
        case "anyOf" | "oneOf" | "allOf" | "prefixItems":
            return [any_schema(chance, depth) for _ in range(chance.randint(1, 3))]
        case "properties" | "dependentSchemas":
            return {name: any_schema(chance, depth) for name in "ab"}
        case "required":
            return [*"ab"[: chance.randint(0, 2)]]
        case "dependentRequired":
            return {"a": ["b"]}
        case "type":
            return chance.choice(["string", "object", "array", ["integer", "null"], "number", "boolean"])
        case "minimum" | "maxLength" | "minItems" | "multipleOf":
            return chance.randint(1, 3)
        case "uniqueItems":
            return chance.random() < 0.8
        case "pattern":
            return chance.choice(["^a", r"^\w+$", "[0-9]", r"\d{2}", "a|b$"])
        case "$ref":
            return "#/$defs/d"
    return any_schema(chance, depth)


def any_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randint(0, 7 if depth else 5)
    if kind < 6:
        return [None, True, 1, 1.5, "a1", "bé"][kind]
    if kind == 6:
        return [any_value(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    return {name: any_value(chance, depth - 1) for name in chance.sample("abc", chance.randint(0, 3))}


def differences(tries: int) -> list[Any]:
    """Return the schemas and values about which a Checker and jsonschema disagree."""
    chance, found = random.Random(19), []
    for _ in range(tries):
        defined = {name: value for name, value in [("d", any_schema(chance, 1))] if "$ref" not in str(value)}
        schema = whole(any_schema(chance, 3), **{"$defs": {"d": True, **defined}})
        checker, reference = SchemaChecker(freeze(schema)), Draft202012Validator(schema)
        for _ in range(4):
            value = {"x": any_value(chance, 2)}
            if bool(checker.find_problems(value, SCHEMA_STEPS, 6)) == reference.is_valid(value):
                found.append((schema, value))
    return found


def test_the_checker_agrees_with_jsonschema() -> None:
    assert differences(400) == []


def test_a_keyword_read_differently_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(json_schema._OWN, "oneOf", json_schema._check_any_of)
    assert differences(400)


# -- off the event loop -----------------------------------------------------------------------------------------------


def test_costly_arguments_are_checked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    where, check = [], SchemaChecker.find_problems

    def problems(self: SchemaChecker, *args: Any) -> Any:
        where.append(threading.current_thread() is threading.main_thread())
        return check(self, *args)

    monkeypatch.setattr(SchemaChecker, "find_problems", problems)
    made = tool(lambda **args: "", name="t", parameters=whole({"items": {"type": "integer"}}))
    many, few = {"x": [1] * 3_000}, {"x": [1, 2]}
    asyncio.run(made.prepare(many))
    assert where == [True, False]  # a few steps in the event loop, the rest in a thread
    assert made.validate(many) == many and len(where) == 2  # remembered
    asyncio.run(made.prepare(few))
    assert made.validate(few) == few and where == [True, False, True]


def test_invalid_arguments_are_refused_by_every_check() -> None:
    made = tool(lambda **args: "", name="t", parameters=whole({"items": {"type": "integer"}}))
    for value in ("text", [1] * 3_000 + ["text"]):
        asyncio.run(made.prepare({"x": value if isinstance(value, list) else [value]}))
        with pytest.raises(InvalidArgs, match="should be of type integer"):
            made.validate({"x": value if isinstance(value, list) else [value]})
    asyncio.run(made.prepare({"x": [1] * 500_000}))
    with pytest.raises(InvalidArgs, match="takes too much work to check"):
        made.validate({"x": [1] * 500_000})
