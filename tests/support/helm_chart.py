"""A renderer for Helm charts that need no more than a part of Go's templates; any other construct is an error.

It has `if`, `else if`, `else`, `end`, pipes, and the functions in FUNCTIONS. Where `helm` is installed, a test compares
its output with that of `helm template`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema
import yaml

TAG = re.compile(r"(\{\{-|\{\{)\s*(.*?)\s*(-\}\}|\}\})", re.DOTALL)


def _as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda *numbers: sum(numbers),
    "dict": lambda *parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "list": lambda *parts: [*parts],
    "printf": lambda text, *parts: text % parts,
    "quote": lambda value: json.dumps(str(value)),
    "sha256sum": lambda text: sha256(text.encode()).hexdigest(),
    "toJson": _as_json,
}


def render_chart(folder: Path, values: Mapping[str, Any] | None = None, release: str = "wick") -> list[dict[str, Any]]:
    """Return the objects of a chart with the default values and others, after a check with its schema."""
    merged = _merge(yaml.safe_load((folder / "values.yaml").read_text()), values or {})
    jsonschema.validate(merged, json.loads((folder / "values.schema.json").read_text()))
    scope = {"Values": merged, "Release": {"Name": release}}
    texts = [_render(path.read_text(), scope) for path in sorted((folder / "templates").glob("*.yaml"))]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def _merge(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _render(text: str, scope: Mapping[str, Any]) -> str:
    output: list[str] = []
    branches: list[list[bool]] = []  # for each open `if`: whether a branch was taken, and whether this one is
    position = 0
    for tag in TAG.finditer(text):
        literal = text[position : tag.start()]
        if all(branch[1] for branch in branches):
            output.append(literal.rstrip() if tag[1] == "{{-" else literal)
        position = tag.end()
        if tag[3] == "-}}":
            position += len(text[position:]) - len(text[position:].lstrip())
        word, _, rest = tag[2].partition(" ")
        if word == "if":
            taken = bool(_evaluate(rest, scope))
            branches.append([taken, taken])
        elif word == "else":
            branch = branches[-1]
            branch[1] = not branch[0] and (rest == "" or bool(_evaluate(rest.removeprefix("if "), scope)))
            branch[0] = branch[0] or branch[1]
        elif word == "end":
            branches.pop()
        elif all(branch[1] for branch in branches):
            output.append(str(_evaluate(tag[2], scope)))
    assert not branches, "an `if` has no `end`"
    return "".join(output) + text[position:]


def _evaluate(pipeline: str, scope: Mapping[str, Any]) -> Any:
    """Return the value of a pipeline: `f a (g b) | h`. A piped value is the last argument."""
    value: list[Any] = []
    for command in re.split(r"\s+\|\s+", pipeline):
        parts = _split(command)
        if len(parts) == 1 and parts[0] not in FUNCTIONS:
            value = [_resolve(parts[0], scope)]
        else:
            value = [FUNCTIONS[parts[0]](*(_resolve(part, scope) for part in parts[1:]), *value)]
    return value[0]


def _split(command: str) -> list[str]:
    """Split a command into words; one in parentheses is one word."""
    begin, end = command.find("("), command.rfind(")") + 1
    if begin < 0:
        return shlex.split(command, posix=False)
    return [*_split(command[:begin]), command[begin:end], *_split(command[end:])]


def _resolve(word: str, scope: Mapping[str, Any]) -> Any:
    if word.startswith("("):
        return _evaluate(word[1:-1], scope)
    if word.startswith('"'):
        return json.loads(word)
    assert word.startswith("."), f"the renderer has no {word!r}"
    found: Any = scope
    for name in word[1:].split("."):
        found = found[name]
    return found
