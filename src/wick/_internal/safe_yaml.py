"""Parser for YAML config files: JSON data with the line number of each value.

    source = read(Path("agents.yaml"), os.environ)
    source.data["model"]
    raise source.error_at(("model",), "there is no such model")      agents.yaml, line 2: there is no such model

Size and depth are bounded, and anchors, aliases and tags are refused. `${NAME}` in a value is replaced by the
environment variable, `${NAME:-default}` has a default for an unset or empty one, and `$${` is a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from wick._internal.yaml_core import BOOL, FLOAT, INT, NULL, find_ambiguity, get_loader
from wick.constants import CONFIG_BYTES, CONFIG_DEPTH, CONFIG_VALUES
from wick.errors import ConfigError

KeyPath = tuple[str | int, ...]  # the keys and indexes that lead to a value

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_TYPED = {NULL, BOOL, INT, FLOAT}


class ExpandedText(str):
    """A string with environment variables expanded: possibly a secret, or a number in text form."""

    __slots__ = ()


class ConfigLineError(ConfigError):
    """An error in a config file, with its line and key path."""

    def __init__(self, name: str, line: int, at: KeyPath, what: str) -> None:
        super().__init__(f"{name}, line {line}: {what}")
        self.line, self.at, self.what = line, at, what


@dataclass(frozen=True, slots=True)
class YamlSource:
    """The data of a config file, with the line of each value."""

    name: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(repr=False)

    def error_at(self, at: KeyPath, what: str) -> ConfigError:
        """Return an error with the line of a value, or of its closest known parent."""
        line = next(self.lines[at[:end]] for end in range(len(at), -1, -1) if at[:end] in self.lines)
        return ConfigLineError(self.name, line, at, what)


def read(path: Path, environment: Mapping[str, str]) -> YamlSource:
    """Read and parse a file; raise ConfigError with the line of the problem."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; create it, or give its path") from None
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


def parse(text: str, name: str, environment: Mapping[str, str]) -> YamlSource:
    """Parse the text of a config file; `name` is used in error messages."""
    import yaml

    try:
        _check_events(yaml.parse(text, Loader=get_loader()), name)
        reader = get_loader()(text)
        try:
            return _NodeReader(name, environment, reader).read_source(reader.get_single_node())
        finally:
            reader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}{_format_line(error)}: this is no YAML: {_describe_error(error)}") from None


def _check_events(events: Iterable[Any], name: str) -> None:
    """Refuse aliases, tags and oversized input before any object is built, to prevent expansion attacks."""
    depth = 0
    for number, event in enumerate(events):
        kind, wrong = type(event).__name__, ""
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
            wrong = "anchors (&) and aliases (*) are not used here; put shared settings under `defaults:`, or quote it"
        elif getattr(event, "tag", None) is not None:
            wrong = f"tags such as {event.tag!r} are not used here; quote the text if it begins with a `!`"
        elif depth > CONFIG_DEPTH:
            wrong = f"this is nested more than {CONFIG_DEPTH} levels deep"
        elif number > CONFIG_VALUES:
            wrong = f"the file has more than {CONFIG_VALUES:,} keys and values; remove some"
        if wrong:
            raise ConfigError(f"{name}, line {event.start_mark.line + 1}: {wrong}")


@dataclass(slots=True)
class _NodeReader:
    """Converter from YAML nodes to JSON data that records their lines."""

    name: str
    environment: Mapping[str, str]
    yaml_loader: Any
    lines: dict[KeyPath, int] = field(default_factory=lambda: {(): 1})

    def read_source(self, root: Any) -> YamlSource:
        data = {} if root is None else self._read_value(root, ())
        if not isinstance(data, dict) or not data:
            raise self._error_at(
                (), "there are no settings here; write for instance `model: auto`, or `agents:` and their names"
            )
        return YamlSource(self.name, data, self.lines)

    def _read_value(self, node: Any, at: KeyPath) -> Any:
        if node.id == "mapping":
            return self._read_mapping(node, at)
        if node.id == "sequence":
            return [self._read_item(item, item, (*at, number)) for number, item in enumerate(node.value)]
        return self._read_scalar(node, at)

    def _read_item(self, mark: Any, node: Any, at: KeyPath) -> Any:
        self.lines[at] = mark.start_mark.line + 1
        return self._read_value(node, at)

    def _read_mapping(self, node: Any, at: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            place = (*at, str(key.value))
            if key.id != "scalar":
                raise self._error_at(at, "a key is a text here, not a list or a map")
            if key.value in found:
                first, self.lines[place] = self.lines[place], key.start_mark.line + 1
                raise self._error_at(place, f"the key {key.value!r} is repeated; it is in line {first} already")
            found[key.value] = self._read_item(key, value, place)
        return found

    def _read_scalar(self, node: Any, at: KeyPath) -> Any:
        """Return the value of a scalar. Dates, and numbers that JSON lacks, stay strings."""
        if not node.style and (problem := find_ambiguity(node.value)):
            raise self._error_at(at, problem)
        if node.tag not in _TYPED:
            return self._expand_variables(node.value, at)
        try:
            value = self.yaml_loader.construct_object(node)
        except (ValueError, OverflowError) as error:
            raise self._error_at(at, f"this number cannot be read: {error}") from None
        return node.value if isinstance(value, float) and not isfinite(value) else value

    def _expand_variables(self, text: str, at: KeyPath) -> str:
        if "${" not in text:
            return text
        known = _REFERENCE.sub(lambda found: self._expand_variable(found, at), text)
        return ExpandedText(known) if any(found[0] != "$${" for found in _REFERENCE.finditer(text)) else known

    def _expand_variable(self, found: re.Match[str], at: KeyPath) -> str:
        if found[0] == "$${":
            return "${"
        name = _NAME.fullmatch(found[1]) if found[2] else None
        if name is None:
            raise self._error_at(
                at, f"{found[0]!r} is not a variable; write ${{NAME}}, ${{NAME:-default}}, or $${{ for the signs"
            )
        value = self.environment.get(name[1])
        if name[2] is not None:
            return value or name[2]
        if value is None:
            raise self._error_at(
                at, f"the environment variable {name[1]} is not set; set it, or write ${{{name[1]}:-…}} with a default"
            )
        return value

    def _error_at(self, at: KeyPath, what: str) -> ConfigError:
        return YamlSource(self.name, {}, self.lines).error_at(at, what)


def _format_line(error: Any) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f", line {mark.line + 1}"


def _describe_error(error: Any) -> str:
    """Return the problem of a YAML error, without the source excerpt."""
    if hasattr(error, "character"):
        return f"it has a character, number {error.position + 1}, that a text does not have"
    return " ".join(str(getattr(error, "problem", None) or error).split())
