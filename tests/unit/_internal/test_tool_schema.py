"""Argument schemas from functions and from foreign schemas."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field

from wick._internal.frozen import canonical_json
from wick._internal.tool_schema import (
    ForeignArguments,
    FunctionArguments,
    Injected,
    format_type,
    inspect_arguments,
    parse_docstring,
)
from wick.constants import ARGS_BYTES, JSON_DEPTH
from wick.errors import ConfigError, InvalidArgs, MissingExtra


class Context(Injected):
    """An injected object."""


class Colour(Enum):
    red = "red"
    blue = "blue"


class Todo(BaseModel):
    """One thing to do."""

    title: str
    done: bool = False


def properties(fn: Callable[..., Any]) -> dict[str, Any]:
    found = inspect_arguments(fn).schema["properties"]
    assert isinstance(found, dict)
    return found


def invalid(arguments: FunctionArguments | ForeignArguments, args: Any) -> str:
    with pytest.raises(InvalidArgs) as caught:
        arguments.validate("t", args)
    sentence = str(caught.value)
    assert sentence.startswith("t: ") and "\n" not in sentence and "http" not in sentence and len(sentence) < 1500
    return sentence


# -- the schema -----------------------------------------------------------------------------------------------------


def test_a_schema_is_compact() -> None:
    def search(pattern: str, limit: int = 10) -> None: ...

    assert inspect_arguments(search).schema == {
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
        "required": ["pattern"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters() -> None:
    def now() -> None: ...

    assert inspect_arguments(now).schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert inspect_arguments(now).validate("now", {}) == {}


def test_titles_are_removed_but_an_argument_named_title_is_not() -> None:
    def add(title: str, todo: Todo, default: Literal["title"] = "title") -> None: ...

    assert properties(add)["title"] == {"type": "string"}
    assert properties(add)["default"] == {"const": "title", "default": "title", "type": "string"}
    assert inspect_arguments(add).schema["$defs"]["Todo"] == {
        "description": "One thing to do.",
        "type": "object",
        "properties": {"title": {"type": "string"}, "done": {"type": "boolean", "default": False}},
        "required": ["title"],
    }


def test_annotations_take_precedence_for_descriptions() -> None:
    def find(
        a: Annotated[int, "from the text"],
        b: Annotated[int, Field(description="from the field", ge=1)],
        c: int,
        d: int = Field(default=3, description="from the default"),
        e: int = 0,
    ) -> None:
        """Find.

        Args:
            a: unused
            c: from the docstring
        """

    found = properties(find)
    assert [found[name].get("description") for name in "abcde"] == [
        "from the text", "from the field", "from the docstring", "from the default", None,
    ]  # fmt: skip
    assert found["b"]["minimum"] == 1 and found["d"]["default"] == 3
    assert inspect_arguments(find).validate("find", {"a": 1, "b": 2, "c": 3}) == {
        "a": 1,
        "b": 2,
        "c": 3,
        "d": 3,
        "e": 0,
    }


def test_injected_parameters_are_not_in_the_schema() -> None:
    def look(path: str, run: Context, maybe: Context | None = None, noted: Annotated[Context, "x"] = None) -> None: ...  # type: ignore[assignment]

    arguments = inspect_arguments(look)
    assert list(arguments.schema["properties"]) == ["path"]
    assert arguments.injected == {"run": (Context,), "maybe": (Context,), "noted": (Context,)}
    assert "run is not an argument (the arguments are path)" in invalid(arguments, {"path": "a", "run": 1})


def test_names_that_clash_with_pydantic_work() -> None:
    def odd(schema: int, copy: int, json: int, model_dump: int, _hidden: int, a0: int, validate: int = 0) -> None: ...

    args = {"schema": 1, "copy": 2, "json": 3, "model_dump": 4, "_hidden": 5, "a0": 6, "validate": 7}
    arguments = inspect_arguments(odd)
    assert arguments.validate("odd", args) == args == arguments.to_values("odd", canonical_json(args))
    assert "a1 is not an argument" in invalid(arguments, {**args, "a1": 1})


def test_extra_arguments_need_a_var_keyword() -> None:
    def log(level: str, run: Context, **rest: Any) -> None: ...

    arguments = inspect_arguments(log)
    assert arguments.schema["additionalProperties"] is True
    assert arguments.validate("log", {"level": "x", "a0": [1]}) == {"level": "x", "a0": [1]}
    assert arguments.to_values("log", b'{"a0":[1],"level":"x"}') == {"level": "x", "a0": [1]}
    assert "run is not an argument" in invalid(arguments, {"level": "x", "run": 1})


def test_no_annotation_means_anything() -> None:
    def anything(x, y=None): ...  # type: ignore[no-untyped-def]

    assert inspect_arguments(anything).validate("t", {"x": [1, {"a": None}]}) == {"x": [1, {"a": None}], "y": None}


def test_a_default_of_none_allows_none() -> None:
    def read(limit: int = None, width: Annotated[int, Field(ge=1)] = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    arguments = inspect_arguments(read)
    assert arguments.validate("read", {}) == {"limit": None, "width": None}
    assert arguments.validate("read", {"limit": "5", "width": 1}) == {"limit": 5, "width": 1}
    assert "width should be greater than or equal to 1" in invalid(arguments, {"width": 0})


def test_defaults_are_json_like_everything_else() -> None:
    def plan(
        when: date = date(2024, 1, 2),
        root: Path = Path("/tmp"),
        colour: Colour = Colour.red,
        share: float = 1,
        price: Decimal = Decimal("1.50"),
        tags: frozenset[str] = frozenset("cab"),
        todo: Todo = Todo(title="x"),  # noqa: B008
        seen: list[str] = [],  # noqa: B006
    ) -> None: ...

    arguments = inspect_arguments(plan)
    data = arguments.validate("plan", {})
    assert canonical_json(data) == (
        b'{"colour":"red","price":"1.50","root":"/tmp","seen":[],"share":1.0,"tags":["a","b","c"],'
        b'"todo":{"done":false,"title":"x"},"when":"2024-01-02"}'
    )
    assert arguments.to_values("plan", canonical_json(data)) == {
        "when": date(2024, 1, 2), "root": Path("/tmp"), "colour": Colour.red, "share": 1.0, "price": Decimal("1.50"),
        "tags": frozenset("abc"), "todo": Todo(title="x"), "seen": [],
    }  # fmt: skip
    data["seen"].append("changed")
    assert arguments.validate("plan", {})["seen"] == []


def test_sets_have_one_order() -> None:
    def tag(names: set[str], more: set[int] | None = None) -> None: ...

    words = [f"word{index}" for index in range(50)]
    data = inspect_arguments(tag).validate("tag", {"names": words[::-1], "more": [10, 9, 1]})
    assert data == {"names": sorted(words), "more": [1, 10, 9]}


def test_a_function_is_read_once() -> None:
    def one(x: int) -> None: ...

    assert inspect_arguments(one) is inspect_arguments(one)


def test_methods_are_read_without_self_and_once_for_all_objects() -> None:
    class Box:
        def put(self, x: int) -> None: ...

    assert inspect_arguments(Box().put) is inspect_arguments(Box().put)
    assert list(inspect_arguments(Box().put).schema["properties"]) == ["x"]


def test_partials_wrappers_and_callable_objects_are_read() -> None:
    def base(a: int, b: str) -> None: ...

    @wraps(base)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    class Adder:
        __slots__ = ()  # which also means that nothing can refer to it weakly

        def __call__(self, a: int, b: str) -> None: ...

    for fn in (wrapped, Adder()):
        assert {name: kind["type"] for name, kind in properties(fn).items()} == {"a": "integer", "b": "string"}
    assert inspect_arguments(partial(base, b="x")).validate("t", {"a": 1}) == {"a": 1, "b": "x"}


def bad_hint(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def odd_return(x: int) -> Missing: ...  # type: ignore[name-defined]  # noqa: F821


def test_invalid_tools_are_refused() -> None:
    class Thing:
        pass

    def many(*paths: str) -> None: ...

    def opaque(x: Any) -> None: ...

    def called(x: Any) -> None: ...

    def wrong_default(x: int = "three") -> None: ...  # type: ignore[assignment]

    def strange_default(x: Any = Thing()) -> None: ...  # noqa: B008

    def nan_default(x: Any = float("nan")) -> None: ...

    opaque.__annotations__["x"], called.__annotations__["x"] = Thing, Callable[[], None]
    refusals: dict[Callable[..., Any], str] = {
        many: r"takes \*paths, which the model cannot fill; take a list instead",
        bad_hint: "annotations of the tool bad_hint cannot be resolved: name 'Missing' is not defined",
        opaque: r"the parameter 'x' of the tool opaque is a Thing, .* write x: Deps\[Thing\]",
        called: "the parameter 'x' of the tool called is a .*Callable.*, which a model cannot fill in",
        wrong_default: "the default of 'x' in the tool wrong_default does not fit",
        strange_default: "the default of 'x' in the tool strange_default does not fit",
        nan_default: "the default of 'x' in the tool nan_default does not fit its type or is not JSON data",
    }
    for fn, words in refusals.items():
        with pytest.raises(ConfigError, match=words) as caught:
            inspect_arguments(fn)
        assert "\n" not in str(caught.value)


def test_a_return_annotation_may_be_unresolved() -> None:
    assert inspect_arguments(odd_return).validate("t", {"x": 1}) == {"x": 1}


def test_positional_parameters_are_distinguished() -> None:
    def power(base: int, exponent: int = 2, /, *, sign: int = 1) -> None: ...

    assert inspect_arguments(power).positional == ("base", "exponent")


# -- validation -----------------------------------------------------------------------------------------------------


def example(path: str, limit: int = 10, todos: list[Todo] | None = None, either: int | bool | None = None) -> None: ...


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({}, "t: path is missing"),
        ({"path": 5}, "t: path should be a valid string (got 5)"),
        ({"path": "a", "limit": "many"}, "t: limit should be a valid integer, "
         "unable to parse string as an integer (got 'many')"),
        ({"path": "a", "x": 1}, "t: x is not an argument (the arguments are path, limit, todos, either)"),
        ({"path": None, "limit": [1]}, "t: path should be a valid string (got null); "
         "limit should be a valid integer (got a list)"),
        ({"path": "a", "todos": [{"title": "x"}, {"done": "?"}]}, "t: todos.1.title is missing; "
         "todos.1.done should be a valid boolean, unable to interpret input (got '?')"),
        ({"path": "a", "either": "x"}, "t: either should be a valid integer, unable to parse string as an integer "
         "or should be a valid boolean, unable to interpret input (got 'x')"),
        ({"path": "a", "limit": "9" * 5000}, None),
        ({"path": ["x" * 5000]}, "t: path should be a valid string (got a list)"),
        ({"path": "a", "y" * 5000: 1}, None),
        ({"path": "a", **{f"x{index}": 1 for index in range(50)}}, None),
    ],
)  # fmt: skip
def test_invalid_arguments_are_reported(args: dict[str, Any], sentence: str | None) -> None:
    said = invalid(inspect_arguments(example), args)
    assert said == sentence or sentence is None
    assert "xxxxx" not in said and "9999999999" not in said


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x", "\ud800", {"\udfff": 1}])
def test_non_json_is_refused(value: Any) -> None:
    def anything(x: Any) -> None: ...

    assert "not JSON" in invalid(inspect_arguments(anything), {"x": value})


def test_a_number_too_long_to_write_is_refused() -> None:
    assert "not JSON data" in invalid(inspect_arguments(example), {"path": "a", "limit": 10**5000})


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    def anything(x: Any) -> None: ...

    assert "not JSON data" in invalid(inspect_arguments(anything), {"x": circle})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_and_size_are_bounded() -> None:
    def anything(x: Any) -> None: ...

    arguments = inspect_arguments(anything)
    deepest = {"x": nested(JSON_DEPTH - 1)}
    assert arguments.validate("t", deepest) == deepest
    assert f"more than {JSON_DEPTH} levels" in invalid(arguments, {"x": nested(JSON_DEPTH)})
    assert "not JSON data" in invalid(arguments, {"x": nested(100_000)})
    assert "larger than" in invalid(arguments, {"x": "x" * ARGS_BYTES})


def test_invalid_numbers_are_refused_in_every_spelling() -> None:
    def measure(x: float, y: Decimal = Decimal(1)) -> None: ...

    for bad in ("nan", "inf", "-Infinity", 10**400):
        assert "finite" in invalid(inspect_arguments(measure), {"x": bad})
    assert "finite" in invalid(inspect_arguments(measure), {"x": 1, "y": "NaN"})


def even(value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd " + "z" * 500)
    return 2 // value


def test_validators_may_refuse_or_fail() -> None:
    def take(x: Annotated[int, AfterValidator(even)]) -> None: ...

    said = invalid(inspect_arguments(take), {"x": 3})
    assert "x is wrong: 3 is odd zzz" in said and len(said) < 100
    assert "cannot be checked: integer division" in invalid(inspect_arguments(take), {"x": 0})


def test_bytes_that_do_not_fit_are_refused_at_the_call_too() -> None:
    for data in (b"", b"[]", b'{"path": 1}', b'{"path": "\\ud800"}', b"\xff"):
        with pytest.raises(InvalidArgs):
            inspect_arguments(example).to_values("t", data)


# -- foreign schemas ------------------------------------------------------------------------------------------------

FOREIGN = {
    "type": "object",
    "title": "kept as it is",
    "properties": {
        "city": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "days": {"type": "integer", "minimum": 1},
        "kinds": {"type": "array", "items": {"$ref": "#/$defs/kind"}, "uniqueItems": True},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"kind": {"enum": ["rain", "sun"]}},
}


def takes_all(**args: Any) -> None: ...


def foreign(schema: Any = FOREIGN) -> ForeignArguments:
    return ForeignArguments(schema, takes_all)


def test_a_foreign_schema_is_copied_and_immutable() -> None:
    source = {"type": "object", "properties": {"x": {"type": "string"}}}
    arguments = foreign(source)
    source["properties"]["x"]["type"] = "integer"  # type: ignore[index]
    assert arguments.schema == {"type": "object", "properties": {"x": {"type": "string"}}}
    assert foreign().schema == FOREIGN


def test_foreign_arguments_are_checked_and_copied() -> None:
    args = {"city": "Oslo", "days": 2, "kinds": ["rain", "sun"]}
    data = foreign().validate("t", args)
    assert data == args and data["kinds"] is not args["kinds"]
    assert foreign().to_values("t", canonical_json(data)) == args


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "t: city is missing"),
        ({"city": 5}, "city should be of type string (got 5)"),
        ({"city": "Oslo", "days": "2"}, "days should be of type integer (got '2')"),
        ({"city": "Oslo", "days": 0}, 'days does not fit {"minimum": 1}'),
        ({"city": "oslo"}, 'city does not fit {"pattern": "^[A-Z]"}'),
        ({"city": "Oslo", "kinds": ["rain", "rain"]}, 'kinds does not fit {"uniqueItems": true}'),
        ({"city": "Oslo", "kinds": ["snow"]}, 'kinds.0 does not fit {"enum": ["rain", "sun"]}'),
        ({"city": "Oslo", "a": 1, "b": 1}, "a, b is not an argument (the arguments are city, days, kinds)"),
        ({"city": float("nan")}, "not JSON data"),
        ({"city": "\ud800"}, "not JSON data"),
    ],
)
def test_invalid_foreign_arguments_are_reported(args: dict[str, Any], words: str) -> None:
    assert words in invalid(foreign(), args)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "array"},
        {"properties": 5},
        {"properties": {"x": {"$ref": "https://example.com/schema.json"}}},
        {"properties": {"x": {"$ref": "other.json"}}},
        {"properties": {"x": {"default": object()}}},
    ],
)
def test_a_foreign_schema_that_cannot_be_used_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a tool's parameters"):
        foreign(schema)


def test_a_reference_that_leads_nowhere_is_an_error_and_not_a_request() -> None:
    with pytest.raises(ConfigError, match="refers to '#/\\$defs/gone', and there is no schema"):
        foreign({"$id": "http://127.0.0.1:1/", "properties": {"x": {"$ref": "#/$defs/gone"}}})
    with pytest.raises(ConfigError, match="in a circle that never ends"):
        foreign({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}})


def test_patterns_are_matched_in_linear_time() -> None:
    schema = {"properties": {"x": {"pattern": "^(a+)+$"}}, "patternProperties": {"^(a+)+$": {"type": "string"}}}
    assert "does not fit" in invalid(foreign(schema), {"x": "a" * 50_000 + "!"})
    assert foreign(schema).validate("t", {"a" * 50_000 + "!": 1})
    lookahead = {"properties": {"x": {"pattern": "(?=a)b"}}}  # not understood here, so it is the tool's to check
    assert foreign(lookahead).validate("t", {"x": "c"}) == {"x": "c"}


def test_the_injected_parameters_of_a_foreign_function() -> None:
    def fn(run: Context, **args: Any) -> None: ...

    assert ForeignArguments(FOREIGN, fn).injected == {"run": (Context,)}


def test_without_jsonschema_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wick-agent\[schema\]'"):
        foreign()


# -- docstrings -----------------------------------------------------------------------------------------------------


def test_a_docstring_in_google_style() -> None:
    def fn() -> None:
        """Search for it.

        It takes a while.

        Args:
            pattern (str, optional): what to look for,
                on several
                lines: all of them
            **rest: more

            limit: how many

        Returns:
            what was found
        """

    description, texts = parse_docstring(fn)
    assert description == "Search for it.\n\nIt takes a while.\n\nReturns:\n    what was found"
    assert texts == {"pattern": "what to look for, on several lines: all of them", "rest": "more", "limit": "how many"}


def test_a_docstring_with_param_lines() -> None:
    def fn() -> None:
        """Search for it.

        :param pattern: what to look for
            on two lines
        :param int limit: how many
        :type limit: int
        :returns: what was found
        """

    assert parse_docstring(fn) == (
        "Search for it.\n\n:returns: what was found",
        {"pattern": "what to look for on two lines", "limit": "how many"},
    )


def test_no_docstring() -> None:
    assert parse_docstring(lambda: None) == ("", {})
    assert parse_docstring(partial(print)) == parse_docstring(print)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, "str"),
        ({"type": ["integer", "null"]}, "int | None"),
        ({"type": "array", "items": {"type": "number"}}, "list[float]"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "dict[str, bool]"),
        ({"enum": ["a", 1, None]}, "Literal['a', 1, None]"),
        ({"const": "x"}, "Literal['x']"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"$ref": "#/$defs/a"}, "list[str]"),
        ({"$ref": "#/$defs/loop"}, "list[list[list[Any]]]"),
        ({"enum": [[1]]}, "Any"),
        ({}, "Any"),
        (True, "Any"),
    ],
)
def test_types_come_from_the_schema(schema: Any, text: str) -> None:
    defs = {
        "a": {"type": "array", "items": {"type": "string"}},
        "loop": {"type": "array", "items": {"$ref": "#/$defs/loop"}},
    }
    assert format_type(schema, {"$defs": defs}) == text
