"""A YAML file as JSON data that knows on which line each part of it stands.

    source = read(Path("agents.yaml"), os.environ)
    source.data["model"]
    raise source.wrong(("model",), "there is no such model")      agents.yaml, line 2: there is no such model

It is bounded, refers to nothing inside of itself and makes no objects. `${NAME}` in a value is what the environment
says, `${NAME:-default}` has a text for when it says nothing, and `$${` is a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from wick._internal.yaml_core import BOOL, FLOAT, INT, NULL, ambiguity, loader
from wick.constants import CONFIG_BYTES, CONFIG_DEPTH, CONFIG_VALUES
from wick.errors import ConfigError

At = tuple[str | int, ...]  # where a value stands: the keys and numbers that lead to it

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_TYPED = {NULL, BOOL, INT, FLOAT}


class Filled(str):
    """A text that has something of the environment in it: it may be a secret, or a number that looks like a text."""

    __slots__ = ()


class WrongAt(ConfigError):
    """Something is wrong at a place of a file."""

    def __init__(self, name: str, line: int, at: At, what: str) -> None:
        super().__init__(f"{name}, line {line}: {what}")
        self.line, self.at, self.what = line, at, what


@dataclass(frozen=True, slots=True)
class Source:
    """What a file says, and where."""

    name: str
    data: dict[str, Any]
    lines: Mapping[At, int] = field(repr=False)

    def wrong(self, at: At, what: str) -> ConfigError:
        """An error that names the line on which something stands, or else that of what it stands in."""
        line = next(self.lines[at[:end]] for end in range(len(at), -1, -1) if at[:end] in self.lines)
        return WrongAt(self.name, line, at, what)


def read(path: Path, environment: Mapping[str, str]) -> Source:
    """The data of a file. A ConfigError says in a sentence what is wrong with it, and where."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; write one, or say where it is") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > CONFIG_BYTES:
        raise ConfigError(f"{path} is longer than {CONFIG_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: this is not UTF-8; save the file in that encoding") from None
    return parse(text, str(path), environment)


def parse(text: str, name: str, environment: Mapping[str, str]) -> Source:
    """The data of a text that stands in the file of that name."""
    import yaml

    try:
        _check(yaml.parse(text, Loader=loader()), name)
        reader = loader()(text)
        try:
            return _Reading(name, environment, reader).source(reader.get_single_node())
        finally:
            reader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}{_line(error)}: this is no YAML: {_problem(error)}") from None


def _check(events: Iterable[Any], name: str) -> None:
    """Refuse what could make much of little; before anything is built."""
    depth = 0
    for number, event in enumerate(events):
        kind, wrong = type(event).__name__, ""
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
            wrong = (
                "anchors (&) and aliases (*) are not used here; put what agents share under `defaults:`, or quote it"
            )
        elif getattr(event, "tag", None) is not None:
            wrong = f"tags such as {event.tag!r} are not used here; quote the text if it begins with a `!`"
        elif depth > CONFIG_DEPTH:
            wrong = f"this is nested more than {CONFIG_DEPTH} levels deep"
        elif number > CONFIG_VALUES:
            wrong = f"the file has more than {CONFIG_VALUES:,} keys and values; leave out what is not needed"
        if wrong:
            raise ConfigError(f"{name}, line {event.start_mark.line + 1}: {wrong}")


@dataclass(slots=True)
class _Reading:
    """Makes data of nodes, and remembers their lines."""

    name: str
    environment: Mapping[str, str]
    loader: Any
    lines: dict[At, int] = field(default_factory=lambda: {(): 1})

    def source(self, root: Any) -> Source:
        data = {} if root is None else self._value(root, ())
        if not isinstance(data, dict) or not data:
            raise self._wrong((), "there is nothing here; say for instance `model: auto`, or `agents:` and their names")
        return Source(self.name, data, self.lines)

    def _value(self, node: Any, at: At) -> Any:
        if node.id == "mapping":
            return self._mapping(node, at)
        if node.id == "sequence":
            return [self._placed(item, item, (*at, number)) for number, item in enumerate(node.value)]
        return self._scalar(node, at)

    def _placed(self, mark: Any, node: Any, at: At) -> Any:
        self.lines[at] = mark.start_mark.line + 1
        return self._value(node, at)

    def _mapping(self, node: Any, at: At) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            place = (*at, str(key.value))
            if key.id != "scalar":
                raise self._wrong(at, "a key is a text here, not a list or a map")
            if key.value in found:
                first, self.lines[place] = self.lines[place], key.start_mark.line + 1
                raise self._wrong(
                    place, f"the key {key.value!r} stands here a second time; it is in line {first} already"
                )
            found[key.value] = self._placed(key, value, place)
        return found

    def _scalar(self, node: Any, at: At) -> Any:
        """A number, a text and so on; a date, and a number that JSON does not know, as they are written."""
        if not node.style and (problem := ambiguity(node.value)):
            raise self._wrong(at, problem)
        if node.tag not in _TYPED:
            return self._filled(node.value, at)
        try:
            value = self.loader.construct_object(node)
        except (ValueError, OverflowError) as error:
            raise self._wrong(at, f"this number cannot be read: {error}") from None
        return node.value if isinstance(value, float) and not isfinite(value) else value

    def _filled(self, text: str, at: At) -> str:
        if "${" not in text:
            return text
        known = _REFERENCE.sub(lambda found: self._variable(found, at), text)
        return Filled(known) if any(found[0] != "$${" for found in _REFERENCE.finditer(text)) else known

    def _variable(self, found: re.Match[str], at: At) -> str:
        if found[0] == "$${":
            return "${"
        name = _NAME.fullmatch(found[1]) if found[2] else None
        if name is None:
            raise self._wrong(
                at, f"{found[0]!r} is no variable; say ${{NAME}}, ${{NAME:-default}}, or $${{ for the signs"
            )
        value = self.environment.get(name[1])
        if name[2] is not None:
            return value or name[2]
        if value is None:
            raise self._wrong(
                at, f"the environment variable {name[1]} is not set; set it, or say ${{{name[1]}:-…}} with a default"
            )
        return value

    def _wrong(self, at: At, what: str) -> ConfigError:
        return Source(self.name, {}, self.lines).wrong(at, what)


def _line(error: Any) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f", line {mark.line + 1}"


def _problem(error: Any) -> str:
    """What is wrong, without a picture of it."""
    if hasattr(error, "character"):
        return f"it has a character, number {error.position + 1}, that a text does not have"
    return " ".join(str(getattr(error, "problem", None) or error).split())
