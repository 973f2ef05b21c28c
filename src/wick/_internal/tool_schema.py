"""Argument schemas of tools: a JSON Schema and its validation.

    inspect_arguments(fn)         from a function's signature, hints and docstring, validated by pydantic
    ForeignArguments(schema, fn)  from an external JSON Schema, validated by jsonschema within limits

Arguments are JSON. `validate` checks and completes them and is idempotent: it does not apply changes by custom
validators. `bind` applies them once: it returns the values for the function and their JSON form, which is hashed
and shown to guards.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from textwrap import dedent
from threading import Lock
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Optional, Union, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, from_json

from wick._internal.argument_form import is_stable, to_json_form
from wick._internal.dependencies import DepsParameter, read_deps_parameter, show_type
from wick._internal.frozen import canonical_json, digest, freeze, thaw
from wick._internal.json_schema import Problem, SchemaChecker, TooCostly
from wick.constants import ARGS_BYTES, JSON_DEPTH, SCHEMA_QUICK_BYTES, SCHEMA_QUICK_STEPS, SCHEMA_STEPS
from wick.errors import ConfigError, InvalidArgs

MOST_PROBLEMS = 5  # named in one sentence
SHOWN_CHARS = 60  # of a value or a name
LINE_CHARS = 300  # of anything else that is quoted
MOST_CHECKED = 32  # costly checks that are remembered

_Problems = list[tuple[str, str]]
_one_check = Lock()  # costly checks compete with the event loop for the interpreter: one at a time


class Injected:
    """Base class of types that the run injects. A parameter of such a type is not shown to the model."""

    __slots__ = ()


NO_ARGS: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True, frozen=True, eq=False)
class BoundArguments:
    """Validated arguments: the values for the function, and their exact JSON form."""

    values: dict[str, Any] = field(repr=False)
    form: dict[str, Any]
    data: bytes = field(repr=False)  # the canonical bytes of the form


@dataclass(slots=True, frozen=True, eq=False)
class FunctionArguments:
    """The arguments of a function, as its signature describes them."""

    schema: dict[str, Any]
    injected: dict[str, tuple[type, ...]]
    positional: tuple[str, ...]
    _args_model: type[BaseModel] = field(repr=False)
    _names: tuple[tuple[str, str], ...]  # of the function's parameters, and of the model's fields
    _default_values: dict[str, Any]
    _raw: frozenset[str]  # parameters whose type changes or masks its input
    deps: tuple[DepsParameter, ...] = ()

    def find_filled(self, deps_type: type) -> str:
        """Return the name of a parameter of this type that the model fills in, or an empty string."""
        fields = self._args_model.model_fields if deps_type.__module__ != "builtins" else {}
        return next((name for name, key in self._names if fields and fields[key].annotation is deps_type), "")

    def validate(self, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as plain JSON: checked, coerced, and with the defaults filled in.

        An argument whose type has validators or serializers of its own stays as it was given: they are applied once,
        by `bind`.
        """
        given = self.fill_defaults(args)
        form = self._read_values(tool, encode_arguments(tool, given), args)[1]
        if not self._raw:
            return form
        plain = {name: value for name, value in form.items() if name not in self._raw}
        return {**plain, **{name: thaw(freeze(given[name])) for name in self._raw & given.keys()}}

    def fill_defaults(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the defaults of those that are missing."""
        return {**self._default_values, **args}

    def bind(
        self, tool: str, data: bytes, args: Mapping[str, Any] = NO_ARGS, *, checked: bool = False
    ) -> BoundArguments:
        """Run the validators on canonical JSON and return the values with their JSON form."""
        values, form = self._read_values(tool, data, args)
        try:
            return BoundArguments(values, freeze(form), canonical_json(form))
        except (TypeError, ValueError) as error:
            raise InvalidArgs(f"{tool}: the arguments cannot be written as JSON: {_shorten(error)}") from None

    def _read_values(self, tool: str, data: bytes, args: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        checked = self._validate_model(tool, data, args)
        values = {name: checked.__dict__[key] for name, key in self._names}
        if checked.__pydantic_extra__:
            values = {**checked.__pydantic_extra__, **values}
        try:
            # pydantic would validate the items of an iterator later, while the tool runs
            lists = {name: [*value] for name, value in values.items() if isinstance(value, Iterator)}
            form = to_json_form({**values, **lists} if lists else values)
            values |= {name: iter(items) for name, items in lists.items()}
            return values, form
        except ValidationError as error:
            raise InvalidArgs(_format_problems(tool, _list_problems(error, {}), self.schema)) from None
        except Exception as error:
            raise InvalidArgs(f"{tool}: the arguments cannot be written as JSON: {_shorten(error)}") from None

    def to_values(self, tool: str, data: bytes) -> dict[str, Any]:
        """Return the values for the function call."""
        return self.bind(tool, data).values

    def _validate_model(self, tool: str, data: bytes, args: Mapping[str, Any]) -> BaseModel:
        try:
            values = self._args_model.__pydantic_validator__.validate_json(data)
        except ValidationError as error:
            raise InvalidArgs(_format_problems(tool, _list_problems(error, args), self.schema)) from None
        except Exception as error:  # a custom validator may raise anything
            raise InvalidArgs(f"{tool}: the arguments cannot be checked: {_shorten(error)}") from None
        extra = values.__pydantic_extra__
        if extra and (taken := extra.keys() & {*self.injected, *(parameter.name for parameter in self.deps)}):
            raise InvalidArgs(_format_problems(tool, [(name, _UNKNOWN) for name in sorted(taken)], self.schema))
        return values  # type: ignore[no-any-return]


_Both = dict[bool, FunctionArguments]  # a function has other arguments when it is bound to an object
_known: WeakKeyDictionary[Callable[..., Any], _Both] = WeakKeyDictionary()


def inspect_arguments(fn: Callable[..., Any]) -> FunctionArguments:
    """Return the arguments of a function. The result is cached per function."""
    function = getattr(fn, "__func__", fn)
    try:
        both = _known.setdefault(function, {})
    except TypeError:  # some callables do not support weak references
        return _build_arguments(fn)
    bound = function is not fn
    if bound not in both:
        both[bound] = _build_arguments(fn)
    return both[bound]


def _build_arguments(fn: Callable[..., Any]) -> FunctionArguments:
    label = getattr(fn, "__name__", type(fn).__name__)
    hints, texts = _resolve_hints(fn, label), parse_docstring(fn)[1]
    fields: dict[str, Any] = {}
    names, injected, positional, deps, extra = [], {}, [], list[DepsParameter](), "forbid"
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ConfigError(f"the tool {label} takes *{name}, which the model cannot fill; take a list instead")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(name)
        hint = hints.get(name, Any)
        kinds, needed = _injected_types(hint), parameter.default is parameter.empty
        dependency = read_deps_parameter(name, hint, needed, kinds)
        if dependency is not None:
            deps.append(dependency)
        if kinds:
            injected[name] = kinds
        elif dependency is None:
            key = f"a{len(fields)}"  # a name that cannot clash with one of pydantic's
            names.append((name, key))
            fields[key] = _build_field(parameter, hint, texts.get(name))
    try:
        model = _build_model(label, fields, extra)
        raw = _raw_fields(model, dict(names))
        defaults = _read_defaults(label, model, {key for name, key in names if name in raw})
        schema = _build_schema(label, model)
    except _NoSchema as error:
        raise _find_unfit_parameter(label, dict(names), fields, hints) or error from None
    return FunctionArguments(schema, injected, tuple(positional), model, tuple(names), defaults, raw, tuple(deps))


class _NoSchema(ConfigError):
    """The types of a signature cannot be described as JSON."""


def _raw_fields(model: type[BaseModel], names: Mapping[str, str]) -> frozenset[str]:
    """Return the parameters that are handed on as they were given, because their types run code of their own."""
    refs: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    nodes: list[Any] = [model.__pydantic_core_schema__]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if isinstance(node.get("ref"), str):
                refs[node["ref"]] = node
            if node.get("type") == "model" and node.get("cls") is model:
                fields = node["schema"]["fields"]
            nodes += (item for key, item in node.items() if key != "metadata")
        elif isinstance(node, list | tuple):
            nodes += node
    return frozenset(name for name, key in names.items() if not is_stable(fields.get(key, _UNSTABLE), refs))


_UNSTABLE = {"type": "unknown"}


def _resolve_hints(fn: Callable[..., Any], label: str) -> dict[str, Any]:
    """Resolve the annotations of a function's parameters. The return annotation may stay unresolved."""
    target: Any = inspect.unwrap(fn)
    while isinstance(target, partial):
        target = inspect.unwrap(target.func)
    if not inspect.isroutine(target):
        target = type(target).__call__

    def bare() -> None: ...

    try:
        found = getattr(target, "__annotations__", {})
        bare.__annotations__ = {name: hint for name, hint in found.items() if name != "return"}
        return get_type_hints(bare, getattr(target, "__globals__", {}), include_extras=True)
    except Exception as error:
        raise ConfigError(
            f"the annotations of the tool {label} cannot be resolved: {_shorten(error)}; "
            "they must name what its module can see, outside of TYPE_CHECKING and of functions"
        ) from None


def _injected_types(hint: Any) -> tuple[type, ...]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = tuple(get_origin(kind) or kind for kind in kinds)  # Run of Run[Database]
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Injected))


def find_injected(fn: Callable[..., Any]) -> tuple[dict[str, tuple[type, ...]], tuple[DepsParameter, ...]]:
    """Return the parameters of a function that the run injects: its own objects, and its deps."""
    hints = _resolve_hints(fn, getattr(fn, "__name__", type(fn).__name__))
    injected = {name: kinds for name, hint in hints.items() if (kinds := _injected_types(hint))}
    deps = [read_deps_parameter(name, hint, True, _injected_types(hint)) for name, hint in hints.items()]
    if not any(deps):
        return injected, ()  # without a look at the signature, which builtins do not have
    parameters = inspect.signature(fn).parameters
    return injected, tuple(
        replace(found, required=found.required and parameters[found.name].default is inspect.Parameter.empty)
        for found in deps
        if found is not None and found.name in parameters
    )


def _find_unfit_parameter(
    label: str, names: Mapping[str, str], fields: Mapping[str, Any], hints: Mapping[str, Any]
) -> ConfigError | None:
    """Return the error of the first parameter whose type has no JSON Schema, or None if each has one of its own."""
    for name, key in names.items():
        try:
            _build_schema(label, _build_model(label, {key: fields[key]}, "forbid"))
        except _NoSchema:
            kind = show_type(hints.get(name, Any))
            return ConfigError(
                f"the parameter {name!r} of the tool {label} is a {kind}, which a model cannot fill in. Give it a type "
                "that JSON has (str, int, float, bool, list, dict, Literal, an Enum, a TypedDict, a data class or a "
                f"pydantic model), or write {name}: Deps[{kind}] to receive the object of agent.run(…, deps=…). "
                "A parameter of type Run or ToolUse is injected as well"
            )
    return None


def _build_field(parameter: inspect.Parameter, hint: Any, text: str | None) -> tuple[Any, Any]:
    base, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    default = ... if parameter.default is parameter.empty else parameter.default
    if default is None or (isinstance(default, FieldInfo) and default.default is None):
        base = Optional[base]  # noqa: UP045 - the hint may be anything
    notes = [Field(description=note) if isinstance(note, str) else note for note in notes]
    return Annotated[(base, Field(alias=parameter.name, description=text), *notes)], default


def _build_model(label: str, fields: dict[str, Any], extra: Any) -> type[BaseModel]:
    config = ConfigDict(extra=extra, allow_inf_nan=False, protected_namespaces=())
    try:
        model: type[BaseModel] = create_model(label, __config__=config, **fields)
        model.model_rebuild()  # raises for an unresolved forward reference
        return model
    except (PydanticUserError, NameError, TypeError, ValueError) as error:
        raise _schema_error(label, error) from None


def _build_schema(label: str, model: type[BaseModel]) -> dict[str, Any]:
    try:
        return freeze(_strip_titles(model.model_json_schema()))  # type: ignore[no-any-return]
    except (PydanticUserError, TypeError, ValueError) as error:
        raise _schema_error(label, error) from None


def _schema_error(label: str, error: Exception) -> _NoSchema:
    return _NoSchema(f"the arguments of the tool {label} cannot be described as JSON: {_shorten(error)}")


_DATA = frozenset(("default", "examples", "enum", "const", "discriminator"))  # keywords without schemas inside
_MAPS = frozenset(("properties", "$defs"))  # names and their schemas


def _strip_titles(node: Any, names: bool = False) -> Any:
    """Return a schema without the titles that pydantic generates."""
    if isinstance(node, list):
        return [_strip_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value if not names and key in _DATA else _strip_titles(value, not names and key in _MAPS)
        for key, value in node.items()
        if names or key != "title"
    }


def _read_defaults(label: str, model: type[BaseModel], raw: set[str]) -> dict[str, Any]:
    """Return the defaults as JSON, so that guards see them like all other arguments.

    A default that validation would change is omitted: the function receives it as written.
    """
    blank, found = model.model_construct(), {}
    keys = {key for key, info in model.model_fields.items() if info.default is not PydanticUndefined}
    name: str | None = None
    try:
        for key in sorted(keys):
            name = model.model_fields[key].alias
            given = model.model_fields[key].default
            model.__pydantic_validator__.validate_assignment(blank, key, given)
            form = to_json_form(blank.__dict__[key])
            freeze(form)
            _dump_fields(blank, {key})
            if key not in raw or _is_unchanged(model, key, given, form):
                found[str(name)] = form
        return found
    except Exception as error:
        raise ConfigError(
            f"the default of {name!r} in the tool {label} does not fit its type or is not JSON data: {_shorten(error)}"
        ) from None


def _is_unchanged(model: type[BaseModel], key: str, default: Any, form: Any) -> bool:
    """Return True if a default is the value that validating its JSON form gives."""
    blank = model.model_construct()
    try:
        model.__pydantic_validator__.validate_assignment(blank, key, form)
        return bool(
            to_json_form(blank.__dict__[key]) == form == to_json_form(default) and blank.__dict__[key] == default
        )
    except Exception:
        return False


def _dump_fields(values: BaseModel, keys: set[str] | None = None) -> dict[str, Any]:
    return values.__pydantic_serializer__.to_python(  # type: ignore[no-any-return]
        values, mode="json", include=keys, by_alias=True, round_trip=True, warnings=False
    )


def encode_arguments(tool: str, args: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of arguments; raise InvalidArgs if they are not JSON data, or too large."""
    try:
        data = canonical_json(args)
        if data.count(b"{") + data.count(b"[") > JSON_DEPTH:  # only then can they be too deep
            freeze(args)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgs(f"{tool}: the arguments are not JSON data: {_shorten(error)}") from None
    if len(data) > ARGS_BYTES:
        raise InvalidArgs(f"{tool}: the arguments are larger than {ARGS_BYTES:,} bytes; send less")
    return data


# -- foreign schemas ------------------------------------------------------------------------------------------------


class ForeignArguments:
    """Arguments described by an external JSON Schema."""

    __slots__ = ("_checked", "_checker", "deps", "injected", "positional", "schema")

    def __init__(self, schema: Mapping[str, Any], fn: Callable[..., Any]) -> None:
        try:
            self.schema: dict[str, Any] = freeze(dict(schema))
            if self.schema.get("type", "object") != "object":
                raise ConfigError(f"a tool's parameters must be of type object, not {_shorten(self.schema['type'])!r}")
            self._checker = SchemaChecker(self.schema)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"a tool's parameters must be a JSON Schema: {_shorten(error)}") from None
        (self.injected, self.deps), self.positional = find_injected(fn), ()
        self._checked: dict[str, _Problems] = {}  # results of costly checks, by the hash of the arguments

    def find_filled(self, deps_type: type) -> str:
        """Return an empty string: the parameters have no Python types."""
        return ""

    def fill_defaults(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        return args

    def bind(
        self, tool: str, data: bytes, args: Mapping[str, Any] = NO_ARGS, *, checked: bool = False
    ) -> BoundArguments:
        """Parse canonical JSON and return it as values and as JSON form, which are equal."""
        form = self.to_values(tool, data)
        if not checked:
            self.validate(tool, form)
        return BoundArguments(self.to_values(tool, data), freeze(form), data)

    def validate(self, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return a plain copy of the arguments; raise InvalidArgs if they do not match the schema."""
        form = encode_arguments(tool, args)
        problems = self._checked.get(digest(form)) if self._checked else None
        data = self.to_values(tool, form)
        if problems is None:
            problems = self._find_problems(tool, data, SCHEMA_STEPS)
        if problems:
            raise InvalidArgs(_format_problems(tool, problems, self.schema))
        return data

    def defer_costly_check(self, tool: str, args: Mapping[str, Any]) -> Callable[[], None] | None:
        """Check arguments within a small step budget; if it is exceeded, return a callable for the full check."""
        with suppress(InvalidArgs):  # which `validate` raises
            data = encode_arguments(tool, args)
            try:
                self._check_and_cache(tool, data, SCHEMA_QUICK_STEPS)
            except TooCostly:
                return partial(self._check_slowly, tool, data)
        return None

    def _check_slowly(self, tool: str, data: bytes) -> None:
        with _one_check, suppress(InvalidArgs):
            self._check_and_cache(tool, data, SCHEMA_STEPS)

    def _check_and_cache(self, tool: str, data: bytes, steps: int) -> None:
        """Check arguments and cache the outcome for `validate`; raise TooCostly if the steps are exceeded."""
        if len(data) > SCHEMA_QUICK_BYTES and steps < SCHEMA_STEPS:
            raise TooCostly
        problems = self._find_problems(tool, self.to_values(tool, data), steps)
        while len(self._checked) >= MOST_CHECKED:
            self._checked.pop(next(iter(self._checked)), None)
        self._checked[digest(data)] = problems

    def _find_problems(self, tool: str, data: Any, steps: int) -> _Problems:
        try:
            return [
                _describe_foreign_problem(problem)
                for problem in self._checker.find_problems(data, steps, MOST_PROBLEMS + 1)
            ]
        except TooCostly:
            if steps < SCHEMA_STEPS:
                raise
            return [("", _TOO_COSTLY)]
        except Exception as error:  # for instance data that is too deep for its schema
            raise InvalidArgs(f"{tool}: the arguments cannot be checked: {_shorten(error)}") from None

    def to_values(self, tool: str, data: bytes) -> dict[str, Any]:
        try:
            return from_json(data, allow_inf_nan=False)  # type: ignore[no-any-return]
        except ValueError as error:
            raise InvalidArgs(f"{tool}: the arguments are not JSON data: {_shorten(error)}") from None


def _describe_foreign_problem(problem: Problem) -> tuple[str, str]:
    where, keyword, wanted, given, schema = problem
    match keyword:
        case "required":
            return ", ".join(_join_path(where, name) for name in wanted if name not in given), _MISSING
        case "additionalProperties" if wanted is False:
            known = schema.get("properties", {})
            return ", ".join(_join_path(where, name) for name in given if name not in known), _UNKNOWN
        case "type":
            return where, f"should be of type {_shorten(wanted)} (got {_show_value(given)})"
    return where, f"does not fit {_shorten(json.dumps({keyword: wanted}))}"


# -- sentences ------------------------------------------------------------------------------------------------------

_MISSING, _UNKNOWN = "is missing", "is not an argument"
_TOO_COSTLY = "takes too much work to check against the schema; send less"
_KINDS = {dict: "an object", list: "a list", str: "a long text", int: "a long number"}


def _format_problems(tool: str, problems: list[tuple[str, str]], schema: Mapping[str, Any]) -> str:
    """Return a sentence with the tool, the problem of each argument, and the known arguments."""
    phrases = [f"{_shorten(where, SHOWN_CHARS) or 'the input'} {what}" for where, what in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        phrases.append("and there is more")
    sentence = f"{tool}: {'; '.join(phrases)}"
    if any(what == _UNKNOWN for _, what in problems):
        sentence += f" (the arguments are {', '.join(schema.get('properties', ())) or 'none'})"
    return sentence


def _list_problems(error: ValidationError, args: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return path and problem of each error. The alternatives of a union are joined."""
    found: dict[str, dict[str, str]] = {}
    for item in error.errors(include_url=False, include_context=False):
        what, got = _describe_problem(item["type"], item["msg"], item["input"])
        found.setdefault(_format_path(item["loc"], args, what == _MISSING), {})[what] = got
    return [(where, " or ".join(list(whats)[:3]) + next(iter(whats.values()))) for where, whats in found.items()]


def _describe_problem(kind: str, message: str, given: Any) -> tuple[str, str]:
    if kind == "missing":
        return _MISSING, ""
    if kind == "extra_forbidden":
        return _UNKNOWN, ""
    if kind == "json_invalid":
        return _shorten(f"is not JSON: {message.partition(': ')[2]}"), ""
    if kind in ("value_error", "assertion_error"):  # the message of a custom validator, which may quote the input
        return f"is wrong: {_shorten(message.partition(', ')[2], SHOWN_CHARS)}", ""
    subject, should, rest = message.partition("should")
    return _shorten(should + rest if should else f"is wrong: {subject}"), f" (got {_show_value(given)})"


def _format_path(loc: tuple[int | str, ...], args: Any, missing: bool) -> str:
    """Return the path of an error, without the union members and validators that pydantic inserts."""
    path = list(loc[:1])
    args = args.get(path[0]) if path else None
    for step in loc[1:]:
        if (isinstance(args, dict) and step in args) or (isinstance(args, list) and step in range(len(args))):
            args = args[step]  # type: ignore[index]
            path.append(step)
    if missing and len(loc) > 1:
        path.append(loc[-1])
    return ".".join(map(str, path))


def _join_path(*names: str) -> str:
    return ".".join(filter(None, names))


def _show_value(value: Any) -> str:
    """Return a short value as text, or else its kind."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < 200):
        return json.dumps(value)
    if isinstance(value, str) and len(value) <= SHOWN_CHARS:
        return repr(value)
    return next((words for kind, words in _KINDS.items() if isinstance(value, kind)), "something else")


def _shorten(text: object, most: int = LINE_CHARS) -> str:
    """Return a text on one line, truncated to `most` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[:most]}…"


# -- docstrings -----------------------------------------------------------------------------------------------------

_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?:(.*)", re.DOTALL)
_PARAM = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+):(.*)", re.DOTALL)
_MARGIN = re.compile(r"\n(?=\S)")  # a block is a line at the margin with its indented lines


def parse_docstring(fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description in a function's docstring, and that of each parameter."""
    while isinstance(fn, partial):
        fn = fn.func
    description: list[str] = []
    texts: dict[str, str] = {}
    for block in _MARGIN.split(inspect.getdoc(fn) or ""):
        head, _, body = block.partition("\n")
        if _SECTION.fullmatch(head):
            texts |= _parse_entries(_ENTRY, _MARGIN.split(dedent(body)))
        elif _PARAM.match(block):
            texts |= _parse_entries(_PARAM, [block])
        elif not head.startswith(":type "):
            description.append(block)
    return "\n".join(description).strip(), texts


def _parse_entries(form: re.Pattern[str], blocks: list[str]) -> dict[str, str]:
    return {entry[1]: " ".join(entry[2].split()) for block in blocks if (entry := form.match(block))}


# -- types of Python from schemas --------------------------------------------------------------------------------------

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_DEEPEST = 5  # types nested deeper than this are `Any`
_MOST_CHOICES = 20  # of an enum


def format_type(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """Return the Python type of a JSON Schema, `Any` where Python has none."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "Any"
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/$defs/"):
        return format_type(root.get("$defs", {}).get(reference.removeprefix("#/$defs/")), root, depth + 1)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list | tuple):
        plain = len(choices) <= _MOST_CHOICES and all(isinstance(choice, str | int | None) for choice in choices)
        return f"Literal[{', '.join(map(repr, choices))}]" if plain and choices else "Any"
    kinds: Any = schema.get("anyOf") or schema.get("oneOf")
    if kinds:
        return " | ".join(dict.fromkeys(format_type(kind, root, depth + 1) for kind in kinds))
    kinds = schema.get("type")
    if isinstance(kinds, list | tuple):
        return " | ".join(dict.fromkeys(format_type({**schema, "type": kind}, root, depth + 1) for kind in kinds))
    if kinds == "array":
        return f"list[{format_type(schema.get('items'), root, depth + 1)}]"
    if kinds == "object":
        more = schema.get("additionalProperties")
        return f"dict[str, {format_type(more, root, depth + 1) if isinstance(more, Mapping) else 'Any'}]"
    return _TYPES.get(kinds, "Any") if isinstance(kinds, str) else "Any"
