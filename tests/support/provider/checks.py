"""Checks that the vendors' rules share. A request that breaks one is refused with the vendor's sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Refused(Exception):
    """The request breaks a rule."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.status = message, status


def need(right: object, message: str, status: int = 400) -> None:
    if not right:
        raise Refused(message, status)


def check_keys(data: Mapping[str, Any], known: Collection[str], sentence: str) -> None:
    for key in data:
        need(key in known, sentence.format(key))


def check_number(
    data: Mapping[str, Any], key: str, low: float, high: float = float("inf"), kind: Any = (int, float)
) -> None:
    if data.get(key) is None:
        return
    value = data[key]
    need(isinstance(value, kind) and not isinstance(value, bool), f"Invalid type for '{key}': {value!r}.")
    need(low <= value <= high, f"Invalid '{key}': {value!r} is not between {low} and {high}.")


def check_schema(schema: Any, where: str) -> None:
    need(isinstance(schema, dict), f"{where}: a JSON Schema must be an object.")
    need(schema.get("type") == "object", f"{where}: schema must have type 'object', got {schema.get('type')!r}.")
    need(isinstance(schema.get("properties", {}), dict), f"{where}: 'properties' must be an object.")
    if problem := _schema_problem(json.dumps(schema)):
        raise Refused(f"{where}: {problem}")


@lru_cache
def _schema_problem(schema: str) -> str:
    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        return f"In context={tuple(error.path)!r}, {error.message}"
    return ""


def check_strict_schema(schema: Any, where: str) -> None:
    """Check the vendor's requirements of a strict schema."""
    if isinstance(schema, dict) and schema.get("type") == "object":
        names = set(schema.get("properties", {}))
        need(schema.get("additionalProperties") is False, f"{where}: 'additionalProperties' is required to be false.")
        need(set(schema.get("required", ())) == names, f"{where}: 'required' must include every key in properties.")
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        check_strict_schema(value, where)


def check_name(name: Any, where: str) -> None:
    need(
        isinstance(name, str) and NAME.fullmatch(name),
        f"Invalid '{where}': expected a string that matches '^[a-zA-Z0-9_-]{{1,64}}$', got {name!r}.",
    )


def read_arguments(text: Any, where: str) -> None:
    """Arguments must be a JSON object: some servers of this format read them back, and fail on others."""
    need(isinstance(text, str), f"Invalid type for '{where}': expected a string, got {type(text).__name__}.")
    try:
        read = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise Refused(f"Invalid '{where}': {error}") from None
    need(isinstance(read, dict), f"Invalid '{where}': expected an object.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def check_list(value: Any, where: str, each: Callable[[Any, str], None]) -> None:
    need(isinstance(value, list) and value, f"Invalid '{where}': expected a non-empty array, got {value!r:.80}.")
    for number, item in enumerate(value):
        need(isinstance(item, dict), f"Invalid type for '{where}[{number}]': expected an object.")
        each(item, f"{where}[{number}]")


def check_distinct(names: list[str], sentence: str) -> None:
    need(len(set(names)) == len(names), sentence)
