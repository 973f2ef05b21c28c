"""Bounded YAML 1.2 reader of wick, and its writer: configs, front matter, suites of evals, cassettes and recordings.

    source = read(Path("agents.yaml"), os.environ)
    source.data["model"]
    raise source.error_at(("model",), "there is no such model")      agents.yaml, line 2: there is no such model

The result is JSON data with the line of each value. Size, depth and the number of values are bounded. Anchors,
aliases, tags and duplicate keys are refused. PyYAML reads version 1.1, in which `1:30` is 90, `010` is 8, `no` is
false and `2020-01-01` is a date. Here a number is written as in JSON (`0x1f` and `0o17` are numbers too), `true` and
`false` are the only booleans, `null` and `~` are null, and everything else is a text.

In a config file, `${NAME}` in a value is replaced by the environment variable, `${NAME:-default}` has a default for an
unset or empty one, and `$${` is a literal `${`. Scalars that YAML 1.1 and 1.2 read differently are refused.

Files of recorded replies have other limits and fewer forms of scalars (`RECORDING`): there `1e5` and `08` are texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import Any

from wick.constants import CONFIG_BYTES, RECORDING_DEPTH, RECORDING_VALUES, YAML_DEPTH, YAML_VALUES
from wick.errors import ConfigError

KeyPath = tuple[str | int, ...]  # the keys and indexes that lead to a value

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ScalarForms = tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...]
_FORMS: _ScalarForms = (
    (re.compile(r"(?:~|null|Null|NULL)?"), lambda _: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), float),
)
_RECORDED_FORMS: _ScalarForms = (  # those that PyYAML writes for data that is not text
    (re.compile(r"(?:~|null)?"), lambda _: None),
    (re.compile(r"true|false"), lambda text: text == "true"),
    (re.compile(r"-?(?:0|[1-9][0-9]*)"), int),
    (re.compile(r"-?[0-9]+\.[0-9]+(?:[eE][-+][0-9]+)?"), float),
)
_SWITCHES = frozenset(("yes", "no", "on", "off"))
_OCTAL = re.compile(r"[-+]?0[0-9]+")


@dataclass(frozen=True, slots=True)
class YamlDialect:
    """The limits of a document, and the forms of scalars that are not texts."""

    depth: int
    values: int
    forms: _ScalarForms = field(repr=False)


CONFIG = YamlDialect(YAML_DEPTH, YAML_VALUES, _FORMS)
RECORDING = YamlDialect(RECORDING_DEPTH, RECORDING_VALUES, _RECORDED_FORMS)


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
    return parse(read_text(path, CONFIG_BYTES), str(path), environment)


def read_text(path: Path, max_bytes: int, hint: str = "") -> str:
    """Return the text of a file in UTF-8; raise ConfigError if it cannot be read or is too long."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; create it, or give its path") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > max_bytes:
        raise ConfigError(f"{path} is longer than {max_bytes:,} bytes{hint}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigLineError(str(path), line, (), "this is not UTF-8; save the file in that encoding") from None


def parse(text: str, name: str, environment: Mapping[str, str]) -> YamlSource:
    """Parse the text of a config file; `name` is used in error messages."""
    data, lines = load_yaml(text, name, environment)
    if not isinstance(data, dict) or not data:
        raise ConfigLineError(
            name, 1, (), "there are no settings here; write for instance `model: auto`, or `agents:` and their names"
        )
    return YamlSource(name, data, lines)


def load_yaml(
    text: str, name: str, environment: Mapping[str, str] | None = None, dialect: YamlDialect = CONFIG
) -> tuple[Any, dict[KeyPath, int]]:
    """Return a YAML document as JSON data, and the line of each value; None for an empty document.

    Without an environment, variables are not expanded and scalars that YAML 1.1 reads differently are allowed.
    """
    text = text.removeprefix("\ufeff")
    if found := _NOT_PRINTABLE.search(text):
        line, column = text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())
        problem = f"the character U+{ord(found[0]):04X} is not allowed (column {column})"
        raise ConfigLineError(name, line, (), f"not valid YAML: {problem}")
    remedy = "write out the value" if environment is None else "put shared settings under `defaults:`"
    builder = _Builder(name, environment, iter(_list_events(text, name, remedy, dialect)), dialect.forms)
    return builder.build(next(builder.events, None), ()), builder.lines


def _list_events(text: str, name: str, remedy: str, dialect: YamlDialect) -> list[Any]:
    """Return the parser events of one document. The limits apply before any value is built."""
    import yaml

    # libyaml parses several times faster than PyYAML's own parser. A PyYAML built without it lacks CSafeLoader.
    events: Iterable[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    depth, found = 0, list[Any]()
    try:
        for number, event in enumerate(events):
            kind, wrong = type(event).__name__, ""
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
                wrong = f"anchors (&) and aliases (*) are not used here; {remedy}, or quote it"
            elif getattr(event, "tag", None) is not None:
                wrong = f"tags such as {event.tag!r} are not used here; quote the text if it begins with a `!`"
            elif depth > dialect.depth:
                wrong = f"this is nested more than {dialect.depth} levels deep"
            elif number > dialect.values:
                wrong = f"the file has more than {dialect.values:,} keys and values; remove some"
            elif kind == "DocumentStartEvent" and found:
                wrong = "not valid YAML: a second document starts here; write one document without a `---` inside"
            if wrong:
                raise ConfigLineError(name, event.start_mark.line + 1, (), wrong)
            if not kind.startswith(("Stream", "Document")):
                found.append(event)
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        reason = ", ".join(filter(None, (getattr(error, "context", ""), getattr(error, "problem", "")))) or str(error)
        line, where = (mark.line + 1, f" (column {mark.column + 1})") if mark else (1, "")
        raise ConfigLineError(name, line, (), f"not valid YAML: {' '.join(reason.split())}{where}") from None
    return found


@dataclass(slots=True)
class _Builder:
    """Converter from parser events to JSON data that records the line of each value."""

    name: str
    environment: Mapping[str, str] | None
    events: Iterator[Any]
    forms: _ScalarForms
    lines: dict[KeyPath, int] = field(default_factory=lambda: {(): 1})

    def build(self, event: Any, at: KeyPath) -> Any:
        """Return the value that starts with this event."""
        kind = type(event).__name__
        if kind == "MappingStartEvent":
            found: dict[str, Any] = {}
            while (kind := type(key := next(self.events)).__name__) != "MappingEndEvent":
                if kind != "ScalarEvent":
                    raise self._error_at(at, "a key is a text here, not a list or a map")
                place = (*at, key.value)
                if key.value in found:
                    first, self.lines[place] = self.lines[place], key.start_mark.line + 1
                    raise self._error_at(
                        place, f"the key {key.value[:60]!r} is repeated; it is in line {first} already"
                    )
                found[key.value] = self._build_at(key, next(self.events), place)
            return found
        if kind == "SequenceStartEvent":
            items: list[Any] = []
            while type(item := next(self.events)).__name__ != "SequenceEndEvent":
                items.append(self._build_at(item, item, (*at, len(items))))
            return items
        return None if event is None else self._build_scalar(event, at)

    def _build_at(self, mark: Any, event: Any, at: KeyPath) -> Any:
        self.lines[at] = mark.start_mark.line + 1
        return self.build(event, at)

    def _build_scalar(self, event: Any, at: KeyPath) -> Any:
        """Return the value of a scalar. Dates, and numbers that JSON lacks, stay strings."""
        text, is_plain = event.value, event.implicit[0]
        if is_plain and self.environment is not None:  # refuse a scalar that YAML 1.1 and 1.2 read differently
            if text.lower() in _SWITCHES:
                problem = f"{text} is a switch in one version of YAML and a text in another"
                raise self._error_at(at, f"{problem}; write true or false, or quote it")
            if _OCTAL.fullmatch(text):
                problem = f"{text} is octal in one version of YAML and decimal in another"
                raise self._error_at(at, f"{problem}; leave out the leading 0, or quote it")
        convert = next((convert for form, convert in self.forms if form.fullmatch(text)), None) if is_plain else None
        if convert is None:
            if self.environment is None or "${" not in text:
                return text
            expanded = _REFERENCE.sub(partial(self._expand_variable, self.environment, at), text)
            is_expanded = any(reference[0] != "$${" for reference in _REFERENCE.finditer(text))
            return ExpandedText(expanded) if is_expanded else expanded
        try:
            value = convert(text)
        except ValueError as error:
            raise self._error_at(at, f"this number cannot be read: {error}") from None
        return text if isinstance(value, float) and not isfinite(value) else value

    def _expand_variable(self, environment: Mapping[str, str], at: KeyPath, found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name = _NAME.fullmatch(found[1]) if found[2] else None
        if name is None:
            raise self._error_at(
                at, f"{found[0]!r} is not a variable; write ${{NAME}}, ${{NAME:-default}}, or $${{ for the signs"
            )
        value = environment.get(name[1])
        if name[2] is not None:
            return value or name[2]
        if value is None:
            raise self._error_at(
                at, f"the environment variable {name[1]} is not set; set it, or write ${{{name[1]}:-…}} with a default"
            )
        return value

    def _error_at(self, at: KeyPath, what: str) -> ConfigError:
        return YamlSource(self.name, {}, self.lines).error_at(at, what)


# -- writing --------------------------------------------------------------------------------------------------------

TextStyle = Callable[[str], str | None]  # the style of a scalar: None for plain, "|" for a block, or a quotation mark


def dump_yaml(data: Any, style: TextStyle, *, width: int, use_libyaml: bool = False) -> str:
    """Return data as YAML with keys in order and without aliases. libyaml is faster, but escapes emoji."""
    import yaml

    text: str = yaml.dump(
        data, Dumper=_build_dumper(style, use_libyaml), sort_keys=False, allow_unicode=True, width=width
    )
    return text


@cache
def _build_dumper(style: TextStyle, use_libyaml: bool) -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper) if use_libyaml else yaml.SafeDumper

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style(text))

    Dumper.add_representer(str, represent_text)
    return Dumper
