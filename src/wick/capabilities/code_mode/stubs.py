"""Tools as typed Python functions: their names, stubs, arguments and results."""

from __future__ import annotations

import builtins
import inspect
import json
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any

from wick._internal.frozen import freeze, thaw
from wick._internal.prompt_text import to_one_line
from wick._internal.tool_schema import format_type
from wick._internal.visible_text import format_count
from wick.capabilities.code_mode.syntax import IMPORTS
from wick.constants import PROGRAM_VALUES
from wick.tools import Tool

# For the check of types: where the interpreter differs from the types of Python.
_HEADER = """\
from typing import Any, Literal
class PermissionError(OSError): ...
def filter(function: Any, items: Any, /) -> list[Any]: ...
def format(value: Any, spec: str = "", /) -> str: ...
def hasattr(value: Any, name: str, /) -> bool: ...
def map(function: Any, items: Any, /, *more: Any) -> list[Any]: ...
"""
_RESERVED = frozenset((*dir(builtins), *IMPORTS, "Any", "Literal"))
_LINE_CHARS = 200


def name_functions(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by the names of their functions, which are valid and unique in Python."""
    found: dict[str, Tool] = {}
    for item in tools:
        name = re.sub(r"\W", "_", item.name, flags=re.ASCII)
        name = f"tool_{name}" if not name.isidentifier() or keyword.iskeyword(name) or name in _RESERVED else name
        while name in found:
            name += "_"
        found[name] = item
    return found


def format_stubs(functions: Mapping[str, Tool]) -> str:
    """Return the stubs that the types of a program are checked with."""
    return _HEADER + "\n".join(format_stub(name, item) for name, item in functions.items())


def format_stub(name: str, item: Tool) -> str:
    """Return the signature of a tool's function and the first lines of its description."""
    schema, names = item.parameters, order_parameters(item.parameters)
    properties, required = schema.get("properties", {}), schema.get("required", ())
    parameters = [
        f"{one}: {format_type(properties[one], schema)}{'' if one in required else ' = ...'}" for one in names
    ]
    if schema.get("additionalProperties", False) is not False or len(names) < len(properties):
        parameters.append("**more: Any")
    signature = f"async def {name}({', '.join(parameters)}) -> {_find_return_type(item)}: ..."
    return f"{signature}  # {to_one_line(item.description, _LINE_CHARS)}" if item.description else signature


def order_parameters(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters: the required ones first. Names that Python does not allow are left out."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    names = [name for name in properties if name.isidentifier() and not keyword.iskeyword(name)]
    return sorted(names, key=lambda name: name not in required)


def _find_return_type(item: Tool) -> str:
    """Return the type of a result from the annotation of the function, if it is a simple one."""
    annotation = inspect.signature(item.fn).return_annotation if item.foreign is None else None
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text if text in ("int", "float", "bool", "str") else "list[Any]" if text.startswith("list") else "Any"


def bind_arguments(item: Tool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, as JSON data. Raise TypeError if they are not."""
    names = order_parameters(item.parameters)
    if len(args) > len(names):
        raise TypeError(f"{item.name} takes {format_count(len(names), 'argument')}, not {len(args)}")
    found = dict(zip(names, args, strict=False))
    if twice := found.keys() & kwargs.keys():
        raise TypeError(f"{item.name} got several values for {', '.join(sorted(twice))}")
    if _is_large({**found, **kwargs}):
        raise TypeError(f"the arguments of {item.name} are too large; pass less in each of several calls")
    try:
        return dict(thaw(freeze({**found, **kwargs})))
    except (TypeError, ValueError) as error:
        raise TypeError(f"the arguments of {item.name}: {error}; pass text, numbers, lists or dicts") from None


def format_output(printed: str, value: Any, dropped: int, most: int) -> str:
    """Return the printed text and the value of the last expression, within the limit."""
    try:
        if isinstance(value, str):
            text = value
        elif _is_large(value):
            text = "the value of the last expression is too large; print only what you need"
        else:
            text = "" if value is None else json.dumps(freeze(value), ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    output = "\n".join(filter(None, (printed.rstrip("\n"), text)))
    dropped += max(len(output) - most, 0)
    cut = f"\n… {dropped:,} more characters are left out; print only what you need" if dropped else ""
    return output[:most] + cut


def _is_large(value: Any) -> bool:
    """Return True if the work on a value as JSON data would block the event loop."""
    left, size = [value], 0
    while left and size <= PROGRAM_VALUES:
        item = left.pop()
        size += 1 + (len(item) // 400 if isinstance(item, str) else 0)  # characters cost less than values
        size += PROGRAM_VALUES if isinstance(item, int) and item.bit_length() > 13_000 else 0  # of 4,000 digits
        left += item.values() if isinstance(item, dict) else ()
        left += item if isinstance(item, list | tuple | set | frozenset | dict) else ()
    return size > PROGRAM_VALUES
